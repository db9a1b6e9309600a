"""What one event of a sum may add to its tick's row, by trying every content, and how rows of neighbours differ.

An event adds nothing, or one amount from `lowest` to `highest` to one up to `ones` entries of a row of `width`. Written
from this sentence alone: it knows no sensitivity.
"""

import itertools
from collections.abc import Iterator

from stream_dp.core.neighbors import Neighbors

Row = tuple[int, ...]


def contents(width: int, ones: int, lowest: int, highest: int) -> Iterator[Row]:
    """What one event may add to a row: nothing, or one amount in up to `ones` entries."""
    yield (0,) * width
    for number in range(1, min(ones, width) + 1):
        for places in itertools.combinations(range(width), number):
            for amount in range(lowest, highest + 1):
                yield tuple(amount if at in places else 0 for at in range(width))


def neighbouring_rows(relation: Neighbors, *setting: int) -> set[tuple[Row, Row]]:
    """The pairs of rows that neighbouring streams may have in the tick of the event."""
    every = set(contents(*setting))
    if relation is Neighbors.REPLACE:
        return set(itertools.product(every, every))
    nothing = (0,) * setting[0]
    return {pair for one in every for pair in ((one, nothing), (nothing, one))}


def differences(relation: Neighbors, *setting: int) -> set[Row]:
    """How the rows of neighbouring streams differ in the tick of the event."""
    pairs = neighbouring_rows(relation, *setting)
    return {tuple(a - b for a, b in zip(*pair, strict=True)) for pair in pairs}
