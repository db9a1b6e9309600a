"""The SQLite journal: durable, one writer, and never anything but a sound journal of ours."""

# ruff: noqa: ASYNC220, ASYNC240 - tests look at files while nothing else wants the loop

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

from stream_dp.engine.ports import Journal
from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.files.sqlite import SqliteJournal, read_sealed
from stream_dp.testing.port_checks import check_journal, check_journal_order, sample_commit

ENGINE = """
import asyncio, sys
from pathlib import Path
from stream_dp.files.sqlite import SqliteJournal
from stream_dp.testing.port_checks import sample_commit

async def main():
    journal = SqliteJournal(Path(sys.argv[1]))
    await journal.open()
    for sequence in range(10**9):
        await journal.append(*sample_commit(sequence))
        print(sequence, flush=True)

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


@pytest.fixture
def blockbuster() -> Iterator[BlockBuster]:
    with blockbuster_ctx("stream_dp") as guard:
        yield guard


@asynccontextmanager
async def _opened(path: Path) -> AsyncIterator[SqliteJournal]:
    journal = SqliteJournal(path)
    await journal.open()
    try:
        yield journal
    finally:
        await journal.close()


async def _write(path: Path, commits: int) -> list[bytes]:
    async with _opened(path) as journal:
        for sequence in range(commits):
            await journal.append(*sample_commit(sequence))
    return [sample_commit(sequence)[1] for sequence in range(commits)]


def _sql(path: Path, *statements: str) -> list[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        return [database.execute(statement).fetchall() for statement in statements][-1]


async def _refused(path: Path, match: str, error: type[Exception] = FailClosed) -> None:
    with pytest.raises(error, match=match) as caught:
        async with _opened(path) as journal:
            _ = [sealed async for sealed in journal.read()]
    assert str(path) in str(caught.value)


@pytest.mark.usefixtures("blockbuster")
@pytest.mark.parametrize("check", [check_journal, check_journal_order])
async def test_contract(
    path: Path, check: Callable[[Callable[[], Journal]], Coroutine[Any, Any, None]]
) -> None:
    await check(lambda: SqliteJournal(path))


async def test_a_commit_is_one_transaction(path: Path) -> None:
    await _write(path, 2)
    assert read_sealed(path, 1, 1) == read_sealed(path)[1:]
    _sql(path, "CREATE TRIGGER full BEFORE INSERT ON commits BEGIN SELECT RAISE(ABORT, 'no'); END")
    async with _opened(path) as journal:
        with pytest.raises(FailClosed):
            await journal.append(*sample_commit(2))
    assert len(read_sealed(path)) == 2


async def test_wal_full_and_private(path: Path) -> None:
    path.touch(mode=0o644)
    async with _opened(path) as journal:
        await journal.append(*sample_commit(0))
        files = sorted(each.name for each in path.parent.iterdir())
        assert files == [f"journal.sqlite{end}" for end in ("", "-shm", "-wal", ".lock")]
        assert {each.stat().st_mode & 0o777 for each in path.parent.iterdir()} == {0o600}
        assert journal._database is not None
        pragma = await journal._run(journal._database.execute, "PRAGMA synchronous")
        assert await journal._run(pragma.fetchone) == (2,)
    assert _sql(path, "PRAGMA journal_mode") == [("wal",)]


async def test_a_second_engine_is_kept_out(path: Path) -> None:
    async with _opened(path) as journal:
        await _refused(path, "another engine is running")
        await journal.append(*sample_commit(0))
    async with _opened(path):
        pass


async def test_without_the_lock_file_the_sequence_fences(path: Path) -> None:
    async with _opened(path) as first:
        Path(f"{path}.lock").unlink()
        async with _opened(path) as second:
            await second.append(*sample_commit(0))
            with pytest.raises(FailClosed, match="another engine"):
                await first.append(*sample_commit(0))
    assert len(read_sealed(path)) == 1


async def test_kill_9_leaves_no_lock_and_loses_no_commit(path: Path) -> None:
    command = [sys.executable, "-c", ENGINE, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as engine:
        assert engine.stdout is not None
        seen = [int(engine.stdout.readline()) for _ in range(20)]
        await _refused(path, "another engine is running")
        assert len(read_sealed(path)) >= len(seen)
        engine.send_signal(signal.SIGKILL)
        seen += [int(line) for line in engine.stdout if line.endswith(b"\n")]
    async with _opened(path) as journal:
        found = [sealed async for sealed in journal.read()]
    assert len(found) in (len(seen), len(seen) + 1)
    assert found == [sample_commit(sequence)[1] for sequence in range(len(found))]


async def test_a_missing_commit_is_noticed(path: Path) -> None:
    await _write(path, 5)
    _sql(path, "DELETE FROM commits WHERE sequence = 2")
    await _refused(path, "damaged")
    with pytest.raises(FailClosed, match="damaged"):
        read_sealed(path)


async def test_a_missing_start_is_noticed(path: Path) -> None:
    await _write(path, 2)
    _sql(path, "DELETE FROM commits WHERE sequence = 0")
    await _refused(path, "damaged")


@pytest.mark.parametrize("damage", ["text", "cut", "zeros"])
async def test_damage_is_refused_and_left_alone(path: Path, damage: str) -> None:
    await _write(path, 300)
    content = path.read_bytes()
    bad = {
        "text": b"hello\n" * 1000,
        "cut": content[: len(content) // 2],
        "zeros": content[:8192] + bytes(len(content) - 8192),
    }[damage]
    path.write_bytes(bad)
    await _refused(path, "damaged")
    assert path.read_bytes() == bad


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("CREATE TABLE notes (text)", "another program"),
        ("PRAGMA application_id = 5", "another program"),
        ("PRAGMA user_version = 9", "another program"),
    ],
)
async def test_foreign_files_are_refused(path: Path, statement: str, match: str) -> None:
    _sql(path, statement)
    before = path.read_bytes(), path.stat().st_mode
    await _refused(path, match)
    assert (path.read_bytes(), path.stat().st_mode) == before


async def test_another_version_is_refused(path: Path) -> None:
    await _write(path, 1)
    _sql(path, "PRAGMA user_version = 9")
    await _refused(path, "tables of version 9, .* reads 2: use the version that wrote it")


async def test_a_replaced_file_is_noticed(path: Path) -> None:
    async with _opened(path) as journal:
        await journal.append(*sample_commit(0))
        shutil.move(path, path.with_suffix(".old"))
        with pytest.raises(FailClosed, match="moved or replaced"):
            await journal.append(*sample_commit(1))
        path.touch()
        with pytest.raises(FailClosed, match="moved or replaced"):
            await journal.append(*sample_commit(1))


async def test_a_full_disk_is_the_worlds_and_keeps_what_was(path: Path) -> None:
    sealed = await _write(path, 1)
    async with _opened(path) as journal:
        assert journal._database is not None
        await journal._run(journal._database.execute, "PRAGMA max_page_count = 1")
        with pytest.raises(WorldError, match="SQLITE_FULL"):
            await journal.append(sample_commit(1)[0], bytes(1_000_000))
        assert [each async for each in journal.read()] == sealed
        await journal._run(journal._database.execute, "PRAGMA max_page_count = 10000")
        await journal.append(*sample_commit(1))
    assert len(read_sealed(path)) == 2


async def test_folders(tmp_path: Path) -> None:
    await _refused(tmp_path / "no" / "journal.sqlite", "No such file", WorldError)
    (tmp_path / "folder").mkdir()
    await _refused(tmp_path / "folder", "SQLITE_CANTOPEN", WorldError)


async def test_closed_journals(path: Path) -> None:
    journal = SqliteJournal(path)
    await journal.close()
    with pytest.raises(FailClosed, match="not open"):
        await journal.append(*sample_commit(0))
    await journal.open()
    await journal.close()
    await journal.close()
    with pytest.raises(FailClosed, match="not open"):
        await journal.append(*sample_commit(0))


async def test_readers_need_no_lock_and_leave_nothing(path: Path) -> None:
    with pytest.raises(UsageError, match="no journal here"):
        read_sealed(path)
    assert not path.exists()
    async with _opened(path) as journal:
        assert read_sealed(path) == []
        await journal.append(*sample_commit(0))
        assert read_sealed(path) == [sample_commit(0)[1]]
    content = path.read_bytes()
    assert read_sealed(path) == [sample_commit(0)[1]]
    assert path.read_bytes() == content
    _sql(path.with_name("notes"), "CREATE TABLE notes (text)")
    with pytest.raises(FailClosed, match="another program"):
        read_sealed(path.with_name("notes"))
