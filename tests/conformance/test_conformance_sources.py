"""Every source of ours that needs no broker keeps the port's contract, and the checks of it can fail.

Kafka's is in tests/kafka/test_kafka_source_contract.py.
"""

import gzip
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from conformance import broken_sources as twins

from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Source
from stream_dp.files.files import FileSource
from stream_dp.files.memory import MemorySource
from stream_dp.operate import demo
from stream_dp.records.schema import CategoryField, Fields, TimeField
from stream_dp.testing import source_checks as suite
from stream_dp.testing.source_checks import SOURCE_CHECKS, SourceCase

Check: TypeAlias = Callable[[SourceCase], Awaitable[None]]
STEP, TICKS = 1000, 120
FIELDS: Fields = {"time": TimeField(), "shop": CategoryField(domain=("a",))}
ROWS = [
    ("oops", "a"),
    (1000, "b"),
    (1500, "c"),
    (999, "d"),
    (117_000, "e"),
    (-5, "f"),
    (10**9, "g"),
]
CHECKS = pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)


def memory() -> SourceCase:
    """The source in memory; one record a batch, where it is regrouped."""
    return SourceCase(
        make=lambda: MemorySource(twins.stamped()),
        regrouped=lambda: MemorySource(twins.singly(twins.stamped())),
    )


def csv() -> bytes:
    """A file with good, bad and outlying times."""
    return b"time,shop\n" + b"".join(f"{time},{shop}\n".encode() for time, shop in ROWS)


def lines() -> bytes:
    """The same as JSON lines."""
    return b"".join(
        json.dumps({"time": time, "shop": shop}).encode() + b"\n" for time, shop in ROWS
    )


FILES: dict[str, bytes] = {
    "shops.csv": csv(),
    "shops.jsonl": lines(),
    "shops.csv.gz": gzip.compress(csv()),
}


def file_source(folder: Path, name: str) -> FileSource:
    """A source over one of `FILES`, written into `folder`."""
    path = folder / name
    path.write_bytes(FILES[name])
    return FileSource(path, FIELDS, "time", TickGrid(0, STEP, TICKS))


@CHECKS
async def test_memory_is_a_source(check: Check) -> None:
    await check(memory())


@CHECKS
@pytest.mark.parametrize("name", FILES)
async def test_a_file_is_a_source(check: Check, name: str, tmp_path: Path) -> None:
    await check(SourceCase(make=lambda: file_source(tmp_path, name)))


@CHECKS
async def test_a_paced_source_is_a_source(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "PAUSE", 0)

    def at(ticks_per_second: float) -> Source:
        return demo.Paced(file_source(tmp_path, "shops.csv"), ticks_per_second)

    await check(SourceCase(make=lambda: at(1e-9), regrouped=lambda: at(1e9)))


@CHECKS
async def test_the_twins_break_nothing_else(check: Check) -> None:
    """What they are made of passes."""
    await check(SourceCase(make=twins.Right))


@pytest.mark.parametrize(
    ("make", "check", "rule"), twins.broken(), ids=lambda x: getattr(x, "__name__", "")
)
async def test_a_broken_source_is_caught(
    make: Callable[[], Source], check: Check, rule: str
) -> None:
    with pytest.raises(AssertionError, match=rule):
        await check(SourceCase(make=make))


async def test_a_source_that_cuts_ticks_by_its_groups_is_caught() -> None:
    case = SourceCase(
        make=lambda: twins.CutsByGroup(twins.stamped()),
        regrouped=lambda: twins.CutsByGroup(twins.singly(twins.stamped())),
    )
    with pytest.raises(AssertionError, match="a tick's content is the same"):
        await suite.check_repeat(case)


async def test_storage_that_shows_nothing_is_refused() -> None:
    """A case without records before and behind a mark would pass everything."""
    silent = SourceCase(
        make=lambda: MemorySource([one for one in twins.stamped() if not one.payloads])
    )
    with pytest.raises(AssertionError, match="storage of a case"):
        await suite.check_reading(silent)
    with pytest.raises(AssertionError, match="storage of a case"):
        await suite.check_repr(silent)


async def test_an_endless_source_that_ends_or_never_marks_is_caught() -> None:
    ends = SourceCase(make=twins.Right, last=5)
    with pytest.raises(AssertionError, match="finite source only"):
        await suite.check_repeat(ends)
    hangs = SourceCase(make=twins.Right, last=5, patience_s=0)
    with pytest.raises(AssertionError, match="every tick passes"):
        await suite.check_repeat(hangs)
