"""How a block of watches works, for all rows: it counts, fires, answers queries, arms and disarms.

A watch over the events since its last crossing is a count sparse vector: until it halts, one event shifts every
comparison by the same +1, for any public thresholds and any number of comparisons in one tick. A watch over a
window is a sparse vector too, but an event leaves the window again: it shifts comparisons while it is in the
window, and nothing after that. In a watch of single ticks an event would shift one comparison only. There each
tick's count gets its own discrete Laplace noise, and every question about that tick is answered from that one noisy
count.

Rules: an instance that crosses takes its whole tick with it. The next instance, also over a window, starts from
zero with the next tick and with a newly drawn noisy threshold. A free place counts nothing. A count that is
released at a crossing has its own noise, never that of the comparison. `kinds` has the prices. This file knows no
names, filters or keys.
"""

from collections.abc import Hashable
from dataclasses import replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query
from stream_dp.errors import RejectedMessage, UsageError
from stream_dp.mechanisms.watches.false_alarms import exceeding, require_drawable
from stream_dp.mechanisms.watches.monitor_state import (
    ARMED,
    BELOW,
    HEARD,
    TICK,
    WINDOW,
    AlertsState,
    MonitorState,
)
from stream_dp.mechanisms.watches.watch_messages import (
    ArmQuery,
    DisarmQuery,
    ThresholdQuery,
    WatchTerms,
    is_threshold,
    thresholds,
)
from stream_dp.mechanisms.watches.watch_noise import WatchNoise


class WatchLaw(WatchNoise):
    """How watches are compared at the end of a tick, and how they continue after a crossing."""

    def short_of(self, threshold: int) -> tuple[int, int]:
        """Return counts one event short of the threshold, for two places: the odds of a firing are a : 1 and 1 : a."""
        first = max(0, threshold - self.rows.weight)
        return first, first if self.l0 > 1 else 0

    def _compared(self, state: MonitorState, noise: Noise) -> tuple[MonitorState, IntArray]:
        """Return the state after the end of a tick, with every armed watch compared, and which places fired."""
        since, tick, window = state.since, state.ticks, state.windowed
        fired = np.zeros(self.width, dtype=np.int64)
        # same as `_crosses` in half the time: none of these watches fires below
        lifted = state.count[since] + noise.geometric(self.scale, len(since))
        fired[since] = lifted >= state.threshold[since] + state.lift[since]
        heard, mode, count = state.heard, state.mode, state.count
        if len(tick):
            heard, mode, count = heard.copy(), mode.copy(), count.copy()
            heard[tick] = count[tick] + noise.laplace(self.tick_scale, len(tick))
            fired[tick] = _judged(heard[tick], state.threshold[tick], mode[tick])
            mode[tick] |= HEARD
            count[tick] = 0
        if len(window):
            levels, wide = state.threshold[window], self.window_scale
            fired[window] = _crosses(state, window, levels, wide, noise)
        ended = replace(state, count=count, heard=heard, mode=mode)
        return self._after(ended, fired, noise)

    def _after(
        self, state: MonitorState, fired: IntArray, noise: Noise
    ) -> tuple[MonitorState, IntArray]:
        """Return the state and the answer after a tick; watches that fired release their count, then restart or
        end.

        `fired` has shape (width,).
        """
        if not fired.any():
            return state, self._answer(fired, fired)
        counts = self._noisy_counts(state, fired, noise) if self.value_epsilon else fired
        after = state.crossed(fired)
        lift = self._lifted(after, np.flatnonzero(fired), noise)
        return replace(after, lift=lift), self._answer(fired, counts)

    def _noisy_counts(self, state: MonitorState, fired: IntArray, noise: Noise) -> IntArray:
        """Return the noisy counts of the places that fired: for ticks from `heard`, for others with fresh noise."""
        counts = np.where(fired, state.heard, 0)
        for places, scale in (
            (np.flatnonzero(fired & (state.mode & (TICK | WINDOW) == 0)), self.value_scale),
            (np.flatnonzero(fired & (state.mode & WINDOW != 0)), self.window_value_scale),
        ):
            if len(places):
                counts[places] = state.count[places] + noise.laplace(scale, len(places))
        return counts

    def _answer(self, fired: IntArray, counts: IntArray) -> IntArray:
        return np.concatenate([fired, counts]) if self.value_epsilon else fired

    def _lifted(self, state: MonitorState, places: IntArray, noise: Noise) -> IntArray:
        """Return the threshold noises, drawn anew for those of these places where a running watch needs one."""
        lift, mode = state.lift.copy(), state.mode[places]
        since = places[mode & (ARMED | TICK | WINDOW) == ARMED]
        lift[since] = noise.geometric(self.scale, len(since))
        window = places[mode & WINDOW != 0]
        if len(window):
            lift[window] = noise.geometric(self.window_scale, len(window))
        return lift


