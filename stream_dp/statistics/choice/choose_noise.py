"""Choosing between a tree's noise and a Gaussian counter's, from the specification alone, before any data is touched.

Gaussian noise comes into question where the filter adds up what it costs and charges no delta for it. At the same
(epsilon, delta) alone it costs such a filter a small part of what a pure series costs: so it is taken where its typical
error is at most TOLERANCE more. This file knows no journal and no data.
"""

from collections.abc import Collection, Mapping
from fractions import Fraction

from stream_dp.accounting.conversions import pure_to_zcdp
from stream_dp.core.guarantee import PureDP
from stream_dp.statistics.choice.choice import (
    Choice,
    Setting,
    by_gaussian,
    gaussian_counter,
    largest_rho,
    tree_counter,
)
from stream_dp.statistics.choice.predicted_errors import counter_error
from stream_dp.statistics.choice.profiles import Profile

TREE, GAUSSIAN, GAUSSIAN_HSS = "tree", "gaussian", "hss gaussian"
TOLERANCE = 0.05  # what is cheaper may have so much more error


def gaussian_fits(setting: Setting) -> bool:
    """Return whether a Gaussian counter comes into question: not under GDP without a horizon."""
    return setting.by_rho and not (setting.gdp and setting.horizon is None)


def better_counter(setting: Setting, epsilon: Fraction, tree: Choice) -> Choice:
    """Choose the given tree or a Gaussian counter: by the typical error (RMSE) over the horizon."""
    if not gaussian_fits(setting):
        return tree
    profile = Profile.of(setting.width, setting.last + 1)
    counters = {
        GAUSSIAN: gaussian_counter(setting, epsilon),
        TREE: tree_counter(setting, epsilon),
    }
    errors = {form: (counter_error(one, setting, profile),) for form, one in counters.items()}
    form = least_regret(errors, (GAUSSIAN,))
    chosen = tree if form == TREE else by_gaussian(setting, epsilon)
    price = price_words(setting, epsilon, form, errors[form] == min(errors.values()))
    why = f"method: auto, typical error (RMSE): {shown(errors)}{price}"
    return Choice(chosen.mechanism, why, chosen.expected)


def least_regret(errors: Mapping[str, tuple[float, ...]], cheap: Collection[str] = ()) -> str:
    """Return the form whose error, over the smallest of all forms, is least for the worst profile.

    The first of those that are equal, to a hundredth: predictions are not better than that. Of the forms that are at
    most TOLERANCE worse than it, the best one that is `cheap`.

    Example:
        >>> least_regret({"safe": (10.0, 12.0), "bold": (9.0, 20.0)})
        'safe'
        >>> least_regret({"dear": (10.0,), "cheap": (10.4,)}, cheap=("cheap",))
        'cheap'
    """
    smallest = [min(found) for found in zip(*errors.values(), strict=True)]
    worst = {
        form: max(error / least for error, least in zip(found, smallest, strict=True))
        for form, found in errors.items()
    }
    enough = min(worst.values()) * (1 + TOLERANCE)
    affordable = [form for form in cheap if worst[form] <= enough]
    return min(affordable or errors, key=lambda form: round(worst[form], 2))


def shown(errors: Mapping[str, tuple[float, ...]]) -> str:
    """Return the errors of all forms, as `plan` shows them."""
    return ", ".join(
        f"{form} {' / '.join(f'{error:.1f}' for error in found)}" for form, found in errors.items()
    )


def price_words(setting: Setting, epsilon: Fraction, form: str, best: bool) -> str:
    """Return what is said of the filter's price where Gaussian noise was weighed; `best`: the form errs least."""
    pure = pure_to_zcdp(PureDP(epsilon * setting.steps)).rho
    parts = pure / (largest_rho(setting, epsilon, "method") * setting.steps**2)
    costs = f"costs this filter about 1/{round(parts)} of what a pure series does"
    if form not in (GAUSSIAN, GAUSSIAN_HSS):
        return f"; gaussian {costs}"
    return f"; {form} {costs}" if best else f"; {form} is at most {TOLERANCE:.0%} worse and {costs}"
