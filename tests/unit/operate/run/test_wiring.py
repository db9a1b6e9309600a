"""What is looked at before the lease is taken: a mistake must not stop an engine that runs well."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from unit.live.live_series_worlds import PIPELINE, SEALER, World, batches

from stream_dp.core.wire import wire_of
from stream_dp.errors import FailClosed, UnknownFormat, UsageError
from stream_dp.files.memory import MemorySource
from stream_dp.files.sqlite import SqliteJournal
from stream_dp.journal.commit import Header
from stream_dp.journal.keys import Sealer
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.operate.audit import journal_access
from stream_dp.operate.audit.journal_access import _header, require_own, sealed_commits
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.spec import PipelineSpec

Make = Callable[..., Built]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """The pipeline over a journal in a folder, with changes."""

    def build_it(**changes: Any) -> Built:
        journal = {"kind": "sqlite", "path": str(tmp_path / "shop.journal")}
        releases = {"path": str(tmp_path / "shop.jsonl")}
        data = PIPELINE | {"journal": journal, "releases": releases} | changes
        return build(PipelineSpec.model_validate(data))

    asyncio.run(ran(tmp_path / "shop.journal"))
    return build_it


async def ran(path: Path) -> None:
    await World().engine(MemorySource(batches(), partitions=(0, 1)), SqliteJournal(path)).run()


async def test_its_own_journal_is_no_obstacle(made: Make) -> None:
    await require_own(made(), SEALER, private=True)
    first = [sealed async for sealed in sealed_commits(made().spec, 1)]
    every = [sealed async for sealed in sealed_commits(made().spec)]
    assert (len(first), every[0]) == (1, first[0])
    assert len(every) > 1


async def test_a_changed_file_is_refused(made: Make) -> None:
    with pytest.raises(FailClosed, match=r"changed: in the pipeline file: privacy"):
        await require_own(made(privacy={"epsilon": "3"}), SEALER, private=True)


@pytest.mark.parametrize(
    ("then", "words"),
    [
        ("0e56ef786402", "was written under `filter: approximate`"),  # recorded before it was gone
        ("22bdd44cd9c5", "changed: in the pipeline file"),
    ],
)
async def test_the_journal_of_a_filter_that_is_gone_is_refused(
    made: Make, monkeypatch: pytest.MonkeyPatch, then: str, words: str
) -> None:
    def under(*place: Any) -> Header | None:
        header = _header(*place)
        return header and msgspec.structs.replace(header, parts={"privacy": then})

    monkeypatch.setattr(journal_access, "_header", under)
    now = {"epsilon": "20", "delta": "1e-9", "filter": "tight_approximate"}
    with pytest.raises(FailClosed, match=words):
        await require_own(made(privacy=now), SEALER, private=True)


async def test_other_mechanisms_for_the_same_file_are_the_codes_doing(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = wire_of(Counter)
    monkeypatch.setattr(Counter, "__wire__", replace(label, version=label.version + 1))
    with pytest.raises(FailClosed, match=r"for the same file: use the version that wrote it\)"):
        await require_own(made(), SEALER, private=True)


async def test_a_form_that_is_not_known_is_refused_before_the_lease(
    made: Make, tmp_path: Path
) -> None:
    built = made()
    with closing(sqlite3.connect(tmp_path / "shop.journal")) as database, database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(UnknownFormat, match="tables of version 99"):
        await require_own(built, SEALER, private=True)


async def test_another_key_is_refused(made: Make) -> None:
    with pytest.raises(FailClosed, match="was written with key"):
        await require_own(made(), Sealer(bytes(32), "shop"), private=True)


async def test_noise_that_protects_nobody_is_refused(made: Make) -> None:
    with pytest.raises(FailClosed, match="whether its noise is private"):
        await require_own(made(), SEALER, private=False)


async def test_no_journal_is_the_engines_business(made: Make, tmp_path: Path) -> None:
    (tmp_path / "shop.journal").unlink()
    await require_own(made(), SEALER, private=True)
    with pytest.raises(UsageError, match="begins with the first run"):
        [sealed async for sealed in sealed_commits(made().spec)]
    (tmp_path / "shop.journal").write_bytes(b"no database")
    await require_own(made(), SEALER, private=True)
