"""The blocks of watches that journals name, with their fields, and what each costs.

| kind             | rows    | watches                                 | what an instance costs, in each place or unit |
|------------------|---------|-----------------------------------------|-----------------------------------------------|
| `alerts`         | counts  | since a crossing, one level for all     | max(e1, e2)                                   |
| `count-watchers` | counts  | since a crossing, levels with a query   | max(e1, e2)                                   |
| `monitor`        | counts  | any, coming and going                   | by what it looks at: see `Monitor`            |
| `sum-monitor`    | amounts | any, coming and going                   | the same                                      |
| `window-alerts`  | counts  | windows on one side, for good           | e1 + e2 where an event leaves, else e2        |

One law runs all of them (`WatchLaw`), with the noise of `watch_noise`. Blocks whose watches all count since a crossing,
for ever, have their own kind of state, because journals hold it. This file knows no names, filters or keys.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_dp.accounting.amounts import text
from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Fixed, Parallel, Touched
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Step
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire, wire_of
from stream_dp.core.wording import how_many
from stream_dp.errors import RejectedMessage, UsageError
from stream_dp.mechanisms.checks import of_the_exact_class
from stream_dp.mechanisms.hss.sparse_vector import SOURCE
from stream_dp.mechanisms.linear.counter import EventAmounts
from stream_dp.mechanisms.watches.block import (
    ARMED,
    BELOW,
    HEARD,
    TICK,
    WINDOW,
    AlertsState,
    ArmQuery,
    DisarmQuery,
    LevelsQuery,
    MonitorState,
    ThresholdQuery,
    WatchersState,
    WatchNoise,
    WatchTerms,
    exceeding,
    is_threshold,
    require_drawable,
    thresholds,
)


class WatchLaw(WatchNoise):
    """How watches are compared at the end of a tick, and how they continue after a crossing.

    A watch over the events since its last crossing is a count sparse vector: until it halts, one event shifts every
    comparison by the same +1, for any public thresholds and any number of comparisons in one tick. A watch over a
    window is a sparse vector too, but an event leaves the window again: it shifts comparisons while it is in the
    window, and nothing after that. In a watch of single ticks an event would shift one comparison only, so each tick's
    count gets its own discrete Laplace noise, and every question about that tick is answered from that one noisy count.

    An instance that crosses takes its whole tick with it. The next instance, also over a window, starts from zero with
    the next tick and a newly drawn noisy threshold. A free place counts nothing. A count that is released at a crossing
    has its own noise, never that of the comparison.
    """

    def short_of(self, threshold: int) -> tuple[int, int]:
        """Return counts one event short of the threshold, for two places: the odds of a firing are a : 1 and 1 : a."""
        first = max(0, threshold - self.rows.weight)
        return first, first if self.l0 > 1 else 0

    def _compared(self, state: MonitorState, noise: Noise) -> tuple[MonitorState, IntArray]:
        """Compare every armed watch at the end of a tick; return the state after it, and the answer."""
        since, tick, window = state.since, state.ticks, state.windowed
        fired = np.zeros(self.width, dtype=np.int64)
        levels = state.threshold[since]
        fired[since] = self._reached(state.count[since], levels, state.lift[since], noise)
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

    def _reached(
        self, count: IntArray, levels: IntArray, lift: IntArray, noise: Noise
    ) -> NDArray[np.bool_]:
        """Compare watches since a crossing: `_crosses` in half the time, because none of them fires below."""
        return count + noise.geometric(self.scale, len(count)) >= levels + lift

    def _after(
        self, state: MonitorState, fired: IntArray, noise: Noise
    ) -> tuple[MonitorState, IntArray]:
        """Return the state and the answer after a tick; watches that fired release their count, then restart or end."""
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
            raise UsageError(
                f"these watches need {wanted} places, but the monitor has {self.width}"
            )
        values = (self.value_scale,) if self.value_epsilon else ()
        require_drawable(self.scale, self.window_scale, *values)
        try:
            MonitorState.begun(self.width, self.watches)
        except RejectedMessage as refused:
            raise UsageError(str(refused)) from None

    def opening(self) -> tuple[int, int]:
        return self.short_of(self.watches[0].threshold) if self.watches else (0, 0)

    def false_alarms(self) -> float:
        """Return a bound on how many of the first watches fire too early in a tick without any event."""
        return sum(
            watch.places * exceeding(watch.threshold, self.compared_at(watch))
            for watch in self.watches
            if not watch.below
        )

    def public(self, updates: int, state: MonitorState | None) -> Hashable:
        """Return the number of comparisons, and whether there are windows; without a state, those of the definition."""
        if state is None:
            return updates, any(watch.window for watch in self.watches)
        return updates + state.asked, bool(state.windows)

    def init(self, noise: Noise) -> MonitorState:
        state = MonitorState.begun(self.width, self.watches)
        return replace(state, lift=self._lifted(state, np.arange(self.width), noise))

    def step(self, state: MonitorState, message: Message, noise: Noise) -> Step[MonitorState]:
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
        at, threshold = self._place(query.place, 1), query.threshold
        mode = int(state.mode[at])
        if threshold is None or not is_threshold(threshold, negative=self.signed):
            raise RejectedMessage(
                f"a threshold must be an integer {thresholds(negative=self.signed)}"
            )
        if not mode:
            raise RejectedMessage("this watch has ended; create a new one")
        fired = np.zeros(self.width, dtype=np.int64)
        if mode & TICK:
            if not mode & HEARD:
                raise RejectedMessage(
                    "this watch looks at single ticks and has seen none yet; ask after the next tick"
                )
            fired[at] = _judged(state.heard[at : at + 1], threshold, state.mode[at : at + 1])[0]
        else:
            if mode & BELOW and not state.whole_windows[at]:
                raise RejectedMessage(
                    "this watch looks at whole windows, and no window has ended since it began or last "
                    "fired; ask later"
                )
            scale = self.window_scale if mode & WINDOW else self.scale
            fired[at] = _crosses(state, np.array([at]), threshold, scale, noise)[0]
        after, answer = self._after(state, fired, noise)
        return replace(after, asked=state.asked + 1), answer[at :: self.width].copy()

    def _armed(self, state: MonitorState, query: ArmQuery, noise: Noise) -> MonitorState:
        first = self._place(query.place, query.watch.places)
        begun = state.armed(query.watch, first)
        places = np.arange(first, first + query.watch.places)
        return replace(begun, lift=self._lifted(begun, places, noise))

    def _disarmed(self, state: MonitorState, query: DisarmQuery) -> MonitorState:
        return state.disarmed(self._place(query.place, query.places), query.places)

    def _place(self, first: int, places: int) -> int:
        if not 0 <= first <= first + places - 1 < self.width:
            raise RejectedMessage(
                f"the places of this monitor are numbered from 0 to {self.width - 1}"
            )
        return first


class SinceBlock(WatchLaw):
    """Block with a fixed watch since its last crossing in every place; the state keeps only their counts and noises."""

    kept: ClassVar[type[AlertsState]] = AlertsState

    def levels(self, query: Query) -> IntArray:
        """Return the threshold of each place, shape (width,), or raise RejectedMessage for the query."""
        raise NotImplementedError

    def public(self, updates: int, state: AlertsState | None) -> Hashable:
        return updates, False

    def init(self, noise: Noise) -> AlertsState:
        zeros = np.zeros(self.width, dtype=np.int64)
        return self.kept(zeros, noise.geometric(self.scale, self.width))

    def step(self, state: AlertsState, message: Message, noise: Noise) -> Step[AlertsState]:
        """Add a row, or compare every place with its level."""
        if not isinstance(message, Query):
            return self.kept(state.count + self.checked_row(message.row), state.lift), None
        fired = self._reached(state.count, self.levels(message), state.lift, noise)
        places = fired.nonzero()[0]
        if len(places):
            count, lift = state.count.copy(), state.lift.copy()
            count[places], lift[places] = 0, noise.geometric(self.scale, len(places))
            state = self.kept(count, lift)
        return state, fired.astype(np.int64)


def _crosses(
    state: MonitorState, places: IntArray, threshold: IntArray | int, scale: Fraction, noise: Noise
) -> NDArray[np.bool_]:
    count, below = state.count[places], state.mode[places] & BELOW != 0
    over = np.where(below, threshold - 1 - count, count - threshold)
    return over + noise.geometric(scale, len(places)) >= state.lift[places]


def _judged(heard: IntArray, threshold: IntArray | int, mode: IntArray) -> IntArray:
    return np.asarray((heard >= threshold) != (mode & BELOW != 0), dtype=np.int64)


LAPLACE = "discrete Laplace mechanism (Ghosh, Roughgarden, Sundararajan 2009)"
NONE = Fraction(0)
# where each price is checked, exactly and against every adaptive adversary
CHECKED = {
    "alerts": "tests/unit/verify/exact/test_exact_mechanisms.py",
    "count-watchers": "tests/statistical/test_privacy_per_bin.py",
    "monitor": "tests/statistical/test_privacy_monitor.py",
    "sum-monitor": "tests/statistical/test_privacy_sum_monitor.py",
    "window-alerts": "tests/statistical/test_privacy_window_alerts.py",
}


class Part(NamedTuple):
    """Words of a derivation for one part of a price; `why` may hold `{scale}` of its last draw or `{paid}`."""

    subject: str
    condition: str
    why: str
    source: str = SOURCE


class Words(NamedTuple):
    """The parts of a price: one instance of each kind, and the counts that two of these kinds release at a crossing."""

    since: Part
    value: Part
    with_value: str
    tick: Part
    window: Part
    window_value: Part


SHIFT = "constant shift"
HALT = "by the same amount until the instance halts: cost max(e1, e2), both at scale {scale}"
KEY = Part("one alert instance of one key", SHIFT, f"one event shifts one key's count {HALT}")
COLUMN = Part(
    "one count sparse vector of one column", SHIFT, f"one event shifts one column's count {HALT}"
)
COUNTS = Words(
    Part(
        "one instance since a crossing",
        SHIFT,
        "one event shifts all queries of an instance, until it halts, by the same amount: cost max(e1, e2), both "
        "at scale {scale}",
    ),
    Part(
        "the count at a crossing",
        "fresh noise",
        "the released count has noise of its own, not that of the comparison; sensitivity 1, scale {scale}, one "
        "release per instance",
        LAPLACE,
    ),
    "a watch and its count at its crossing",
    Part(
        "one tick of a watch of single ticks",
        "noise",
        "an event changes the count of one tick by 1; scale {scale}",
        LAPLACE,
    ),
    Part(
        "one instance over a window",
        "one sign",
        "one event shifts a query of an instance by the same amount or, outside of the window, not at all: cost "
        "e1 + e2, both at scale {scale}",
    ),
    Part(
        "one instance over a window",
        "fresh noise",
        "if an event changes the count at a crossing, the event lies in its window: cost e1 or e2, and scale "
        "{scale} for the count",
    ),
)


def _unit(kind: str, why: str) -> Part:
    return Part(f"one unit in one instance {kind}", "noise", f"a unit {why}: {{paid}}")


SUMS = Words(
    _unit("since a crossing", "shifts all queries: max(e1, e2)"),
    _unit("of the sum at a crossing", "changes the sum that is released once, with fresh noise"),
    "a watch and its sum at its crossing",
    _unit("of single ticks", "changes one noisy sum"),
    _unit("over a window", "shifts a query, or nothing: e1 + e2"),
    _unit("over a window", "in the window also changes the released sum"),
)


@wire("alerts", 1)
@dataclass(frozen=True)
class Alerts(SinceBlock):
    """Answers of shape (width,): 1 where a key's count since its last alert reached `threshold`, else 0.

    `ones`: the most keys that one event counts in, once in each.

    Privacy claim: `epsilon`-DP for such event streams under `neighbors`, for ever, adaptively. One more event
    shifts the count of one live instance of each of its keys by the same +1 from its tick to the halt; this shift
    is paid once, by the noisy threshold (in one direction) or by the query noise of the crossing (in the other):
    cost max(e1, e2) an instance, so both are epsilon / L0. Instances of several keys add up, whichever way each
    moves (under `replace` two keys move in opposite directions: e1 + e2): [HSV] Cor 5.5, k = L0.
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    threshold: int
    ones: int = 1

    def __post_init__(self) -> None:
        require_drawable(self.scale)

    def opening(self) -> tuple[int, int]:
        return self.short_of(self.threshold)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        return _since(self, KEY, "key", f"{how_many(self.width, 'key')}, re-armed for ever")

    def levels(self, query: Query) -> IntArray:
        return np.full(self.width, self.threshold, dtype=np.int64)


