"""When one tree hands over to the next: tree n takes `first` * `growth`^n updates, and ends with its own last one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HandOverSchedule:
    """The sizes of trees that come one after the other.

    >>> HandOverSchedule(64, 4).place(64), HandOverSchedule(64, 4).place(65)
    ((0, 64), (1, 1))
    """

    first: int
    growth: int

    def size(self, number: int) -> int:
        """How many updates the tree of this number takes."""
        return self.first * int(self.growth**number)

    def place(self, updates: int) -> tuple[int, int]:
        """(number of the tree, updates inside it) after so many updates."""
        number = 0
        while updates > self.size(number):
            updates, number = updates - self.size(number), number + 1
        return number, updates
