"""Typical errors (RMSE) of counters and of HSS, predicted from the specification alone: what `method: auto` compares.

Of a counter it is its noise, as it is drawn. An HSS is followed through its intervals, as many events as they hold on
average: public thresholds say when one closes, until then its events go by unseen, and the counter's noise of so many
updates is on top. What is published is not below 0, which halves the noise of an empty category. Rules: both use the
noise that mechanisms really draw; a profile says how events fall. This file knows no data and no state.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.hss.inner_counter import Counts
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.statistics.choice.choice import Setting
from stream_dp.statistics.choice.profiles import Floats, Profile

WATCHING = 2.6  # variance of where an interval closes, in squares of the scale of the sparse vector's noises
BY_CHANCE = (
    5 / 3
)  # the most it adds to the square of what is unseen, in squares of an interval that noise closes
SAMPLED = 90  # numbers of updates, or prefixes, that stand for all
LEAST = 1e-12
ROUNDING = 1 / 12  # the variance that rounding adds
ERF = np.vectorize(math.erf, otypes=[float])

AnyCounter: TypeAlias = Counter | HybridCounter | GaussianCounter


def counter_error(counter: AnyCounter, setting: Setting, profile: Profile) -> float:
    """Return the RMSE of the counter's published counts, over the horizon."""
    prefixes, noise = _counter_noise(counter, setting.last + 1)
    counts = profile.counts[:, None] * prefixes[None, :] / prefixes[-1]
    squares = _published(noise[None, :], counts).mean(axis=1)
    return math.sqrt(float(squares @ profile.weights) / setting.width)


def hss_error(mechanism: HSS | PerBinHSS, setting: Setting, profile: Profile) -> float:
    """Return the RMSE to expect of all columns, over the horizon."""
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
        found: Floats = np.maximum(np.maximum(close, rate), LEAST)
        return found

    def false_starts(self, time: Floats) -> Floats:
        """The mean chance that noise alone has closed the first interval, while it lasts for so much of the time.

        On average over the noise on the threshold it is exp(-gamma / scale) / 2 a tick.
        """
        chance = self.ticks * math.exp(-self.gammas[0] / self.scale) / 2
        expected = np.maximum(chance * time, LEAST)
        found: Floats = 1 + np.expm1(-expected) / expected
        return found


def _apart(course: Course, profile: Profile) -> Floats:
    """Squared errors of columns that have intervals of their own."""
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
    found: Floats = (time * (np.minimum(lag, there) + noise)).sum(axis=-1) + begun
    return found


def _published(noise: Floats, counts: Floats) -> Floats:
    """The mean squared error of max(0, count + noise), for normal noise of these variances."""
    deviation = np.sqrt(np.maximum(noise, LEAST))
    near = np.minimum(counts / deviation, 8.0)
    inside = (1 + ERF(near / math.sqrt(2))) / 2
    density = np.exp(-(near**2) / 2) / math.sqrt(2 * math.pi)
    found: Floats = noise * (inside - near * density) + (near * deviation) ** 2 * (1 - inside)
    return found


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
    updates = np.unique(np.append((0, 1), np.geomspace(1, ticks, SAMPLED).astype(np.int64) - 1))
    steps = np.append(np.diff(updates), 1).astype(np.float64)
    scale, counter, _ = mechanism.closing
    gammas = [mechanism.gamma(ticks, number) for number in updates.tolist()]
    noise = [_variance_after(counter, number) if number else 0.0 for number in updates.tolist()]
    return Course(ticks, float(scale), steps, np.array(gammas, dtype=np.float64), np.array(noise))
