"""Parquet files that pyarrow wrote: a bad cell is the matter of its own row, and times of every unit are floored."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.moments import oracle

from stream_dp.core.time import ISO, TickGrid, TimeForm
from stream_dp.errors import UsageError
from stream_dp.files.files import FileSource
from stream_dp.files.records import FieldType, Record, load_records

FIELDS = {
    "time": FieldType.TIME,
    "shop": FieldType.CATEGORY,
    "count": FieldType.INTEGER,
    "price": FieldType.NUMBER,
    "note": FieldType.TEXT,
}
BROKEN = b"[]"
NOON = 1_357_041_600_000
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
pa, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")


def stamps(count: int) -> Any:
    return pa.array([NOON + at for at in range(count)], pa.timestamp("ms", "UTC"))


def load(folder: Path, columns: dict[str, Any], form: TimeForm = ISO) -> list[Record]:
    """The records of a file with these columns (and a good time, where there is none)."""
    longest = max(map(len, columns.values()))
    table = pa.table({"time": stamps(longest), **columns})
    parquet.write_table(table, folder / "data.parquet")
    return load_records(folder / "data.parquet", FIELDS, "time", form)


def texts(*cells: bytes) -> Any:
    """A column of strings that holds these bytes, whatever they are."""
    ends = [0]
    for cell in cells:
        ends.append(ends[-1] + len(cell))
    index = b"".join(end.to_bytes(4, "little") for end in ends)
    buffers = [None, pa.py_buffer(index), pa.py_buffer(b"".join(cells))]
    return pa.Array.from_buffers(pa.utf8(), len(cells), buffers)


def dead(records: list[Record]) -> list[int]:
    """The rows that no decoder takes; every other one is a JSON object."""
    broken = [record.line for record in records if record.payload == BROKEN]
    assert all(isinstance(json.loads(r.payload), dict) for r in records if r.line not in broken)
    assert all(record.time_ms is None for record in records if record.line in broken)
    return broken


BAD_COLUMNS = {
    "bad UTF-8": {"shop": texts(b"a", b"caf\xe9", "é".encode(), b"\xed\xa0\x80", b"")},
    "years": {"note": pa.array([0, 2**31 - 1, 15_706, -(2**31), 1], pa.date32())},
    "late dates": {"note": pa.array([0, 2**60, 0, -(2**60), 1], pa.date64())},
    "seconds": {"note": pa.array([0, 10**15, 1, -(10**15), -1], pa.timestamp("s", "UTC"))},
    "local": {"note": pa.array([0, 10**15, 1, -(10**15), -1], pa.timestamp("s"))},
    "own times": {"time": pa.array([0, 10**15, 1, -(10**15), -1], pa.timestamp("s", "UTC"))},
    "microseconds": {"note": pa.array([0, 2**62, 1, -(2**62), -1], pa.timestamp("us", "UTC"))},
    "a list": {
        "note": pa.ListArray.from_arrays([0, 1, 2, 3, 4, 5], texts(b"", b"\xff", b"", b"\xff", b""))
    },
    "a struct": {
        "note": pa.StructArray.from_arrays([texts(b"", b"\xff", b"", b"\xff", b"")], ["inner"])
    },
}


@pytest.mark.parametrize("columns", BAD_COLUMNS.values(), ids=BAD_COLUMNS)
def test_a_bad_cell_is_one_record_and_never_more(tmp_path: Path, columns: dict[str, Any]) -> None:
    records = load(tmp_path, columns)
    assert [record.line for record in records] == [1, 2, 3, 4, 5]
    assert dead(records) == [2, 4]


def test_two_bad_cells_of_two_columns_are_two_records(tmp_path: Path) -> None:
    years = pa.array([2**31 - 1, 0, 0], pa.date32())
    assert dead(load(tmp_path, {"shop": texts(b"a", b"\xff", b"b"), "note": years})) == [1, 2]


def test_bad_cells_of_columns_that_are_not_declared_harm_nobody(tmp_path: Path) -> None:
    assert dead(load(tmp_path, {"else": texts(b"\xff", b"a")})) == []


def test_row_groups_and_compression_change_nothing(tmp_path: Path) -> None:
    cells = [b"%d" % at if at % 500 else b"\xff" for at in range(3000)]
    table = pa.table({"time": stamps(3000), "shop": texts(*cells)})
    for compression in ("none", "snappy", "gzip", "zstd"):
        path = tmp_path / f"{compression}.parquet"
        parquet.write_table(table, path, compression=compression, row_group_size=700)
        found = load_records(path, FIELDS, "time")
        assert dead(found) == [1, 501, 1001, 1501, 2001, 2501]


@pytest.mark.parametrize("unit", PER_SECOND)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris", "+05:30", "-23:59"])
@settings(max_examples=20, deadline=None)
@given(counts=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3), min_size=1))
def test_timestamps_of_every_unit_are_floored(
    tmp_path_factory: pytest.TempPathFactory, unit: str, zone: str, counts: list[int]
) -> None:
    if unit == "s":  # which a file holds in milliseconds
        counts = [count // 1024 for count in counts]
    column = pa.array(counts, pa.timestamp(unit, zone))
    records = load(tmp_path_factory.mktemp("stamps"), {"time": column})
    moments = [count * 1000 // PER_SECOND[unit] for count in counts]
    inside = [-62_135_596_800_000 <= moment < 253_402_300_800_000 for moment in moments]
    assert dead(records) == [line for line, good in enumerate(inside, 1) if not good]
    for record, moment, good in zip(records, moments, inside, strict=True):
        if good:
            assert record.time_ms == moment == oracle(json.loads(record.payload)["time"])


def test_a_timestamp_is_written_as_the_schema_says(tmp_path: Path) -> None:
    column = pa.array([NOON * 1000 + 1999, -1, None], pa.timestamp("us", "Asia/Tokyo"))
    wanted = {
        "iso": ["2013-01-01T12:00:00.001Z", "1969-12-31T23:59:59.999Z", None],
        "epoch_s": [NOON // 1000, -1, None],
        "epoch_ms": [NOON + 1, -1, None],
        "epoch_us": [NOON * 1000 + 1000, -1000, None],
    }
    for form, times in wanted.items():
        records = load(tmp_path, {"time": column}, TimeForm(form))
        assert [json.loads(record.payload)["time"] for record in records] == times


def test_local_timestamps_need_a_declared_zone(tmp_path: Path) -> None:
    column = pa.array([datetime(2013, 1, 1, 12), datetime(2013, 7, 1, 12)], pa.timestamp("ns"))  # noqa: DTZ001
    paris = TimeForm(zone=ZoneInfo("Europe/Paris"))
    assert [record.time_ms for record in load(tmp_path, {"time": column})] == [None, None]
    records = load(tmp_path, {"time": column}, paris)
    assert [r.time_ms for r in records] == [NOON - 3_600_000, 1_372_672_800_000]
    assert json.loads(records[0].payload)["time"] == "2013-01-01T12:00:00"


def test_what_cells_become(tmp_path: Path) -> None:
    (record,) = load(
        tmp_path,
        {
            "time": pa.array(["2013-01-01 12:00:00 UTC"]),
            "shop": pa.array(["é"]).dictionary_encode(),
            "count": pa.array([Decimal(7)], pa.decimal128(10, 0)),
            "price": pa.array([Decimal("7.25")], pa.decimal256(60, 2)),
            "note": pa.array([Decimal("7.25")], pa.decimal128(10, 2)),
        },
    )
    assert record.time_ms == NOON
    assert json.loads(record.payload) == {
        "time": "2013-01-01 12:00:00 UTC",
        "shop": "é",
        "count": 7,
        "price": 7.25,
        "note": "7.25",
    }


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"\xff"]),
        pa.array([date(2013, 1, 1)]),
        pa.array([timedelta(days=10**6)]),
        pa.array([{"a": [1], "b": {"c": None, "d": 1}}]),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array([2**64 - 1], pa.uint64()),
        pa.array([1.5], pa.float16()),
        pa.array([None], pa.null()),
        pa.array([float("nan")]),
        pa.array([1], pa.timestamp("ns", "UTC")),
        pa.array([1], pa.timestamp("s", "No/Where")),
        pa.array([datetime(2013, 1, 1, tzinfo=UTC)]),
    ],
    ids=lambda column: str(column.type),
)
def test_cells_of_every_type_are_read(tmp_path: Path, column: Any) -> None:
    for name in ("note", "count", "time"):
        (record,) = load(tmp_path, {name: column})
        assert name in json.loads(record.payload)


def test_a_damaged_file_is_no_matter_of_a_cell(tmp_path: Path) -> None:
    table = pa.table({"time": stamps(5000), "shop": [str(at) for at in range(5000)]})
    parquet.write_table(table, tmp_path / "data.parquet", compression="zstd")
    whole = (tmp_path / "data.parquet").read_bytes()
    for data in (whole[:4] + bytes(2000) + whole[2004:], whole[:-20], b"", b"PAR1"):
        (tmp_path / "data.parquet").write_bytes(data)
        with pytest.raises(UsageError, match=r"data\.parquet: not a Parquet file"):
            load_records(tmp_path / "data.parquet", FIELDS, "time")


async def test_a_file_source_goes_on_behind_a_bad_cell(tmp_path: Path) -> None:
    load(tmp_path, {"shop": texts(b"a", b"\xff", b"b")})
    source = FileSource(tmp_path / "data.parquet", FIELDS, "time", TickGrid(NOON, 1000, 1))
    await source.open(NOON)
    (batch,) = await source.read()
    assert sorted(zip(batch.labels, (p == BROKEN for p in batch.payloads), strict=True)) == [
        (1, False),
        (2, True),
        (3, False),
    ]
    await source.close()
