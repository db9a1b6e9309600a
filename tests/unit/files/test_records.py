"""Data files as records, CSV, JSON lines and Parquet: conversion, bad rows, times of every unit, ticks."""

import gzip
import json
import sys
from datetime import datetime, timedelta
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.moments import oracle
from pydantic import ValidationError

from stream_dp.core.time import ISO, TickGrid, TimeForm
from stream_dp.errors import UsageError
from stream_dp.files.records import (
    Record,
    column_names,
    load_records,
    plain_reader,
    plain_rows,
    ticked,
)
from stream_dp.records.decoder import RecordDecoder
from stream_dp.records.endpoints import FileSourceSpec
from stream_dp.records.schema import (
    BooleanField,
    CategoryField,
    Fields,
    IntegerField,
    NumberField,
    TextField,
    TimeField,
)

FIELDS: Fields = {
    "time": TimeField(),
    "count": IntegerField(),
    "price": NumberField(),
    "open": BooleanField(),
    "shop": CategoryField(domain=("a",)),
    "note": TextField(),
}
HEADER = "time,count,price,open,shop,extra\n"
NOON = 1357041600000


def _load(folder: Path, content: str | bytes, name: str = "data.csv") -> list[Record]:
    path = folder / name
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return load_records(path, FIELDS, "time")


def _values(folder: Path, row: str) -> Any:
    (record,) = _load(folder, HEADER + row + "\n")
    return json.loads(record.payload)


def test_csv_gives_the_declared_fields_that_the_file_has(tmp_path: Path) -> None:
    (record,) = _load(tmp_path, HEADER + "2013-01-01T12:00:00Z,7,2.5,TRUE,ÅB,secret\n")
    assert record.line == 2
    assert record.time_ms == NOON
    values = {"count": 7, "price": 2.5, "open": True, "shop": "ÅB"}
    assert json.loads(record.payload) == {"time": "2013-01-01T12:00:00Z", **values}
    quoted = '\ufefftime,shop\r\n2013-01-01T12:00:00Z,"a ""b"", c"\r\n'
    (record,) = _load(tmp_path, quoted, "data.csv.gz")
    assert (record.time_ms, json.loads(record.payload)["shop"]) == (NOON, 'a "b", c')
    (bad,) = _load(tmp_path, HEADER.encode() + b"2013-01-01T12:00:00Z,1,1,true,caf\xe9,x\n")
    assert b"caf\xe9" in bad.payload


@pytest.mark.parametrize(
    ("field", "cell", "value"),
    [
        ("count", "-0012", -12),
        ("count", "1_000", "1_000"),
        ("count", "٣", "٣"),
        ("count", "9" * 5000, "9" * 5000),
        ("price", "-.5e2", -50.0),
        ("price", "1e999", "1e999"),
        ("open", "1", True),
        ("open", "yes", "yes"),
        ("time", str(NOON), NOON),
        ("time", "", None),
        ("shop", " a ", " a "),
    ],
)
def test_a_cell_converts_or_stays_a_string(
    tmp_path: Path, field: str, cell: str, value: object
) -> None:
    names = ["time", "count", "price", "open", "shop"]
    row = ",".join(cell if name == field else "" for name in names) + ",x"
    found = _values(tmp_path, row)[field]
    assert (found, type(found)) == (value, type(value))


def test_broken_rows_harm_no_others(tmp_path: Path) -> None:
    good = "2013-01-01T12:00:00Z,1,1,true,a,x\n"
    records = _load(tmp_path, HEADER + good + "a,b\n" + "\n" + good.strip() + ",y\n" + good)
    assert [record.line for record in records] == [2, 3, 5, 6]
    assert [record.payload == b"[]" for record in records] == [False, True, True, False]
    assert [record.time_ms for record in records] == [NOON, None, None, NOON]


def test_an_open_quote_swallows_no_other_record(tmp_path: Path) -> None:
    good = "2013-01-01T12:00:00Z,1,1,true,a,x\n"
    for bad in ('2013-01-01T12:00:00Z,1,1,true,"a,x\n', '2013-01-01T12:00:00Z,1,1,true,"a"b,x\n'):
        records = _load(tmp_path, HEADER + 50 * good + bad + 50 * good)
        dead = [record.payload == b"[]" for record in records]
        assert dead == [*50 * [False], True, *50 * [False]]


