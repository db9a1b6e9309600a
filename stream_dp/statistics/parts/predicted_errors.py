"""Choosing between a tree's noise and a Gaussian counter's, from the specification alone, before any data is touched.

Gaussian noise comes into question where the filter adds up what it costs and charges no delta for it. At the same
(epsilon, delta) alone it costs such a filter a small part of what a pure series costs: so it is taken where its typical
error is at most TOLERANCE more. This file knows no journal and no data.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from stream_dp.accounting.conversions import pure_to_zcdp
from stream_dp.core.guarantee import PureDP
from stream_dp.mechanisms.hss.hss import HSS, Counts
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.statistics.parts.choice import (
    Choice,
    Floats,
    Profile,
    Setting,
    by_gaussian,
    gaussian_counter,
    largest_rho,
    tree_counter,
)

# Typical errors (RMSE) of counters and of HSS, predicted from the specification alone: what `method: auto` compares.
# That of a counter is its noise, as it is drawn. An HSS is followed through its intervals, as many events as they hold
# on average: public thresholds say when an interval closes, until then its events go by unseen, and the counter's noise
# of so many updates is on top. What is published is not below 0, which halves the noise of an empty category.

WATCHING = 2.6  # variance of where an interval closes, in squares of the scale of the sparse vector's noises
# the most that is added to the square of what is unseen, in squares of an interval closed by noise
BY_CHANCE = 5 / 3
SAMPLED = 90  # numbers of updates, or prefixes, that stand for all
LEAST = 1e-12
ROUNDING = 1 / 12  # the variance that rounding adds
ERF = np.vectorize(math.erf, otypes=[float])

AnyCounter: TypeAlias = Counter | HybridCounter | GaussianCounter


def counter_error(counter: AnyCounter, setting: Setting, profile: Profile) -> float:
    prefixes, noise = _counter_noise(counter, setting.last + 1)
    counts = profile.counts[:, None] * prefixes[None, :] / prefixes[-1]
    squares = _published(noise[None, :], counts).mean(axis=1)
    return math.sqrt(float(squares @ profile.weights) / setting.width)


def hss_error(mechanism: HSS | PerBinHSS, setting: Setting, profile: Profile) -> float:
    course = _course(mechanism, setting.last + 1)
    followed = _apart if mechanism.closing.apart else _together
    squares = followed(course, profile)
    return math.sqrt(float(squares @ profile.weights) / setting.width)


@dataclass(frozen=True, slots=True)
class Course:
    """An HSS after 0, 1, 2, ... updates, some of which stand for `steps` of them: all arrays of shape (updates,).

    `gammas`: the public thresholds; `noise`: the variance of the released counts; `scale`: that of the sparse
    vectors' noises.
    """

    ticks: int
    scale: float
    steps: Floats
    gammas: Floats
    noise: Floats

    def growth(self, rate: Floats) -> Floats:
        """How much what is watched has grown when an interval closes, where it grows by `rate` a tick.

        The chance to close in a tick is exp((growth - gamma - lift) / scale), so that its sum over ticks reaches 1 at
        growth = scale * ln(1 + rate / scale * exp((gamma + lift) / scale)), lift being the mean of the noise on the
        threshold; a tick is not split.
        """
        lift = 1 / math.expm1(1 / self.scale)
        steepness = np.log(np.maximum(rate, LEAST) / self.scale)
        close = self.scale * np.logaddexp(0, (self.gammas + lift) / self.scale + steepness)
        result: Floats = np.maximum(np.maximum(close, rate), LEAST)
        return result

    def false_starts(self, time: Floats) -> Floats:
        """The mean chance that noise alone has closed the first interval, while it lasts for so much of the time.

        On average over the noise on the threshold it is exp(-gamma / scale) / 2 a tick.
        """
        chance = self.ticks * math.exp(-self.gammas[0] / self.scale) / 2
        expected = np.maximum(chance * time, LEAST)
        result: Floats = 1 + np.expm1(-expected) / expected
        return result


def _apart(course: Course, profile: Profile) -> Floats:
    counts = np.maximum(profile.counts, LEAST)[:, None]
    length = course.growth(counts / course.ticks)
    return _squares(course, profile, counts, length, length, np.ones_like(counts))


def _together(course: Course, profile: Profile) -> Floats:
    """Squared errors of columns whose intervals close when the largest growth of them is enough.

    Which column grows most is chance where many are alike: one of k with count n has grown by about
    n + sqrt(2 ln(k) n).
    """
    events = max(profile.events, 1)
    shares = profile.counts[:, None] / events
    lengths = np.geomspace(1e-3, 10 * events + 10, 4 * SAMPLED)
    alone = shares * lengths
    largest = (alone + np.sqrt(2 * np.log(profile.ranks)[:, None] * alone)).max(axis=0)
    rate = np.full(len(course.gammas), profile.counts[0] / course.ticks)
    for _ in range(3):  # how fast the largest one grows depends on how long an interval is
        growth = course.growth(rate)
        length = np.interp(growth, largest, lengths)
        rate = events / course.ticks * growth / length
    return _squares(course, profile, np.array([[float(events)]]), length, growth, shares)


def _squares(
    course: Course, profile: Profile, whole: Floats, length: Floats, growth: Floats, share: Floats
) -> Floats:
    """Squared errors by rank: `whole` events in all, `length` of them an interval, `share` of them a column's.

    An interval closes when what is watched has grown by `growth`. It closes with a tick, or with a burst, whose events
    are then all seen.
    """
    burst = whole / min(profile.bursts or course.ticks, course.ticks)
    used = np.maximum(length, burst)
    ends = np.cumsum(used * course.steps, axis=-1)
    begins = ends - used * course.steps
    part = np.clip((whole - begins) / (used * course.steps), 0, 1)
    unseen = np.clip(np.minimum(length, whole - begins) - burst, 0, None)
    chance = np.minimum(WATCHING * course.scale**2, BY_CHANCE * growth**2)
    closing = (share * unseen / growth) ** 2 * chance * (whole - begins >= length)
    lag = (share * unseen) ** 2 / 3 + (1 - share) * share * unseen / 2 + closing
    time = used * course.steps * part / whole
    first, last = np.minimum(1, begins / whole), np.minimum(1, begins / whole + time)
    counts = profile.counts[:, None]
    there = counts**2 * (first**2 + first * last + last**2) / 3  # no more goes unseen than there is
    noise = _published(course.noise, counts * (first + last) / 2)
    begun = time[..., 0] * course.false_starts(time[..., 0]) * noise[..., 1]
    result: Floats = (time * (np.minimum(lag, there) + noise)).sum(axis=-1) + begun
    return result


def _published(noise: Floats, counts: Floats) -> Floats:
    """The mean squared error of max(0, count + noise), for normal noise of these variances."""
    deviation = np.sqrt(np.maximum(noise, LEAST))
    near = np.minimum(counts / deviation, 8.0)
    inside = (1 + ERF(near / math.sqrt(2))) / 2
    density = np.exp(-(near**2) / 2) / math.sqrt(2 * math.pi)
    result: Floats = noise * (inside - near * density) + (near * deviation) ** 2 * (1 - inside)
    return result


@lru_cache(maxsize=32)
def _counter_noise(counter: AnyCounter, last: int) -> tuple[Floats, Floats]:
    """Some prefixes of `last` ticks, and the variance of the counter's noise after each."""
    prefixes = sorted({max(1, round(last * (i + 1) / SAMPLED)) for i in range(SAMPLED)})
    noise = [_variance_after(counter, prefix) for prefix in prefixes]
    return np.array(prefixes, dtype=np.float64), np.array(noise)


