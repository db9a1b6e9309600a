"""SQLite files: a journal that is durable, has one writer and is sound; messages and answers of such a pipeline."""

# ruff: noqa: ASYNC220, ASYNC240 - tests look at files while nothing else wants the loop

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

from stream_dp.engine.ports import Journal, Question
from stream_dp.errors import FailClosed, UnknownFormat, UsageError, WorldError
from stream_dp.files.memory import MemoryAnswers, MemoryQuestions
from stream_dp.files.sqlite import (
    SqliteAnswers,
    SqliteJournal,
    SqliteQuestions,
    put_question,
    read_sealed,
)
from stream_dp.testing.port_checks import (
    check_answers,
    check_answers_versions,
    check_journal,
    check_journal_checkpoints,
    check_journal_order,
    check_questions,
    check_questions_hostile,
    sample_answers,
    sample_commit,
)

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
@pytest.mark.parametrize("check", [check_journal, check_journal_checkpoints, check_journal_order])
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
        await _refused(path, "another engine uses this journal")
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
        await _refused(path, "another engine uses this journal")
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
    _sql(path, "PRAGMA user_version = 9")
    await _refused(path, "tables of version 9, .* reads 2: use the version that wrote it")
    await _refused(path.parent / "no" / "journal.sqlite", "No such file", WorldError)


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
    ],
)
async def test_foreign_files_are_refused(path: Path, statement: str, match: str) -> None:
    _sql(path, statement)
    before = path.read_bytes(), path.stat().st_mode
    await _refused(path, match)
    assert (path.read_bytes(), path.stat().st_mode) == before


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


@pytest.mark.parametrize("check", [check_answers, check_answers_versions])
async def test_answers(check: object, tmp_path: Path) -> None:
    await check(lambda: SqliteAnswers(tmp_path / "file"))  # type: ignore[operator]
    bodies: list[bytes] = []
    await check(lambda: MemoryAnswers(bodies))  # type: ignore[operator]


@pytest.mark.parametrize("check", [check_questions, check_questions_hostile])
async def test_questions(check: object, tmp_path: Path) -> None:
    async def put(value: bytes) -> None:
        put_question(tmp_path / "file", value)

    await check(lambda: SqliteQuestions(tmp_path / "file"), put)  # type: ignore[operator]
    queue: list[Question] = []

    async def remember(value: bytes) -> None:
        MemoryQuestions(queue).put(value, 5)

    await check(lambda: MemoryQuestions(queue), remember)  # type: ignore[operator]


async def test_no_file_before_there_is_something_in_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    answers = SqliteAnswers(path)
    await answers.open()
    assert (await answers.last(), path.exists()) == (None, False)
    await answers.publish(sample_answers(1, 2))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await answers.close()


async def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (x)")
    before = path.read_bytes()
    with pytest.raises(FailClosed, match="another program"):
        put_question(path, b"x")
    path.write_bytes(b"no database at all, but long enough to look at " * 100)
    with pytest.raises(FailClosed, match="damaged"):
        put_question(path, b"x")
    path.unlink()
    put_question(path, b"x")
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 2")
    with pytest.raises(UnknownFormat, match="tables of version 2"):
        put_question(path, b"x")
    assert before
    with pytest.raises(WorldError, match="check the folder"):
        put_question(tmp_path / "none" / "file", b"x")


async def test_a_row_that_others_wrote_badly_is_an_empty_message(tmp_path: Path) -> None:
    path = tmp_path / "file"
    put_question(path, b"first")
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO questions (value, stamp) VALUES (?, ?)", (b"x", "noon"))
        database.execute("INSERT INTO questions (value, stamp) VALUES (?, ?)", ("text", 7))
        database.commit()
    questions = SqliteQuestions(path)
    await questions.open()
    await questions.seek(0)
    found = await questions.read()
    assert [(each.value, each.stamp) for each in found[1:]] == [(b"", 0), (b"", 0)]
    assert found[0].value == b"first"
    await questions.close()
