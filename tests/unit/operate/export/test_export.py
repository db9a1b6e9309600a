"""Released values as rows: what each form becomes, once however often and wherever an export stops or dies."""

import asyncio
import csv
import json
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset
import pyarrow.parquet
import pytest
from unit.operate.export.export_worlds import (
    FORMS,
    PIPELINE,
    ROWS,
    bodies,
    body,
    changed,
    published,
)

from stream_dp.client.frames import COLUMNS, Row, arrow_table, rows_of
from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.operate.exporting import UNIQUE, export_releases, for_postgresql, target_named
from stream_dp.operate.published_bodies import published as published_bodies
from stream_dp.pipeline.yaml import load

Read = Callable[[Path], list[tuple[Any, ...]]]
FORMER = COLUMNS[:-1]
"""The columns before series had versions."""
ARRAYS = "releases: {values: array}\n"


def of_csv(folder: Path) -> list[tuple[Any, ...]]:
    """What the CSV holds, as the rows that were written."""
    with (folder / "shop.csv").open(newline="") as file:
        head, *lines = list(csv.reader(file))
    assert tuple(head) in (COLUMNS, FORMER)
    kinds = Row.__annotations__
    return [
        tuple(Row(*(_typed(str(kinds[name]), cell) for name, cell in zip(head, line, strict=True))))
        for line in lines
    ]


def _typed(kind: str, cell: str) -> Any:
    if "datetime" in kind:
        return datetime.fromisoformat(cell)
    if cell == "" and "None" in kind:
        return None
    return float(cell) if "float" in kind else int(cell) if "int" in kind else cell


def of_parquet(folder: Path) -> list[tuple[Any, ...]]:
    """As docs/export.md says for a folder in which some files have no column `version`."""
    files = pyarrow.dataset.dataset(folder, schema=arrow_table([]).schema)
    found = files.to_table().to_pylist()
    return [tuple(Row(**{**row, "version": row["version"] or 1})) for row in found]


def of_duckdb(folder: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(folder)) as client:
        client.execute("set timezone = 'UTC'")
        found = client.execute(f"select {', '.join(COLUMNS)} from stream_dp_releases").fetchall()  # noqa: S608
    return [tuple(row) for row in found]


TARGETS = [("csv", of_csv), ("parquet", of_parquet), ("duckdb", of_duckdb)]


