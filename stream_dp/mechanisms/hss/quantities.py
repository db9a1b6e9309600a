"""What a sparse vector watches and an HSS releases: monotone quantities q of the columns' sums ([HSV] Def 7.2).

Rules: a quantity is a frozen value that says of itself what one event can change (`sensitivity`, `one_signed`) and what
an error of the columns does to it (`error`); scales and thresholds follow from that, and nobody types one. The family
here is closed and proven line by line. An event sets at most `ones`
entries of its row, each to 1. This file knows no noise and no privacy parameter.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.errors import UsageError
from stream_dp.mechanisms.noise_quantiles import Term

LEAD = 1 << 30  # events: no noise catches up with so many


@dataclass(frozen=True, slots=True)
class ErrorLaw:
    """How far q of noisy sums is from q of exact ones: at most `factor` times the sum of `added` columns' noises.

    Too high, it is so for one of `high` such sums; too low, for one of `low` that are fixed by the data alone.
    """

    added: int
    high: int
    low: int
    factor: int = 1

    def terms(self, columns: Sequence[Term]) -> tuple[Term, ...]:
        """Return the noises of q's error, from those of one column."""
        return tuple(
            Term(scale, number * self.added, weight * self.factor)
            for scale, number, weight in columns
        )

    @property
    def rest(self) -> int:
        """What comes on top where columns are rounded one by one, each by up to a half, and not the sum."""
        return self.factor * self.added // 2


class Quantity(ABC):
    """A function of the sums, shape (width,), that never falls when an entry grows; its value is an integer >= 0."""

    @abstractmethod
    def of(self, sums: IntArray) -> int:
        """Return the value; `sums` is not changed."""

    @abstractmethod
    def sensitivity(self, relation: Neighbors, width: int, ones: int) -> int:
        """Return by how much one event can change the value, at most ([HSV] Def 7.3 asks for 1)."""

    def one_signed(self, relation: Neighbors, width: int) -> bool:
        """Whether an event changes the value in one direction, whenever it is asked for: then query noise is halved."""
        return relation.monotone(width)

    @abstractmethod
    def error(self, width: int) -> ErrorLaw | None:
        """Return what the noise of columns does to the value; None where it may do anything up to the whole range."""

    def spread(self, sums: IntArray, half: int) -> int:
        """Return how far the value at `sums` may be off; `half` is the bound by `error`, or else each column's."""
        return half

    def opening(self, gamma: int) -> tuple[int, int]:
        """Return how many other events an audit puts into columns 0 and 1, so that its one event shows most.

        Here: a crossing that the event decides. Where it would be hidden by other columns, a lead beyond all noise.
        """
        return gamma, 0

    def lipschitz(self, width: int) -> int:
        """Return L: the value changes by at most L times the largest change of an entry."""
        law = self.error(width)
        return width if law is None else law.factor * law.added

    def checked(self, relation: Neighbors, width: int, ones: int) -> "Quantity":
        """Return itself where it is one for rows of this width and events of so many ones.

        Raises:
            UsageError: it is not.
        """
        return self

    @property
    def why(self) -> str:
        """How its properties are known, in a few words."""
        return "monotone; proven in mechanisms/hss/quantities.py"

    @property
    @abstractmethod
    def words(self) -> str:
        """What it is, in a few words."""


@wire("quantity-maximum", 1)
@dataclass(frozen=True, slots=True)
class Maximum(Quantity):
    """The largest column. An event moves each column by at most 1, so the largest by at most 1.

    >>> Maximum().of(np.array([3, 7, 5]))
    7
    """

    def of(self, sums: IntArray) -> int:
        """Return the largest entry."""
        return int(sums.max())

    def holder(self, sums: IntArray) -> int | None:
        """Return the place of the largest entry, of equal ones the first; None where none is above 0.

        >>> Maximum().holder(np.array([3, 7, 7])), Maximum().holder(np.array([0, 0]))
        (1, None)
        """
        place = int(sums.argmax())
        return place if sums[place] > 0 else None

    def sensitivity(self, relation: Neighbors, width: int, ones: int) -> int:
        """Return 1, whatever the relation and the number of ones."""
        return 1

    def error(self, width: int) -> ErrorLaw:
        """Too high: by the noise of some column; too low: by that of the truly largest one."""
        return ErrorLaw(added=1, high=width, low=1)

    def opening(self, gamma: int) -> tuple[int, int]:
        """Return a lead for column 0."""
        return LEAD, 0

    @property
    def words(self) -> str:
        """What it is."""
        return "the largest column"


