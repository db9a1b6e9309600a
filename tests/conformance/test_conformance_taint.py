"""A tainted value may be added, sliced and passed on; everything else raises, and no error text holds it."""

import copy
import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_dp.core.composition import Ask, Create, Halt
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import TaintError
from stream_dp.mechanisms.hss.sparse_vector import SparseVector
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.papers import SubsetQuery
from stream_dp.testing.conformance import Tainted, TaintedComposition, reveal, tainted_step
from stream_dp.testing.noise import ZeroNoise

SECRET = 918_273
ONE = Fraction(1)


def row() -> Tainted:
    return Tainted(np.array([SECRET, 2, 3]))


def grow(value: Any) -> None:
    """Add in place, as a careless mechanism would."""
    plain = np.zeros(3, dtype=np.int64)
    plain += value


def test_sums_and_slices_stay_tainted_and_right() -> None:
    plain = np.array([1, 1, 1])
    for found in (row() + plain, plain + row(), row() + 1, 1 + row(), np.add(plain, row())):
        assert isinstance(found, Tainted)
        assert reveal(found)[0] == SECRET + 1
    assert reveal(row() + row()).tolist() == [2 * SECRET, 4, 6]
    assert reveal(row()[0]) == SECRET
    assert reveal(row()[1:]).tolist() == [2, 3]
    assert reveal(row()[1] + row()[2]) == 5


FORBIDDEN: list[Callable[[Any], Any]] = [
    bool, len, iter, int, float, complex, round, math.floor, hash, repr, str, format, list, sorted, abs,
    pickle.dumps, copy.copy, copy.deepcopy,
    np.sum, np.max, np.asarray, np.array, np.abs, np.sort, grow,
    lambda x: f"{x}",
    lambda x: "%s" % x,  # noqa: UP031 - the old way of formatting leaks too
    lambda x: x == 1, lambda x: x != 1, lambda x: x < 1, lambda x: x <= 1, lambda x: x > 1,
    lambda x: 1 in (x, x), lambda x: 1 in x, lambda x: x in {1: 2},
    lambda x: 1 if x else 0, lambda x: not x,
    lambda x: [0, 1][x[1]], lambda x: range(x[1]), lambda x: np.zeros(3)[x],
    lambda x: x[x[1]], lambda x: x[x[1] :],
    lambda x: np.array([1, 2]) * x, lambda x: np.array([1, 2, 3]) < x,
    lambda x: np.maximum(x, 0), lambda x: np.where(x, 1, 0), lambda x: np.concatenate([x, x]),
    lambda x: np.add(1, x, out=np.zeros(3, dtype=np.int64)), lambda x: np.add.reduce(x),
    lambda x: x.sum(), lambda x: x.tolist(), lambda x: x.shape,
    lambda x: x - 1, lambda x: x * 2, lambda x: x // 2, lambda x: -x, lambda x: x & 1,
    lambda x: x.__setitem__(0, 1), lambda x: setattr(x, "_value", 1), lambda x: x.__iadd__(1),
]  # fmt: skip


@pytest.mark.parametrize("use", FORBIDDEN, ids=range(len(FORBIDDEN)))
def test_every_other_use_raises_without_the_value(use: Callable[[Any], Any]) -> None:
    with pytest.raises(TaintError) as caught:
        use(row())
    assert str(SECRET) not in str(caught.value)


def test_a_tainted_integer_has_no_parts() -> None:
    with pytest.raises(TypeError):
        row()[0][0]


def test_rows_enter_sub_mechanisms_and_nothing_else_does() -> None:
    over, noise = TaintedComposition(), ZeroNoise()
    counter = Counter(3, ONE, Neighbors.ADD_REMOVE, 5)
    state, _ = over.step(over.init(), Create(counter), noise)
    state, _ = over.step(state, Ask(0, Update(row())), noise)  # type: ignore[arg-type]
    _, answer = over.step(state, Ask(0, Query()), noise)
    assert answer is not None
    assert answer.tolist() == [SECRET, 2, 3]
    private: Any = row()[1]
    vector = SparseVector(3, ONE, ONE, Neighbors.ADD_REMOVE, (0, private, 0))
    for message in (
        Ask(private, Query()),
        Halt(private),
        Ask(0, Query(private)),
        Ask(0, SubsetQuery(5, (0, private))),
        Ask(0, SubsetQuery(5, private)),
        Create(vector),
        Create(Counter(3, ONE, Neighbors.ADD_REMOVE, private)),
    ):
        with pytest.raises(TaintError):
            over.step(state, message, noise)


def boxed() -> Any:
    """An object array with a private entry; numpy itself refuses to make one from a list."""
    box: Any = np.empty(1, dtype=object)
    box.fill(None)
    box[0] = (row(),)
    return box


@pytest.mark.parametrize("answer", [row, lambda: (1, row()), boxed])
def test_a_tainted_answer_is_caught(answer: Callable[[], Any]) -> None:
    class Leaks:
        width = 3
        guarantee: Any = None

        def init(self, noise: Any) -> int:
            return 0

        def step(self, state: int, message: Any, noise: Any) -> Any:
            return state, answer()

    with pytest.raises(TaintError):
        tainted_step(Leaks(), 0, Update(np.zeros(3, dtype=np.int64)), ZeroNoise())
