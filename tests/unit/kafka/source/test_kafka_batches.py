"""Whole batches out of the client library: what is relied upon of its inside, and that nobody else notices."""

import random
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiokafka
import cramjam
import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.record import default_records
from aiokafka.record.memory_records import MemoryRecords
from unit.kafka.source.record_worlds import ABORT, COMMIT, Given, batch, marker, old, record

from stream_dp.kafka.client.tick_marks import TICK_HEADER
from stream_dp.kafka.source import batches as kafka_batches
from stream_dp.kafka.source.batches import WholeBatches, batches, fitting
from stream_dp.kafka.source.record_batches import Kind, RecordBatch
from stream_dp.kafka.source.unpacker import Unpacker
from stream_dp.records.cells import MOST_HEADERS

ROOT = Path(__file__).parents[4]
PLACE = TopicPartition("topic", 0)
UNCOMMITTED, COMMITTED = 0, 1


@pytest.fixture(autouse=True)
def stock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The library's class, as it is before anything of ours and again after the test."""
    theirs = fetcher.PartitionRecords
    theirs = getattr(theirs, "_theirs", theirs)
    monkeypatch.setattr(fetcher, "PartitionRecords", theirs)
    monkeypatch.setattr(fetcher, "MemoryRecords", MemoryRecords)
    return theirs


def test_the_library_is_the_one_that_is_expected() -> None:
    assert fitting()
    kafka_batches._install()
    assert fitting()
    once = fetcher.PartitionRecords
    kafka_batches._install()
    assert fetcher.PartitionRecords is once


def test_the_versions_are_bounded_and_the_locks_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    bounds = {"aiokafka[snappy,lz4,zstd]>=0.14,<0.15", "cramjam>=2.8,<3"}
    assert bounds < set(project["project"]["dependencies"])
    for lock in ("requirements.lock", "requirements-dev.lock"):
        lines = (ROOT / lock).read_text().splitlines()
        assert any(line.startswith("aiokafka==0.14.") for line in lines)
        assert any(line.startswith("cramjam==2.") for line in lines)
    assert aiokafka.__version__.startswith("0.14.")
    assert cramjam.__version__.startswith("2.")


class FewerArguments:
    def __init__(self, tp: Any, records: Any) -> None: ...


class Swapped:
    def __init__(
        self, tp: Any, records: Any, fetch_offset: Any, aborted_transactions: Any,
        key_deserializer: Any, value_deserializer: Any, check_crcs: Any, isolation_level: Any,
    ) -> None: ...  # fmt: skip


class LargerHeader:
    HEADER_STRUCT = SimpleNamespace(size=62)


@pytest.mark.parametrize(
    ("where", "name", "other"),
    [
        (fetcher, "PartitionRecords", FewerArguments),
        (fetcher, "PartitionRecords", Swapped),
        (fetcher, "MemoryRecords", type("OtherRecords", (MemoryRecords,), {})),
        (fetcher, "MemoryRecords", None),
        (default_records, "DefaultRecordBase", LargerHeader),
    ],
)
def test_an_inside_that_moved_is_noticed(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, other: Any
) -> None:
    if other is None:
        monkeypatch.delattr(where, name)
    else:
        monkeypatch.setattr(where, name, other)
    assert not fitting()


def iterated(raw: bytes, offset: int, sign: Any, level: int, aborted: Any = None) -> Any:
    """The iterator that the fetcher makes of what it fetched."""
    records = fetcher.MemoryRecords(raw)
    return fetcher.PartitionRecords(PLACE, records, aborted, offset, None, sign, True, level)


def test_a_consumer_without_our_sign_gets_the_librarys_own(stock: Any) -> None:
    kafka_batches._install()
    raw = batch([record(b"a"), record(b"b", 1)])
    theirs = iterated(raw, 0, None, COMMITTED)
    assert type(theirs) is stock
    assert [one.value for one in theirs] == [b"a", b"b"]
    (ours,) = iterated(raw, 0, WholeBatches(None), COMMITTED)
    assert isinstance(ours, RecordBatch)


def a_log(chance: random.Random) -> tuple[bytes, list[tuple[int, int]]]:
    """Bytes of a finished log, and its aborted transactions as a broker tells them."""
    raw: list[bytes] = []
    aborted: list[tuple[int, int]] = []
    began: dict[int, int] = {}
    base = 0
    for _ in range(chance.randint(1, 25)):
        what, producer = chance.random(), chance.choice((5, 6, 7))
        if what < 0.7:
            size, own = chance.randint(1, 4), producer if what < 0.4 else None
            records = [record(b"%d" % (base + n), n) for n in range(size)]
            raw.append(batch(records, base, producer=own))
            if own is not None:
                began.setdefault(own, base)
            base += size
            continue
        first, end = began.pop(producer, None), chance.choice((ABORT, COMMIT))
        raw.append(marker(base, 1_000, producer, end))
        if first is not None and end == ABORT:
            aborted.append((producer, first))
        base += 1
    for producer in began:  # a broker gives nothing of these
        raw.append(marker(base, 1_000, producer))
        base += 1
    return b"".join(raw), aborted


