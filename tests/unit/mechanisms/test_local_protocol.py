"""The papers' sparse vector of several dimensions and local protocols: meaning, refusals, broken twins.

Exact prices of edges, and of the real code on two nodes, are `stream_dp.verify.exact_checks.protocols`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_dp.core.composition import Ask, ConcurrentComposition, Create
from stream_dp.core.guarantee import ApproxDP, Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Mechanism, Message, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import Claim
from stream_dp.errors import NotDerivable, RejectedMessage, UsageError
from stream_dp.mechanisms.papers import LocalProtocol, MultiSparseVector, SubsetQuery
from stream_dp.mechanisms.states import STATES
from stream_dp.mechanisms.watches.kinds import Alerts
from stream_dp.testing.conformance import (
    Case,
    keeps_nothing,
    neighbours_stay_neighbours,
    refuses,
    restores,
    taint,
)
from stream_dp.testing.noise import ScriptedNoise, SeededNoise, ZeroNoise
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_delta import Bracket, delta_bracket
from stream_dp.verify.exact.finite import DifferAtMost, Sampled
from stream_dp.verify.exact.randomized_response import LeakyBit
from stream_dp.verify.exact_checks.protocols import LocalMessages, SparseDataSets
from stream_dp.verify.relations import StaticDataSet, Suitable

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
ONE, HALF = Fraction(1), Fraction(1, 2)


def row(*entries: int) -> Update:
    return Update(np.array(entries, dtype=np.int64))


def play(
    mechanism: Mechanism[Any], noise: Noise, *messages: Message
) -> tuple[Any, list[list[int]]]:
    state, answers = mechanism.init(noise), []
    for message in messages:
        state, answer = mechanism.step(state, message, noise)
        if answer is not None:
            answers.append(answer.tolist())
    return state, answers


def bracket(mechanism: Any, units: int, *queries: Query) -> Bracket:
    """Bounds of delta at `units` of epsilon: the real code, one event in one column, then these; base 1/8, radius 5."""
    machine = Enumerated(mechanism, Fraction(1, 8), 5)
    pairs = DifferAtMost(queries, (((0,), (1,)), ((1,), (0,))))
    return delta_bracket(machine, pairs, machine.base**-units, 4)


# --- the multi-dimensional sparse vector ------------------------------------------------------------


def vector(
    *views: tuple[int, ...], width: int = 3, epsilon: int = 1, relation: Neighbors = ADD
) -> MultiSparseVector:
    return MultiSparseVector(width, views, Fraction(epsilon), Fraction(epsilon), relation)


def test_a_coordinate_answers_below_once_and_halts() -> None:
    queries = (Query(2), Query(3), Query(3), SubsetQuery(3, (0, 1)))  # over these columns 2 and 1
    noise = ScriptedNoise([0] * 9)
    _, answers = play(vector((0, 1), (1, 2)), noise, row(1, 1, 5), *queries)
    assert answers == [[0, 0], [1, 0], [0, 0], [0, 1]]
    assert [call.size for call in noise.calls] == [2, 2, 2, 1, 1]  # none for what has halted
    with pytest.raises(RejectedMessage, match="create a new one"):
        play(vector((0,)), ZeroNoise(), Query(1), Query(1))


def test_both_noises_enter_the_strict_comparison() -> None:
    for query_noise, expected in ((2, 0), (3, 1)):  # 4 + 1 < 3 + noise
        noise = ScriptedNoise([1, query_noise])
        assert play(vector((0,), width=1), noise, row(4), Query(3))[1] == [[expected]]
        assert [call.scale for call in noise.calls] == [ONE, ONE]


@pytest.mark.parametrize(
    ("views", "relation", "expected"),
    [
        (((0,), (1,), (2,)), ADD, 1), (((0, 1), (1, 2)), ADD, 2), (((0, 1), (1, 2)), REPLACE, 4),
        (((),), ADD, 1),
    ],
)  # fmt: skip
def test_the_sensitivity_is_computed_from_the_views(
    views: tuple[tuple[int, ...], ...], relation: Neighbors, expected: int
) -> None:
    mechanism = vector(*views, relation=relation)
    assert mechanism.sensitivity == mechanism.lift_scale == mechanism.query_scale == expected
    assert mechanism.guarantee == Guarantee(PureDP(Fraction(2)), relation)


def test_views_that_are_none_are_refused() -> None:
    for views in ((), ((0, 0),), ((3,),), ((-1,),)):
        with pytest.raises(UsageError, match="coordinate"):
            vector(*views)


@pytest.mark.parametrize(
    "message", [row(1, 1, -1), Query(), SubsetQuery(None, (0,)), SubsetQuery(1, (3,))]
)
def test_bad_messages_change_nothing_and_draw_nothing(message: Message) -> None:
    mechanism, noise = vector((0, 1), (1, 2)), SeededNoise(1)
    state, _ = mechanism.step(mechanism.init(noise), row(1, 2, 3), noise)
    before, drawn = STATES.encode(state), noise.drawn
    with pytest.raises(RejectedMessage):
        mechanism.step(state, message, noise)
    assert STATES.encode(state) == before
    assert noise.drawn == drawn
    assert "918273645546372819" not in repr(replace(state, count=np.array([918273645546372819])))


@pytest.mark.parametrize("check", [restores, keeps_nothing])
def test_the_suite_that_all_mechanisms_pass(check: Any) -> None:
    """The rest of it is about counts above a threshold."""
    check(Case(name="multi", make=lambda: vector((0, 1), (1, 2), (2,)), threshold=90))


LATER_WITHOUT = (SubsetQuery(2, (0,)), SubsetQuery(1, ()))


class OneEnd(MultiSparseVector):
    """Broken: the noise of one coordinate, though two look at the column."""

    sensitivity = 1


def test_the_real_sparse_vector_meets_its_claim_and_a_twin_does_not() -> None:
    right = vector((0,), (0,), width=1, epsilon=2)
    assert right.sensitivity == 2
    assert bracket(right, 4, *LATER_WITHOUT).upper < Fraction(1, 20_000)
    forgotten = OneEnd(1, ((0,), (0,)), ONE, ONE, ADD)
    assert bracket(forgotten, 2, *LATER_WITHOUT).lower > Fraction(1, 1_000)


# --- local protocols: rounds and parts ------------------------------------------------------------------

TRIANGLE = ((0, 1), (0, 2), (1, 2))  # vertices that hold the edges 01, 02, 12


@dataclass(frozen=True)
class Rounds:
    """A server that asks these rounds, user by user; one who has answered 1 is not asked again."""

    users: int
    queries: tuple[Query, ...]

    def init(self) -> tuple[int, tuple[int, ...]]:
        return 0, tuple(range(self.users))

    def questions(self, state: tuple[int, tuple[int, ...]]) -> tuple[Ask, ...]:
        number, taking_part = state
        if number == len(self.queries):
            return ()
        return tuple(Ask(user, self.queries[number]) for user in taking_part)

    def hear(
        self, state: tuple[int, tuple[int, ...]], answers: tuple[IntArray, ...]
    ) -> tuple[int, tuple[int, ...]]:
        number, asked = state
        left = (user for user, answer in zip(asked, answers, strict=True) if not answer[0])
        return number + 1, tuple(left)


def user(width: int, epsilon: int = 1, relation: Neighbors = ADD) -> MultiSparseVector:
    return vector(tuple(range(width)), width=width, epsilon=epsilon, relation=relation)


def triangle(
    *queries: Query,
    relation: Neighbors = ADD,
    over: ConcurrentComposition | None = None,
) -> LocalProtocol:
    """Three users, each with two of three edges."""
    users = tuple(user(2, relation=relation) for _ in TRIANGLE)
    return LocalProtocol(users, TRIANGLE, Rounds(3, queries), over or ConcurrentComposition())


def test_users_get_their_parts_and_the_server_hears_answers_only() -> None:
    protocol = triangle(Query(3), Query(4), Query(5))
    state, answers = play(protocol, ZeroNoise(), row(2, 0, 1), row(0, 1, 0), *[Query()] * 4)
    assert answers == [[0, 0, 1], [1, 1], [], []]  # degrees 3, 3, 2
    assert state.server == (2, ())


def test_data_may_come_between_rounds() -> None:
    two = triangle(Query(1), Query(2))
    _, answers = play(two, ZeroNoise(), row(1, 1, 0), Query(), row(0, 0, 9), Query())
    assert answers == [[0, 0, 0], [0, 0, 0]]


def test_a_protocol_of_sparse_vectors_is_the_multi_dimensional_sparse_vector() -> None:
    """The same draws in the same order, the same answers ([HSV] section 9)."""
    levels = (2, 3, 4, 5)
    block = MultiSparseVector(3, TRIANGLE, Fraction(2), Fraction(2), ADD)
    draws = [int(x) for x in SeededNoise(4).geometric(Fraction(2), 60)]
    noises = ScriptedNoise(draws), ScriptedNoise(draws)
    parts = triangle(*map(Query, levels))
    whole, own = block.init(noises[0]), parts.init(noises[1])
    whole, _ = block.step(whole, row(3, 1, 0), noises[0])
    own, _ = parts.step(own, row(3, 1, 0), noises[1])
    for level in levels:
        asked = own.server[1]
        if not asked:
            break
        whole, expected = block.step(whole, Query(level), noises[0])
        own, answer = parts.step(own, Query(), noises[1])
        assert np.array_equal(np.array(answer), np.array(expected)[list(asked)])
    assert noises[0].used == noises[1].used > 6
    assert block.guarantee == parts.guarantee == Guarantee(PureDP(Fraction(4)), ADD)


def test_the_most_users_of_one_event_are_counted() -> None:
    assert triangle().sparsity == 2
    assert triangle(relation=REPLACE).sparsity == 3  # an edge may move: all three
    apart = LocalProtocol((user(1), user(2, 3)), ((2,), (0, 1)), Rounds(2, ()))
    assert (apart.sparsity, apart.width) == (1, 3)
    assert apart.guarantee.measure == PureDP(Fraction(6))


@pytest.mark.parametrize(
    ("users", "views"),
    [
        ((), ()), ((user(1),), ((0,), (1,))), ((user(2),), ((0,),)), ((user(2),), ((0, 0),)),
        ((user(1),), ((-1,),)), ((user(1), user(1, relation=REPLACE)), ((0,), (1,))),
    ],
)  # fmt: skip
def test_parts_that_fit_no_users_are_refused(users: Any, views: Any) -> None:
    with pytest.raises(UsageError, match=r"part|neighbour"):
        LocalProtocol(users, views, Rounds(1, ()))


def test_growing_data_of_users_with_delta_has_no_guarantee() -> None:
    """[HSV] Thm 5.2 would break it; the message says what is left."""
    leaky = Sampled(LeakyBit(HALF), Guarantee(ApproxDP(Fraction(0), HALF), ADD))
    protocol = LocalProtocol((leaky, leaky), ((0,), (0,)), Rounds(2, ()))
    with pytest.raises(NotDerivable, match=r"Thm 5\.2.*Cor 8\.8"):
        _ = protocol.guarantee


def test_a_user_that_refuses_the_server_changes_nothing() -> None:
    protocol, noise = triangle(Query()), SeededNoise(1)
    state, _ = play(protocol, noise, row(1, 0, 0))
    before, drawn = STATES.encode(state), noise.drawn
    with pytest.raises(RejectedMessage, match="public threshold"):
        protocol.step(state, Query(), noise)
    assert STATES.encode(state) == before
    assert noise.drawn == drawn


def test_a_server_that_sends_data_is_none() -> None:
    @dataclass(frozen=True)
    class Sends(Rounds):
        def questions(self, state: Any) -> tuple[Ask, ...]:
            return (Ask(0, row(0, 0)),)

    with pytest.raises(TypeError, match="sends only queries"):
        play(replace(triangle(), server=Sends(3, ())), ZeroNoise(), Query())


# --- destination, response, f to f' ----------------------------------------------------------------


def case() -> Case:
    """For the suite that every composite passes; three rounds."""

    def make(over: ConcurrentComposition | None = None) -> LocalProtocol:
        return triangle(Query(1), Query(20), Query(60), over=over)

    return Case(name="local protocol", make=make, composite=make, touches=((MultiSparseVector, 2),))


@pytest.mark.parametrize(
    "check", [restores, refuses, keeps_nothing, taint, neighbours_stay_neighbours]
)
def test_the_suite_that_all_composites_pass(check: Callable[[Case], None]) -> None:
    """Claims 8.4 and 8.6 of [HSV], run."""
    check(case())


class Traced(ConcurrentComposition):
    def __init__(self) -> None:
        object.__setattr__(self, "sent", [])

    def step(self, state: Any, message: Any, noise: Noise) -> Any:
        self.__dict__["sent"].append(message)
        return ConcurrentComposition.step(self, state, message, noise)


def sent(data: Update) -> list[Any]:
    """What a triangle sends to its users without noise, the data first and then all rounds."""
    over = Traced()
    play(triangle(Query(1), Query(2), over=over), ZeroNoise(), data, Query(), Query())
    return over.__dict__["sent"]  # type: ignore[no-any-return]


def one_more(left: Any, right: Any) -> bool:
    """~*: one event more or less in one user's part."""
    return bool(abs(left.row - right.row).sum() <= 1)


