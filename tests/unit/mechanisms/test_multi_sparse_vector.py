"""Multi-dimensional sparse vector: meaning, exact privacy (closed form and real code), moving coordinates."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracles.svt import Decays, directional_loss, loss, pattern_probability

from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Message, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import RejectedMessage, UsageError
from stream_dp.mechanisms.papers.multi_sparse_vector import (
    MultiSparseVector,
    MultiSparseVectorState,
    SubsetQuery,
)
from stream_dp.mechanisms.states import STATES
from stream_dp.testing.conformance import Case, keeps_nothing, restores
from stream_dp.testing.noise import ScriptedNoise, SeededNoise, ZeroNoise
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_delta import Bracket, delta_bracket, exact_delta, worst_ratio
from stream_dp.verify.exact.exact_sparse_vector import BelowThreshold
from stream_dp.verify.exact.finite import DifferAtMost, FiniteComposition, FirstPair, SparsePairs

ADD, REPLACE, ONE = Neighbors.ADD_REMOVE, Neighbors.REPLACE, Fraction(1)
HALF, QUARTER = Fraction(1, 2), Fraction(1, 4)


def vector(
    *views: tuple[int, ...], width: int = 3, epsilon: int = 1, relation: Neighbors = ADD
) -> MultiSparseVector:
    """With two equal shares of epsilon each."""
    return MultiSparseVector(width, views, Fraction(epsilon), Fraction(epsilon), relation)


def row(*entries: int) -> Update:
    return Update(np.array(entries, dtype=np.int64))


def answers(mechanism: MultiSparseVector, noise: Any, *messages: Message) -> list[list[int]]:
    """All answers in order."""
    state, found = mechanism.init(noise), []
    for message in messages:
        state, answer = mechanism.step(state, message, noise)
        if answer is not None:
            found.append(answer.tolist())
    return found


# --- meaning ------------------------------------------------------------------------------------


def test_a_coordinate_answers_below_once_and_halts() -> None:
    found = answers(
        vector((0, 1), (1, 2)),
        ZeroNoise(),
        row(1, 1, 5),
        Query(2),  # counts 2 and 6: none below 2
        Query(3),
        Query(3),  # the first has halted
        SubsetQuery(3, (0, 1)),  # over these columns the second has 1
    )
    assert found == [[0, 0], [1, 0], [0, 0], [0, 1]]


def test_both_noises_enter_the_strict_comparison() -> None:
    for query_noise, expected in ((2, 0), (3, 1)):  # 4 + 1 < 3 + noise
        noise = ScriptedNoise([1, query_noise])
        assert answers(vector((0,), width=1), noise, row(4), Query(3)) == [[expected]]
        assert [call.scale for call in noise.calls] == [ONE, ONE]


def test_halted_coordinates_draw_no_noise() -> None:
    noise = ScriptedNoise([0, 0, 0, 0, 0])
    answers(vector((0,), (1,)), noise, row(0, 9, 0), Query(1), Query(1))
    assert [call.size for call in noise.calls] == [2, 2, 1]


@pytest.mark.parametrize(
    ("views", "relation", "expected"),
    [
        (((0,), (1,), (2,)), ADD, 1),
        (((0, 1), (1, 2)), ADD, 2),
        (((0, 1, 2),) * 3, ADD, 3),
        (((0, 1), (1, 2)), REPLACE, 4),
        (((),), ADD, 1),
    ],
)
def test_the_sensitivity_is_computed_from_the_views(
    views: tuple[tuple[int, ...], ...], relation: Neighbors, expected: int
) -> None:
    mechanism = vector(*views, relation=relation)
    assert mechanism.sensitivity == mechanism.lift_scale == mechanism.query_scale == expected
    assert mechanism.guarantee == Guarantee(PureDP(Fraction(2)), relation)


@pytest.mark.parametrize("views", [(), ((0, 0),), ((3,),), ((-1,),)])
def test_views_that_are_none_are_refused(views: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(UsageError, match="coordinate"):
        vector(*views)


@pytest.mark.parametrize(
    "message",
    [
        row(1),
        row(1, 1, -1),
        Query(),
        SubsetQuery(None, (0,)),
        SubsetQuery(1, (3,)),
        SubsetQuery(1, (-1,)),
    ],
)
def test_bad_messages_change_nothing_and_draw_nothing(message: Message) -> None:
    mechanism, noise = vector((0, 1), (1, 2)), SeededNoise(1)
    state, _ = mechanism.step(mechanism.init(noise), row(1, 2, 3), noise)
    before, drawn = STATES.encode(state), noise.drawn
    with pytest.raises(RejectedMessage):
        mechanism.step(state, message, noise)
    assert STATES.encode(state) == before
    assert noise.drawn == drawn


def test_after_all_have_halted_nothing_is_compared() -> None:
    with pytest.raises(RejectedMessage, match="create a new one"):
        answers(vector((0,)), ZeroNoise(), Query(1), Query(1))


@pytest.mark.parametrize("check", [restores, keeps_nothing])
def test_the_suite_that_all_mechanisms_pass(check: Any) -> None:
    """The rest of it is about counts above a threshold."""
    check(Case(name="multi", make=lambda: vector((0, 1), (1, 2), (2,)), threshold=90))


# --- exact privacy ------------------------------------------------------------------------------

EDGE = (((0,), (1,)), ((1,), (0,)))
WITH, WITHOUT = (0,), ()
ASKED = ((WITH, 3), (WITH, 1), (WITHOUT, 1))
DECAYS = [(HALF, HALF), (HALF, QUARTER), (QUARTER, HALF)]


def watched(relation: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]) -> FirstPair:
    """A data set of one column, then identical subset queries."""
    return FirstPair((*relation, ((0,), (0,))), ASKED)


def test_the_closed_form_has_the_law_of_the_other_derivation() -> None:
    counts, thresholds = (2, 2, 0), (1, 3, 1)
    queries = (((0, 1), 1), ((0, 1), 3), ((), 1))
    machine = BelowThreshold(HALF, QUARTER)
    state = next(s for _, s in machine.step(next(iter(machine.initial())), (1, 1)))
    chance = ONE
    for place, query in enumerate(queries):
        margins = tuple(c - t + 1 for c, t in zip(counts, thresholds, strict=True))[: place + 1]
        tops = (*[False] * place, True)
        law = {answer: (after, p) for (answer, after), p in machine.step(state, query).items()}
        assert chance * law[1][1] == pattern_probability(margins, tops, Decays(HALF, QUARTER))
        state, chance = law[0][0], chance * law[0][1]
    assert machine.step(None, queries[0]) == {(None, None): ONE}
    with pytest.raises(ValueError, match="data set first"):
        machine.step(((1,), ()), (1,))


@pytest.mark.parametrize(("tau", "nu"), DECAYS)
def test_one_coordinate_costs_both_shares_exactly(tau: Fraction, nu: Fraction) -> None:
    """e1 + e2 with query noise of scale 1/e2: the counted columns may change, the direction may not."""
    machine, claimed = BelowThreshold(tau, nu), 1 / (tau * nu)
    assert worst_ratio(machine, watched(EDGE), 4) == claimed
    assert exact_delta(machine, watched(EDGE), claimed, 4) == 0
    assert exact_delta(machine, watched(EDGE), claimed * Fraction(99, 100), 4) > 0


@pytest.mark.parametrize(("tau", "nu"), DECAYS)
def test_an_event_that_moves_between_columns_needs_twice_the_scale(
    tau: Fraction, nu: Fraction
) -> None:
    """`replace` in one coordinate: the count changes either way. D = 2 claims tau^-2 nu^-2; D = 1 is broken."""
    moved = FirstPair((((1, 0), (0, 1)), ((0, 1), (1, 0))), (((0,), 3), ((1,), 3), ((1,), 1)))
    found = worst_ratio(BelowThreshold(tau, nu), moved, 4)
    assert 1 / (tau * nu) < found <= 1 / (tau * nu) ** 2
    assert vector((0, 1), width=2, relation=REPLACE).sensitivity == 2


def test_two_coordinates_on_one_column_cost_twice_as_much_exactly() -> None:
    """The certificate for D = 2, against every adaptive adversary and not only the rounds of this mechanism."""
    machine = FiniteComposition((BelowThreshold(HALF, HALF),))
    pairs = SparsePairs((watched(EDGE),), (2,), 2)
    assert worst_ratio(machine, pairs, 8) == (1 / (HALF * HALF)) ** 2


def bracket_of(mechanism: Any, units: int, *queries: Query) -> Bracket:
    """Bounds of delta at `units` of epsilon, for one event in one column and then these queries; base 1/8, radius 5."""
    machine = Enumerated(mechanism, Fraction(1, 8), 5)
    pairs = DifferAtMost(queries, (((0,), (1,)), ((1,), (0,))))
    return delta_bracket(machine, pairs, machine.base**-units, 4)


LATER_WITHOUT = (SubsetQuery(2, (0,)), SubsetQuery(1, ()))


def test_the_real_code_meets_its_claim() -> None:
    mechanism = MultiSparseVector(1, ((0,), (0,)), Fraction(2), Fraction(2), ADD)
    assert mechanism.sensitivity == 2
    assert bracket_of(mechanism, 4, *LATER_WITHOUT).upper < Fraction(1, 20_000)


class OneEnd(MultiSparseVector):
    """Broken: the noise of one coordinate, though two look at the column."""

    sensitivity = 1


def test_a_forgotten_coordinate_is_caught() -> None:
    twin = OneEnd(1, ((0,), (0,)), ONE, ONE, ADD)
    assert bracket_of(twin, 2, *LATER_WITHOUT).lower > Fraction(1, 1_000)


class DealtAnew(MultiSparseVector):
    """Broken: each query says which coordinate gets the column, so at each query the l1 change is 1, as in D = 1."""

    def _counts(self, count: IntArray, query: Query) -> IntArray:
        counts = np.zeros(len(self.views), dtype=np.int64)
        if isinstance(query, SubsetQuery) and query.columns:
            counts[query.columns[0]] = count[0]
        return counts


def test_columns_that_move_between_coordinates_are_caught_in_the_real_code() -> None:
    twin = DealtAnew(1, ((0,), ()), ONE, ONE, ADD)
    assert twin.sensitivity == 1
    moving = (SubsetQuery(1, (0,)), SubsetQuery(1, (1,)))
    assert bracket_of(twin, 2, *moving).lower > Fraction(1, 100)


QUIET = 60  # so far below every count that no coordinate answers


@pytest.mark.parametrize("coordinates", [1, 2, 4, 8])
def test_the_moving_coordinate_costs_as_many_times_as_it_moves(coordinates: int) -> None:
    """Coordinate j sees the event in round j only. Booked by max over rounds of the sum: 1; exactly: d.

    The coordinates are independent given the public queries, so their worst losses add up.
    """
    noise, rounds = Decays.of(0.5, 0.5), coordinates + 1
    total = 0.0
    for j in range(coordinates):
        levels = [QUIET] * coordinates + [1]
        levels[j] = -2  # here the threshold decides, and the answer comes in the last round
        moved = tuple(-int(t == j) for t in range(rounds))
        total += loss((0,) * rounds, moved, levels, noise, strict=False)
    assert total == pytest.approx(coordinates)


def test_a_coordinate_that_answers_where_it_holds_the_event_loses_its_query_share() -> None:
    """The cheaper attack, one round per coordinate: d * e2, so 8 * 1/4 for a claimed 3/4."""
    each = directional_loss((0,), (-1,), (3,), Decays.of(0.5, 0.25))
    assert each == pytest.approx(0.25)


def test_state_is_not_shown() -> None:
    state = MultiSparseVectorState(*(np.array([918_273_645_546_372_819]),) * 3)
    assert "918273645546372819" not in repr(state)  # longer than an address
