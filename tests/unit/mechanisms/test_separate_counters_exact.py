"""Counters whose columns close apart, exactly: across two hand-overs an event is a shift, and each column is its own.

Two steps. (a) Columns that close together: an event is a shift of node noises (`shifted_noise`), by 1 at the nodes of
its own tree that hold it, none of the trees before and after; it costs h / scale, the whole epsilon of a column.
(b) Columns that close apart, in any public pattern: each answers what a counter of its own answers from the very noise
that was drawn for it, so its law is that of (a) and columns are independent. Twins fail one or the other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from oracles import decoded_tree as oracle
from unit.mechanisms.shifted_noise import Drawn, Shifted, check_counter

from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.counter import HandOverSchedule
from stream_dp.mechanisms.linear.separate_counters import (
    CloseQuery,
    SeparateCounters,
    SeparateState,
)
from stream_dp.mechanisms.linear.tree import TreeShape
from stream_dp.testing.noise import ScriptedNoise, SeededNoise

EPSILON = Fraction(2, 3)
ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
FIRST, TWO = 96, 96 + 768  # updates before the first and the second hand-over
BEYOND = TWO + 100


def places(updates: int, first: int = FIRST, growth: int = 8) -> Iterator[tuple[int, int, int]]:
    """(update, size of its tree, updates inside it): trees of 96, 768, 6,144, ... updates, by counting."""
    size, inside = first, 0
    for update in range(1, updates + 1):
        if inside == size:
            size, inside = growth * size, 0
        inside += 1
        yield update, size, inside


def nodes(
    updates: int, epsilon: Fraction, first_tree: int = FIRST, growth: int = 8
) -> Iterator[Drawn]:
    """All that is drawn for columns that close together, in order; a tree's nodes end with its last update."""
    for update, size, inside in places(updates, first_tree, growth):
        shape = TreeShape.best(size)
        for node in oracle.drawn_with(shape.arity, shape.height, inside - 1):
            first, last = oracle.first_and_last(node, shape.arity)
            before = update - inside
            yield Drawn(shape.height / epsilon, before + first, before + min(last, size))


@dataclass(frozen=True)
class Together:
    """All columns close at each update; a query repeats what they answered."""

    counters: SeparateCounters

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.counters.width

    def init(self, noise: Noise) -> Any:
        """Nothing answered yet."""
        return self.counters.init(noise), None

    def step(self, state: Any, message: Message, noise: Noise) -> tuple[Any, IntArray | None]:
        """Take a row and close, or repeat."""
        if isinstance(message, Query):
            return state, state[1]
        taken, _ = self.counters.step(state[0], message, noise)
        return self.counters.step(taken, close(range(self.width)), noise), None


def close(columns: Sequence[int]) -> CloseQuery:
    """The query that closes these."""
    return CloseQuery(columns=np.array(columns, dtype=np.int64))


def check_together(kind: type[SeparateCounters], relation: Neighbors = ADD) -> Shifted:
    """Events around the hand-overs and between, against every answer."""
    near = {e + d for e in (1, FIRST, TWO) for d in (-1, 0, 1, 2, 40)} | {500, BEYOND}
    events = np.array(sorted(step for step in near if 1 <= step <= BEYOND))
    each = EPSILON / relation.l0(len(events) + 1)
    return check_counter(
        lambda width: Together(kind(width, EPSILON, relation)), nodes(BEYOND, each), BEYOND, events
    )


class Hasty(SeparateCounters):
    """The counters with trees of three updates each."""

    schedule = HandOverSchedule(3, 1)


class LateBaseLost(Hasty):
    """Broken: what tree 9 answered last is exact from then on."""

    def _close(
        self, state: SeparateState, columns: IntArray, age: int, noise: Noise
    ) -> tuple[SeparateState, IntArray]:
        after, noisy = super()._close(state, columns, age, noise)
        return (replace(after, base=state.base) if age == 30 else after), noisy


def check_hasty(kind: type[SeparateCounters]) -> Shifted:
    """An event at each update of eighteen trees, against every answer."""
    updates = 3 * 18
    drawn = nodes(updates, EPSILON, 3, 1)
    return check_counter(
        lambda width: Together(kind(width, EPSILON, ADD)), drawn, updates, np.arange(1, updates + 1)
    )


def test_every_hand_over_keeps_the_noise_of_the_tree_that_ends() -> None:
    noise = check_hasty(Hasty)
    assert {noise.cost(e) for e in noise.steps.tolist()} == {EPSILON}
    with pytest.raises(AssertionError, match="answer 32 moves otherwise"):
        check_hasty(LateBaseLost)


class BaseLost(SeparateCounters):
    """Broken: what the finished trees answered last is exact from then on."""

    def _close(
        self, state: SeparateState, columns: IntArray, age: int, noise: Noise
    ) -> tuple[SeparateState, IntArray]:
        after, noisy = super()._close(state, columns, age, noise)
        return replace(after, base=0 * after.base), noisy


class LateHandOver(SeparateCounters):
    """Broken: the first tree takes an update more than the oracle's."""

    schedule = HandOverSchedule(FIRST + 1, 8)


class BaseOfAll(SeparateCounters):
    """Broken: where one column's tree ends, all columns get its last noise."""

    def _close(
        self, state: SeparateState, columns: IntArray, age: int, noise: Noise
    ) -> tuple[SeparateState, IntArray]:
        after, noisy = super()._close(state, columns, age, noise)
        added = (after.base - state.base)[columns[0]]
        return replace(after, base=state.base + added), noisy


