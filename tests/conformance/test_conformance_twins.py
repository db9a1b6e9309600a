"""The suite can fail: each check catches mechanisms that break its rule, and passes a right one."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_dp.core.composition import Ask, ConcurrentComposition, Create, Halt
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Mechanism, Message, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.sealed import inside_of
from stream_dp.core.serial import Codec
from stream_dp.core.wire import wire
from stream_dp.errors import RejectedMessage, TaintError
from stream_dp.mechanisms.checks import checked
from stream_dp.mechanisms.hss.hss import COUNTER, HSS, HSSState
from stream_dp.mechanisms.hss.sparse_vector import SparseVector
from stream_dp.mechanisms.linear.counter import HandOverCounter, HybridCounter
from stream_dp.testing import conformance as suite
from stream_dp.testing.conformance import Case, Check, NotConforming, checks_of


@wire("count", 1)
@dataclass(slots=True)
class Count:
    """Running counts."""

    total: IntArray


COUNT = Codec([Count])


@dataclass
class Right:
    """A counter with one fresh Laplace sample per update: passes, so that the twins fail for their own reason."""

    width: int = 3
    last: IntArray = field(default_factory=lambda: np.zeros(3, dtype=np.int64))

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(PureDP(Fraction(1)), Neighbors.ADD_REMOVE)

    def init(self, noise: Noise) -> Count:
        return Count(noise.laplace(Fraction(1), self.width))

    def step(self, state: Count, message: Message, noise: Noise) -> tuple[Count, IntArray | None]:
        if isinstance(message, Query):
            return self.ask(state, noise)
        return self.update(state, message, noise), None

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        row = checked(message.row, self.width)
        return Count(state.total + row + noise.laplace(Fraction(1), self.width))

    def ask(self, state: Count, noise: Noise) -> tuple[Count, IntArray]:
        return state, state.total.copy()


class MutatesTheState(Right):
    """Adds in place."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        checked(message.row, self.width)
        state.total += message.row
        return Count(state.total.copy())


class MutatesTheRow(Right):
    """Saves an array."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        after = super().update(state, message, noise)
        np.add(message.row, 1, out=message.row)
        return after


class KeepsTheRow(Right):
    """The first update becomes the state."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        row = checked(message.row, self.width)
        return Count(row) if not state.total.any() else Count(state.total + row)

    def init(self, noise: Noise) -> Count:
        return Count(np.zeros(self.width, dtype=np.int64))


class HandsOutItsState(Right):
    """Answers with the array of its state."""

    def ask(self, state: Count, noise: Noise) -> tuple[Count, IntArray]:
        return state, state.total


class ForgetsOnRestore(Right):
    """Keeps a part of its state in itself."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        after = Count(super().update(state, message, noise).total - message.row + self.last)
        self.last = message.row.copy()
        return after


class SwallowsBadRows(Right):
    """Takes what it cannot add for silence."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        try:
            return super().update(state, message, noise)
        except RejectedMessage:
            return state


class DrawsBeforeItRefuses(Right):
    """Noise first, checks later."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        fresh = noise.laplace(Fraction(1), self.width)
        return Count(state.total + checked(message.row, self.width) + fresh)


class TakesNegatives(Right):
    """Checks the shape only."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        if not isinstance(message.row, np.ndarray) or message.row.shape != (self.width,):
            raise RejectedMessage("shape")
        return Count(state.total + message.row.astype(np.int64))


class CountsSilence(Right):
    """Counts ticks."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        return Count(super().update(state, message, noise).total + 1)


class CapsBursts(Right):
    """Loses what exceeds 50 in a tick."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        checked(message.row, self.width)
        return super().update(state, Update(np.minimum(message.row, 50)), noise)


class DrawsPerEvent(Right):
    """Asks for noise only where something happened."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        row = checked(message.row, self.width)
        fresh = noise.laplace(Fraction(1), self.width if row.any() else 0)
        return Count(state.total + row + (fresh if fresh.size else 0))


class NoiseOnEachQuestion(Right):
    """PlannedSeries often enough, it averages its noise away."""

    def ask(self, state: Count, noise: Noise) -> tuple[Count, IntArray]:
        return state, state.total + noise.laplace(Fraction(1), self.width)


class MixesColumns(Right):
    """The first column also counts the last one."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        after = super().update(state, message, noise)
        if self.width > 1:
            after.total[0] += message.row[-1]
        return after


class EndsEarly(Right):
    """Refuses within its horizon."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        if state.total.sum() > 300:
            raise RejectedMessage("full")
        return super().update(state, message, noise)


class AnswersWithPending(HSS):
    """Adds what is pending to what is released."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        after, answer = super().step(state, message, noise)
        return after, None if answer is None else answer + after.pending


