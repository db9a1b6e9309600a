"""How much noise a block of watches has; error bands and chances of false alarms follow from it.

Rules: all results are public: they follow from the two shares, from what one event changes, and from the number of
comparisons. Chances are exact up to a thousandth, and never too small. This file draws nothing.
"""

import math
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import UsageError
from stream_dp.mechanisms.noise_quantiles import laplace_quantile
from stream_dp.mechanisms.serving import CountRows, Deciding
from stream_dp.mechanisms.watches.monitor_state import TICK, WINDOW, MonitorState, WatchTerms

# A watch compares at each tick. It fires where a fresh geometric draw is at least the margin (the distance of its count
# to the threshold) plus the geometric draw on the threshold.

STEPS = 1 << 10  # steps into which a scale is divided for a draw on the threshold
FAR = 40  # scales: beyond them lies less than e^-40
WIDEST = 1 << 40  # the largest scale drawn: `noise.samplers.MAX_SCALE`, which loads the cipher


def exceeding(margin: int, scale: Fraction) -> float:
    """Return P[nu >= margin + tau] of two geometric draws; it equals P[nu >= margin] of one discrete Laplace draw."""
    decay = math.exp(-1 / float(scale))
    if margin < 0:
        return 1 - decay ** (1 - margin) / (1 + decay)
    return decay**margin / (1 + decay)


@lru_cache(maxsize=1024)
def crossing_chance(margin: int, scale: Fraction, comparisons: int) -> float:
    """Return P[one of `comparisons` fresh draws is >= margin + tau], tau drawn once; all geometric of this scale.

    It is the sum over tau of P[tau] * (1 - (1 - a^(margin + tau))^n), a = exp(-1/scale), n = `comparisons`, in steps of
    a thousandth of the scale, each evaluated at its near end.
    """
    rate = 1 / float(scale)
    step = max(1, math.ceil(float(scale) / STEPS))
    lifts = np.arange(0, math.ceil(FAR * float(scale)) + step, step, dtype=np.float64)
    exponent = -np.maximum(lifts + margin, 0) * rate
    with np.errstate(divide="ignore"):
        fires = -np.expm1(comparisons * np.log1p(-np.exp(exponent)))
    chance = np.exp(-lifts * rate) * -math.expm1(-step * rate)
    beyond = math.exp(-float(lifts[-1] + step) * rate)
    return min(1.0, float(chance @ fires) + beyond * float(fires[-1]))


def require_drawable(*scales: Fraction) -> None:
    if (widest := max(scales)) > WIDEST:
        raise UsageError(
            f"noise of scale {float(widest):.3g} is too wide for 64 bits. Give more epsilon, or "
            "let one event count in fewer entries"
        )


class WatchNoise(CountRows, Deciding):
    """The scales of a block of watches, and the bands that they give."""

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    ones: int

    @property
    def value_epsilon(self) -> Fraction:
        """The price of counts that are released at crossings; 0 where none are."""
        return Fraction(0)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(PureDP(self.epsilon + self.value_epsilon), self.neighbors)

    @cached_property
    def l0(self) -> int:
        """How many armed places one event can change."""
        return self.neighbors.l0(self.width, self.ones)

    @property
    def changed(self) -> int:
        """The l1 norm of what one event changes over all its places; for counts 1 in each."""
        return self.l0

    @cached_property
    def scale(self) -> Fraction:
        """Scale of both geometric noises of a watch since its last crossing."""
        return self.changed / self.epsilon

    @cached_property
    def tick_scale(self) -> Fraction:
        """Scale of the discrete Laplace noise on a tick's count."""
        return self.changed / (self.epsilon + self.value_epsilon)

    @cached_property
    def value_scale(self) -> Fraction:
        """The same on a count that is released at a crossing; a watch over a window has `window_value_scale`."""
        return self.changed / self.value_epsilon

    @cached_property
    def window_epsilon(self) -> Fraction:
        """The epsilon of each of the two noises of a watch over a window: half of all, or less if counts need more."""
        return min(self.epsilon, (self.epsilon + self.value_epsilon) / 2)

    @cached_property
    def window_scale(self) -> Fraction:
        return self.changed / self.window_epsilon

    @cached_property
    def window_value_scale(self) -> Fraction:
        return self.changed / (self.epsilon + self.value_epsilon - self.window_epsilon)

    def band(self, public: tuple[int, bool], confidence: float) -> int:
        """Return by how many events one watch may fire too early or too late, after the comparisons in `public`.

        A watch fires too early only if one of at most that many draws is large, and too late only if the draw on its
        threshold is. The noise of a single tick's count is smaller.
        """
        comparisons, windows = public
        return _band(self.window_scale if windows else self.scale, comparisons, confidence)

    def band_of(self, watch: WatchTerms, comparisons: int, confidence: float) -> int:
        if watch.tick:
            return _tick_band(self.tick_scale, confidence)
        return _band(self.compared_at(watch), comparisons, confidence)

    def ask_band(self, place: int, updates: int, state: MonitorState, confidence: float) -> int:
        """Return B: an answer to a threshold is right up to B events with `confidence`; from public values alone.

        A yes says that at least `threshold - B` events counted, a no that fewer than `threshold + B` did, at this cut
        after `updates` rows; `state` is the state before the answer. For watches since a firing: a yes is wrong beyond
        B only if the draw of this comparison exceeds B, a no only if the draw on the threshold does. That draw is one
        of at most as many as there were comparisons, whatever thresholds were chosen after it. With n comparisons, this
        one included, these are n + 1 draws with P[draw > B] <= exp(-B / scale) each: `band`. For single ticks all
        answers are computed from one noisy count.
        """
        mode = int(state.mode[place])
        if mode & TICK:
            return _tick_band(self.tick_scale, confidence)
        scale = self.window_scale if mode & WINDOW else self.scale
        return _band(scale, updates + state.asked + 1, confidence)

    def value_band(self, confidence: float) -> int:
        """Return the half-width that holds with `confidence` for a released count; other counts have less noise."""
        return laplace_quantile(((self.value_scale, 1),), 1 - confidence)

    def false_alarm(self, watch: WatchTerms, usual: int, comparisons: int) -> float:
        """Return a bound on the chance that a watch with count `usual` fires in one place in `comparisons` ticks.

        It holds for any such ticks in the watch's life: it is computed for an instance that begins with them, whose
        noisy threshold is then smallest.
        """
        margin = usual - (watch.threshold - 1) if watch.below else watch.threshold - usual
        if watch.tick:
            once = exceeding(margin, self.tick_scale)
            return 1.0 if once >= 1 else -math.expm1(comparisons * math.log1p(-once))
        return crossing_chance(margin, self.compared_at(watch), comparisons)

    def enough_margin(self, watch: WatchTerms, comparisons: int, chance: float) -> int:
        """Return how far from its threshold a count must be so that a false alarm has at most this chance.

        By a union bound over the draws of `comparisons` comparisons.
        """
        scale = float(self.compared_at(watch))
        draws = comparisons / chance / (1 + math.exp(-1 / scale))
        return max(0, math.ceil(scale * math.log(draws)))

    def compared_at(self, watch: WatchTerms) -> Fraction:
        if watch.tick:
            return self.tick_scale
        return self.window_scale if watch.window else self.scale


def _band(scale: Fraction, comparisons: int, confidence: float) -> int:
    return math.ceil(float(scale) * math.log((comparisons + 1) / (1 - confidence)))


@lru_cache(maxsize=64)
def _tick_band(scale: Fraction, confidence: float) -> int:
    return laplace_quantile(((scale, 1),), 1 - confidence)
