"""Messages and answers of an embedded pipeline: durable, in order, once, and never in a file of somebody else."""

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from stream_dp.engine.ports import Question
from stream_dp.errors import FailClosed, UnknownFormat, WorldError
from stream_dp.files.memory import MemoryAnswers, MemoryQuestions
from stream_dp.files.sqlite import SqliteAnswers, SqliteQuestions, put_question
from stream_dp.testing.sequence_checks import (
    check_answers,
    check_answers_versions,
    check_questions,
    check_questions_hostile,
    sample_answers,
)


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


async def test_a_table_that_is_gone_is_damage_and_no_failed_disk(tmp_path: Path) -> None:
    path = tmp_path / "file"
    put_question(path, b"first")
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE answers")
    answers = SqliteAnswers(path)
    await answers.open()
    with pytest.raises(FailClosed, match="damaged"):
        await answers.last()
    await answers.close()
