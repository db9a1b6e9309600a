"""What is said beforehand of false alarms: how likely one is per key and day.

Rules: a value of public numbers. This file knows no mechanism and no statistic.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FalseAlarm:
    """The chance, at most, that one key of `name` fires on a day while its count stays at `usual`.

    Or its one count, where it is not `keyed`; or its sum, `of` a field.
    """

    name: str
    usual: int
    chance: float
    keyed: bool = True
    of: str | None = None

    def json(self) -> dict[str, Any]:
        """Return it as plain values; `of` stands there of a sum only."""
        told = {"name": self.name, "usual": self.usual, "chance": self.chance, "keyed": self.keyed}
        return told if self.of is None else {**told, "of": self.of}

    @property
    def words(self) -> str:
        """Return it as a sentence."""
        where = "per key and day" if self.keyed else "per day"
        what = "count" if self.of is None else f"sum of {self.of}"
        return (
            f"{self.name}: a false alarm {where} with a chance of at most {self.chance:.2g}, while its {what} stays at "
            f"{self.usual:,}"
        )
