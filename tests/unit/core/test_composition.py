"""ExtConComp: indices, interleaving, halting; a derivation whose condition does not hold cannot be made."""

from fractions import Fraction

import numpy as np
import pytest

from stream_dp.core.composition import Ask, ConcurrentComposition, Create, Halt
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.sealed import inside_of
from stream_dp.errors import NotDerivable, RejectedMessage
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.states import STATES
from stream_dp.testing.noise import ZeroNoise

ADD, ONE = Neighbors.ADD_REMOVE, Fraction(1)


def test_mechanisms_run_interleaved_and_end_one_by_one() -> None:
    over, noise = ConcurrentComposition(), ZeroNoise()
    state = over.init()
    for width in (1, 2):
        state, answer = over.step(state, Create(Counter(width, ONE, ADD, 9)), noise)
        assert answer is None
    before = STATES.encode(inside_of(state.live[0].state))
    later, _ = over.step(state, Ask(1, Update(np.array([4, 5]))), noise)
    assert STATES.encode(inside_of(state.live[1].state)) != STATES.encode(
        inside_of(later.live[1].state)
    )
    assert STATES.encode(inside_of(later.live[0].state)) == before
    _, answer = over.step(later, Ask(1, Query()), noise)
    assert answer is not None
    assert answer.tolist() == [4, 5]
    ended, _ = over.step(later, Halt(0), noise)
    assert (ended.created, list(ended.live)) == (2, [1])
    for message in (Ask(0, Query()), Halt(0), Ask(2, Query()), Ask(-1, Query())):
        with pytest.raises(RejectedMessage, match="no live mechanism"):
            over.step(ended, message, noise)
    again, _ = over.step(ended, Create(Counter(1, ONE, ADD, 9)), noise)
    assert list(again.live) == [1, 2]  # an index is never given twice


def test_a_refusal_inside_changes_nothing_outside() -> None:
    over, noise = ConcurrentComposition(), ZeroNoise()
    state, _ = over.step(over.init(), Create(Counter(2, ONE, ADD, 9)), noise)
    before = STATES.encode(inside_of(state.live[0].state))
    with pytest.raises(RejectedMessage):
        over.step(state, Ask(0, Update(np.array([1]))), noise)
    assert STATES.encode(inside_of(state.live[0].state)) == before


def test_a_derivation_with_a_broken_condition_cannot_be_made() -> None:
    guarantee = Guarantee(PureDP(ONE), ADD)
    conditions = (Condition("sunny", True, "it is"), Condition("dry", False, "it rains"))
    with pytest.raises(NotDerivable, match="dry: it rains") as caught:
        Derivation("walk", guarantee, "rule", "book", conditions)
    assert "sunny" not in str(caught.value)


def test_a_composition_refuses_what_is_addressed_to_nothing_in_it() -> None:
    over, noise = ConcurrentComposition(), ZeroNoise()
    state, _ = over.step(over.init(), Create(ConcurrentComposition()), noise)
    with pytest.raises(RejectedMessage, match="messages to its own mechanisms"):
        over.step(state, Ask(0, Update(np.array([1]))), noise)
    assert state.created == 1
