"""The protocol of a continual mechanism ([HSV] Def 3.1) and of the noise it draws.

Rules: a step takes a state and returns the next one. `step` is synchronous and never mutates the given state. A
refused message raises `RejectedMessage` and changes nothing. This file knows no mechanism and no sampler.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.guarantee import Guarantee

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

S = TypeVar("S")
Step: TypeAlias = tuple[S, IntArray | None]
"""The next state and, for a `Query`, the answer."""


class Noise(Protocol):
    """Exact integer noise; every call draws fresh, independent samples of shape (size,)."""

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """Discrete Laplace: P[X = x] proportional to exp(-|x| / scale), x any integer."""
        ...

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """One-sided geometric: P[X = x] proportional to exp(-x / scale), x = 0, 1, 2, ..."""
        ...

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """Discrete Gaussian: P[X = x] proportional to exp(-x^2 / (2 * variance)), x any integer."""
        ...


class Mechanism(Protocol[S]):
    """A continual mechanism: its fields are frozen parameters; everything that changes is in the state."""

    @property
    def width(self) -> int: ...

    @property
    def guarantee(self) -> Guarantee:
        """The claimed privacy measure, and the neighbours it holds for."""
        ...

    def init(self, noise: Noise) -> S:
        """Return the state before the first message."""
        ...

    def step(self, state: S, message: Message, noise: Noise) -> Step[S]:
        """Take one message; return the next state and, for a `Query`, the answer.

        Raises:
            RejectedMessage: a row of wrong width, type or sign, or an update beyond the horizon; the given state
                stays valid.
        """
        ...