def values(found: Sequence[RecordBatch]) -> list[tuple[int, bytes]]:
    """What counts of batches of committed records, with its places."""
    unpacker = Unpacker(marks=False)
    told: list[tuple[int, bytes]] = []
    for one in found:
        if one.kind is Kind.DATA:
            content = unpacker.unpack(one)
            told += zip(content.offsets, content.values, strict=True)
    return told


@pytest.mark.parametrize("seed", range(20))
def test_decided_transactions_are_those_that_the_library_decides(seed: int) -> None:
    raw, aborted = a_log(random.Random(seed))
    theirs = iterated(raw, 0, None, COMMITTED, aborted)
    wanted = [(one.offset, one.value) for one in theirs]
    kafka_batches._install()
    ours = iterated(raw, 0, WholeBatches(None), COMMITTED, aborted)
    found = list(ours)
    assert values(found) == wanted
    assert ours.next_fetch_offset == theirs.next_fetch_offset
    assert all(one.producer is None for one in found)


def test_without_decisions_everything_is_given_with_its_producer() -> None:
    kafka_batches._install()
    raw = batch([record(b"a")], 0, producer=7) + marker(1, 1_000, 7, ABORT)
    assert [
        (one.kind, one.producer) for one in iterated(raw, 0, WholeBatches(None), UNCOMMITTED)
    ] == [(Kind.DATA, 7), (Kind.ABORT, 7)]


def test_the_next_fetch_begins_behind_the_last_batch_given() -> None:
    kafka_batches._install()
    raw = b"".join(batch([record(b"a")], base) for base in range(3))
    ours = iterated(raw + raw[:30], 1, WholeBatches(None), UNCOMMITTED)
    assert ours.next_fetch_offset == 1
    places = []
    for one in ours:
        assert ours.next_fetch_offset == one.next
        places.append(one.base)
    assert places == [1, 2]


def broken() -> Iterator[bytes]:
    changed = bytearray(batch([record(b"a")], 1))
    changed[-1] ^= 1
    yield bytes(changed)
    yield b"\0" * 80
    yield b"\xff" * 80
    yield old(1, b"x")[:16] + b"\x02" + b"\0" * 80


@pytest.mark.parametrize("junk", list(broken()))
@pytest.mark.parametrize("cell", [None, lambda stamp: range(stamp, stamp + 1)])
def test_nothing_is_raised_inside_of_the_iterator(junk: bytes, cell: Any) -> None:
    kafka_batches._install()
    first = batch([record(b"a")])
    ours = iterated(first + junk, 0, WholeBatches(cell), UNCOMMITTED)
    found = list(ours)
    good = [one for one in found if one.kind is not Kind.DAMAGED]
    assert [bytes(one.raw) for one in good] in ([], [first])
    assert len(found) - len(good) <= 1
    assert ours.next_fetch_offset == len(good)
    assert found


def test_records_that_the_library_has_unpacked_become_batches_of_one_stamp() -> None:
    records = [
        Given(3, 10, b"a"),
        Given(5, 10, None),
        Given(6, 11, b"", ((TICK_HEADER, b"said"),)),
        Given(7, 11, b"d", timestamp_type=0),
    ]
    first, second, third = batches(records)
    assert (first.base, first.next, first.stamp, first.appended) == (3, 6, 10, True)
    assert (second.base, second.next, second.appended) == (6, 7, True)
    assert not third.appended
    unpacker = Unpacker(marks=True)
    assert unpacker.unpack(first).values == [b"a", b""]
    assert list(unpacker.unpack(first).offsets) == [3, 5]
    assert unpacker.unpack(second).marks == {0: b"said"}
    assert batches([]) == []
    assert batches([first, second]) == [first, second]


def test_a_claim_behind_too_many_headers_is_none_here_too() -> None:
    heads = (*[("k", b"")] * MOST_HEADERS, (TICK_HEADER, b"m"))
    for first in (0, 1):
        (one,) = batches([Given(0, headers=heads[first:])])
        assert Unpacker(marks=True).unpack(one).marks == ({0: b"m"} if first else {})