@wire("count-watchers", 1)
@dataclass(frozen=True)
class CountWatchers(SinceBlock):
    """Answers of shape (width,): 1 where a column's count since its last crossing reached its level, else 0.

    A query is a `LevelsQuery`. `ones`: the most entries of a row that one event sets.

    Privacy claim: the claim of `Alerts`, for any public levels in the queries.
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    ones: int = 1

    kept = WatchersState

    @of_the_exact_class
    def derivation(self) -> Derivation:
        many = f"count sparse vectors of {how_many(self.width, 'column')}, re-armed for ever"
        return _since(self, COLUMN, "column", many)

    def levels(self, query: Query) -> IntArray:
        if not isinstance(query, LevelsQuery) or query.levels.shape != (self.width,):
            raise RejectedMessage(
                f"this query needs {self.width} public levels, one for each column"
            )
        return query.levels


@wire("monitor", 1)
@dataclass(frozen=True)
class Monitor(WatchBlock):
    """Answers of shape (width,): 1 where a watch fires in this tick, else 0; a free place answers 0.

    With a `value_epsilon` the shape is (2 * width,): the second half has the noisy count of each watch that fires,
    else 0. `ones`: the most armed places that one event counts in, once in each. An answer to a `ThresholdQuery`
    has the entry of that one place, or its two entries.

    Privacy claim: (epsilon + value_epsilon)-DP for such event streams under `neighbors`, for ever, adaptively,
    whatever thresholds are queried and whatever watches are armed and disarmed. One instance is a watch between two
    of its crossings, or one tick of a watch of single ticks; one event reaches one instance in each of L0 places at
    most ([HSV] Cor 5.5, k = L0). An instance since a crossing costs max(e1, e2), both epsilon / L0 (`Alerts`), and
    its count, released once with fresh noise, value_epsilon / L0 more. A tick's noisy count has both shares; all
    other answers about that tick are computed from it.

    An instance over a window costs max(e1 + e2, max(e1, e2) + e3), e3 for its count: more events shift the noisy
    threshold by 1 (e1), which pays for all comparisons that fail, and for a crossing while the event is in the
    window. There the count differs too (e3). A crossing after it has left costs e2 more, and the count is the same.
    Fewer events cost nothing where comparisons fail, and at a crossing e2 + e3 or nothing.
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    watches: tuple[WatchTerms, ...]
    ones: int = 1
    value_epsilon: Fraction = NONE

    def __post_init__(self) -> None:
        self.require_room()

    @of_the_exact_class
    def derivation(self) -> Derivation:
        many = f"watches in {how_many(self.width, 'place')}, for ever"
        return _price(self, COUNTS, _touched(self, "place", "watch"), many)