def test_jsonl_lines_pass_as_they_are(tmp_path: Path) -> None:
    lines = [
        b'{"time": "2013-01-01T12:00:00Z", "other": [1, {"time": 3}]}',
        b"",
        b'{"time": 1357041600000}\r',
        b"not json",
        b"[1]",
        b'{"time": true}',
        b'{"shop": "\xff", "time": 5}',
        b'{"time": 5}',
    ]
    records = _load(tmp_path, b"\n".join(lines), "data.jsonl")
    expected = [(1, NOON), (3, NOON), (4, None), (5, None), (6, None), (7, None), (8, 5)]
    # whether bad UTF-8 hides the time beside it is the decoder's business
    found = [(r.line, None if r.line == 7 else r.time_ms) for r in records]
    assert found == expected
    assert [r.payload for r in records] == [line.rstrip(b"\r") for line in lines if line]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.txt", "time\n", r"data\.txt: the name must end in \.csv"),
        ("data.csv", "when,shop\nsecret,b\n", "no column 'time'"),
        ("data.csv", "", "no column 'time'"),
        ("data.csv", "time,shop,shop\n", "column 'shop' more than once"),
    ],
)
def test_a_file_that_does_not_fit(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        _load(tmp_path, content, name)
    assert "secret" not in str(caught.value)


def test_the_time_at_a_path(tmp_path: Path) -> None:
    placed = {**FIELDS, "time": FIELDS["time"].model_copy(update={"path": "at.time"})}
    lines = tmp_path / "data.jsonl"
    lines.write_bytes(
        b'{"at":{"time":"2013-01-01T12:00:00Z"}}\n{"at":null}\n{"time":"2013-01-01T12:00:00Z"}\n'
    )
    found = [record.time_ms for record in load_records(lines, placed, "time")]
    assert found == [NOON, None, None]
    table = tmp_path / "data.csv"
    table.write_text("time\n")
    with pytest.raises(UsageError, match="field 'time' has a `path` into objects, which only JSON"):
        load_records(table, placed, "time")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_path_names_a_column(tmp_path: Path, ending: str) -> None:
    fields: Fields = {
        "time": TimeField(path="Flight Date"),
        "shop": TextField(path="Shop (name)"),
        "amount": NumberField(path="shop", nullable=True),
    }
    table = tmp_path / f"data.{ending}"
    table.write_text("Shop (name),shop,Flight Date,time\na,1.5,2013-01-01T12:00:00Z,never\n")
    if ending == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        rows = [{"Shop (name)": "a", "shop": 1.5, "Flight Date": "2013-01-01T12:00:00Z"}]
        parquet.write_table(pytest.importorskip("pyarrow").Table.from_pylist(rows), table)
    (record,) = load_records(table, fields, "time")
    assert record.time_ms == NOON
    told = json.loads(record.payload)
    assert told == {"Flight Date": "2013-01-01T12:00:00Z", "Shop (name)": "a", "shop": 1.5}
    (row,) = plain_rows([b"Shop (name),shop\n", b"a,1.5\n"], cells=True)
    assert json.loads(plain_reader(fields, cells=True)(row.value or {})) == {
        "Shop (name)": "a",
        "shop": 1.5,
    }


@pytest.mark.parametrize("between", [";", "\t", "|"])
def test_what_stands_between_the_columns_names_stands_between_cells(
    tmp_path: Path, between: str
) -> None:
    table = tmp_path / "data.csv"
    rows = [["time", "shop"], ["2013-01-01T12:00:00Z", '"a,""b"'], ["2013-01-01T12:00:00Z", "a,b"]]
    table.write_text("\n".join(map(between.join, rows)))
    fields: Fields = {"time": TimeField(), "shop": TextField()}
    payloads = [record.payload for record in load_records(table, fields, "time")]
    assert [json.loads(payload or b"")["shop"] for payload in payloads] == ['a,"b', "a,b"]
    assert column_names(table) == ["time", "shop"]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252"])
def test_a_decimal_comma_and_an_encoding_make_the_records_of_a_plain_file(
    tmp_path: Path, encoding: str
) -> None:
    numbers = {"1.234,50": 1234.5, "-0,07": -0.07, "7": 7, "1.234": 1234, "12345,6": 12345.6}
    others = ["1.5", "1,2,3", "1.23,4", ",5", "1,", "+1,5", " 1,5", "1e3", "NaN", "1.234.5"]
    fields: Fields = {"time": TimeField(), "Größe": NumberField(decimal=",")}
    lines = ["time;Größe", *(f"2013-01-01T12:00:00Z;{text}" for text in (*numbers, *others, ""))]
    table = tmp_path / "data.csv"
    table.write_bytes("\n".join(lines).encode(encoding))
    records = load_records(table, fields, "time", encoding=encoding)
    values = [json.loads(record.payload)["Größe"] for record in records]
    assert values == [*numbers.values(), *others, None]
    split = table.read_bytes().splitlines(keepends=True)
    rows = [row.value for row in plain_rows(split, cells=True, encoding=encoding)]
    read = plain_reader(fields, cells=True)
    assert [json.loads(read(row or {}))["Größe"] for row in rows] == values
    assert column_names(table, encoding) == ["time", "Größe"]


def test_a_byte_without_meaning_spoils_its_own_line(tmp_path: Path) -> None:
    rows = [
        b"2013-01-01T12:00:00Z,caf\xe9",
        b"2013-01-01T12:00:00Z,\x81",
        b"2013-01-01T12:00:00Z,\x80",
    ]
    table = tmp_path / "data.csv"
    table.write_bytes(b"\n".join([b"time,shop", *rows]))
    fields: Fields = {"time": TimeField(), "shop": TextField()}
    first, bad, last = load_records(table, fields, "time", encoding="cp1252")
    assert [json.loads(record.payload)["shop"] for record in (first, last)] == ["café", "€"]
    assert RecordDecoder(fields).decode([bad.payload]).refused
    table.write_bytes("time,Größe\n".encode("latin-1"))
    with pytest.raises(UsageError, match=r"data.csv: line 1: .* not utf-8: declare the .*latin-1"):
        load_records(table, {"time": TimeField(), "Größe": TextField()}, "time")


def test_a_file_has_an_encoding_of_which_each_byte_is_a_character() -> None:
    def source(encoding: str, name: str = "x.csv") -> FileSourceSpec:
        return FileSourceSpec(path=Path(name), encoding=encoding)

    plain, every = bytes(range(128)).decode("ascii"), bytes(range(256))
    for name in ("latin-1", "windows-1252", "iso8859-15", "CP437", "koi8-r", "mac-roman", "ascii"):
        encoding = source(name).encoding
        assert every.decode(encoding, "surrogateescape")[:128] == plain
        assert len(every.decode(encoding, "surrogateescape")) == 256
        assert source(name).counting == {"encoding": encoding}
    assert source("UTF8").counting == {}
    for name in (
        "utf-16",
        "utf-7",
        "base64",
        "shift_jis",
        "iso2022_jp",
        "hz",
        "cp424",
        "nope",
        "a\0",
    ):
        with pytest.raises(ValidationError, match="one byte for each character, such as latin-1"):
            source(name)
    with pytest.raises(ValidationError, match="JSON is UTF-8"):
        source("latin-1", "x.jsonl")


def test_times_of_a_pattern(tmp_path: Path) -> None:
    table = tmp_path / "data.csv"
    table.write_text("time\n20130101\n1.1.2013\n\n")
    field = TimeField(format="%Y%m%d", zone="UTC")
    records = load_records(table, {"time": field}, "time", field.form)
    midnight = NOON - 12 * 3_600_000
    assert [(r.time_ms, r.payload) for r in records] == [
        (midnight, b'{"time":"20130101"}'), (None, b'{"time":"1.1.2013"}'),
    ]  # fmt: skip


def test_missing_and_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.csv: no such file"):
        load_records(tmp_path / "no.csv", FIELDS, "time")
    whole = gzip.compress(HEADER.encode() * 100)
    for damaged in (b"hello", whole[:-12], whole[:40] + b"\xff" * 40):
        path = tmp_path / "data.csv.gz"
        path.write_bytes(damaged)
        with pytest.raises(UsageError, match="gzip data is damaged"):
            load_records(path, FIELDS, "time")


def test_without_pyarrow_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'stream_dp\[parquet\]'"):
        _load(tmp_path, b"PAR1", "data.parquet")


def _record(line: int, time_ms: int | None) -> Record:
    return Record(line, time_ms, b"{}")


def test_ticks_keep_every_record_by_its_own_time() -> None:
    times = [25, None, 10, 19, 10, -7, 99, 30, 9]
    ticks = ticked([_record(line, time) for line, time in enumerate(times)], TickGrid(10, 10, 3))
    assert [[record.line for record in tick] for tick in ticks] == [[1, 5, 8, 2, 4, 3], [0], [7, 6]]


@given(st.lists(st.integers(0, 99)), st.slices(10), st.integers(0, 10))
def test_ticks_are_a_sequence(times: list[int], some: slice, tick: int) -> None:
    ticks = ticked([_record(line, time) for line, time in enumerate(times)], TickGrid(0, 10, 10))
    whole = [ticks[tick] for tick in range(10)]
    assert (len(ticks), list(ticks), ticks[some]) == (10, whole, whole[some])
    assert ticks.before(tick) == sum(time < 10 * tick for time in times)
    with pytest.raises(IndexError):
        ticks[10]


@given(st.lists(st.none() | st.integers(-50, 150)), st.none() | st.integers(-50, 150))
def test_one_more_record_moves_no_other(times: list[int | None], more: int | None) -> None:
    records = [_record(line, time) for line, time in enumerate(times)]
    added = _record(len(times), more)
    with_it = ticked([*records, added], TickGrid(0, 10, 10))
    assert [[r for r in tick if r is not added] for tick in with_it] == [
        list(tick) for tick in ticked(records, TickGrid(0, 10, 10))
    ]
    assert sum(map(len, with_it)) == len(times) + 1


COLUMNS: Fields = {
    "time": TimeField(),
    "shop": CategoryField(domain=("a",)),
    "count": IntegerField(),
    "price": NumberField(),
    "note": TextField(),
}
BROKEN = b"[]"
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
pa, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")


def stamps(count: int) -> Any:
    return pa.array([NOON + at for at in range(count)], pa.timestamp("ms", "UTC"))


def load(folder: Path, columns: dict[str, Any], form: TimeForm = ISO) -> list[Record]:
    """The records of a file with these columns (and a good time, where there is none)."""
    longest = max(map(len, columns.values()))
    table = pa.table({"time": stamps(longest), **columns})
    parquet.write_table(table, folder / "data.parquet")
    return load_records(folder / "data.parquet", COLUMNS, "time", form)


def texts(*cells: bytes) -> Any:
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
    "seconds": {"note": pa.array([0, 10**15, 1, -(10**15), -1], pa.timestamp("s", "UTC"))},
    "own times": {"time": pa.array([0, 10**15, 1, -(10**15), -1], pa.timestamp("s", "UTC"))},
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


@pytest.mark.parametrize("unit", PER_SECOND)
@pytest.mark.parametrize("zone", ["UTC", "+05:30"])
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
    cells = {"shop": "é", "count": 7, "price": 7.25, "note": "7.25"}
    assert json.loads(record.payload) == {"time": "2013-01-01 12:00:00 UTC", **cells}


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"\xff"]),
        pa.array([timedelta(days=10**6)]),
        pa.array([{"a": [1], "b": {"c": None, "d": 1}}]),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array([2**64 - 1], pa.uint64()),
        pa.array([float("nan")]),
        pa.array([1], pa.timestamp("s", "No/Where")),
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
            load_records(tmp_path / "data.parquet", COLUMNS, "time")
