"""Monotone quantities q of the columns' sums ([HSV] Def 7.2), which a sparse vector watches and an HSS releases.

Rules: a quantity is a frozen value. It states what one event can change (`sensitivity`, `one_signed`) and how an error
of the columns changes its value (`error`); scales and thresholds follow from these. The family is closed, and every
property is proven here. An event sets at most `ones` entries of its row, each to 1. This file knows no noise and no
privacy parameter.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stream_dp.core.mechanism import IntArray
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.errors import UsageError
from stream_dp.mechanisms.noise_quantiles import Term

LEAD = 1 << 30  # events; no noise makes up for so many


@dataclass(frozen=True, slots=True)
class ErrorLaw:
    """How far q of noisy sums is from q of exact sums: at most `factor` times the sum of `added` columns' noises.

    An error upwards is bounded by the largest of `high` such sums, an error downwards by the largest of `low` sums,
    which the data alone determine.
    """

    added: int
    high: int
    low: int
    factor: int = 1

    def terms(self, columns: Sequence[Term]) -> tuple[Term, ...]:
        """Return the noises of q's error from the noises of one column."""
        return tuple(
            Term(scale, number * self.added, weight * self.factor)
            for scale, number, weight in columns
        )

    @property
    def rest(self) -> int:
        """The additional error where each column is rounded, by up to a half, instead of the sum."""
        return self.factor * self.added // 2


class Quantity(ABC):
    """A function of the sums, shape (width,), that does not fall when an entry grows; an integer >= 0."""

    why: ClassVar[str] = "monotone; proven in mechanisms/hss/quantities.py"

    @abstractmethod
    def of(self, sums: IntArray) -> int:
        """Return the value; `sums` is not changed."""

    @abstractmethod
    def sensitivity(self, relation: Neighbors, width: int, ones: int) -> int:
        """Return the most by which one event can change the value ([HSV] Def 7.3 requires 1)."""

    def one_signed(self, relation: Neighbors, width: int) -> bool:
        """Whether an event changes the value in one direction at all times; then query noise is halved."""
        return relation.monotone(width)

    @abstractmethod
    def error(self, width: int) -> ErrorLaw | None:
        """Return the law of the value's error under noise; None where the error may span the value's range."""

    def spread(self, sums: IntArray, half: int) -> int:
        """Return a bound on the value's error at `sums`; `half` bounds it by `error`, or else each column's error."""
        return half

    def opening(self, gamma: int) -> tuple[int, int]:
        """Return how many other events an audit puts into columns 0 and 1 so that its one event is most visible: as
        many as make it decide a crossing, or a lead beyond all noise where other columns would hide it.
        """
        return gamma, 0

    def lipschitz(self, width: int) -> int:
        """Return L such that the value changes by at most L times the largest change of an entry."""
        law = self.error(width)
        return width if law is None else law.factor * law.added

    def checked(self, relation: Neighbors, width: int, ones: int) -> "Quantity":
        """Return this quantity (UsageError: it does not fit rows of this width and events of up to `ones` ones)."""
        return self

    @property
    @abstractmethod
    def words(self) -> str:
        """The quantity in a few words."""


@wire("quantity-maximum", 1)
@dataclass(frozen=True, slots=True)
class Maximum(Quantity):
    """The largest column. An event moves each column by at most 1, so the largest by at most 1."""

    words = "the largest column"

    def of(self, sums: IntArray) -> int:
        return int(sums.max())

    def holder(self, sums: IntArray) -> int | None:
        """Return the index of the largest entry, the first of equal ones; None where no entry is above 0."""
        place = int(sums.argmax())
        return place if sums[place] > 0 else None

    def sensitivity(self, relation: Neighbors, width: int, ones: int) -> int:
        return 1

    def error(self, width: int) -> ErrorLaw:
        """Return the law: too high by the noise of some column, too low by the noise of the truly largest one."""
        return ErrorLaw(added=1, high=width, low=1)

    def opening(self, gamma: int) -> tuple[int, int]:
        return LEAD, 0


@wire("quantity-largest", 1)
@dataclass(frozen=True, slots=True)
class Largest(Quantity):
    """The rank-th largest column, ties counted: where all entries move by at most 1, so does every order statistic."""

    rank: int

    def of(self, sums: IntArray) -> int:
        place = len(sums) - self.rank
        return int(np.partition(sums, place)[place])

    def sensitivity(self, relation: Neighbors, width: int, ones: int) -> int:
        return 1

    def error(self, width: int) -> ErrorLaw:
        """Return the law: too high by the noise of some column, too low by that of one of the `rank` truly largest."""
        return ErrorLaw(added=1, high=width, low=self.rank)

    def opening(self, gamma: int) -> tuple[int, int]:
        return LEAD, LEAD * min(1, self.rank - 1)

    def checked(self, relation: Neighbors, width: int, ones: int) -> "Largest":
        """Return this quantity (UsageError: there are fewer columns than its rank)."""
        if not 1 <= self.rank <= width:
            raise UsageError(f"rank: must lie from 1 to the number of columns, {width}")
        return self

    @property
    def words(self) -> str:
        return f"the column of rank {self.rank}"


@wire("quantity-sum", 1)
@dataclass(frozen=True, slots=True)
class Sum(Quantity):
    """The sum of all columns: how many entries have been set.

    Its Lipschitz constant is the width. An event changes it by up to `ones`, by the same amount at all times, so in
    one direction under either relation.
    """

    words = "the sum of the columns"

    def of(self, sums: IntArray) -> int:
        """Return the sum, exact beyond 64 bits too."""
        return sum(sums.tolist())

    def sensitivity(self, relation: Neighbors, width: int, ones: int) -> int:
        return min(width, ones)

    def one_signed(self, relation: Neighbors, width: int) -> bool:
        """Return True: (ones of the new content) - (ones of the old) is one number."""
        return True

    def error(self, width: int) -> ErrorLaw:
        return ErrorLaw(added=width, high=1, low=1)


@wire("quantity-columns-above", 1)
@dataclass(frozen=True, slots=True)
class ColumnsAbove(Quantity):
    """How many columns have reached `level`, which is at least 1.

    An event moves at most `ones` columns up and as many down, so it changes the number by at most `ones`. Its only
    Lipschitz constant is the width: where all columns stand one below the level, an error of 1 changes all of it.
    """

    level: int

    def of(self, sums: IntArray) -> int:
        return int((sums >= self.level).sum())

    def sensitivity(self, relation: Neighbors, width: int, ones: int) -> int:
        """Return the number of ones: columns that a replacement moves up and columns that it moves down cancel."""
        return min(width, ones)

    def error(self, width: int) -> None:
        """Return None: one error of 1 may move all columns across the level."""

    def checked(self, relation: Neighbors, width: int, ones: int) -> "ColumnsAbove":
        """Return this quantity (UsageError: every column would be above the level before the first event)."""
        if self.level < 1:
            raise UsageError(f"level: must be at least 1, got {self.level}")
        return self

    def spread(self, sums: IntArray, half: int) -> int:
        """Return how many columns lie so near the level that an error of `half` may move them across it."""
        too_low = int(((sums < self.level) & (sums >= self.level - half)).sum())
        too_high = int(((sums >= self.level) & (sums < self.level + half)).sum())
        return max(too_low, too_high)

    @property
    def words(self) -> str:
        return f"the number of columns with at least {self.level}"


MAXIMUM = Maximum()
