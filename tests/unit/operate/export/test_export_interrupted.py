"""Exports that die between any two steps, meet another export, or find other releases than those that they wrote."""

import asyncio
import csv
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from unit.operate.export.export_worlds import FORMS, bodies, body, published
from unit.operate.export.test_export import TARGETS, Read, of_csv, of_parquet, ordered, wanted

from stream_dp.errors import FailClosed, UsageError
from stream_dp.operate.export.exporting import (
    each_place_once,
    export_releases,
    for_postgresql,
    target_named,
)
from stream_dp.operate.export.rows import Row, rows_of
from stream_dp.operate.published_bodies import published as published_bodies
from stream_dp.pipeline.yaml import load


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


@pytest.mark.parametrize(("kind", "read"), TARGETS)
@pytest.mark.parametrize("ticks", [1, 2, 4])
@pytest.mark.parametrize("every", [None, 0.01])
async def test_releases_that_are_not_those_of_the_target_are_not_mixed_in(
    tmp_path: Path, kind: str, read: Read, ticks: int, every: float | None
) -> None:
    """A topic that was made anew, or another pipeline of the name: with fewer, as many or more releases."""
    to = tmp_path / "out"
    await export_releases(published(tmp_path, bodies(range(2))), f"{kind}:{to}")
    others = [each.replace(b'"2024', b'"2025') for each in bodies(range(ticks))]
    with pytest.raises(FailClosed, match="another pipeline of this name"):
        await asyncio.wait_for(
            export_releases(published(tmp_path, others), f"{kind}:{to}", every), 120
        )
    assert ordered(read(to)) == wanted(range(2))


async def test_sequences_that_do_not_grow_are_refused(tmp_path: Path) -> None:
    path = published(tmp_path, [*bodies(range(1)), *bodies(range(1))])
    with pytest.raises(FailClosed, match="another pipeline of this name"):
        await export_releases(path, f"csv:{tmp_path / 'out'}")


async def test_a_file_that_shrinks_while_it_is_followed_is_seen(tmp_path: Path) -> None:
    path = published(tmp_path, bodies(range(2)))
    following = published_bodies(load(path), -1, 0.01)
    while await anext(following):
        pass
    published(tmp_path, bodies(range(1)))
    with pytest.raises(FailClosed, match="is shorter than it was"):
        await anext(following)


@pytest.mark.parametrize("key", ["a\rb", "a\nb", "\r", 'a"b,', " a "])
async def test_a_csv_gives_keys_back_as_they_were(tmp_path: Path, key: str) -> None:
    path = published(tmp_path, [body(0, {"values": {key: 1, "b": 2}, "band": 3})])
    await export_releases(path, f"csv:{tmp_path / 'out'}")
    with (tmp_path / "out" / "shop.csv").open(newline="") as file:
        assert [line["key"] for line in csv.DictReader(file)] == [key, "b"]


def rows_by_key(*keys: str) -> list[Row]:
    """The rows of a release with these keys."""
    return rows_of("shop", body(0, {"values": dict.fromkeys(keys, 1), "band": 3}))


def test_keys_that_postgresql_does_not_take_are_told_apart() -> None:
    keys = ["a\0", "a␀", "a", "é" * 2000, "é" * 1999 + "e", "b" * 2000]
    taken = [row.key for row in for_postgresql(rows_by_key(*keys))]
    assert len(set(taken)) == len(keys)
    assert taken[1:3] + taken[5:] == ["a␀", "a", "b" * 2000]
    assert taken[0].startswith("a␀… ")
    assert all("\0" not in key and len(key.encode()) <= 2000 for key in taken)
    named = rows_of("shop", body(0, {"value": 1, "name": "a\0", "band": 3}))
    assert for_postgresql(named)[0].name == "a␀"


def test_of_rows_in_one_place_the_last_stands() -> None:
    first, second = rows_by_key("a", "b")
    assert each_place_once([first, second, first._replace(value=9)]) == [
        first._replace(value=9),
        second,
    ]


async def test_releases_that_tell_no_number_are_passed_by(tmp_path: Path) -> None:
    """The last release of the target may be one of alerts of which none fired."""
    silent = [*bodies(range(1)), body(len(FORMS) + 3, {"fired": [], "band": 1})]
    for kind, read in TARGETS:
        to = tmp_path / kind
        for _ in range(2):
            await export_releases(published(tmp_path, silent), f"{kind}:{to}")
        assert ordered(read(to)) == wanted(range(1))