def _variance_after(counter: Counts, updates: int) -> float:
    law = counter.noise(updates)
    return law.spread + (ROUNDING if law.variance else 0.0)


@lru_cache(maxsize=32)
def _course(mechanism: HSS | PerBinHSS, ticks: int) -> Course:
    """The course of an HSS over so many ticks, at most one update each."""
    spread = np.geomspace(1, ticks, SAMPLED).astype(np.int64) - 1
    updates = np.array(sorted({0, 1, *spread.tolist()}))
    steps = np.append(np.diff(updates), 1).astype(np.float64)
    scale, counter, _ = mechanism.closing
    gammas = [mechanism.gamma(ticks, number) for number in updates.tolist()]
    noise = [_variance_after(counter, number) if number else 0.0 for number in updates.tolist()]
    return Course(ticks, float(scale), steps, np.array(gammas, dtype=np.float64), np.array(noise))


TREE, GAUSSIAN, GAUSSIAN_HSS = "tree", "gaussian", "hss gaussian"
TOLERANCE = 0.05  # what is cheaper may have so much more error


def gaussian_fits(setting: Setting) -> bool:
    """Whether a Gaussian counter comes into question: not under GDP without a horizon."""
    return setting.by_rho and not (setting.gdp and setting.horizon is None)


def better_counter(setting: Setting, epsilon: Fraction, tree: Choice) -> Choice:
    if not gaussian_fits(setting):
        return tree
    profile = Profile.of(setting.width, setting.last + 1)
    counters = {GAUSSIAN: gaussian_counter(setting, epsilon), TREE: tree_counter(setting, epsilon)}
    errors = {form: (counter_error(item, setting, profile),) for form, item in counters.items()}
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
    worst = regrets(errors)
    enough = min(worst.values()) * (1 + TOLERANCE)
    affordable = [form for form in cheap if worst[form] <= enough]
    return min(affordable or errors, key=lambda form: round(worst[form], 2))


def regrets(errors: Mapping[str, tuple[float, ...]]) -> dict[str, float]:
    """Return by form its error over the smallest of all forms, for the profile where that is most."""
    smallest = [min(of_profile) for of_profile in zip(*errors.values(), strict=True)]
    return {
        form: max(error / least for error, least in zip(own, smallest, strict=True))
        for form, own in errors.items()
    }


def shown(errors: Mapping[str, tuple[float, ...]]) -> str:
    return ", ".join(
        f"{form} {' / '.join(f'{error:.1f}' for error in own)}" for form, own in errors.items()
    )


def price_words(setting: Setting, epsilon: Fraction, form: str, best: bool) -> str:
    """Return what is said of the filter's price where Gaussian noise was weighed; `best`: the form errs least."""
    pure = pure_to_zcdp(PureDP(epsilon * setting.steps)).rho
    parts = pure / (largest_rho(setting, epsilon, "method gaussian") * setting.steps**2)
    costs = f"costs this filter about 1/{round(parts)} of what a pure series does"
    if form not in (GAUSSIAN, GAUSSIAN_HSS):
        return f"; gaussian {costs}"
    return f"; {form} {costs}" if best else f"; {form} is at most {TOLERANCE:.0%} worse and {costs}"
