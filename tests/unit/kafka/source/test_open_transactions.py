"""Open transactions give back exactly the room that they took, whatever happens to them."""

import random

from hypothesis import given
from hypothesis import strategies as st
from unit.kafka.source.record_worlds import batch, parsed, record

from stream_dp.kafka.source.record_batches import RecordBatch
from stream_dp.kafka.source.ticks import ROOM_BYTES, OpenTransactions, Room


def one(base: int, producer: int, size: int = 10) -> RecordBatch:
    return parsed(batch([record(b"x" * size)], base, producer=producer))


SIZE = len(one(0, 7).raw)


def test_batches_are_held_by_producer_from_their_first_on() -> None:
    opened = OpenTransactions(Room())
    assert opened.first is None
    opened.hold(7, one(3, 7))
    opened.hold(8, one(4, 8))
    opened.hold(7, one(9, 7))
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
        opened.hold(7, one(base, 7))
    found = opened.get(7)
    assert found is not None
    assert (found.first, found.end, found.batches) == (0, 3, None)
    assert room.left == 2 * SIZE
    opened.hold(7, one(3, 7))
    assert (found.end, found.batches, room.left) == (4, None, 2 * SIZE)
    opened.hold(8, one(4, 8))
    assert room.left == SIZE
    opened.drop(7)
    opened.drop(8)
    assert room.left == 2 * SIZE


def test_partitions_share_the_room_and_what_does_not_fit_takes_nothing_from_others() -> None:
    room = Room(2 * SIZE)
    here, there = OpenTransactions(room), OpenTransactions(room)
    here.hold(7, one(0, 7))
    there.hold(7, one(0, 7, 1_000))
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
            where.hold(producer, one(base, producer, chance.choice((0, 10, 300))))
        else:
            where.drop(producer)
        found = [each.get(n) for each in opened for n in range(3)]
        held = [b for each in found if each is not None for b in each.batches or ()]
        assert room.left == most - sum(len(b.raw) for b in held) >= 0
    for where in opened:
        for producer in range(3):
            where.drop(producer)
    assert room.left == most
