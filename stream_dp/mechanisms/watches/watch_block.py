"""The law of a block of watches, whatever its rows are made of: they count, fire, are told, asked, armed and disarmed.

Rules: what crosses takes its whole tick with it, the next instance starts from zero with the next tick, also in a
window; a free place counts nothing; a count that is told at a crossing has noise of its own, never that of the
comparison. How much noise is in `watch_noise`. The mechanisms, with their claims, are dataclasses beside it.
"""

from dataclasses import replace

import numpy as np

from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query
from stream_dp.errors import RejectedMessage, UsageError
from stream_dp.mechanisms.row_check import checked
from stream_dp.mechanisms.watches.monitor_state import BELOW, HEARD, TICK, WINDOW, MonitorState
from stream_dp.mechanisms.watches.watch_messages import (
    ArmQuery,
    DisarmQuery,
    ThresholdQuery,
    is_threshold,
    thresholds,
)
from stream_dp.mechanisms.watches.watch_noise import WatchNoise
from stream_dp.mechanisms.watches.watch_windows import whole_windows


class WatchBlock(WatchNoise):
    """A block of watches; `watches` are armed first, from place 0 on, others can be armed in free places later."""

    def require_room(self) -> None:
        """Do nothing where the watches fit into the places and their windows into a state, and noise can be drawn.

        Raises:
            UsageError: one of these does not hold.
        """
        wanted = sum(watch.places for watch in self.watches)
        if wanted > self.width:
            raise UsageError(f"these watches need {wanted} places, and there are {self.width}")
        self.require_drawable()
        try:
            MonitorState.begun(self.width, self.watches)
        except RejectedMessage as refused:
            raise UsageError(str(refused)) from None

    def checked_row(self, row: IntArray) -> IntArray:
        """Return a row of counts.

        Raises:
            RejectedMessage: a bad row.
        """
        return checked(row, self.width)

    @property
    def signed(self) -> bool:
        """Whether what counts may be below 0, and so thresholds that are asked: of counts it is not."""
        return False

    def opening(self) -> tuple[int, int]:
        """Return one short of the first threshold: the chances of a firing are then a : 1 and 1 : a."""
        first = self.watches[0].threshold - 1 if self.watches else 0
        return first, first if self.l0 > 1 else 0

    def init(self, noise: Noise) -> MonitorState:
        """Return the first state: nothing counted; the first watches armed."""
        state = MonitorState.begun(self.width, self.watches)
        return replace(state, lift=self._lifted(state, np.arange(self.width), noise))

    def step(
        self, state: MonitorState, message: Message, noise: Noise
    ) -> tuple[MonitorState, IntArray | None]:
        """Add a row; or compare every watch; or ask, arm or disarm one.

        Raises:
            RejectedMessage: a bad row, a place or threshold that is none, a watch that is not armed or has not heard a
                tick or seen a window, a place that is taken, or windows of too many rows.
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

    def _compared(self, state: MonitorState, noise: Noise) -> tuple[MonitorState, IntArray]:
        """The end of a tick: each armed watch against its threshold."""
        since, tick, window = state.since, state.ticks, state.windowed
        fired = np.zeros(self.width, dtype=np.int64)
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
            over = _over(state, window, state.threshold[window])
            drawn = noise.geometric(self.window_scale, len(window))
            fired[window] = over + drawn >= state.lift[window]
        ended = replace(state, count=count, heard=heard, mode=mode)
        return self._after(ended, fired, noise)

    def _asked(
        self, state: MonitorState, query: ThresholdQuery, noise: Noise
    ) -> tuple[MonitorState, IntArray]:
        """One watch against the threshold of an analyst."""
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
            if mode & BELOW and not whole_windows(state.windows, self.width)[at]:
                raise RejectedMessage(
                    "this watch looks at whole windows and has seen none since it began or last fired; ask later"
                )
            places = np.array([at])
            drawn = noise.geometric(self.window_scale if mode & WINDOW else self.scale, 1)
            fired[at] = (_over(state, places, threshold) + drawn >= state.lift[places])[0]
        after, answer = self._after(state, fired, noise)
        return replace(after, asked=state.asked + 1), answer[at :: self.width].copy()

    def _after(
        self, state: MonitorState, fired: IntArray, noise: Noise
    ) -> tuple[MonitorState, IntArray]:
        """What fired is told, and begins again or ends; `fired` has shape (width,)."""
        if not fired.any():
            return state, self._answer(fired, fired)
        told = np.zeros(self.width, dtype=np.int64)
        if self.value_epsilon:
            told = self._told_counts(state, fired, noise)
        after = state.crossed(fired)
        lift = self._lifted(after, np.flatnonzero(fired), noise)
        return replace(after, lift=lift), self._answer(fired, told)

    def _told_counts(self, state: MonitorState, fired: IntArray, noise: Noise) -> IntArray:
        """The counts of what fired: of ticks those that were heard, of others with fresh noise."""
        told = np.where(fired, state.heard, 0)
        for places, scale in (
            (np.flatnonzero(fired & (state.mode & (TICK | WINDOW) == 0)), self.value_scale),
            (np.flatnonzero(fired & (state.mode & WINDOW != 0)), self.window_value_scale),
        ):
            if len(places):
                told[places] = state.count[places] + noise.laplace(scale, len(places))
        return told

    def _answer(self, fired: IntArray, told: IntArray) -> IntArray:
        return np.concatenate([fired, told]) if self.value_epsilon else fired

    def _lifted(self, state: MonitorState, places: IntArray, noise: Noise) -> IntArray:
        """The noise on the thresholds, with new draws in these places as far as a watch runs there that needs one."""
        lift, mode = state.lift.copy(), state.mode[places]
        since = places[(mode != 0) & (mode & (TICK | WINDOW) == 0)]
        lift[since] = noise.geometric(self.scale, len(since))
        window = places[mode & WINDOW != 0]
        if len(window):
            lift[window] = noise.geometric(self.window_scale, len(window))
        return lift

    def _armed(self, state: MonitorState, query: ArmQuery, noise: Noise) -> MonitorState:
        """The watch begins, from zero and with new noise."""
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


def _over(state: MonitorState, places: IntArray, threshold: IntArray | int) -> IntArray:
    """How far the counts of these places are beyond the thresholds, on the side where they fire; 0: just."""
    count, below = state.count[places], state.mode[places] & BELOW != 0
    return np.where(below, threshold - 1 - count, count - threshold)


def _judged(heard: IntArray, threshold: IntArray | int, mode: IntArray) -> IntArray:
    """Whether these noisy counts fire."""
    return np.asarray((heard >= threshold) != (mode & BELOW != 0), dtype=np.int64)
