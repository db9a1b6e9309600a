"""A transaction that was too large to be held: each of its records counts once, and nothing beside it does.

Random logs are in test_kafka_ticks_oracle.py; here is what they do not show.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from unit.kafka.source.log_reader import PLACE, LogReader, at_once
from unit.kafka.source.record_worlds import COMMIT, Log, batch, marker, parsed, record

from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Batch
from stream_dp.errors import Outage
from stream_dp.kafka.source.record_batches import Kind, RecordBatch
from stream_dp.kafka.source.source import Recall
from stream_dp.kafka.source.ticks import Place, Room, StampedTicks
from stream_dp.kafka.source.unpacker import Unpacker

OURS, THEIRS = 7, 8
LOG = Log(
    [
        batch([record(b"before")], 0),
        batch([record(b"a")], 1, producer=OURS),
        batch([record(b"theirs")], 2, producer=THEIRS),
        batch([record(b"nobody's")], 3),
        batch([record(b"b")], 4, producer=OURS),
        marker(5, 1_001, OURS, COMMIT),
        batch([record(b"the next one's")], 6, producer=OURS),
    ]
)


def recalled(ticks: StampedTicks) -> Recall:
    """What the log asks to be read again once the commit is met."""
    for one in LOG.parsed(0, LOG.size):
        if (transaction := ticks.take(one)) is not None:
            assert (transaction.first, transaction.end) == (1, 5)
            return Recall(ticks, transaction, one, PLACE)
    raise AssertionError("nothing is asked for")


def counted() -> tuple[StampedTicks, list[Batch]]:
    out: list[Batch] = []
    grid = TickGrid(1_000, 10)
    return StampedTicks(Place(0, 0), Unpacker(marks=False), Room(0), out, grid, 0), out


def values(out: Sequence[Batch]) -> list[bytes]:
    return [bytes(payload) for one in out for payload in one.payloads]


@pytest.mark.parametrize(
    "most", [1, LOG.size], ids=["one at a time", "all at once, and what follows"]
)
def test_each_record_counts_once_and_those_between_and_behind_do_not(most: int) -> None:
    ticks, out = counted()
    recall, reader = recalled(ticks), LogReader(LOG, most)
    recall.begin(reader)
    assert reader.position == 1
    more = [at_once(recall.more(reader)) for _ in range(4 if most == 1 else 1)]
    assert more == [True] * (len(more) - 1) + [False]
    ticks.flush()
    assert values(out) == [b"before", b"nobody's", b"a", b"b"]
    assert (ticks.position, reader.assigned, out[-1].behind) == (6, [], (2, 0))


class Silent(LogReader):
    """Gives nothing the first time."""

    async def getmany(self, place: Any, **how: Any) -> dict[Any, Sequence[RecordBatch]]:
        self.getmany = super().getmany  # type: ignore[method-assign]
        return {}


def test_a_fetch_that_brings_nothing_ends_nothing() -> None:
    ticks, out = counted()
    recall, reader = recalled(ticks), Silent(LOG, LOG.size)
    recall.begin(reader)
    assert at_once(recall.more(reader))
    assert not at_once(recall.more(reader))
    ticks.flush()
    assert values(out)[-2:] == [b"a", b"b"]


class Damaging(LogReader):
    """What it brings was changed on its way."""

    async def getmany(self, place: Any, **_: Any) -> dict[Any, Sequence[RecordBatch]]:
        first = parsed(LOG.batches[1])
        return {place: [first, first._replace(kind=Kind.DAMAGED, base=2, next=2)]}


def test_what_is_damaged_is_an_outage_and_ends_nothing() -> None:
    ticks, _ = counted()
    recall, reader = recalled(ticks), Damaging(LOG, LOG.size)
    recall.begin(reader)
    with pytest.raises(Outage, match="partition 0 is damaged"):
        at_once(recall.more(reader))
    assert ticks.position <= 5
    assert reader.assigned == [PLACE]
