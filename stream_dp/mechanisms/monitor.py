"""Many watches in one block: thresholds of their own, re-armed or once, asked, armed and disarmed while they run.

A watch over the events since its last crossing is a count sparse vector, as in `alerts`: one event shifts all that it
is asked, until it halts, by the same +1, whatever public thresholds come and however many in one tick. One over a
window is a sparse vector too, but an event leaves the window again: it shifts what is asked while it is in, and nothing
after that. A watch of single ticks would shift one comparison only: there each tick's count gets its own discrete
Laplace noise, and every question about that tick is answered from that one noisy count. Rules: what crosses takes its
whole tick with it, the next instance starts from zero with the next tick, also in a window; a free place counts
nothing; a count that is told at a crossing has noise of its own, never that of the comparison. How much noise is in
`watch_noise`. This file knows no names, filters or keys.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from stream_dp.accounting.amounts import text
from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.leaf import leaf
from stream_dp.accounting.situations import Fixed, Parallel, Touched
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.errors import RejectedMessage, UsageError
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.monitor_state import BELOW, HEARD, TICK, WINDOW, MonitorState
from stream_dp.mechanisms.row_check import checked
from stream_dp.mechanisms.sparse_vector import SOURCE
from stream_dp.mechanisms.watch_messages import (
    ArmQuery,
    DisarmQuery,
    ThresholdQuery,
    WatchTerms,
    is_threshold,
)
from stream_dp.mechanisms.watch_noise import WatchNoise
from stream_dp.mechanisms.watch_windows import whole_windows

TEST = "tests/statistical/test_privacy_monitor.py"  # exact, against every adaptive adversary
LAPLACE = "discrete Laplace mechanism (Ghosh, Roughgarden, Sundararajan 2009)"
NONE = Fraction(0)


@wire("monitor", 1)
@dataclass(frozen=True)
class Monitor(WatchNoise):
    """Answers of shape (width,): 1 where a watch fires in this tick, else 0; a free place answers 0.

    With a `value_epsilon` the shape is (2 * width,): behind those the count of each watch that fires, noised, 0 else.
    `watches` are armed first, from place 0 on; others can be armed in free places later. `ones`: the most armed places
    that one event counts in, once in each. An answer to a `ThresholdQuery` has that one entry, or two.

    Privacy claim: (epsilon + value_epsilon)-DP for such event streams under `neighbors`, for ever, adaptively, whatever
    thresholds are asked and whatever is armed and disarmed. One instance is a watch between two of its crossings, or
    one tick of a watch of single ticks; one event reaches one instance in each of L0 places at most ([HSV] Cor 5.5,
    k = L0). An instance since a crossing costs max(e1, e2), both epsilon / L0 (`alerts`), and its count, told once with
    fresh noise, value_epsilon / L0 more. A tick's noisy count has both shares for itself; all else is made of it.

    An instance over a window costs max(e1 + e2, max(e1, e2) + e3), e3 for its count: more events shift the noisy
    threshold by 1 (e1), which pays for all comparisons that fail, and for a crossing while the event is in the window.
    There the count differs too (e3). A crossing after it has left costs e2 more, and the count is the same. Fewer
    events cost nothing where comparisons fail, and at a crossing e2 + e3 or nothing.

    Raises:
        UsageError: the watches do not fit into the places, or their windows into a state; noise that is too wide to be
            drawn.
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    watches: tuple[WatchTerms, ...]
    ones: int = 1
    value_epsilon: Fraction = NONE

    def __post_init__(self) -> None:
        """Refuse more watches than places, windows that cannot be held and noise that cannot be drawn."""
        wanted = sum(watch.places for watch in self.watches)
        if wanted > self.width:
            raise UsageError(f"these watches need {wanted} places, and there are {self.width}")
        self.require_drawable()
        try:
            MonitorState.begun(self.width, self.watches)
        except RejectedMessage as refused:
            raise UsageError(str(refused)) from None

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at the sum of the two shares."""
        return Guarantee(PureDP(self.epsilon + self.value_epsilon), self.neighbors)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: one instance of each kind, then all places in parallel, re-armed for ever.

        Raises:
            NotDerivable: the noise is too small for the two shares.
        """
        touched = Touched.columns(self.neighbors, self.width, "place", self.ones)
        share = self.epsilon / touched.k
        shift = Condition(
            "constant shift",
            self.scale * share >= 1,
            "one event shifts all that an instance is asked until its halt by the same amount: cost max(e1, e2), both "
            f"at scale {text(self.scale)}",
        )
        since = self._leaf("one instance since a crossing", share, SOURCE, shift)
        if self.value_epsilon:
            since = derive(
                (since, self._told(touched.k)), Fixed("a watch and its count at its crossing")
            )
        whole = (self.epsilon + self.value_epsilon) / touched.k
        drawn = Condition(
            "noise",
            self.tick_scale * whole >= 1,
            f"an event changes the count of one tick by 1; scale {text(self.tick_scale)}",
        )
        tick = self._leaf("one tick of a watch of single ticks", whole, LAPLACE, drawn)
        window = self._leaf("one instance over a window", whole, SOURCE, *self._window(whole))
        why = f"an event reaches one live instance per watch; {touched.why}; checked by {TEST}"
        places = Parallel(
            f"watches in {self.width} places, for ever", replace(touched, why=why), (None,) * 3
        )
        return derive((since, tick, window), places)

    def _window(self, whole: Fraction) -> tuple[Condition, ...]:
        """What an instance over a window rests on."""
        scale = self.window_scale
        compared = Condition(
            "one sign",
            2 / scale <= whole,
            "one event shifts what an instance is asked by the same amount or, out of the window, not at all: cost "
            f"e1 + e2, both at scale {text(scale)}",
        )
        if not self.value_epsilon:
            return (compared,)
        told = self.window_value_scale
        fresh = Condition(
            "fresh noise",
            1 / scale + 1 / told <= whole,
            f"a count that an event changes crosses with the event in: e1 or e2 there, and scale {text(told)} for it",
        )
        return compared, fresh

    def _told(self, touched: int) -> Derivation:
        share = self.value_epsilon / touched
        fresh = Condition(
            "fresh noise",
            self.value_scale * share >= 1,
            f"never that of the comparison; sensitivity 1, scale {text(self.value_scale)}, told once an instance",
        )
        return self._leaf("the count at a crossing", share, LAPLACE, fresh)

    def _leaf(self, subject: str, epsilon: Fraction, source: str, *why: Condition) -> Derivation:
        return leaf(subject, Guarantee(PureDP(epsilon), self.neighbors), source, why)

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
        return state.counted(checked(message.row, self.width)), None

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
        if threshold is None or not is_threshold(threshold):
            raise RejectedMessage("a threshold is an integer from 1 to 10^15")
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