@wire("quantity-largest", 1)
@dataclass(frozen=True, slots=True)
class Largest(Quantity):
    """The rank-th largest column, ties counted; rank 1 is `Maximum`.

    Where all entries move by at most 1, so does every order statistic.

    >>> Largest(2).of(np.array([3, 7, 5]))
    5
    """

    rank: int

    def of(self, sums: IntArray) -> int:
        """Return the entry with rank - 1 entries at least as large."""
        place = len(sums) - self.rank
        return int(np.partition(sums, place)[place])

    def sensitivity(self, relation: Neighbors, width: int, ones: int) -> int:
        """Return 1, whatever the relation and the number of ones."""
        return 1

    def error(self, width: int) -> ErrorLaw:
        """Too high: by the noise of some column; too low: by that of one of the truly `rank` largest."""
        return ErrorLaw(added=1, high=width, low=self.rank)

    def opening(self, gamma: int) -> tuple[int, int]:
        """Return a lead for as many columns as it takes, if they are at most two."""
        return LEAD, LEAD * min(1, self.rank - 1)

    def checked(self, relation: Neighbors, width: int, ones: int) -> "Largest":
        """Return itself.

        Raises:
            UsageError: there are fewer columns than its rank.
        """
        if not 1 <= self.rank <= width:
            raise UsageError(f"rank: must lie from 1 to the number of columns, {width}")
        return self

    @property
    def words(self) -> str:
        """What it is."""
        return f"the column of rank {self.rank}"


@wire("quantity-sum", 1)
@dataclass(frozen=True, slots=True)
class Sum(Quantity):
    """The sum of all columns: how many entries have been set.

    Its Lipschitz constant is the width, and an event changes it by up to `ones`, by the same amount at every time: so
    in one direction under either relation.

    >>> Sum().of(np.array([3, 7, 5]))
    15
    """

    def of(self, sums: IntArray) -> int:
        """Return the sum, exact beyond 64 bits too."""
        return sum(sums.tolist())

    def sensitivity(self, relation: Neighbors, width: int, ones: int) -> int:
        """Return the number of ones that an event can bring or take; a replacement may keep some."""
        return min(width, ones)

    def one_signed(self, relation: Neighbors, width: int) -> bool:
        """Return True: (ones of the new content) - (ones of the old) is one number."""
        return True

    def error(self, width: int) -> ErrorLaw:
        """The sum of all columns' noises, either way."""
        return ErrorLaw(added=width, high=1, low=1)

    @property
    def words(self) -> str:
        """What it is."""
        return "the sum of the columns"


@wire("quantity-columns-above", 1)
@dataclass(frozen=True, slots=True)
class ColumnsAbove(Quantity):
    """How many columns have reached `level`, which is at least 1.

    An event moves at most `ones` columns up and as many down, so it changes the number by at most `ones`. Its only
    Lipschitz constant is the width: where all columns stand one below the level, an error of 1 changes all of it.

    >>> ColumnsAbove(5).of(np.array([3, 7, 5]))
    2
    """

    level: int

    def of(self, sums: IntArray) -> int:
        """Return the number of entries that are at least `level`."""
        return int((sums >= self.level).sum())

    def sensitivity(self, relation: Neighbors, width: int, ones: int) -> int:
        """Return the number of ones: those that a replacement moves up and those that it moves down cancel."""
        return min(width, ones)

    def error(self, width: int) -> None:
        """Return None: columns near the level decide."""

    def checked(self, relation: Neighbors, width: int, ones: int) -> "ColumnsAbove":
        """Return itself.

        Raises:
            UsageError: every column is above the level before the first event.
        """
        if self.level < 1:
            raise UsageError(f"level: must be at least 1, got {self.level}")
        return self

    def spread(self, sums: IntArray, half: int) -> int:
        """Return how many columns lie so near the level that `half` may put them on its other side."""
        too_low = int(((sums < self.level) & (sums >= self.level - half)).sum())
        too_high = int(((sums >= self.level) & (sums < self.level + half)).sum())
        return max(too_low, too_high)

    @property
    def words(self) -> str:
        """What it is."""
        return f"the number of columns with at least {self.level}"


MAXIMUM = Maximum()
