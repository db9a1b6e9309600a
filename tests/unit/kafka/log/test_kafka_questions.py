"""The topic of messages read on paper: everything in it has a place and a turn, and nothing stops the reader."""

import asyncio
import gzip
import tracemalloc
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from aiokafka.errors import OffsetOutOfRangeError
from unit.kafka.source.log_reader import LogReader
from unit.kafka.source.record_worlds import APPENDED, Log, batch, marker, old, record

from stream_dp.errors import Outage
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.log.public import KafkaQuestions
from stream_dp.kafka.source.record_batches import RecordBatch
from stream_dp.kafka.source.unpacker import Unpacker
from stream_dp.live.envelope import LARGEST_ENVELOPE

GZIP, MB = 0x01, 2**20


class Bounds:
    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.end = begin, end

    async def begins(self, _: Iterable[int]) -> dict[int, int]:
        return {0: self.begin}

    async def ends(self, _: Iterable[int]) -> dict[int, int]:
        return {0: self.end}


def over(log: Log, begin: int = 0, most: int = 10 * MB) -> KafkaQuestions:
    made = KafkaQuestions(KafkaSettings("nowhere:1"), "orders")
    made._unpacker = Unpacker(marks=False, limit=4 * MB)
    made._offsets = Bounds(begin, log.end)  # type: ignore[assignment]
    made._reader = LogReader(log, most)
    return made


async def read(questions: KafkaQuestions, place: int, number: int) -> list[tuple[int, bytes, int]]:
    await questions.seek(place)
    found: list[Any] = []
    async with asyncio.timeout(10):
        while len(found) < number:
            found += await questions.read()
    return [tuple(each) for each in found]


THREE = Log([batch([record(b"a"), record(b"b", 1)], 0, 10), batch([record(b"c")], 2, 11)])


@pytest.mark.parametrize("most", [1, 10 * MB], ids=["one batch at a time", "all at once"])
async def test_messages_come_with_places_and_the_brokers_stamps(most: int) -> None:
    expected = [(0, b"a", 10), (1, b"b", 10), (2, b"c", 11)]
    for place in range(3):
        assert await read(over(THREE, most=most), place, 3 - place) == expected[place:]


@pytest.mark.parametrize("place", [-1, 0, 1, 4, 10**9])
async def test_a_place_that_is_not_there_is_the_first_that_is(place: int) -> None:
    assert (await read(over(THREE, begin=2), place, 1))[0] == (2, b"c", 11)


async def test_a_topic_that_forgets_while_it_is_read_is_read_on() -> None:
    class Forgetful(LogReader):
        async def getmany(self, place: Any, **options: Any) -> dict[Any, Sequence[RecordBatch]]:
            if self.position == 0:
                raise OffsetOutOfRangeError
            return await super().getmany(place, **options)

    questions = over(THREE)
    questions._reader = Forgetful(THREE, MB)
    await questions.seek(0)
    questions._offsets.begin = 2  # type: ignore[attr-defined]
    assert [each.value for each in await questions.read()] == [b"c"]


HOSTILE = {
    "a tombstone": (batch([record(None, key=b"k")]), b""),
    "a header that is not UTF-8": (batch([record(b"m", headers=[(b"\xff\xfe", b"1")])]), b"m"),
    "a key that is not UTF-8": (batch([record(b"m", key=b"\xff")]), b"m"),
    "as large as an envelope may be": (
        batch([record(b"m" * LARGEST_ENVELOPE)]), b"m" * LARGEST_ENVELOPE,
    ),
    "a byte more": (batch([record(b"m" * (LARGEST_ENVELOPE + 1))]), b""),
    "a bomb": (
        batch([b""], attributes=APPENDED | GZIP, body=gzip.compress(record(bytes(64 * MB)))),
        b"",
    ),
    "an older format": (old(0, b"m"), b""),
}  # fmt: skip


@pytest.mark.parametrize(("hostile", "value"), HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_record_has_its_place_and_the_next_one_is_read(
    hostile: bytes, value: bytes
) -> None:
    log = Log([hostile, batch([record(b"after")], 1, 12)])
    found = await read(over(log), -1, 2)
    assert [(place, content) for place, content, _ in found] == [(0, value), (1, b"after")]


async def test_what_its_brokers_did_not_stamp_is_empty_and_no_stamp_is_believed() -> None:
    log = Log([batch([record(b"old"), record(b"old", 1)], 0, 7, attributes=0)])
    assert [value for _, value, _ in await read(over(log), 0, 2)] == [b"", b""]


async def test_the_end_of_a_transaction_is_no_message() -> None:
    ours = 7
    log = Log([batch([record(b"a")], 0), marker(1, 5, ours), batch([record(b"b")], 2)])
    assert [place for place, _, _ in await read(over(log), 0, 2)] == [0, 2]


async def test_a_crowd_comes_in_groups_each_at_its_place() -> None:
    crowd = batch([record(None, delta) for delta in range(3_000)])
    questions = over(Log([crowd]))
    await questions.seek(1_200)
    places: list[int] = []
    while len(places) < 1_800:
        group = await questions.read()
        assert 0 < len(group) <= 500
        places += [each.place for each in group]
    assert places == list(range(1_200, 3_000))


async def test_large_messages_come_in_groups_of_about_a_megabyte() -> None:
    questions = over(Log([batch([record(bytes(300_000))], n) for n in range(20)]))
    await questions.seek(0)
    number = 0
    while number < 20:
        group = await questions.read()
        assert 0 < len(group) <= 4
        number += len(group)


async def test_many_batches_that_expand_are_never_held_together() -> None:
    packed = gzip.compress(record(bytes(3 * MB)))
    log = Log([batch([b""], n, attributes=APPENDED | GZIP, body=packed) for n in range(60)])
    questions = over(log)
    tracemalloc.start()
    try:
        assert len(await read(questions, 0, 60)) == 60
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * MB


async def test_a_seek_forgets_what_was_fetched() -> None:
    questions = over(Log([batch([record(b"%d" % n, n) for n in range(1_000)])]))
    await questions.seek(0)
    assert (await questions.read())[0].value == b"0"
    assert (await read(questions, 900, 1))[0][1] == b"900"


async def test_what_came_over_the_wire_broken_may_be_read_again() -> None:
    whole = batch([record(b"a")])
    broken = Log([whole[:-1] + bytes([whole[-1] ^ 1])])
    questions = over(THREE)

    class Broken(LogReader):
        async def getmany(self, place: Any, **_: Any) -> dict[Any, Sequence[RecordBatch]]:
            from stream_dp.kafka.source.batches import _read

            return {place: list(_read(broken.batches[0], 0, None))}

    questions._reader = Broken(THREE, MB)
    await questions.seek(0)
    with pytest.raises(Outage, match=r"orders\.queries"):
        await questions.read()


async def test_a_message_shows_nothing() -> None:
    questions = over(THREE)
    await questions.seek(0)
    assert "a" not in repr((await questions.read())[0]).removeprefix("<Question at ")
