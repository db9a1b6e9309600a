"""Choosing between Laplace and Gaussian noise for counts over windows, from the specification alone.

What is compared is the typical error (RMSE, over where a window may begin) of each window, by the geometric mean over
all of them, which the forests' shapes are chosen by too. This file knows no statistic and no data.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.windows.forest_shape import best_forest, mean_variance
from stream_dp.mechanisms.windows.gaussian_forest import GaussianForest
from stream_dp.mechanisms.windows.windows_and_ever import GaussianAndEver, ever_share
from stream_dp.statistics.choice.choice import Choice, Setting, largest_rho
from stream_dp.statistics.choice.choose_noise import GAUSSIAN, TREE, least_regret, price_words
from stream_dp.statistics.choice.predicted_errors import counter_error
from stream_dp.statistics.choice.profiles import Profile
from stream_dp.statistics.parts.windows import (
    EVER,
    forest_words,
    spans_of,
    views,
    window_choice,
    windowed,
)

PHASES = 64  # places where a window may begin that stand for all


def choose_windows(
    setting: Setting, epsilon: Fraction, declared: Sequence[str], method: str
) -> Choice:
    """Choose the forest that `method` names (tree: Laplace noise), or the better one (`auto`).

    Raises:
        NotDerivable: Gaussian noise, and no delta is granted or the filter adds up Gaussian DP; or the longest window
            of so many keys is more than a state may hold.
    """
    if method == GAUSSIAN:
        return gaussian_windows(setting, epsilon, declared)
    laplace = window_choice(setting, epsilon, declared)
    if method == TREE or not setting.by_rho or setting.gdp:
        return laplace
    forms = {GAUSSIAN: gaussian_windows(setting, epsilon, declared), TREE: laplace}
    each = {form: typical_errors(found.mechanism, setting) for form, found in forms.items()}
    means = {form: (math.prod(found) ** (1 / len(found)),) for form, found in each.items()}
    form = least_regret(means, (GAUSSIAN,))
    names = " / ".join(views(declared))
    shown = ", ".join(
        f"{one} {' / '.join(f'{error:.1f}' for error in found)}" for one, found in each.items()
    )
    price = price_words(setting, epsilon, form, means[form] == min(means.values()))
    why = f"method: auto, typical error (RMSE) of {names}: {shown}{price}"
    return forms[form].saying(why)


def gaussian_windows(setting: Setting, epsilon: Fraction, declared: Sequence[str]) -> Choice:
    """Choose the forest with Gaussian noise, which alone is (steps * epsilon, delta)-DP, as `gaussian_counter` is.

    Raises:
        NotDerivable: no delta is granted, or the filter adds up Gaussian DP.
    """
    if setting.gdp:
        raise NotDerivable(
            "method gaussian over windows is zCDP, which filter gdp does not add up: name filter zcdp, or leave method "
            "out"
        )
    rho, ticks = largest_rho(setting, epsilon, "method"), spans_of(setting, declared)
    share = ever_share(len(ticks)) if EVER in declared else Fraction(0)
    shape = best_forest(ticks, power=1)
    rows, neighbors, ones = setting.width, setting.neighbors, setting.ones
    forest = GaussianForest(rows, rho * (1 - share), neighbors, ticks, shape, ones)
    mechanism: GaussianForest | GaussianAndEver = forest
    if share:
        ever = GaussianCounter(rows, rho * share, neighbors, setting.horizon, ones)
        mechanism = GaussianAndEver(forest, ever)
    why = f"method: gaussian, {forest_words(shape, share, 'count', 'rho')}"
    return windowed(mechanism, setting, declared, why)


def typical_errors(mechanism: Any, setting: Setting) -> tuple[float, ...]:
    """Return the RMSE of each window, and of the count so far where it is shown, of one entry."""
    forest, ever = mechanism.forest, mechanism.ever
    nodes = [float(variance) for variance in forest.node_variances]
    errors = tuple(
        math.sqrt(mean_variance(forest.shape.arities, nodes, window, PHASES))
        for window in forest.windows
    )
    if ever is None:
        return errors
    return (*errors, counter_error(ever, setting, Profile.of(setting.width, setting.last + 1)))
