"""A file as a source: a mark for every tick, and exact positions."""

import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Batch, Source
from stream_dp.errors import FailClosed, UsageError
from stream_dp.files import records
from stream_dp.files.files import FileSource
from stream_dp.files.records import FieldType, Record

FIELDS = {"time": FieldType.TIME, "shop": FieldType.CATEGORY}
STEP, TICKS = 1000, 250


@pytest.fixture(autouse=True)
def blockbuster() -> Iterator[BlockBuster]:
    with blockbuster_ctx("stream_dp") as guard:
        yield guard


@pytest.fixture
def path(tmp_path: Path) -> Path:
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


async def test_every_tick_has_its_mark(path: Path) -> None:
    source = _source(path)
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
    """The most bytes that a source takes for so many ticks, up to the last of them."""
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


async def test_ticks_without_records_take_no_memory(path: Path) -> None:
    few, many = await most_memory(path, 200_000), await most_memory(path, 20_000_000)
    assert many < 2 * few
    assert many < 1_000_000


async def test_a_place_for_each_tick_would(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dense(records.TickedRecords):
        def __init__(self, ticks: Mapping[int, Sequence[Record]], horizon: int) -> None:
            super().__init__({tick: ticks.get(tick, ()) for tick in range(horizon)}, horizon)

    monkeypatch.setattr(records, "TickedRecords", Dense)
    assert await most_memory(path, 200_000) > 1_000_000


async def test_an_empty_file_is_a_valid_stream(tmp_path: Path) -> None:
    (tmp_path / "none.csv").write_text("time,shop\n")
    source = _source(tmp_path / "none.csv")
    await source.open(0)
    assert [batch.mark for batch in await _rest(source)] == list(range(TICKS))


async def test_seek_to_any_position_resumes_exactly(path: Path) -> None:
    source = _source(path)
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


async def test_reads_end_at_fixed_blocks_wherever_they_begin(path: Path) -> None:
    source = _source(path)
    await source.open(0)
    assert [batch.mark for batch in await source.read()] == list(range(100))
    await source.seek({0: 4})
    assert [batch.mark for batch in await source.read()] == list(range(1, 100))


async def test_a_file_cut_since_is_refused(path: Path) -> None:
    source = _source(path)
    await source.open(0)
    with pytest.raises(FailClosed, match="bring it back"):
        await source.seek({0: 10_000})


async def test_another_origin_is_refused(path: Path) -> None:
    with pytest.raises(FailClosed, match="declared start"):
        await _source(path).open(5)


async def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        await _source(tmp_path / "no.csv").open(0)
