"""Hand-made words for samplers and tables."""

from stream_dp.noise.stream import Cuts, Table, exact_floor

SEED = bytes(range(32))
LAST = (1 << 64) - 1


class Script:
    """Gives these words, counts them, and fails after the last one."""

    def __init__(self, *words: int) -> None:
        self.words, self.used = words, 0

    def word(self) -> int:
        self.used += 1
        return self.words[self.used - 1]


def floor_of(cuts: Cuts, index: int, bits: int) -> int:
    return exact_floor(lambda width: cuts(width)[index], bits)


def middle_word(table: Table, cell: int) -> int:
    """A word that decides for this cell alone."""
    floors = table._floors
    low = floors[cell - 1] if cell else 0
    high = floors[cell] if cell < len(floors) else 1 << 64
    return (low + high) // 2
