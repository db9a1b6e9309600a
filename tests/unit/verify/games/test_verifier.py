"""The verifier of [HSV] 3.3-3.5 and the guard: what halts stays halted, and the guard passes rows of counts alone."""

from collections.abc import Callable

import numpy as np
import pytest

from stream_dp.core.mechanism import IntArray
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_relations import event
from stream_dp.engine.series import Guard
from stream_dp.errors import FailClosed, NotDerivable
from stream_dp.verify.game import Verifier

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE


def test_a_halted_verifier_stays_halted() -> None:
    zero, two = np.zeros(2, np.int64), np.array([2, 0])
    halted = Verifier(event(ADD)).verify((zero, two))
    assert halted.halted
    assert halted.verify((zero, zero)).halted


def test_the_guard_is_the_identity_on_rows_of_counts() -> None:
    for values in ([0, 0, 0], [1, 2**40, 7]):
        row = np.array(values, dtype=np.int64)
        assert Guard(3).admit(row) is row
        assert row.tolist() == values
    assert Guard(0).admit(np.zeros(0, dtype=np.int64)).size == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.array([1, 2, -918273]),
        lambda: np.array([918273, 1]),
        lambda: np.array([[918273, 1, 1]]),
        lambda: np.array([1.0, 2.0, 918273.0]),
        lambda: np.array([1, 2, 3], dtype=np.int32),
    ],
)
def test_the_guard_stops_on_anything_else_without_a_word_of_it(
    make: Callable[[], IntArray],
) -> None:
    with pytest.raises(FailClosed) as caught:
        Guard(3).admit(make())
    assert "918273" not in str(caught.value)


def test_amounts_may_be_any_and_counts_beside_them_may_not() -> None:
    guard = Guard(3, (slice(1, 3),))
    row = np.array([4, -918273, 1 << 50])
    assert guard.admit(row) is row
    for bad in ([-1, 0, 0], [1 << 50, 0, 0], [1, 2, 3, 4]):
        with pytest.raises(FailClosed):
            guard.admit(np.array(bad))
    with pytest.raises(FailClosed):
        Guard(3).admit(row)


def test_sensitivities() -> None:
    assert [ADD.l0(1), ADD.l0(5), REPLACE.l0(1), REPLACE.l0(5)] == [1, 1, 1, 2]
    assert [ADD.l0(1, 3), ADD.l0(5, 3), REPLACE.l0(7, 3), REPLACE.l0(5, 3)] == [1, 3, 6, 5]
    assert [ADD.l0(4, 4), REPLACE.l0(4, 4)] == [4, 4]
    for ones in (0, -1):
        with pytest.raises(NotDerivable, match="at least one entry"):
            ADD.l0(3, ones)
    assert ADD.monotone(5)
    assert REPLACE.monotone(1)
    assert not REPLACE.monotone(5)
