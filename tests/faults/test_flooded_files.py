"""A flood through real files, for a minute: journal and messages in SQLite, filled by another thread meanwhile."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from unit.live.flood_worlds import Flood, FloodedWorld, flood_findings
from unit.live.message_worlds import NOW

from stream_dp.engine.engine import Engine
from stream_dp.engine.ports import Question
from stream_dp.files.sqlite import SqliteAnswers, SqliteJournal, SqliteQuestions, put_question

AT_ONCE = 64
"""How many messages a read of the file gives at most."""
MESSAGES = 200_000


class FiledQuestions(SqliteQuestions):
    """The queue in a file, which tells the flood what it hands out."""

    def __init__(self, path: Path, flood: Flood) -> None:
        super().__init__(path)
        self._flood = flood

    async def read(self) -> Sequence[Question]:
        """The next ones."""
        found = await super().read()
        self._flood.handed(range(found[0].place, found[-1].place + 1))
        return found


@dataclass
class FiledWorld(FloodedWorld):
    """A flooded world whose journal, messages and answers are files in `folder`."""

    at_a_time: int = AT_ONCE
    folder: Path = field(default_factory=Path)

    def plugged(self, engine: Engine) -> None:
        """Give an engine the files."""
        talk = self.folder / "journal.messages"
        engine._ports = replace(
            engine._ports,
            journal=SqliteJournal(self.folder / "journal"),
            questions=FiledQuestions(talk, self.queue),
            answers=SqliteAnswers(talk),
        )

    def fill(self) -> None:
        """Put the flood into the file, as fast as it takes it; blocks."""
        talk = self.folder / "journal.messages"
        put_question(talk, b"")  # makes the file
        with closing(sqlite3.connect(talk, timeout=60)) as database:
            database.execute("DELETE FROM questions")
            for at in range(0, MESSAGES, AT_ONCE):
                part = enumerate(self.queue.messages[at : at + AT_ONCE], at)
                rows = [(place, value, NOW + place) for place, value in part]
                with database:
                    database.executemany("INSERT INTO questions VALUES (?, ?, ?)", rows)

    def read_back(self) -> None:
        """Take what the files hold for what is found."""
        for name, asked, into in (
            ("journal", "SELECT sealed FROM commits ORDER BY sequence", self.store.commits),
            ("journal.messages", "SELECT body FROM answers ORDER BY number", self.answers),
        ):
            with closing(sqlite3.connect(self.folder / name)) as database:
                into[:] = [bytes(row[0]) for row in database.execute(asked)]


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_a_flood_through_files_holds_nothing_up_and_is_answered_once(tmp_path: Path) -> None:
    world = FiledWorld(folder=tmp_path)
    running = asyncio.create_task(world.flooded(MESSAGES, 4))
    while not hasattr(world, "queue"):  # noqa: ASYNC110 - until the flood is made up
        await asyncio.sleep(0)
    await asyncio.gather(asyncio.to_thread(world.fill), running)
    world.read_back()
    assert flood_findings(world) == []
    assert 0 < world.held <= AT_ONCE