class PrivateThreshold(HSS):
    """Raises the threshold by what is pending."""

    def _watch(self, state: HSSState, noise: Noise) -> HSSState:
        limit = self.gamma(state.queries + 1, state.intervals) + state.pending[0]
        asked = Ask(state.watcher, Query(limit))
        parts, above = self.composition.step(state.parts, asked, noise)
        after = replace(state, queries=state.queries + 1, parts=parts)
        return self._close(after, noise) if above is not None and above[0] else after


class PrivateDestination(HSS):
    """Picks the sub-mechanism by the data."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        if isinstance(message, Update):
            place = message.row[0] + state.watcher
            self.composition.step(state.parts, Ask(place, message), noise)
        return super().step(state, message, noise)


class PrivateOffset(HSS):
    """Creates an instance that starts from a private sum."""

    def _close(self, state: HSSState, noise: Noise) -> HSSState:
        offset = (state.pending[0], 0, 0)
        made = Create(replace(self.instance(), offset=offset))
        parts, _ = self.composition.step(state.parts, made, noise)
        return super()._close(replace(state, parts=parts), noise)


class KeepsPending(HSS):
    """Forgets to clear the sum: an event enters the counter in every later interval again."""

    def _close(self, state: HSSState, noise: Noise) -> HSSState:
        return replace(super()._close(state, noise), pending=state.pending)


class CountsEveryTick(HSS):
    """Sends each row to the counter as well as to the interval's sum."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        after, answer = super().step(state, message, noise)
        if isinstance(message, Update):
            parts, _ = self.composition.step(after.parts, Ask(COUNTER, message), noise)
            after = replace(after, parts=parts)
        return after, answer


class ContinuesAfterCrossing(HSS):
    """Keeps the old instance listening beside the new one: an event reaches two."""

    def _close(self, state: HSSState, noise: Noise) -> HSSState:
        after = super()._close(state, noise)
        parts, _ = self.composition.step(after.parts, Create(self.instance()), noise)
        return replace(after, parts=parts)

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        after, answer = super().step(state, message, noise)
        if isinstance(message, Update) and after.intervals:
            parts, _ = self.composition.step(after.parts, Ask(after.watcher + 1, message), noise)
            after = replace(after, parts=parts)
        return after, answer


class OneEntryInside(HSS):
    """The counter inside is made for one entry an event."""

    @property
    def counter(self) -> Any:
        return HybridCounter(self.width, self.counter_epsilon, self.neighbors)


class NeverHalts(SparseVector):
    """Goes on after a crossing."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        after, answer = super().step(state, message, noise)
        return replace(after, halted=False), answer


class HaltsByContent(HSS):
    """Halts its instance when the row is large; tells by which messages are sent."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        after, answer = super().step(state, message, noise)
        if isinstance(message, Update) and message.row.sum() % 2:
            parts, _ = self.composition.step(after.parts, Create(self.instance()), noise)
            parts, _ = self.composition.step(parts, Halt(parts.created - 1), noise)
            after = replace(after, parts=parts)
        return after, answer


class ReadsItsPart(HSS):
    """Answers with the exact count that its counter holds."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        after, answer = super().step(state, message, noise)
        if answer is None:
            return after, None
        return after, answer * 0 + after.parts.live[COUNTER].state.total


class OpensItsPart(HSS):
    """Breaks the seal of its counter's state."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        after, answer = super().step(state, message, noise)
        if answer is None:
            return after, None
        return after, answer * 0 + inside_of(after.parts.live[COUNTER].state).total


class AsksAgain(HSS):
    """Asks its sparse vector from one state over and over: the noise of the mean is gone, and none is halted."""

    def _watch(self, state: HSSState, noise: Noise) -> HSSState:
        asked = Ask(state.watcher, Query(self.gamma(state.queries + 1, state.intervals)))
        for _ in range(3):
            self.composition.step(state.parts, asked, noise)
        return super()._watch(state, noise)


class Silence:
    """Noise that is none."""

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        return np.zeros(size, dtype=np.int64)

    geometric = gaussian = laplace


class BringsItsOwnNoise(HSS):
    """Its counter draws no noise at all."""

    def _close(self, state: HSSState, noise: Noise) -> HSSState:
        return super()._close(state, Silence())


def counting(make: Callable[..., Mechanism[Any]], **more: Any) -> Case:
    """The case of a counter."""
    return Case(name=str(make), make=make, counts=True, codec=COUNT, column=lambda: make(1), **more)