class AgesMixed(SeparateCounters):
    """Broken: what closes together is taken to be of one age."""

    def step(
        self, state: SeparateState, message: Message, noise: Noise
    ) -> tuple[SeparateState, IntArray | None]:
        """The first column's age for all."""
        if not isinstance(message, CloseQuery):
            return super().step(state, message, noise)
        return self._close(state, message.columns, int(state.updates[message.columns[0]]), noise)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_an_event_is_a_shift_that_costs_the_epsilon_of_its_column(relation: Neighbors) -> None:
    noise = check_together(SeparateCounters, relation)
    assert {noise.cost(e) for e in noise.steps.tolist()} == {EPSILON / relation.l0(9)}


@pytest.mark.parametrize("twin", [BaseLost, LateHandOver])
def test_a_hand_over_that_forgets_noise_or_comes_late_is_caught(
    twin: type[SeparateCounters],
) -> None:
    with pytest.raises((AssertionError, IndexError, StopIteration)):
        check_together(twin)


# --- (b) columns that close apart ---------------------------------------------------------------


@dataclass
class ByColumn:
    """Random noise that remembers which column each value was drawn for."""

    rng: np.random.Generator
    closing: Sequence[int] = ()
    drawn: dict[int, list[int]] = field(default_factory=dict)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """Values for the columns that close, one node after the other."""
        found = self.rng.integers(-(1 << 20), 1 << 20, size)
        for place, column in enumerate(self.closing):
            mine = found[place :: len(self.closing)]
            self.drawn.setdefault(column, []).extend(mine.tolist())
        return found

    geometric = gaussian = laplace


def told(kind: type[SeparateCounters]) -> type[SeparateCounters]:
    """The same counters, which tell the noise whose update closes."""

    class Told(kind):  # type: ignore[misc, valid-type]  # a class made from a parameter
        def _close(
            self, state: SeparateState, columns: IntArray, age: int, noise: Any
        ) -> tuple[SeparateState, IntArray]:
            noise.closing = columns.tolist()
            found: tuple[SeparateState, IntArray] = super()._close(state, columns, age, noise)
            return found

    return Told


@lru_cache(maxsize=1)
def closings() -> tuple[tuple[int, ...], ...]:
    """Who closes when: one always, one nearly, one seldom, one late; so that all ages meet."""
    rng, chances = np.random.default_rng(1), np.array([1, 0.95, 0.15, 0.5])
    found = []
    for t in range(BEYOND):
        closes = rng.random(4) < chances
        closes[3] &= t > FIRST
        found.append(tuple(np.flatnonzero(closes).tolist()))
    return tuple(found)


def apart(kind: type[SeparateCounters]) -> bool:
    """Whether each column of four answers what it would alone, from the noise that was drawn for it."""
    counters, noise = told(kind)(4, EPSILON, REPLACE), ByColumn(np.random.default_rng(2))
    state = counters.init(noise)
    answers: dict[int, list[int]] = {column: [] for column in range(4)}
    for t, columns in enumerate(closings()):
        state, _ = counters.step(state, Update(np.arange(4) + t % 5), noise)
        state, found = counters.step(state, close(columns), noise)
        assert found is not None
        for column, value in zip(columns, found.tolist(), strict=True):
            answers[column].append(value)
    return all(
        alone(column, noise.drawn[column], len(given)) == given for column, given in answers.items()
    )


def alone(column: int, drawn: list[int], number: int) -> list[int]:
    """The answers of this column's own counter, and that it draws neither more nor less."""
    counter = SeparateCounters(1, EPSILON, ADD)
    script = ScriptedNoise([*drawn, *[0] * 10_000])
    state, found = counter.init(script), list[int]()
    for t, columns in enumerate(closings()):
        state, _ = counter.step(state, Update(np.array([column + t % 5])), script)
        if column in columns:
            state, answer = counter.step(state, close((0,)), script)
            assert answer is not None
            found.append(int(answer[0]))
    return found if script.used == len(drawn) else []


def test_each_column_is_its_own_counter_wherever_the_others_stand() -> None:
    assert apart(SeparateCounters)
    numbers = [sum(column in columns for columns in closings()) for column in range(4)]
    assert numbers[0] > TWO > numbers[3] > numbers[2] > FIRST
    assert numbers[1] > TWO


def test_a_query_closes_one_update_of_each_column() -> None:
    """Columns one update apart were taken for one another: the younger one closed twice, its band counted once."""
    counters, noise = SeparateCounters(3, EPSILON, ADD), SeededNoise(1)
    state, closed = counters.init(noise), np.zeros(3, dtype=np.int64)
    for columns in ([0], [0, 1], [0, 1, 2], [1, 2], [0, 1, 2]):
        state, _ = counters.step(state, close(columns), noise)
        closed[columns] += 1
        assert state.updates.tolist() == closed.tolist()


class Twice(SeparateCounters):
    """Broken: as it was, it looks for the columns of an age among those that have just closed."""

    def step(
        self, state: SeparateState, message: Message, noise: Noise
    ) -> tuple[SeparateState, IntArray | None]:
        """The loop of old."""
        if not isinstance(message, CloseQuery):
            return super().step(state, message, noise)
        columns = message.columns
        answer = np.zeros(len(columns), dtype=np.int64)
        for age in sorted(set(state.updates[columns].tolist())):
            alike = state.updates[columns] == age
            state, noisy = self._close(state, columns[alike], age, noise)
            answer[alike] = noisy
        return state, answer


@pytest.mark.parametrize("twin", [BaseOfAll, AgesMixed, BaseLost, Twice])
def test_columns_that_mix_are_caught(twin: type[SeparateCounters]) -> None:
    try:
        found = apart(twin)
    except (IndexError, ValueError):
        found = False  # the columns' trees do not fit each other
    assert not found
