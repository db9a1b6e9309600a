"""The checks every mechanism makes on the rows it is given."""

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.errors import RejectedMessage

LARGEST = 1 << 40


def checked(row: IntArray, width: int) -> IntArray:
    """Return `row` if it is an int64 array of shape (width,) with entries in [0, 2^40].

    Raises:
        RejectedMessage: anything else; the message does not repeat the row.
    """
    if not isinstance(row, np.ndarray) or row.dtype != np.int64 or row.shape != (width,):
        raise RejectedMessage(f"a row must be an int64 array of shape ({width},)")
    if width and (row.min() < 0 or row.max() > LARGEST):
        raise RejectedMessage("the entries of a row must be counts from 0 to 2^40")
    return row
