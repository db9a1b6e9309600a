"""Relations at work: compositions inside compositions are played, a ledger is the filter, query spaces are watched."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest

from stream_dp.accounting.filters.linear import PureFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.core.composition import Ask, ConcurrentComposition, Create, Halt
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import Claim, Relation
from stream_dp.core.row_relations import Stream, event
from stream_dp.errors import RejectedMessage
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.testing.noise import SeededNoise, ZeroNoise
from stream_dp.verify.exact.finite import Sampled
from stream_dp.verify.exact.randomized_response import RandomizedResponse
from stream_dp.verify.games.game import (
    HALT,
    Game,
    HaltingVerifier,
    LedgerFilter,
    Side,
    Verifier,
    View,
)
from stream_dp.verify.relations.pair_conditions import Suitable, filtered, k_sparse

ADD, ONE = Neighbors.ADD_REMOVE, Fraction(1)
BITS: tuple[Literal[0, 1], ...] = (0, 1)
COUNTER = Create(Counter(1, ONE, ADD, 9))


def row(*entries: int) -> Update:
    return Update(np.array(entries, dtype=np.int64))


@dataclass(frozen=True)
class Recited:
    """An adversary that sends these pairs whatever it hears."""

    pairs: Sequence[Any]

    def init(self, noise: Noise) -> int:
        """At the first."""
        return 0

    def step(self, state: int, message: Any, noise: Noise) -> tuple[int, Any]:
        """The next."""
        return state + 1, self.pairs[state] if state < len(self.pairs) else HALT


def play(function: Relation, pairs: Sequence[Any], b: Literal[0, 1]) -> View:
    return Game(ConcurrentComposition(), function).play(Recited(pairs), b, ZeroNoise())


def answers(view: View) -> list[list[int]]:
    return [m.tolist() for m in view.transcript.messages if isinstance(m, np.ndarray)]


INSIDE = k_sparse([(ONE, Fraction(0))])
BOX = Create(ConcurrentComposition(), Claim(PureDP(ONE), INSIDE))
OUTSIDE = k_sparse([(ONE, Fraction(0))], truth=lambda query: query in (BOX, COUNTER))
PREPARED = [
    (BOX,) * 2,
    (COUNTER,) * 2,
    (Ask(0, COUNTER),) * 2,
    (Ask(0, COUNTER),) * 2,
    (Ask(1, row(3)),) * 2,
]
TOUCH = (Ask(0, Ask(1, row(4))), Ask(0, Ask(1, row(5))))
LOOK = [(Ask(0, Ask(1, Query())),) * 2, (Ask(1, Query()),) * 2]


def test_a_composition_runs_inside_a_composition() -> None:
    for b in BITS:
        view = play(OUTSIDE, [*PREPARED, TOUCH, *LOOK], b)
        assert view.transcript.halted is Side.LEFT
        assert answers(view) == [[4 + b], [3]]


@pytest.mark.parametrize(
    "refused",
    [
        (Ask(0, Ask(0, row(4))), Ask(0, Ask(0, row(5)))),  # a second one inside
        (Ask(1, row(4)), Ask(1, row(5))),  # a second one outside
        (Ask(0, Ask(2, row(4))),) * 2,  # there is none
        (Ask(0, row(4)),) * 2,  # not a message to a composition
        (Ask(1, Ask(0, row(4))),) * 2,  # not a message to a counter
        (Ask(0, BOX),) * 2,  # claimed, and nobody says that it is true in there
        (Create(ConcurrentComposition()),) * 2,  # nothing is claimed
        (Halt(2),) * 2,
    ],
)
def test_what_is_not_valid_in_there_halts(refused: Any) -> None:
    for b in BITS:
        view = play(OUTSIDE, [*PREPARED, TOUCH, refused, *LOOK], b)
        assert view.transcript.halted is Side.RIGHT
        assert view.transcript.last is refused
        assert answers(view) == []


def test_a_halted_composition_takes_its_children_along() -> None:
    view = play(OUTSIDE, [*PREPARED, (Halt(0),) * 2, LOOK[1], LOOK[0]], 0)
    assert answers(view) == [[3]]
    assert view.transcript.last is LOOK[0]


def test_a_composition_refuses_what_is_addressed_to_nothing_in_it() -> None:
    over, noise = ConcurrentComposition(), ZeroNoise()
    state, _ = over.step(over.init(), BOX, noise)
    with pytest.raises(RejectedMessage, match="messages to one of its own"):
        over.step(state, Ask(0, row(1)), noise)
    assert state.created == 1


BITS_ONLY = Create(Sampled(RandomizedResponse(Fraction(3)), Guarantee(PureDP(ONE), ADD)))


class AnyQuery(Suitable):
    """Without Def 4.5 (iii)."""

    __slots__ = ()

    def _ask(self, index: int, left: Any, right: Any) -> Any:
        child = self._live(index)
        return self if child and child.relation.accept(left, right) else None

    def _create(self, query: Create) -> Any:
        after = Suitable._create(self, query)
        return None if after is None else AnyQuery(after.truth, after.created)


def test_a_row_that_one_side_refuses_would_show_the_bit() -> None:
    """Rows 1 and 2 differ by one event, and the mechanism takes bits: without (iii) it halts for b = 1 alone."""
    pairs = [(BITS_ONLY,) * 2, (Ask(0, row(1)), Ask(0, row(2))), (BITS_ONLY,) * 2]

    def lengths(function: Relation) -> list[int]:
        game = Game(ConcurrentComposition(), function)
        views = [game.play(Recited(pairs), b, SeededNoise(1)) for b in BITS]
        return [len(view.transcript.messages) for view in views]

    assert lengths(Suitable()) == [3, 3]
    assert lengths(AnyQuery()) == [6, 3]


def test_a_ledger_is_the_filter_of_a_game() -> None:
    """[HSV] Def 12.2: two charges fit, the third creation halts, also after a halt, which gives nothing back."""
    function = filtered(LedgerFilter(Ledger.under(PureFilter.of(2 * ONE))))
    create = (COUNTER,) * 2
    pairs = [create, create, (Ask(0, row(1)), Ask(0, row(2))), (Halt(0),) * 2, create]
    view = play(function, pairs, 0)
    assert view.transcript.halted is Side.RIGHT
    assert len(view.transcript.messages) == 2 * 4 + 1


def test_a_creation_that_is_no_cost_halts_the_game_and_raises_nothing() -> None:
    """A claim of epsilon 0 is no charge; the verifier halts at it, as at any other message that is not f-valid."""
    function = filtered(LedgerFilter(Ledger.under(PureFilter.of(ONE))), truth=lambda _: True)
    nothing = Claim(PureDP(0 * ONE), Stream(event(ADD)))
    create = Create(COUNTER.mechanism, nothing)
    assert function.accept(create, create) is None


def test_the_verifier_of_a_game_is_the_one_of_the_core() -> None:
    processor = HaltingVerifier(Stream(event(ADD)))
    state = processor.init()
    assert state == Verifier(Stream(event(ADD)))
    for message in ((row(1), row(1)), (row(1), row(2)), (row(1), row(2))):
        after, _, passed = processor.step(state, Side.LEFT, message)
        assert after == state.verify(message)
        assert (passed is HALT) == after.halted
        state = after
    assert state.halted
    for junk in (None, row(1), (row(1),), (row(1),) * 3, [row(1)] * 2):
        assert Verifier(Stream(event(ADD))).verify(junk).halted