@wire("sum-monitor", 1)
@dataclass(frozen=True)
class SumMonitor(EventAmounts, WatchBlock):
    """A `Monitor` of sums of clamped amounts, since the last crossing or in a window.

    An event adds one amount from `lowest` to `highest` (in units) to at most `ones` entries of its row, or nothing;
    thresholds are in units too.

    Privacy claim: (epsilon + value_epsilon)-DP for such event streams under `neighbors`, for ever, adaptively. An
    amount y shifts every comparison by y, or by nothing once it has left the window, and the noises pay for it unit
    by unit, whatever its sign; so does the noise on a released sum. One event changes its entries by `l1` in all,
    and lies in one instance of each place: so each unit pays a part of l1 of what an event pays in a `Monitor`.
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    watches: tuple[WatchTerms, ...]
    lowest: int
    highest: int
    ones: int = 1
    value_epsilon: Fraction = NONE

    def __post_init__(self) -> None:
        self._require_amounts()
        self.require_room()

    @property
    def signed(self) -> bool:
        return self.lowest < 0

    @property
    def changed(self) -> int:
        return self.l1

    @of_the_exact_class
    def derivation(self) -> Derivation:
        why = (
            f"one event under {self.neighbors} changes the entries of its row by {how_many(self.l1, 'unit')} in "
            f"all, and lies in one running instance of each; checked by {CHECKED['sum-monitor']}"
        )
        many = f"watches on sums in {how_many(self.width, 'place')}, for ever"
        return _price(self, SUMS, Touched(self.l1, self.neighbors, why), many)


@wire("window-alerts", 1)
@dataclass(frozen=True)
class WindowAlerts(WatchBlock):
    """A fixed `Monitor` of windows that fire on one side: a replaced event costs three quarters of its price there.

    `watches` are armed from place 0 on, all over windows, all above their thresholds or all `below`; none is armed or
    disarmed later.

    Privacy claim: epsilon-DP for such event streams under `neighbors`, for ever, adaptively, whatever thresholds are
    queried. With e1 for the noise on the thresholds and e2 for that of the comparisons, s = min(ones, width) places
    that one content counts in and L0 places that an event changes: s e1 + L0 e2. It is met, so no less holds.

    Proof. The answers say where instances begin and end, and each place draws its own noise. So the odds of a
    transcript are the product of those of its instances, whatever an adversary chose by the answers, and an event is in
    one instance of each place. Let watches fire above. For a count c, the margin of a comparison is m - c; it fires
    where its draw is at least the margin plus the noise t on the threshold. With the event c is one more while the
    event is in the window, and the same after.

    - The copy with the event over the one without it: for each t what fails with it fails without it. What crosses is
      at most exp(e2) times as likely with it. In all e2; nothing where no comparison crosses.
    - The other way round: read t + 1 for t in the copy with the event, which is exp(-e1) times as likely. What fails
      without it then fails with it, because its margin is the same, or larger. What crosses without it then crosses
      with it at the same margin while the event is in, and at one more when it has left: exp(e2). In all e1 + e2.

    Below a threshold an event makes margins larger, so the two change places. An event that is replaced is in at most s
    places before and in at most s after, in at most L0 where just one copy has it. Either way round at most s of these
    pay e1 + e2, and the others e2. Under `add_remove` all pay e1 + e2, and s = L0. Watches on two sides would pay e1 +
    e2 in all places, as `Monitor` does. Both noises have one scale: the best two would have 2 % less between them.
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    watches: tuple[WatchTerms, ...]
    ones: int = 1

    def __post_init__(self) -> None:
        if not self._one_side:
            raise UsageError(
                "all watches of this block look at windows and in the same direction (all above or "
                "all below): use a Monitor"
            )
        self.require_room()

    @property
    def _one_side(self) -> bool:
        sides = {watch.below for watch in self.watches}
        return all(watch.window for watch in self.watches) and len(sides) <= 1

    @property
    def _of_one_content(self) -> int:
        """The most places in which one content of an event counts."""
        return min(self.ones, self.width)

    @cached_property
    def scale(self) -> Fraction:
        return (self._of_one_content + self.l0) / self.epsilon

    @cached_property
    def window_scale(self) -> Fraction:
        return self.scale

    @of_the_exact_class
    def derivation(self) -> Derivation:
        side = Condition(
            "one side",
            self._one_side,
            "all watches fire above or all below, and none is armed or disarmed: the stream with the event is at "
            "most e^e2 times as likely, and the stream without it at most e^(e1 + e2) times, or the other way "
            "round",
        )
        most, changed, scale = self._of_one_content, self.l0, self.window_scale
        sides = Condition(
            "noise",
            (most + changed) / scale <= self.epsilon,
            f"one event under {self.neighbors} changes at most {changed} of {self.width} places, in one instance "
            f"each, and each stream has it in at most {most}: cost {most} e1 + {changed} e2, both at scale "
            f"{text(scale)}; checked by {CHECKED['window-alerts']}",
        )
        subject = f"watches over windows in {self.width} places, re-armed for ever"
        return leaf(subject, self.guarantee, SOURCE, (side, sides))

    def step(self, state: MonitorState, message: Message, noise: Noise) -> Step[MonitorState]:
        """Add a row, compare every watch, or compare one; arming and disarming is refused (RejectedMessage)."""
        if isinstance(message, ArmQuery | DisarmQuery):
            raise RejectedMessage("the watches of this block were fixed when the block was created")
        return super().step(state, message, noise)


