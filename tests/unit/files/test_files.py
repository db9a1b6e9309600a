"""Files as sink and source: once, in order, whole after a crash, exact positions; and the system clock."""

# ruff: noqa: ASYNC240 - tests look at files while nothing else wants the loop

import asyncio
import errno
import os
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Batch, Sink, Source
from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.files import records
from stream_dp.files.files import FileSink, FileSource
from stream_dp.files.records import Record
from stream_dp.files.system_clock import SystemClock
from stream_dp.journal.commit import Release
from stream_dp.records.schema import CategoryField, Fields, TimeField
from stream_dp.testing.port_checks import check_sink, check_sink_versions, sample_releases

BODIES = [release.body for release in sample_releases(0, 5)]


@pytest.fixture(autouse=True)
def blockbuster() -> Iterator[BlockBuster]:
    with blockbuster_ctx("stream_dp") as guard:
        yield guard


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "releases.jsonl"


async def _published(path: Path, releases: list[Release]) -> list[bytes]:
    sink = FileSink(path)
    await sink.open()
    try:
        await sink.publish(releases)
        return [body async for body in sink.read()]
    finally:
        await sink.close()


@pytest.mark.parametrize("check", [check_sink, check_sink_versions])
async def test_contract(
    path: Path, check: Callable[[Callable[[], Sink]], Coroutine[Any, Any, None]]
) -> None:
    await check(lambda: FileSink(path))


@pytest.mark.parametrize("whole", [0, 2])
@pytest.mark.parametrize("cut", [1, 7, -1, None])
async def test_a_torn_line_is_written_again(path: Path, whole: int, cut: int | None) -> None:
    lines = b"".join(body + b"\n" for body in BODIES[:whole])
    path.write_bytes(lines + BODIES[whole][:cut])
    assert await _published(path, sample_releases(max(0, whole - 1), 5)) == BODIES
    assert path.read_bytes() == b"".join(body + b"\n" for body in BODIES)


async def test_a_full_disk_can_be_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, room = os.pwrite, [100, 7]

    def pwrite(descriptor: int, data: bytes, position: int) -> int:
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data[: room.pop()], position)

    sink = FileSink(path)
    await sink.open()
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", pwrite)
        with pytest.raises(WorldError, match="No space left"):
            await sink.publish(sample_releases(0, 3))
    assert await sink.last() is None
    await sink.publish(sample_releases(0, 5))
    assert [body async for body in sink.read()] == BODIES
    await sink.close()
    assert path.read_bytes().count(b"\n") == 5


async def test_a_file_that_was_cut_is_noticed(path: Path) -> None:
    sink = FileSink(path)
    await sink.open()
    await sink.publish(sample_releases(0, 5))
    os.truncate(path, 20)
    with pytest.raises(FailClosed, match="was cut"):
        _ = [body async for body in sink.read()]
    await sink.close()


async def test_a_foreign_file_is_not_appended_to(path: Path) -> None:
    path.write_text("hello\n")
    with pytest.raises(FailClosed, match="no release"):
        await _published(path, sample_releases(0, 1))
    assert path.read_text() == "hello\n"


async def test_closed_sinks(path: Path) -> None:
    sink = FileSink(path.parent / "no" / "releases.jsonl")
    with pytest.raises(WorldError, match=r"releases\.jsonl"):
        await sink.open()
    await sink.close()
    sink = FileSink(path)
    with pytest.raises(WorldError, match="not open"):
        await sink.publish([])
    await sink.close()
    await sink.open()
    await sink.close()
    await sink.close()


FIELDS: Fields = {"time": TimeField(), "shop": CategoryField(domain=("a",))}
STEP, TICKS = 1000, 250


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = ["oops,a", "1000,b", "1500,c", "999,d", "120000,e", "120001,f", "-5,g", "999999,h"]
    found = tmp_path / "shops.csv"
    found.write_text("time,shop\n" + "\n".join(rows) + "\n")
    return found


def _source(path: Path) -> FileSource:
    return FileSource(path, FIELDS, "time", TickGrid(0, STEP, TICKS))


async def _rest(source: Source) -> list[Batch]:
    found: list[Batch] = []
    while batches := await source.read():
        found.extend(batches)
    return found


def _shops(batches: list[Batch]) -> str:
    return "".join(chr(p[p.index(b"shop") + 7]) for b in batches for p in b.payloads)