@pytest.mark.parametrize("check", checks_of(counting(Right)), ids=lambda c: c.__name__)
def test_a_right_counter_passes(check: Check) -> None:
    check(counting(Right))


BROKEN: list[tuple[Callable[..., Mechanism[Any]], Check]] = [
    (MutatesTheState, suite.keeps_nothing),
    (MutatesTheRow, suite.keeps_nothing),
    (KeepsTheRow, suite.keeps_nothing),
    (HandsOutItsState, suite.keeps_nothing),
    (ForgetsOnRestore, suite.restores),
    (SwallowsBadRows, suite.refuses),
    (DrawsBeforeItRefuses, suite.refuses),
    (TakesNegatives, suite.refuses),
    (CountsSilence, suite.silence_is_zeros),
    (CapsBursts, suite.counts_exactly),
    (DrawsPerEvent, suite.draws_ignore_the_data),
    (NoiseOnEachQuestion, suite.queries_change_nothing),
    (MixesColumns, suite.block_is_columns),
]


@pytest.mark.parametrize(("make", "check"), BROKEN, ids=lambda x: x.__name__)
def test_a_broken_counter_is_caught(make: Callable[..., Mechanism[Any]], check: Check) -> None:
    with pytest.raises(NotConforming):
        check(counting(make))


def test_a_horizon_that_is_not_kept_is_caught() -> None:
    with pytest.raises(NotConforming, match="not refused"):
        suite.refuses(counting(Right, horizon=20))
    with pytest.raises(NotConforming, match="within the horizon"):
        suite.refuses(counting(EndsEarly, horizon=20))


def test_continuing_after_the_crossing_is_caught() -> None:
    own = 2, Fraction(1), Fraction(1), Neighbors.ADD_REMOVE, (0, 0)
    case = Case(name="never halts", make=lambda: NeverHalts(*own), threshold=100)
    with pytest.raises(NotConforming, match="not refused"):
        suite.refuses(case)


def over(kind: type[HSS], relation: Neighbors = Neighbors.ADD_REMOVE, ones: int = 1) -> Case:
    """The case of a composite."""

    def make(composition: ConcurrentComposition) -> HSS:
        shares = (Fraction(2),) * 3
        return kind(3, None, *shares, relation, 14, ones=ones, composition=composition)

    return Case(
        name=kind.__name__,
        make=lambda: make(ConcurrentComposition()),
        composite=make,
        touches=((SparseVector, 1), (HandOverCounter, 1)),
    )


@pytest.mark.parametrize("check", checks_of(over(HSS)), ids=lambda c: c.__name__)
def test_a_right_composite_passes(check: Check) -> None:
    check(over(HSS))


@pytest.mark.parametrize(
    "kind",
    [
        AnswersWithPending, PrivateThreshold, PrivateDestination, PrivateOffset, HaltsByContent,
    ],
)  # fmt: skip
def test_private_control_flow_is_caught_by_taint(kind: type[HSS]) -> None:
    with pytest.raises(TaintError):
        suite.taint(over(kind))


@pytest.mark.parametrize(
    "kind",
    [
        KeepsPending, CountsEveryTick, ContinuesAfterCrossing, HaltsByContent, PrivateThreshold,
    ],
)  # fmt: skip
def test_inputs_that_are_no_neighbours_are_caught(kind: type[HSS]) -> None:
    with pytest.raises(NotConforming):
        suite.neighbours_stay_neighbours(over(kind))


@pytest.mark.parametrize("relation", [Neighbors.ADD_REMOVE, Neighbors.REPLACE])
def test_a_part_that_is_made_for_one_entry_of_a_list_is_caught(relation: Neighbors) -> None:
    with pytest.raises(NotConforming, match="not neighbours"):
        suite.neighbours_stay_neighbours(over(OneEntryInside, relation, ones=2))


@pytest.mark.parametrize("check", [suite.taint, suite.neighbours_stay_neighbours, suite.restores])
def test_a_composite_cannot_read_its_parts(check: Check) -> None:
    with pytest.raises(TaintError, match="sealed"):
        check(over(ReadsItsPart))


def test_a_composite_that_breaks_the_seal_is_caught() -> None:
    with pytest.raises(TaintError, match="opened the state"):
        suite.taint(over(OpensItsPart))
    with pytest.raises(NotConforming, match="what is answered"):
        suite.neighbours_stay_neighbours(over(OpensItsPart))


def test_a_question_from_an_earlier_state_is_caught() -> None:
    with pytest.raises(TaintError, match="used again"):
        suite.taint(over(AsksAgain))


def test_noise_of_ones_own_is_caught() -> None:
    with pytest.raises(TaintError, match="other noise"):
        suite.taint(over(BringsItsOwnNoise))
