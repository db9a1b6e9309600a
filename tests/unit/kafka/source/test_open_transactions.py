"""Open transactions give back the room that they took; what is too large for it is read again, each record once."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.kafka.source.log_reader import PLACE, LogReader, at_once
from unit.kafka.source.record_worlds import COMMIT, Log, batch, marker, parsed, record

from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Batch
from stream_dp.errors import Outage
from stream_dp.kafka.source.record_batches import Kind, RecordBatch
from stream_dp.kafka.source.source import Recall
from stream_dp.kafka.source.ticks import ROOM_BYTES, OpenTransactions, Place, Room, StampedTicks
from stream_dp.kafka.source.unpacker import Unpacker


def open_batch(base: int, producer: int, size: int = 10) -> RecordBatch:
    return parsed(batch([record(b"x" * size)], base, producer=producer))


SIZE = len(open_batch(0, 7).raw)


def test_batches_are_held_by_producer_from_their_first_on() -> None:
    opened = OpenTransactions(Room())
    assert opened.first is None
    opened.hold(7, open_batch(3, 7))
    opened.hold(8, open_batch(4, 8))
    opened.hold(7, open_batch(9, 7))
    found = opened.get(7)
    assert found is not None
    assert (found.first, found.end) == (3, 10)
    assert [each.base for each in found.batches or ()] == [3, 9]
    assert all(each.raw.nbytes == len(each.raw.obj) for each in found.batches or ())  # type: ignore[arg-type]
    assert opened.first == 3
    opened.drop(7)
    assert opened.get(7) is None
    assert opened.first == 4
    opened.drop(7)
    opened.drop(8)
    assert opened.first is None


def test_beyond_the_room_only_the_place_is_kept() -> None:
    room = Room(2 * SIZE)
    opened = OpenTransactions(room)
    for base in range(3):
        opened.hold(7, open_batch(base, 7))
    found = opened.get(7)
    assert found is not None
    assert (found.first, found.end, found.batches) == (0, 3, None)
    assert room.left == 2 * SIZE
    opened.hold(7, open_batch(3, 7))
    assert (found.end, found.batches, room.left) == (4, None, 2 * SIZE)
    opened.hold(8, open_batch(4, 8))
    assert room.left == SIZE
    opened.drop(7)
    opened.drop(8)
    assert room.left == 2 * SIZE


def test_partitions_share_the_room_and_what_does_not_fit_takes_nothing_from_others() -> None:
    room = Room(2 * SIZE)
    here, there = OpenTransactions(room), OpenTransactions(room)
    here.hold(7, open_batch(0, 7))
    there.hold(7, open_batch(0, 7, 1_000))
    assert room.left == SIZE
    first, second = here.get(7), there.get(7)
    assert first is not None
    assert second is not None
    assert first.batches is not None
    assert second.batches is None


def test_the_room_is_bounded_by_default() -> None:
    assert Room().left == ROOM_BYTES == 64 * 2**20


@given(st.integers(0, 2**32), st.integers(0, 12 * SIZE))
def test_the_room_is_given_back_exactly_and_never_overdrawn(seed: int, most: int) -> None:
    chance, room = random.Random(seed), Room(most)
    opened = [OpenTransactions(room), OpenTransactions(room)]
    for base in range(60):
        where, producer = chance.choice(opened), chance.randrange(3)
        if chance.random() < 0.75:
            where.hold(producer, open_batch(base, producer, chance.choice((0, 10, 300))))
        else:
            where.drop(producer)
        found = [each.get(n) for each in opened for n in range(3)]
        held = [b for each in found if each is not None for b in each.batches or ()]
        assert room.left == most - sum(len(b.raw) for b in held) >= 0
    for where in opened:
        for producer in range(3):
            where.drop(producer)
    assert room.left == most


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
