"""State of a block of watches, by place, and its noise: error bands and chances of false alarms follow from that.

A state says which watch runs there, its count, its window and its noise.

Rules: states are values. A place's mode and threshold are public, because they follow from the definition, messages and
answers. A window holds no row from before its instance began, so an event is in the count of one instance only. The
number of its rows is public, because the instance began with a released answer. This file draws nothing.

Rules of the noise: all results are public, because they follow from the two shares, from what one event changes, and
from the number of comparisons. Chances are exact up to a thousandth, and never too small.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np

from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Query
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.errors import RejectedMessage, UsageError
from stream_dp.mechanisms.linear.noisy_forest import Ring, pushed, row_back
from stream_dp.mechanisms.noise_quantiles import laplace_quantile
from stream_dp.mechanisms.serving import CountRows, Deciding

LARGEST_THRESHOLD = 10**15


@wire("watch", 1)
@dataclass(frozen=True, slots=True)
class WatchTerms:
    """Has the count in a place reached `threshold`? With `below`: does the count lie under it? All terms are public.

    The count is of the events since the watch began or last crossed, or of those in the last `window` rows, or of
    those in one `tick`. A `below` watch over a window is compared once the window is whole. A watch without `rearm`
    ends with its first crossing. The terms hold for each of `places` places separately.

    Raises:
        UsageError: no place, a threshold outside 1 to 10^15, or of `below` outside -10^15 to 10^15; a window of
            single ticks or of less than one row, or `below` without `tick` or window: every count begins below.
    """

    threshold: int
    places: int = 1
    tick: bool = False
    below: bool = False
    rearm: bool = True
    window: int = 0

    def __post_init__(self) -> None:
        if self.places < 1:
            raise UsageError(f"a watch needs at least one place, got {self.places}")
        if not is_threshold(self.threshold, negative=self.below):
            raise UsageError(
                f"the threshold of a watch must be an integer {thresholds(negative=self.below)}"
            )
        if self.window < 0 or (self.window and self.tick):
            raise UsageError(
                "a watch over a window needs at least one row, and cannot look at single ticks as "
                "well"
            )
        if self.below and not (self.tick or self.window):
            raise UsageError(
                "a watch with `below` needs single ticks or a window: a count since the last "
                "crossing starts below every threshold"
            )


def is_threshold(value: object, *, negative: bool) -> bool:
    lowest = -LARGEST_THRESHOLD if negative else 1
    return type(value) is int and lowest <= value <= LARGEST_THRESHOLD


def thresholds(*, negative: bool) -> str:
    return f"from {'-10^15' if negative else '1'} to 10^15"


@dataclass(frozen=True, slots=True, eq=False)
class LevelsQuery(Query):
    """Compare every place with its own level; `levels` has shape (width,)."""

    levels: IntArray = field(kw_only=True)

    def __eq__(self, other: object) -> bool:
        # the inherited comparison looks at the threshold alone
        return isinstance(other, LevelsQuery) and np.array_equal(self.levels, other.levels)

    def __hash__(self) -> int:
        return hash(self.levels.tobytes())


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdQuery(Query):
    """Compare the armed watch in `place` with `threshold` once, now; a crossing counts as at the end of a tick."""

    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmQuery(Query):
    """Begin `watch` in the free places from `place` on."""

    place: int
    watch: WatchTerms


@dataclass(frozen=True, slots=True, kw_only=True)
class DisarmQuery(Query):
    """End the watches in the `places` places from `place` on."""

    place: int
    places: int = 1


ARMED, TICK, BELOW, ONCE, HEARD, WINDOW = 1, 2, 4, 8, 16, 32  # bits of a mode; 0: free place
MOST_HELD = 400_000  # numbers in windows: a snapshot of them takes 3 MB


@wire("watch-window", 1)
@dataclass(frozen=True, slots=True, repr=False)
class WatchWindow:
    """The places from `place` on whose watches count the last `window` rows, which are private.

    `age`: the number of rows that each live instance has seen, at most window + 1; public, shape (places,).
    """

    place: int
    window: int
    age: IntArray
    rows: Ring = ()

    @property
    def places(self) -> slice:
        return slice(self.place, self.place + len(self.age))

    def taken(self, row: IntArray) -> tuple["WatchWindow", IntArray]:
        """Return the window with one more row of its places, and the row that left it (0 where nothing left)."""
        rows = pushed(self.rows, row, self.window + 1)
        age = np.minimum(self.age + 1, self.window + 1)
        gone = age > self.window
        left = np.where(gone, row_back(rows, self.window), 0) if gone.any() else np.zeros_like(row)
        return replace(self, age=age, rows=rows), left

    def without(self, first: int, past: int) -> tuple["WatchWindow", ...]:
        """Return the windows that remain when the places from `first` to `past` - 1 are freed."""
        begin, end = self.places.start, self.places.stop
        parts = ((begin, min(end, first)), (max(begin, past), end))
        return tuple(self._part(a, b) for a, b in parts if a < b)

    def _part(self, first: int, past: int) -> "WatchWindow":
        at = slice(first - self.place, past - self.place)
        rows = tuple(block[:, at] for block in self.rows)
        return WatchWindow(first, self.window, self.age[at], rows)


Windows: TypeAlias = tuple[WatchWindow, ...]


@wire("monitor-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class MonitorState:
    """Arrays of shape (width,), one entry per place; `threshold`, `mode` and `asked` are public, the others private.

    `count`: exact events since the last crossing; for a watch over a window only those of its last rows, for a watch of
    single ticks only those of the open tick. `lift`: noise on the threshold. `heard`: for watches of single ticks, the
    noisy count of the last tick. `asked`: number of thresholds queried so far. `windows`: the rows of watches over
    windows.
    """

    count: IntArray
    lift: IntArray
    heard: IntArray
    threshold: IntArray
    mode: IntArray
    asked: int = 0
    windows: Windows = ()

    @classmethod
    def begun(cls, width: int, watches: Sequence[WatchTerms]) -> "MonitorState":
        """Return the state of watches side by side, without noise (RejectedMessage: their windows would hold too many
        rows).
        """
        zeros, at = np.zeros(width, dtype=np.int64), 0
        threshold, mode, windows = zeros.copy(), zeros.copy(), list[WatchWindow]()
        for watch in watches:
            places = slice(at, at + watch.places)
            threshold[places], mode[places] = watch.threshold, _mode(watch)
            for window in _windows(watch, at):
                # watches side by side with one window length share an array: a tick then costs as much as one watch
                if windows and (windows[-1].window, windows[-1].places.stop) == (watch.window, at):
                    together = np.concatenate([windows[-1].age, window.age])
                    windows[-1] = replace(windows[-1], age=together)
                else:
                    windows.append(window)
            at += watch.places
        return cls(zeros, zeros, zeros, threshold, mode, windows=_held(windows))

    @property
    def since(self) -> IntArray:
        return np.flatnonzero(self.mode & (ARMED | TICK | WINDOW) == ARMED)

    @property
    def ticks(self) -> IntArray:
        return np.flatnonzero(self.mode & TICK)

    @property
    def windowed(self) -> IntArray:
        """The places whose watches over windows are compared now; a `below` watch needs a whole window."""
        if not self.windows:
            return np.zeros(0, dtype=np.int64)
        ready = (self.mode & BELOW == 0) | (self.whole_windows != 0)
        return np.flatnonzero((self.mode & WINDOW != 0) & ready)

    @property
    def whole_windows(self) -> IntArray:
        """1 for each place whose instance has seen a whole window, else 0."""
        whole = np.zeros_like(self.mode)
        for window in self.windows:
            whole[window.places] = window.age >= window.window
        return whole

    def counted(self, row: IntArray) -> "MonitorState":
        """Return the state with one more row: a free place counts nothing, and a full window loses its oldest row."""
        row = np.where(self.mode, row, 0)
        count, windows = self.count + row, list[WatchWindow]()
        for window in self.windows:
            after, left = window.taken(row[window.places])
            count[window.places] -= left
            windows.append(after)
        return replace(self, count=count, windows=tuple(windows))

    def armed(self, watch: WatchTerms, first: int) -> "MonitorState":
        """Return the state with a watch that begins at count 0, without noise on its threshold."""
        places = slice(first, first + watch.places)
        if self.mode[places].any():
            raise RejectedMessage("a watch already runs in this place; disarm it first")
        state = self.disarmed(first, watch.places)  # an ended watch leaves its window
        threshold = self.threshold.copy()
        threshold[places], state.mode[places] = watch.threshold, _mode(watch)
        windows = _held([*state.windows, *_windows(watch, first)])
        return replace(state, threshold=threshold, windows=windows)

    def disarmed(self, first: int, places: int) -> "MonitorState":
        past = first + places
        count, mode = self.count.copy(), self.mode.copy()
        count[first:past] = mode[first:past] = 0
        windows = tuple(part for window in self.windows for part in window.without(first, past))
        return replace(self, count=count, mode=mode, windows=windows)

    def crossed(self, fired: IntArray) -> "MonitorState":
        """Return the state after these places fired: counts are forgotten, and watches that fire once have ended."""
        count, mode = self.count.copy(), self.mode.copy()
        count[(fired != 0) & (mode & TICK == 0)] = 0
        mode[(fired != 0) & (mode & ONCE != 0)] = 0
        windows = [replace(w, age=np.where(fired[w.places], 0, w.age)) for w in self.windows]
        return replace(self, count=count, mode=mode, windows=tuple(windows))


@wire("alerts-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class AlertsState:
    """Counts and threshold noises, shape (width,), private, of watches since their last crossing in every place."""

    count: IntArray
    lift: IntArray


@wire("count-watchers-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class WatchersState(AlertsState):
    """Counts and threshold noises of watches whose thresholds come with each query."""


def _mode(watch: WatchTerms) -> int:
    kind = TICK * watch.tick | WINDOW * (watch.window > 0)
    return ARMED | kind | BELOW * watch.below | ONCE * (not watch.rearm)


def _windows(watch: WatchTerms, first: int) -> Windows:
    if not watch.window:
        return ()
    return (WatchWindow(first, watch.window, np.zeros(watch.places, dtype=np.int64)),)


def _held(windows: Sequence[WatchWindow]) -> Windows:
    """Return the windows, or raise RejectedMessage where a state cannot hold all their rows."""
    if (held := sum(window.window * len(window.age) for window in windows)) > MOST_HELD:
        raise RejectedMessage(
            f"the windows of these watches would hold {held:,} numbers, more than {MOST_HELD:,}. "
            "Use shorter windows, fewer keys, or a longer clock step"
        )
    return tuple(windows)


# A watch compares at each tick. It fires where a fresh geometric draw is at least the margin (the distance of its count
# to the threshold) plus the geometric draw on the threshold.

STEPS = 1 << 10  # steps into which a scale is divided for a draw on the threshold
FAR = 40  # scales: beyond them lies less than e^-40
WIDEST = 1 << 40  # the largest scale drawn: `noise.stream.MAX_SCALE`, which loads the cipher


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
