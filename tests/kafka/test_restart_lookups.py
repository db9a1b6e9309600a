"""Where an engine begins is looked for by the stamps in the topic once: a start with a journal knows its positions."""

from collections.abc import Iterable

import pytest
from kafka.hostile_records import GOOD
from kafka.paper_broker import PaperOffsets, run
from kafka.paper_log import PaperPartition
from kafka.raw_batches import plain
from oracles.kafka_log import Grid

GRID = Grid(1_700_000_000_000, 100, 100, 6)
PARTITIONS = (0, 1)


def partition() -> PaperPartition:
    """One batch in each tick and one before the origin."""
    one = PaperPartition()
    for tick in range(-1, GRID.horizon):
        one.append(plain([GOOD] * 3).encoded(), GRID.origin + tick * GRID.step + 50)
    return one


@pytest.mark.parametrize("kills", [(), (2,), (1, 3)])
def test_only_the_first_start_looks_for_the_origin(
    kills: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, ...]] = []
    cuts = PaperOffsets.cuts

    async def noted(self: PaperOffsets, partitions: Iterable[int], moment: int) -> dict[int, int]:
        asked.append(tuple(partitions))
        return await cuts(self, partitions, moment)

    monkeypatch.setattr(PaperOffsets, "cuts", noted)
    found = run({one: partition() for one in PARTITIONS}, GRID, 0, kills)
    assert asked == [PARTITIONS]
    assert [found.journal.rows[tick][0] for tick in range(GRID.horizon)] == [6] * GRID.horizon