class WatchBlock(WatchLaw):
    """A block of watches. `watches` are armed first, from place 0 on; others can be armed in free places later."""

    watches: tuple[WatchTerms, ...]

    @property
    def signed(self) -> bool:
        """Whether sums, and so queried thresholds, may be below 0; counts may not."""
        return False

    def require_room(self) -> None:
        """Raise UsageError where the watches do not fit into the places or a state, or noise cannot be drawn."""
        wanted = sum(watch.places for watch in self.watches)
        if wanted > self.width:
            raise UsageError(f"these watches need {wanted} places, and there are {self.width}")
        values = (self.value_scale,) if self.value_epsilon else ()
        require_drawable(self.scale, self.window_scale, *values)
        try:
            MonitorState.begun(self.width, self.watches)
        except RejectedMessage as refused:
            raise UsageError(str(refused)) from None

    def opening(self) -> tuple[int, int]:
        """Return an event count just short of the first threshold."""
        return self.short_of(self.watches[0].threshold) if self.watches else (0, 0)

    def false_alarms(self) -> float:
        """Return a bound on how many of the first watches fire too early in a tick without any event."""
        return sum(
            watch.places * exceeding(watch.threshold, self.compared_at(watch))
            for watch in self.watches
            if not watch.below
        )

    def public(self, updates: int, state: MonitorState | None) -> Hashable:
        """Return the number of comparisons, and whether there are windows; without a state, those of the
        definition.

        A larger number of comparisons makes a large draw among them more likely.
        """
        if state is None:
            return updates, any(watch.window for watch in self.watches)
        return updates + state.asked, bool(state.windows)

    def init(self, noise: Noise) -> MonitorState:
        """Return the first state: nothing counted; the first watches armed."""
        state = MonitorState.begun(self.width, self.watches)
        return replace(state, lift=self._lifted(state, np.arange(self.width), noise))

    def step(
        self, state: MonitorState, message: Message, noise: Noise
    ) -> tuple[MonitorState, IntArray | None]:
        """Add a row, or compare every watch, or compare, arm or disarm one watch.

        Raises:
            RejectedMessage: a bad row, an invalid place or threshold, a watch that is not armed or has not yet seen
                a whole tick or window, a place that is taken, or windows with too many rows.
        """
        match message:
            case ThresholdQuery():
                return self._asked(state, message, noise)
            case ArmQuery():
                return self._armed(state, message, noise), np.zeros(0, dtype=np.int64)
            case DisarmQuery():
                return self._disarmed(state, message), np.zeros(0, dtype=np.int64)
            case Query():
                return self._compared(state, noise)
        return state.counted(self.checked_row(message.row)), None

    def _asked(
        self, state: MonitorState, query: ThresholdQuery, noise: Noise
    ) -> tuple[MonitorState, IntArray]:
        """Compare one watch with an analyst's threshold; return the state and the answer."""
        at, threshold = self._place(query.place, 1), query.threshold
        mode = int(state.mode[at])
        if threshold is None or not is_threshold(threshold, negative=self.signed):
            raise RejectedMessage(f"a threshold is an integer {thresholds(negative=self.signed)}")
        if not mode:
            raise RejectedMessage("this watch has ended; create a new one")
        fired = np.zeros(self.width, dtype=np.int64)
        if mode & TICK:
            if not mode & HEARD:
                raise RejectedMessage(
                    "this watch looks at single ticks and has seen none yet; ask after the next one"
                )
            fired[at] = _judged(state.heard[at : at + 1], threshold, state.mode[at : at + 1])[0]
        else:
            if mode & BELOW and not state.whole_windows[at]:
                raise RejectedMessage(
                    "this watch looks at whole windows and has seen none since it began or last fired; ask later"
                )
            scale = self.window_scale if mode & WINDOW else self.scale
            fired[at] = _crosses(state, np.array([at]), threshold, scale, noise)[0]
        after, answer = self._after(state, fired, noise)
        return replace(after, asked=state.asked + 1), answer[at :: self.width].copy()

    def _armed(self, state: MonitorState, query: ArmQuery, noise: Noise) -> MonitorState:
        """Return the state with the query's watch begun, at count 0 and with new noise."""
        first = self._place(query.place, query.watch.places)
        begun = state.armed(query.watch, first)
        places = np.arange(first, first + query.watch.places)
        return replace(begun, lift=self._lifted(begun, places, noise))

    def _disarmed(self, state: MonitorState, query: DisarmQuery) -> MonitorState:
        return state.disarmed(self._place(query.place, query.places), query.places)

    def _place(self, first: int, places: int) -> int:
        if not 0 <= first <= first + places - 1 < self.width:
            raise RejectedMessage(f"the places of this monitor are 0 to {self.width - 1}")
        return first


