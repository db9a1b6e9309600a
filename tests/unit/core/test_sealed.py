"""A seal is passed on and never read; no error text holds the value."""

import copy
import operator
import pickle
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest

from stream_dp.core.composition import Child, CompositionState
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.sealed import SealedState, inside_of
from stream_dp.core.serial import Codec
from stream_dp.core.wire import wire
from stream_dp.errors import TaintError
from stream_dp.mechanisms.linear.counter import Counter

SECRET = 987_654
COUNTER = Counter(2, Fraction(1), Neighbors.ADD_REMOVE, 8)

USES: list[Callable[[Any], Any]] = [
    lambda x: x.total, lambda x: x["total"], lambda x: x[0], lambda x: bool(x), lambda x: x == SECRET,
    lambda x: x != SECRET, lambda x: x < 1, lambda x: int(x), lambda x: float(x), lambda x: list(x),
    lambda x: len(x), lambda x: 1 in x, str, repr, "{}".format, lambda x: x + 1, lambda x: 1 + x,
    lambda x: x * 0, lambda x: np.array(1) + x, lambda x: np.add(x, x), lambda x: np.zeros(1) < x,
    np.asarray, lambda x: np.sum(x), copy.copy, copy.deepcopy, pickle.dumps, vars,
    lambda x: x.__dict__, lambda x: x._SealedState__value, lambda x: getattr(x, "value", 0),
    lambda x: setattr(x, "value", 1), lambda x: asdict(Child(COUNTER, x)), lambda x: range(x),
    "{:>9}".format, round, abs, complex, bytes, hex, reversed, lambda x: -x, lambda x: x - 1, lambda x: 1 - x,
    lambda x: 2 * x, lambda x: x <= 1, lambda x: x > 1, lambda x: x >= 1, lambda x: [*x], lambda x: np.multiply(2, x),
    np.mean, lambda x: delattr(x, "value"), lambda x: operator.setitem(x, 0, 1), lambda x: operator.delitem(x, 0),
]  # fmt: skip


@pytest.mark.parametrize("use", USES, ids=range(len(USES)))
def test_every_use_raises_without_the_value(use: Callable[[Any], Any]) -> None:
    with pytest.raises(TaintError) as caught:
        use(SealedState(SECRET))
    assert str(SECRET) not in str(caught.value)


def test_it_is_no_key_either() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(SealedState(SECRET))


def test_a_state_is_sealed_when_a_child_is_made_and_once() -> None:
    child = Child(COUNTER, SECRET)
    assert inside_of(child.state) == SECRET
    assert inside_of(Child(COUNTER, child.state).state) == SECRET
    assert Child(COUNTER, child.state).state is child.state


@wire("part-of-test-sealed", 1)
@dataclass(frozen=True)
class Part:
    """A mechanism of a codec of its own."""


def test_the_wire_form_is_that_of_the_state_and_is_read_back_sealed() -> None:
    """The bytes are those of before states were sealed, so that journals go on."""
    codec = Codec([Child, CompositionState, Part])
    data = codec.encode(CompositionState(1, {0: Child(Part(), (SECRET, "noise"))}))  # type: ignore[arg-type]
    child = {
        "mechanism": {"$": "part-of-test-sealed", "version": 1, "fields": {}},
        "state": [SECRET, "noise"],
    }
    live = {"$dict": [[0, {"$": "composition-child", "version": 1, "fields": child}]]}
    whole = {"$": "composition-state", "version": 1, "fields": {"created": 1, "live": live}}
    assert msgspec.msgpack.decode(data) == whole
    back = codec.decode(data)
    assert type(back.live[0].state) is SealedState
    assert inside_of(back.live[0].state) == (SECRET, "noise")
    assert codec.encode(back) == data
