"""What a record adds to a mean: its amount less the middle of the clamp, and that it has one.

Rules: as those of `amount_units`: a record's units depend on its own value alone. The middle is a whole number of
units, the lower one where there are two. Null adds nothing to either, and not the middle.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.records.amount_units import Amount, Sign
from stream_dp.records.record_columns import Numbers


@dataclass(frozen=True, slots=True)
class Centred:
    """An amount less the middle of its range."""

    whole: Amount

    @property
    def field(self) -> str:
        """The field that it is read from."""
        return self.whole.field

    @property
    def middle(self) -> int:
        """The middle of the range, in units."""
        return sum(self.whole.units) // 2

    @property
    def centre(self) -> Fraction:
        """The middle of the range, as a number."""
        return self.middle * self.whole.step

    @property
    def units(self) -> tuple[int, int]:
        """The least and the largest number of units that a record adds."""
        lowest, highest = self.whole.units
        return lowest - self.middle, highest - self.middle

    def of(self, numbers: Numbers) -> IntArray:
        """Return the units of each record, shape (records,); 0 where the value is not there."""
        found = self.whole.of(numbers) - self.middle
        return found if numbers.known is None else np.where(numbers.known, found, 0)


@dataclass(frozen=True, slots=True)
class Known:
    """1 where the field has a value."""

    field: str

    @property
    def units(self) -> tuple[int, int]:
        """The least and the largest number that a record adds."""
        return 0, 1

    def of(self, numbers: Numbers) -> IntArray:
        """Return 1 for each record that has a value, else 0; shape (records,)."""
        if numbers.known is None:
            return np.ones(len(numbers.values), dtype=np.int64)
        return numbers.known.astype(np.int64)


Addend: TypeAlias = Amount | Sign | Centred | Known
"""What a record adds to its entries of a feature."""
