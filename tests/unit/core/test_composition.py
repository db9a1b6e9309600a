"""ExtConComp: indices, interleaving, halting; serial codec; guarantees and derivations as values."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from stream_dp.core.composition import Ask, ConcurrentComposition, Create, Halt
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import ApproxDP, Guarantee, PureDP
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.sealed import inside_of
from stream_dp.core.serial import Codec
from stream_dp.core.wire import wire
from stream_dp.errors import InvalidCost, NotDerivable, RejectedMessage, UnknownFormat
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


@wire("stranger", 1)
@dataclass(frozen=True)
class Stranger:
    """A type the codec does not know."""

    value: int


def test_the_codec_keeps_every_kind_of_value_exactly() -> None:
    value = (None, True, -5, 2**200, "text", b"bytes", Fraction(-7, 3), ADD, {3: (1, 2)}, ())
    assert STATES.decode(STATES.encode(value)) == value
    array = np.arange(6, dtype=np.int64).reshape(2, 3) - 2**62
    back = STATES.decode(STATES.encode(array))
    np.testing.assert_array_equal(back, array)
    assert back.dtype == np.int64
    back += 1  # a restored array is one's own


def test_the_codec_refuses_strangers_both_ways() -> None:
    with pytest.raises(TypeError, match="Stranger"):
        STATES.encode(Stranger(1))
    with pytest.raises(UnknownFormat, match="a part of the kind 'stranger'"):
        STATES.decode(Codec([Stranger]).encode(Stranger(1)))


def test_guarantees_are_exact_and_refuse_nonsense() -> None:
    assert PureDP(ONE).delta == 0
    for epsilon, delta in ((-1, 0), (1, -1), (1, 1)):
        with pytest.raises(InvalidCost, match="must"):
            ApproxDP(Fraction(epsilon), Fraction(delta))
    with pytest.raises(InvalidCost, match="negative"):
        PureDP(Fraction(-1))


def test_a_derivation_with_a_broken_condition_cannot_be_made() -> None:
    guarantee = Guarantee(PureDP(ONE), ADD)
    conditions = (Condition("sunny", True, "it is"), Condition("dry", False, "it rains"))
    with pytest.raises(NotDerivable, match="dry: it rains") as caught:
        Derivation("walk", guarantee, "rule", "book", conditions)
    assert "sunny" not in str(caught.value)