async def test_every_tick_has_its_mark(table: Path) -> None:
    source = _source(table)
    assert source.name == "shops.csv"
    assert await source.open(0) == (0,)
    batches = await _rest(source)
    assert [batch.mark for batch in batches] == list(range(TICKS))
    assert {batch.tick for batch in batches} == {None}
    assert _shops(batches) == "agdbcefh"
    assert [list(batch.labels) for batch in batches[:3]] == [[2, 8, 5], [3, 4], []]
    assert [batch.position for batch in batches[:3]] == [4, 7, 8]
    assert batches[-1].position == 8 + TICKS
    await source.close()


async def most_memory(path: Path, horizon: int) -> int:
    source = FileSource(path, FIELDS, "time", TickGrid(0, STEP, horizon))
    tracemalloc.start()
    try:
        await source.open(0)
        await source.seek({0: horizon})
        assert [batch.mark for batch in await _rest(source)][-1] == horizon - 1
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        await source.close()


async def test_ticks_without_records_take_no_memory(table: Path) -> None:
    few, many = await most_memory(table, 200_000), await most_memory(table, 20_000_000)
    assert many < 2 * few
    assert many < 1_000_000


async def test_a_place_for_each_tick_would(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dense(records.TickedRecords):
        def __init__(self, ticks: Mapping[int, Sequence[Record]], horizon: int) -> None:
            super().__init__({tick: ticks.get(tick, ()) for tick in range(horizon)}, horizon)

    monkeypatch.setattr(records, "TickedRecords", Dense)
    assert await most_memory(table, 200_000) > 1_000_000


async def test_seek_to_any_position_resumes_exactly(table: Path) -> None:
    source = _source(table)
    await source.open(0)
    whole = await _rest(source)
    items = [item for b in whole for item in (*b.labels, f"mark {b.mark}")]
    for position in (*range(12), 120, 121, 122, 123, len(items) - 1, len(items)):
        await source.seek({0: position})
        rest = await _rest(source)
        assert [i for b in rest for i in (*b.labels, f"mark {b.mark}")] == items[position:]
        assert all(len(b.payloads) == len(b.labels) for b in rest)
        assert [b.position for b in rest] == [b.position for b in whole[len(whole) - len(rest) :]]
    await source.seek({})
    assert await _rest(source) == whole


async def test_reads_end_at_fixed_blocks_wherever_they_begin(table: Path) -> None:
    source = _source(table)
    await source.open(0)
    assert [batch.mark for batch in await source.read()] == list(range(100))
    await source.seek({0: 4})
    assert [batch.mark for batch in await source.read()] == list(range(1, 100))


async def test_a_file_cut_since_or_missing_and_another_origin_are_refused(table: Path) -> None:
    source = _source(table)
    await source.open(0)
    with pytest.raises(FailClosed, match=r"bring (it|that file) back"):
        await source.seek({0: 10_000})
    with pytest.raises(FailClosed, match="declared start"):
        await _source(table).open(5)
    with pytest.raises(UsageError, match="no such file"):
        await _source(table.with_name("no.csv")).open(0)


class _Scripted:
    def __init__(self, *moments: int) -> None:
        self.moments = list(moments)

    def __call__(self) -> int:
        return self.moments.pop(0) if len(self.moments) > 1 else self.moments[0]


def test_a_small_step_back_stands_still() -> None:
    clock = SystemClock(_Scripted(0, 5000, 4000, 4500, 5001))
    assert [clock.now() for _ in range(4)] == [5000, 5000, 5000, 5001]


def test_small_steps_back_do_not_add_up() -> None:
    clock = SystemClock(_Scripted(5000, 4400, 3900))
    assert clock.now() == 5000
    with pytest.raises(FailClosed, match="ran backwards"):
        clock.now()


async def test_sleep_is_sliced(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await SystemClock(_Scripted(0, 0, 1000, 2000, 2500)).sleep_until(2500)
    assert slept == [0, 1, 1, 0.5]


async def test_a_moment_in_the_past_gives_way_once() -> None:
    ran: list[str] = []
    asyncio.get_running_loop().call_soon(ran.append, "other")
    await SystemClock(_Scripted(10)).sleep_until(10)
    assert ran == ["other"]


async def test_a_clock_set_back_ends_the_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(_: float) -> None: ...

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(FailClosed):
        await SystemClock(_Scripted(9000, 9000, 1000)).sleep_until(20_000)
