"""Many watches in one block: thresholds of their own, re-armed or once, asked, armed and disarmed while they run.

A watch over the events since its last crossing is a count sparse vector, as in `alerts`: one event shifts all that it
is asked, until it halts, by the same +1, whatever public thresholds come and however many in one tick. A watch of
single ticks has no such shift, for an event changes one tick only: there each tick's count gets its own discrete
Laplace noise, and every question about that tick is answered from that one noisy count. Rules: what crosses takes its
whole tick with it, the next instance starts from zero with the next tick; a free place counts nothing; a count that is
told at a crossing has noise of its own, never that of the comparison. This file knows no names, filters or keys.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

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
from stream_dp.mechanisms.noise_quantiles import laplace_quantile
from stream_dp.mechanisms.row_check import checked
from stream_dp.mechanisms.sparse_vector import SOURCE
from stream_dp.mechanisms.watch_messages import (
    ArmQuery,
    DisarmQuery,
    ThresholdQuery,
    WatchTerms,
    is_threshold,
)

TEST = "tests/statistical/test_privacy_monitor.py"  # exact, against every adaptive adversary
LAPLACE = "discrete Laplace mechanism (Ghosh, Roughgarden, Sundararajan 2009)"
ARMED, TICK, BELOW, ONCE, HEARD = 1, 2, 4, 8, 16  # of a place's mode; 0: it is free
NONE = Fraction(0)


@wire("monitor-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class MonitorState:
    """Per place, arrays of shape (width,): `threshold` and `mode` are public, the others private.

    `count`: exact events since the last crossing, or of the tick that is open; `lift`: noise on the threshold; `heard`:
    the noisy count of the last tick, of watches of single ticks. `asked`: how many thresholds were asked, public.
    """

    count: IntArray
    lift: IntArray
    heard: IntArray
    threshold: IntArray
    mode: IntArray
    asked: int = 0


@wire("monitor", 1)
@dataclass(frozen=True)
class Monitor:
    """Answers of shape (width,): 1 where a watch fires in this tick, else 0; a free place answers 0.

    With a `value_epsilon` the shape is (2 * width,): behind those the count of each watch that fires, noised, 0 else.
    `watches` are armed first, from place 0 on; others can be armed in free places later. `ones`: the most armed places
    that one event counts in, once in each. An answer to a `ThresholdQuery` has that one entry, or two.

    Privacy claim: (epsilon + value_epsilon)-DP for such event streams under `neighbors`, for ever, adaptively, whatever
    thresholds are asked and whatever is armed and disarmed. One instance is a watch between two of its crossings, or
    one tick of a watch of single ticks; one event reaches one instance in each of L0 places at most ([HSV] Cor 5.5,
    k = L0). An instance since a crossing costs max(e1, e2), both epsilon / L0 (`alerts`), and its count, told once with
    fresh noise, value_epsilon / L0 more. A tick's noisy count has both shares for itself; all else is made of it.

    Raises:
        UsageError: the watches do not fit into the places.
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    watches: tuple[WatchTerms, ...]
    ones: int = 1
    value_epsilon: Fraction = NONE

    def __post_init__(self) -> None:
        """Refuse more watches than places."""
        wanted = sum(watch.places for watch in self.watches)
        if wanted > self.width:
            raise UsageError(f"these watches need {wanted} places, and there are {self.width}")

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at the sum of the two shares."""
        return Guarantee(PureDP(self.epsilon + self.value_epsilon), self.neighbors)

    @cached_property
    def l0(self) -> int:
        """How many armed places one event can change."""
        return self.neighbors.l0(self.width, self.ones)

    @cached_property
    def scale(self) -> Fraction:
        """Scale of both geometric noises of a watch since its last crossing."""
        return self.l0 / self.epsilon

    @cached_property
    def tick_scale(self) -> Fraction:
        """Scale of the discrete Laplace noise on a tick's count."""
        return self.l0 / (self.epsilon + self.value_epsilon)

    @cached_property
    def value_scale(self) -> Fraction:
        """Scale of the discrete Laplace noise on a count that is told at a crossing."""
        return self.l0 / self.value_epsilon

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
        why = f"an event reaches one live instance per watch; {touched.why}; checked by {TEST}"
        places = Parallel(
            f"watches in {self.width} places, for ever", replace(touched, why=why), (None, None)
        )
        return derive((since, tick), places)

    def _told(self, touched: int) -> Derivation:
        share = self.value_epsilon / touched
        fresh = Condition(
            "fresh noise",
            self.value_scale * share >= 1,
            f"never that of the comparison; sensitivity 1, scale {text(self.value_scale)}, told once an instance",
        )
        return self._leaf("the count at a crossing", share, LAPLACE, fresh)

    def _leaf(self, subject: str, epsilon: Fraction, source: str, why: Condition) -> Derivation:
        return leaf(subject, Guarantee(PureDP(epsilon), self.neighbors), source, (why,))

    def public(self, updates: int, state: MonitorState | None) -> int:
        """Return the number of comparisons: the more there were, the likelier a large draw was among them."""
        return updates + (0 if state is None else state.asked)

    def band(self, public: int, confidence: float) -> int:
        """Return by how many events one watch may fire too early or too late after `public` comparisons.

        Too early needs one of at most `public` draws to exceed the threshold's, too late a large one on it; the noise
        of a single tick's count is smaller.
        """
        return math.ceil(float(self.scale) * math.log((public + 1) / (1 - confidence)))

    def ask_band(self, place: int, updates: int, state: MonitorState, confidence: float) -> int:
        """Return B so that an answer to a threshold is right up to B events, with `confidence`, by public parts alone.

        A yes says that at least `threshold - B` events counted, a no that fewer than `threshold + B` did, at this cut
        after `updates` rows, `state` being that before it. Since a firing: a yes is wrong beyond B only if the draw of
        this comparison exceeds B, a no only if that on the threshold does, which is one of as many as there were
        comparisons, at most, whatever was asked and chosen after it. With n of them, this one included, that is n + 1
        draws with P[draw > B] <= exp(-B / scale) each: `band`. In single ticks all answers are made of one noisy count.
        """
        if int(state.mode[place]) & TICK:
            return _tick_band(self.tick_scale, confidence)
        return self.band(updates + state.asked + 1, confidence)

    def value_band(self, confidence: float) -> int:
        """Return the half-width that holds with `confidence` for a count that is told; a tick's count is nearer."""
        return laplace_quantile(((self.value_scale, 1),), 1 - confidence)

    def false_alarms(self) -> float:
        """Return a bound on the watches, of those armed first, that fire too early in a tick without any event."""
        return sum(
            watch.places
            * _exceeding(watch.threshold, self.tick_scale if watch.tick else self.scale)
            for watch in self.watches
            if not watch.below
        )

    def opening(self) -> tuple[int, int]:
        """Return one short of the first threshold: the chances of a firing are then a : 1 and 1 : a."""
        first = self.watches[0].threshold - 1 if self.watches else 0
        return first, first if self.l0 > 1 else 0

    def init(self, noise: Noise) -> MonitorState:
        """Return the first state: nothing counted; the first watches armed."""
        zeros = np.zeros(self.width, dtype=np.int64)
        sizes = [watch.places for watch in self.watches]
        threshold, mode = zeros.copy(), zeros.copy()
        threshold[: sum(sizes)] = np.repeat([w.threshold for w in self.watches], sizes)
        mode[: sum(sizes)] = np.repeat([_mode(w) for w in self.watches], sizes)
        return MonitorState(zeros, self._lifted(zeros, _since(mode), noise), zeros, threshold, mode)

    def step(
        self, state: MonitorState, message: Message, noise: Noise
    ) -> tuple[MonitorState, IntArray | None]:
        """Add a row; or compare every watch; or ask, arm or disarm one.

        Raises:
            RejectedMessage: a bad row, a place or threshold that is none, a watch that is not armed or has not heard a
                tick, or a place that is taken.
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
        row = checked(message.row, self.width)
        return replace(state, count=state.count + np.where(state.mode, row, 0)), None

    def _compared(self, state: MonitorState, noise: Noise) -> tuple[MonitorState, IntArray]:
        """The end of a tick: each armed watch against its threshold."""
        since, tick = _since(state.mode), np.flatnonzero(state.mode & TICK)
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
        if not mode & TICK:
            lifted = state.count[at] + noise.geometric(self.scale, 1)
            fired[at] = lifted[0] >= threshold + state.lift[at]
        elif mode & HEARD:
            fired[at] = _judged(state.heard[at : at + 1], threshold, state.mode[at : at + 1])[0]
        else:
            raise RejectedMessage(
                "this watch looks at single ticks and has seen none yet; ask after the next one"
            )
        after, answer = self._after(state, fired, noise)
        return replace(after, asked=state.asked + 1), answer[at :: self.width].copy()

    def _after(
        self, state: MonitorState, fired: IntArray, noise: Noise
    ) -> tuple[MonitorState, IntArray]:
        """What fired is told, and begins again or ends; `fired` has shape (width,)."""
        crossed = np.flatnonzero(fired)
        if not len(crossed):
            return state, self._answer(fired, fired)
        since = crossed[state.mode[crossed] & TICK == 0]
        told = np.zeros(self.width, dtype=np.int64)
        if self.value_epsilon:
            told[crossed] = state.heard[crossed]
            told[since] = state.count[since] + noise.laplace(self.value_scale, len(since))
        count, mode = state.count.copy(), state.mode.copy()
        count[since] = 0
        mode[crossed[mode[crossed] & ONCE != 0]] = 0
        lift = self._lifted(state.lift, since[mode[since] != 0], noise)
        return replace(state, count=count, lift=lift, mode=mode), self._answer(fired, told)

    def _answer(self, fired: IntArray, told: IntArray) -> IntArray:
        return np.concatenate([fired, told]) if self.value_epsilon else fired

    def _lifted(self, lift: IntArray, places: IntArray, noise: Noise) -> IntArray:
        """The noise on the thresholds with new draws in these places."""
        lift = lift.copy()
        lift[places] = noise.geometric(self.scale, len(places))
        return lift

    def _armed(self, state: MonitorState, query: ArmQuery, noise: Noise) -> MonitorState:
        """The watch begins, from zero and with new noise."""
        watch, first = query.watch, self._place(query.place, query.watch.places)
        places = slice(first, first + watch.places)
        if state.mode[places].any():
            raise RejectedMessage("a watch runs in this place; disarm it first")
        count, threshold, mode = state.count.copy(), state.threshold.copy(), state.mode.copy()
        count[places], threshold[places], mode[places] = 0, watch.threshold, _mode(watch)
        begun = np.arange(first, first + (0 if watch.tick else watch.places))
        lift = self._lifted(state.lift, begun, noise)
        return replace(state, count=count, lift=lift, threshold=threshold, mode=mode)

    def _disarmed(self, state: MonitorState, query: DisarmQuery) -> MonitorState:
        first = self._place(query.place, query.places)
        count, mode = state.count.copy(), state.mode.copy()
        count[first : first + query.places] = mode[first : first + query.places] = 0
        return replace(state, count=count, mode=mode)

    def _place(self, first: int, places: int) -> int:
        if not 0 <= first <= first + places - 1 < self.width:
            raise RejectedMessage(f"the places of this monitor are 0 to {self.width - 1}")
        return first


@lru_cache(maxsize=64)
def _tick_band(scale: Fraction, confidence: float) -> int:
    return laplace_quantile(((scale, 1),), 1 - confidence)


def _mode(watch: WatchTerms) -> int:
    return ARMED | TICK * watch.tick | BELOW * watch.below | ONCE * (not watch.rearm)


def _since(mode: IntArray) -> IntArray:
    """The places with watches since their last crossing."""
    found: IntArray = np.flatnonzero(mode & (ARMED | TICK) == ARMED)
    return found


def _judged(heard: IntArray, threshold: IntArray | int, mode: IntArray) -> IntArray:
    """Whether these noisy counts fire."""
    return np.asarray((heard >= threshold) != (mode & BELOW != 0), dtype=np.int64)


def _exceeding(threshold: int, scale: Fraction) -> float:
    """P[nu >= threshold + tau] of two geometric draws, or of one discrete Laplace draw: the same."""
    decay = math.exp(-1 / float(scale))
    return decay**threshold / (1 + decay)