class SinceBlock(WatchLaw):
    """Block with a fixed watch since its last crossing in every place; the state keeps only their counts and noises."""

    kept: ClassVar[type[AlertsState]] = AlertsState

    def require_drawn(self) -> None:
        """Raise UsageError where the noise is too wide to be drawn."""
        require_drawable(self.scale)

    def levels(self, query: Query) -> IntArray:
        """Return the threshold of each place, shape (width,), or raise RejectedMessage for the query."""
        raise NotImplementedError

    def public(self, updates: int, state: AlertsState | None) -> Hashable:
        """Return the number of comparisons, and False: there are no windows."""
        return updates, False

    def init(self, noise: Noise) -> AlertsState:
        """Return the first state: nothing counted; all instances armed."""
        zeros = np.zeros(self.width, dtype=np.int64)
        return self.kept(zeros, noise.geometric(self.scale, self.width))

    def step(
        self, state: AlertsState, message: Message, noise: Noise
    ) -> tuple[AlertsState, IntArray | None]:
        """Add a row, or compare every place with its level.

        Raises:
            RejectedMessage: a bad row, or a query without the levels that the block needs.
        """
        if not isinstance(message, Query):
            return replace(state, count=state.count + self.checked_row(message.row)), None
        after, answer = self._compared(state.armed(self.levels(message)), noise)
        return replace(state, count=after.count, lift=after.lift), answer


def _crosses(
    state: MonitorState,
    places: IntArray,
    threshold: IntArray | int,
    scale: Fraction,
    noise: Noise,
) -> NDArray[np.bool_]:
    """Return which of these places fire: the count is beyond the threshold, with noise on both."""
    count, below = state.count[places], state.mode[places] & BELOW != 0
    over = np.where(below, threshold - 1 - count, count - threshold)
    return over + noise.geometric(scale, len(places)) >= state.lift[places]


def _judged(heard: IntArray, threshold: IntArray | int, mode: IntArray) -> IntArray:
    """Return which of these noisy counts fire."""
    return np.asarray((heard >= threshold) != (mode & BELOW != 0), dtype=np.int64)
