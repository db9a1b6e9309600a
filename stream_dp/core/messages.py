"""The two messages a continual mechanism takes, and the shape of its rows.

Rules: messages are values. An `Update` carries one tick's row; a `Query` asks for the current answer.
This file knows nothing of noise, time, files or actors.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, repr=False)
class Update:
    """One tick of data: `row` has shape (width,), entries are non-negative event counts."""

    row: IntArray


@dataclass(frozen=True, slots=True)
class Query:
    """Ask for the current answer; `threshold` is a public value that only mechanisms with thresholds take."""

    threshold: int | None = None


Message: TypeAlias = Update | Query