def _touched(block: WatchNoise, what: str, per: str) -> Touched:
    """Return how many places one event counts in; it reaches one instance in each."""
    touched = Touched.columns(block.rows, what)
    checked = CHECKED[wire_of(type(block)).kind]
    why = f"an event reaches one running instance per {per}; {touched.why}; checked by {checked}"
    return replace(touched, why=why)


def _enough(part: Part, epsilon: Fraction, *scales: Fraction) -> Condition:
    """Return the condition that the draws, each at 1 / scale per unit of shift, pay for what one event shifts."""
    paid = sum((1 / scale for scale in scales), NONE)
    why = part.why.format(scale=text(scales[-1]), paid=text(paid))
    return Condition(part.condition, paid <= epsilon, why)


def _instance(
    block: WatchNoise, part: Part, epsilon: Fraction, scales: tuple[Fraction, ...], *more: Condition
) -> Derivation:
    claim = Guarantee(PureDP(epsilon), block.neighbors)
    return leaf(part.subject, claim, part.source, (_enough(part, epsilon, *scales), *more))


def _since(block: WatchNoise, part: Part, what: str, many: str) -> Derivation:
    """Derive the price of instances that count since a crossing (NotDerivable: the noise is too small)."""
    touched = _touched(block, what, what)
    instance = _instance(block, part, block.epsilon / touched.k, (block.scale,))
    return derive((instance,), Parallel(many, touched))


def _price(block: WatchNoise, words: Words, touched: Touched, many: str) -> Derivation:
    """Derive the price of one instance of each kind, then of all instances (NotDerivable: the noise is too small)."""
    share, value = block.epsilon / touched.k, block.value_epsilon / touched.k
    both, wide, fresh = share + value, block.window_scale, list[Condition]()
    since = _instance(block, words.since, share, (block.scale,))
    if value:
        count = _instance(block, words.value, value, (block.value_scale,))
        since = derive((since, count), Fixed(words.with_value))
        fresh = [_enough(words.window_value, both, wide, block.window_value_scale)]
    tick = _instance(block, words.tick, both, (block.tick_scale,))
    window = _instance(block, words.window, both, (wide, wide), *fresh)
    return derive((since, tick, window), Parallel(many, touched, (None,) * 3))
