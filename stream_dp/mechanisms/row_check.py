"""Checks that every mechanism makes on its rows and on their number.

The bound keeps sums of rows inside 64 bits. The guard in front of the engine admits much smaller counts, so no sum
of admitted counts is refused here. An amount beyond the bound needs more than 10^9 of the largest records in one
tick.
"""

import numpy as np

from stream_dp.core.how_many import how_many
from stream_dp.core.messages import IntArray
from stream_dp.core.row_relations import counts_up_to
from stream_dp.errors import RejectedMessage

LARGEST = 1 << 60


def checked(row: IntArray, width: int) -> IntArray:
    """Return `row` if it is an int64 array of shape (width,) with entries in [0, 2^60].

    Raises:
        RejectedMessage: anything else; the message does not repeat the row.
    """
    if not isinstance(row, np.ndarray) or row.dtype != np.int64 or row.shape != (width,):
        raise RejectedMessage(f"a row must be an int64 array of shape ({width},)")
    if not counts_up_to(row, LARGEST):
        raise RejectedMessage("the entries of a row must be counts from 0 to 2^60")
    return row


def checked_amounts(row: IntArray, width: int) -> IntArray:
    """Return `row` if it is an int64 array of shape (width,) with entries in [-2^60, 2^60].

    Raises:
        RejectedMessage: anything else; the message does not repeat the row.
    """
    if not isinstance(row, np.ndarray) or row.dtype != np.int64 or row.shape != (width,):
        raise RejectedMessage(f"a row must be an int64 array of shape ({width},)")
    if width and (row.min() < -LARGEST or row.max() > LARGEST):
        raise RejectedMessage("the entries of a row must be amounts from -2^60 to 2^60")
    return row


def require_left(updates: int, most: int | None) -> None:
    """Check that a counter for at most `most` updates (None: any number) takes one more after `updates` updates.

    Raises:
        RejectedMessage: it has had all its updates.
    """
    if most is not None and updates >= most:
        raise RejectedMessage(
            f"this counter was made for {how_many(most, 'update')} and has had them all; declare a longer horizon"
        )