def made_former(kind: str, to: Path) -> None:
    """Turn what was exported into what a former version would have written."""
    if kind == "csv":
        with (to / "shop.csv").open(newline="") as file:
            head, *lines = list(csv.reader(file))
        assert head[-1] == "version"
        with (to / "shop.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(each[:-1] for each in (head, *lines))
        position = to / "shop.csv.position"
        sequence, _, digest = position.read_text().split()
        position.write_text(f"{sequence} {(to / 'shop.csv').stat().st_size} {digest}")
    elif kind == "parquet":
        for path in to.glob("*.parquet"):
            pyarrow.parquet.write_table(pyarrow.parquet.read_table(path).select(FORMER), path)
    else:
        with duckdb.connect(str(to)) as client:
            client.execute("alter table stream_dp_releases drop column version")


def wanted(ticks: range) -> list[tuple[Any, ...]]:
    return told_by(bodies(ticks))


def told_by(found: list[bytes]) -> list[tuple[Any, ...]]:
    return ordered([tuple(row) for each in found for row in rows_of("shop", each)])


def ordered(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(
        (tuple(c.astimezone(UTC) if isinstance(c, datetime) else c for c in row) for row in rows),
        key=lambda row: [str(row[COLUMNS.index(name)]) for name in UNIQUE],
    )


def test_every_form_becomes_the_numbers_that_it_tells() -> None:
    rows = [row for each in bodies(range(1)) for row in rows_of("shop", each)]
    told = [(r.series, r.time_window, r.key, r.kind, r.value, r.low, r.high, r.band) for r in rows]
    assert told == [
        ("s0", "", "", "value", 12, 8, 16, 4),
        ("s1", "", "AT", "value", 7, 4, 10, 3),
        ("s1", "", 'D"E, \n', "value", 0, -3, 3, 3),
        ("s2", "", "AT", "fired", 51, 42, 60, 9),
        ("s4", "", "", "value", 0.125, 0.1, None, None),
        ("s5", "", "AT", "value", None, None, None, None),
        ("s5", "", "DE", "value", 2.5, 2, 3, None),
        ("s6", "", "", "value", 80, 72, 88, 8),
        ("s7", "", "DE", "rank", 80, 72, 88, 8),
        ("s7", "", "AT", "rank", 75, 67, 83, 8),
        ("s8", "tick", "", "value", 2, -2, 6, 4),
        ("s8", "24h", "AT", "value", 9, 4, 14, 5),
        ("s9", "24h", "0.5", "quantile", 10, 8, 12, 6),
        ("s9", "24h", "0.9", "quantile", 33.5, 30, 40, 6),
    ]
    assert len(rows) == ROWS
    assert [(r.name, r.rank, r.tied) for r in rows if r.name] == [
        ("DE", None, None), ("DE", 1, '["AT"]'), ("AT", 2, '["DE"]'),
    ]  # fmt: skip
    assert {r.tick_end for r in rows} == {datetime(2024, 1, 1, 1, tzinfo=UTC)}
    assert len({tuple(getattr(r, name) for name in UNIQUE) for r in rows}) == len(rows)


@pytest.mark.parametrize(("kind", "read"), TARGETS)
async def test_what_is_there_is_not_written_twice(tmp_path: Path, kind: str, read: Read) -> None:
    to, told = tmp_path / "out", []
    for ticks in (2, 2, 5):
        path = published(tmp_path, bodies(range(ticks)))
        told.append(0)
        await export_releases(
            path, f"{kind}:{to}", told=lambda _, releases, rows: told.append(releases)
        )
        assert ordered(read(to)) == wanted(range(ticks))
    releases = [each for each in told if each]
    assert releases[0] == 2 * len(FORMS)
    assert releases[-1] == 3 * len(FORMS)


@pytest.mark.parametrize(("kind", "read"), TARGETS)
async def test_it_follows_what_comes(tmp_path: Path, kind: str, read: Read) -> None:
    to, seen = tmp_path / "out", asyncio.Event()
    path = published(tmp_path, bodies(range(2)))

    def told(_: str, releases: int, __: int) -> None:
        if releases == 3 * len(FORMS):
            seen.set()
        elif releases == 2 * len(FORMS):
            published(tmp_path, bodies(range(3)))

    following = asyncio.create_task(export_releases(path, f"{kind}:{to}", 0.01, told))
    await asyncio.wait_for(seen.wait(), 60)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert ordered(read(to)) == wanted(range(3))


async def test_a_csv_of_someone_else_is_left_alone(tmp_path: Path) -> None:
    to = tmp_path / "out"
    to.mkdir()
    (to / "shop.csv").write_text("mine\n")
    with pytest.raises(
        UsageError, match=r"(not written by this command|this command did not write)"
    ):
        await export_releases(published(tmp_path, bodies(range(1))), f"csv:{to}")
    assert (to / "shop.csv").read_text() == "mine\n"


def test_a_torn_last_line_waits_for_its_end(tmp_path: Path) -> None:
    path = published(tmp_path, bodies(range(1)))
    file = tmp_path / "shop.releases.jsonl"
    file.write_bytes(file.read_bytes() + body(99, {"value": 1, "band": 1})[:40])
    asyncio.run(export_releases(path, f"csv:{tmp_path / 'out'}"))
    assert ordered(of_csv(tmp_path / "out")) == wanted(range(1))


@pytest.mark.parametrize("address", ["", "csv:", "mysql://x"])
def test_an_address_that_is_none_names_those_that_are(address: str) -> None:
    with pytest.raises(UsageError, match=r"postgresql://USER@HOST/DATABASE, duckdb:FILE"):
        target_named(address, "shop")


async def test_no_password_is_in_an_error() -> None:
    target = target_named("postgresql://ann:SECRET@127.0.0.1:1/shop", "shop")
    with pytest.raises(WorldError) as caught:
        await target.open()
    assert "SECRET" not in str(caught.value)
    assert "127.0.0.1/shop" in str(caught.value)


class Died(BaseException):
    """What nothing catches, as a kill."""


def dies_at(step: int, patched: pytest.MonkeyPatch) -> Callable[[], int]:
    """Let the process die before its n-th write that becomes durable or gets its name; return a counter."""
    steps = [0]

    def fused(call: Callable[..., Any]) -> Callable[..., Any]:
        def once(*args: Any) -> Any:
            steps[0] += 1
            if steps[0] == step:
                raise Died
            return call(*args)

        return once

    patched.setattr(os, "fsync", fused(os.fsync))
    patched.setattr(Path, "replace", fused(Path.replace))
    return lambda: steps[0]


@pytest.mark.parametrize(("kind", "read"), [("csv", of_csv), ("parquet", of_parquet)])
async def test_an_export_that_died_at_any_step_is_gone_on_with(
    tmp_path: Path, kind: str, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the very first one on: before its file has a head line."""
    path = published(tmp_path, bodies(range(2)))
    for step in range(1, 100):
        to = tmp_path / f"out{step}"
        with monkeypatch.context() as patched:
            passed = dies_at(step, patched)
            with suppress(Died):
                await export_releases(path, f"{kind}:{to}")
        await export_releases(path, f"{kind}:{to}")
        assert ordered(read(to)) == wanted(range(2))
        if passed() < step:
            break
    assert step > 3


@pytest.mark.parametrize("kind", ["csv", "parquet"])
async def test_a_second_export_into_the_same_files_is_refused(tmp_path: Path, kind: str) -> None:
    path, to = published(tmp_path, bodies(range(1))), f"{kind}:{tmp_path / 'out'}"
    first = target_named(to, "shop")
    await first.open()
    with pytest.raises(UsageError, match="another export of shop writes there"):
        await export_releases(path, to)
    await first.close()
    await export_releases(path, to)


async def test_a_file_that_shrinks_while_it_is_followed_is_seen(tmp_path: Path) -> None:
    path = published(tmp_path, bodies(range(2)))
    following = published_bodies(load(path), -1, 0.01)
    while await anext(following):
        pass
    published(tmp_path, bodies(range(1)))
    with pytest.raises(FailClosed, match="is shorter than"):
        await anext(following)


@pytest.mark.parametrize("key", ["a\rb", "\r", 'a"b,', " a "])
async def test_a_csv_gives_keys_back_as_they_were(tmp_path: Path, key: str) -> None:
    path = published(tmp_path, [body(0, {"values": {key: 1, "b": 2}, "band": 3})])
    await export_releases(path, f"csv:{tmp_path / 'out'}")
    with (tmp_path / "out" / "shop.csv").open(newline="") as file:
        assert [line["key"] for line in csv.DictReader(file)] == [key, "b"]


def test_keys_that_postgresql_does_not_take_are_told_apart() -> None:
    keys = ["a\0", "a␀", "a", "é" * 2000, "é" * 1999 + "e", "b" * 2000]
    given = rows_of("shop", body(0, {"values": dict.fromkeys(keys, 1), "band": 3}))
    taken = [row.key for row in for_postgresql(given)]
    assert len(set(taken)) == len(keys)
    assert taken[1:3] + taken[5:] == ["a␀", "a", "b" * 2000]
    assert taken[0].startswith("a␀… ")
    assert all("\0" not in key and len(key.encode()) <= 2000 for key in taken)
    named = rows_of("shop", body(0, {"value": 1, "name": "a\0", "band": 3}))
    assert for_postgresql(named)[0].name == "a␀"


@pytest.mark.parametrize(("kind", "read"), TARGETS)
@pytest.mark.parametrize(("ticks", "every"), [(1, None), (2, 0.01), (4, None)])
async def test_releases_of_another_pipeline_are_not_mixed_in(
    tmp_path: Path, kind: str, read: Read, ticks: int, every: float | None
) -> None:
    """Another topic under the name, with fewer, as many or more releases."""
    to = tmp_path / "out"
    await export_releases(published(tmp_path, bodies(range(2))), f"{kind}:{to}")
    others = [each.replace(b'"2024', b'"2025') for each in bodies(range(ticks))]
    path = published(tmp_path, others)
    with pytest.raises(FailClosed, match="another pipeline of this name"):
        await asyncio.wait_for(export_releases(path, f"{kind}:{to}", every), 120)
    assert ordered(read(to)) == wanted(range(2))


@pytest.mark.parametrize(("kind", "read"), TARGETS)
async def test_rows_have_the_version_of_their_series(tmp_path: Path, kind: str, read: Read) -> None:
    to, found = tmp_path / "out", changed(bodies(range(4)), 2)
    for ticks in (3, 4):
        kept = found[: ticks * len(FORMS)]
        await export_releases(published(tmp_path, kept), f"{kind}:{to}")
        assert ordered(read(to)) == told_by(kept)
    versions = {row[COLUMNS.index("sequence")]: row[-1] for row in read(to)}
    assert [versions[tick * len(FORMS)] for tick in range(4)] == [1, 1, 2, 2]
    assert sum(versions.values()) == len(versions) + 2


@pytest.mark.parametrize(("kind", "read"), TARGETS)
async def test_a_former_target_is_gone_on_with(tmp_path: Path, kind: str, read: Read) -> None:
    """Files keep their columns as long as every series has its first version."""
    to = tmp_path / "out"
    await export_releases(published(tmp_path, bodies(range(2))), f"{kind}:{to}")
    made_former(kind, to)
    for ticks in (3, 5):
        await export_releases(published(tmp_path, bodies(range(ticks))), f"{kind}:{to}")
        assert ordered(read(to)) == wanted(range(ticks))
    if kind == "csv":
        assert (to / "shop.csv").read_text().splitlines()[0] == ",".join(FORMER)
    if kind == "parquet":
        files = list(to.glob("*.parquet"))
        assert len(files) == 3
        assert {tuple(pyarrow.parquet.read_schema(each).names) for each in files} == {FORMER}


@pytest.mark.parametrize(("kind", "read"), [("parquet", of_parquet), ("duckdb", of_duckdb)])
async def test_a_former_target_takes_a_second_version(
    tmp_path: Path, kind: str, read: Read
) -> None:
    to, found = tmp_path / "out", changed(bodies(range(5)), 2)
    for ticks in (2, 3, 4, 5):
        kept = found[: ticks * len(FORMS)]
        await export_releases(published(tmp_path, kept), f"{kind}:{to}")
        assert ordered(read(to)) == told_by(kept)
        if ticks == 2:
            made_former(kind, to)
    if kind == "parquet":
        schemas = [pyarrow.parquet.read_schema(each).names for each in sorted(to.glob("*.parquet"))]
        assert schemas == [list(FORMER), *([list(COLUMNS)] * 3)]
        assert pyarrow.parquet.read_table(to).num_rows == 5 * ROWS
        files = f"read_parquet('{to}/*.parquet', union_by_name = true)"
        counts = f"select version, count(*) from {files} group by version order by version"  # noqa: S608
        assert duckdb.execute(counts).fetchall() == [(1, 3 * ROWS - 3), (2, 3), (None, 2 * ROWS)]


async def test_a_former_csv_takes_no_second_version(tmp_path: Path) -> None:
    to, found = tmp_path / "out", changed(bodies(range(3)), 2)
    await export_releases(published(tmp_path, found[: 2 * len(FORMS)]), f"csv:{to}")
    made_former("csv", to)
    before = (to / "shop.csv").read_bytes()
    path = published(tmp_path, found)
    for _ in range(2):
        with pytest.raises(
            UsageError,
            match=r"no column for versions, but series s0 has version 2 now: move it and shop.csv.position away",
        ):
            await export_releases(path, f"csv:{to}")
        assert (to / "shop.csv").read_bytes() == before
    for name in ("shop.csv", "shop.csv.position"):
        (to / name).rename(to / f"former-{name}")
    await export_releases(path, f"csv:{to}")
    assert ordered(of_csv(to)) == told_by(found)


async def test_a_former_table_that_ends_in_a_second_version_is_gone_on_with(tmp_path: Path) -> None:
    """A former version left the version out, and its rows are no rows of another pipeline."""
    to, found = tmp_path / "out", changed(bodies(range(3)), 1)
    end = len(FORMS) + 1  # the first release of version 2 is the last one
    await export_releases(published(tmp_path, found[:end]), f"duckdb:{to}")
    made_former("duckdb", to)
    await export_releases(published(tmp_path, found), f"duckdb:{to}")
    assert ordered(of_duckdb(to)) == told_by(changed(bodies(range(3)), 2))


@pytest.mark.parametrize("series", ["s0", "orders"])
async def test_values_in_arrays_have_the_keys_of_their_version(tmp_path: Path, series: str) -> None:
    """Also where the export goes on long after the first release of a version, which alone names its keys.

    The file declares `orders`, with the keys of the newest version.
    """
    to, found, names = (
        tmp_path / "out",
        list[bytes](),
        {1: ["a", "b", "c"], 2: ["AT", "DE", "other"]},
    )
    for number in range(8):
        said = {"values": [number, number + 1, number + 2], "band": 3, "version": 1 + number // 4}
        if number in (0, 4):
            said["keys"] = names[1 + number // 4]
        whole = json.loads(body(number * len(FORMS), said))
        found.append(json.dumps({**whole, "series": series}).encode())
    for releases in (2, 3, 7, 8):
        path = published(tmp_path, found[:releases])
        path.write_text(
            PIPELINE.replace("statistic: count", "statistic: histogram, by: country") + ARRAYS
        )
        await export_releases(path, f"duckdb:{to}")
    columns = [COLUMNS.index(name) for name in ("tick", "key", "value", "version")]
    told = sorted(tuple(row[column] for column in columns) for row in of_duckdb(to))
    assert told == [
        (tick, name, tick + place, 1 + tick // 4)
        for tick in range(8)
        for place, name in enumerate(names[1 + tick // 4])
    ]