def test_what_is_sent_to_the_users_is_valid_for_the_relation_of_local_protocols() -> None:
    """Claim 8.6: f_~ -> f_(P, ~), with the two ends of an edge; k = 1 does not cover it."""
    claim = Claim(PureDP(Fraction(2)), StaticDataSet(one_more))
    users = tuple(Create(user(2), claim) for _ in TRIANGLE)
    left, right = sent(row(5, 5, 5)), sent(row(5, 6, 5))
    assert len(left) == 3 + 3 + 3 + 3
    pairs = [*((made, made) for made in users), *list(zip(left, right, strict=True))[len(users) :]]
    for k, valid in ((2, True), (1, False)):
        check: Any = LocalMessages(
            users, SparseDataSets(k, one_more), suitable=Suitable(lambda create: True)
        )
        for pair in pairs:
            check = check and check.accept(*pair)
        assert (check is not None) == valid


def test_protocols_nest_as_mechanisms() -> None:
    """A protocol per day in one composition: what the k-core example does."""
    over = ConcurrentComposition()
    protocols: tuple[Mechanism[Any], ...] = (triangle(Query(1)), Alerts(3, ONE, ADD, 2))
    outer = LocalProtocol(protocols, ((0, 1, 2), (0, 1, 2)), Rounds(2, (Query(),)), over)
    assert outer.sparsity == 2
    assert play(outer, ZeroNoise(), row(1, 1, 0), Query())[1] == [[0, 0, 0, 0, 0, 0]]
