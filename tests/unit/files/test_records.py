"""Data files as records: conversion, bad rows, times, ticks."""

import gzip
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core.time import TickGrid, own_time
from stream_dp.errors import UsageError
from stream_dp.files.records import FieldType, Record, load_records, ticked

FIELDS = {
    "time": FieldType.TIME,
    "count": FieldType.INTEGER,
    "price": FieldType.NUMBER,
    "open": FieldType.BOOLEAN,
    "shop": FieldType.CATEGORY,
    "note": FieldType.TEXT,
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
    assert json.loads(record.payload) == {
        "time": "2013-01-01T12:00:00Z",
        "count": 7,
        "price": 2.5,
        "open": True,
        "shop": "ÅB",
    }


@pytest.mark.parametrize(
    ("field", "cell", "value"),
    [
        ("count", "", None),
        ("count", "-0012", -12),
        ("count", "1_000", "1_000"),
        ("count", "1.0", "1.0"),
        ("count", "٣", "٣"),
        ("count", "9" * 5000, "9" * 5000),
        ("price", "3", 3),
        ("price", "-.5e2", -50.0),
        ("price", "nan", "nan"),
        ("price", "1e999", "1e999"),
        ("price", "Infinity", "Infinity"),
        ("open", "false", False),
        ("open", "1", True),
        ("open", "yes", "yes"),
        ("time", str(NOON), NOON),
        ("time", "", None),
        ("shop", "", None),
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
        assert [record.payload == b"[]" for record in records] == [
            *50 * [False],
            True,
            *50 * [False],
        ]


def test_bad_utf8_stays_bad(tmp_path: Path) -> None:
    (record,) = _load(tmp_path, HEADER.encode() + b"2013-01-01T12:00:00Z,1,1,true,caf\xe9,x\n")
    assert b"caf\xe9" in record.payload


def test_byte_order_mark_and_quotes(tmp_path: Path) -> None:
    (record,) = _load(tmp_path, '\ufefftime,shop\r\n2013-01-01T12:00:00Z,"a ""b"", c"\r\n')
    assert json.loads(record.payload)["shop"] == 'a "b", c'


@pytest.mark.parametrize("name", ["data.csv.gz", "DATA.CSV"])
def test_names(tmp_path: Path, name: str) -> None:
    (record,) = _load(tmp_path, "time\n2013-01-01T12:00:00Z\n", name)
    assert record.time_ms == NOON


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


def test_missing_and_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.csv: no such file"):
        load_records(tmp_path / "no.csv", FIELDS, "time")
    whole = gzip.compress(HEADER.encode() * 100)
    for damaged in (b"hello", whole[:-12], whole[:40] + b"\xff" * 40):
        path = tmp_path / "data.csv.gz"
        path.write_bytes(damaged)
        with pytest.raises(UsageError, match="gzip data is damaged"):
            load_records(path, FIELDS, "time")


def test_parquet_without_pyarrow_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'stream_dp\[parquet\]'"):
        _load(tmp_path, b"PAR1", "data.parquet")


def test_parquet(tmp_path: Path) -> None:
    arrow = importlib.import_module("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    moments = arrow.array([NOON * 10**6 + 1_999_999, None], arrow.timestamp("ns", "Europe/Paris"))
    table = arrow.table({"shop": ["a", None], "time": moments, "count": [1, 2], "extra": [0, 0]})
    parquet.write_table(table, tmp_path / "data.parquet")
    first, second = load_records(tmp_path / "data.parquet", FIELDS, "time")
    assert (first.line, first.time_ms, second.line, second.time_ms) == (1, NOON + 1, 2, None)
    expected = {"time": "2013-01-01T12:00:00.001Z", "count": 1, "shop": "a"}
    found = json.loads(first.payload)
    assert own_time(found.pop("time")) == own_time(expected.pop("time"))
    assert found == expected
    parquet.write_table(table.drop(["time"]), tmp_path / "other.parquet")
    with pytest.raises(UsageError, match="no column 'time'"):
        load_records(tmp_path / "other.parquet", FIELDS, "time")
    with pytest.raises(UsageError, match="not a Parquet file"):
        _load(tmp_path, b"hello", "bad.parquet")


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
