"""What is said beforehand of false alarms: how likely one is per key and day.

Rules: a value of public numbers. This file knows no mechanism and no statistic.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FalseAlarm:
    """The chance, at most, that one key of `name` fires on a day while its count stays at `usual`."""

    name: str
    usual: int
    chance: float

    @property
    def words(self) -> str:
        """Return it as a sentence."""
        return (
            f"{self.name}: a false alarm per key and day with a chance of at most {self.chance:.2g}, while its count "
            f"stays at {self.usual:,}"
        )
