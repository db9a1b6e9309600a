"""What one record of a mean may add to its tick's row, by trying every content. Written from this sentence alone:

A record has no amount, and then adds nothing; or one from `least` to `most`, of which it adds what it has beyond the
middle (the lower one of two) to one up to `ones` keys, and 1 to the counts of the same keys. It knows no sensitivity.
"""

import itertools
from collections.abc import Iterator

from stream_dp.core.neighbors import Neighbors

Row = tuple[int, ...]


def records(keys: int, ones: int, least: int, most: int, *, centred: bool = True) -> Iterator[Row]:
    """What one record may add: sums by key, and behind them counts by key; a twin forgets the middle."""
    yield (0,) * (2 * keys)
    middle = (least + most) // 2 if centred else 0
    for number in range(1, min(ones, keys) + 1):
        for places in itertools.combinations(range(keys), number):
            for amount in range(least, most + 1):
                sums = tuple(amount - middle if at in places else 0 for at in range(keys))
                yield sums + tuple(int(at in places) for at in range(keys))


def pairs(relation: Neighbors, *setting: int, centred: bool = True) -> tuple[tuple[Row, Row], ...]:
    """The pairs of rows that neighbouring streams may have in the tick of the record, but for equal ones."""
    every = set(records(*setting, centred=centred))
    nothing = (0,) * (2 * setting[0])
    found = {pair for one in every for pair in ((one, nothing), (nothing, one))}
    if relation is Neighbors.REPLACE:
        found |= set(itertools.product(every, every))
    return tuple(sorted(pair for pair in found if pair[0] != pair[1]))
