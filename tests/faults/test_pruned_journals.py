"""A journal whose first commits were pruned: kills lose nothing, and only the newest, whole one starts."""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from faults.cases import Case, flights
from faults.checker import unfounded
from faults.killing import Look, checkpoints_every, moved, pruning
from faults.test_journals_refused import _other_key, refused
from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.files.sqlite import read_sealed
from stream_dp.operate.audit import journal_access
from stream_dp.operate.audit.journal_access import (
    archive_journal,
    read_dead_letters,
    sealed_commits_of,
)
from stream_dp.operate.audit.ledger_view import read_ledger
from stream_dp.operate.audit.trace_check import check_trace

TICKS = 400
KEEP = "20h"
POINTS = (
    "after-publish:30", "before-prune:1", "after-commit:12", "after-prune:1", "mid-commit:25", "before-prune:2",
    "mid-publish:20", "after-prune:2",
)  # fmt: skip
OLDER = 4
"""After this point an older copy is taken."""


def kept(folder: Path) -> Case:
    """Flights whose journal keeps 20 ticks, and has checkpoints every 5."""
    case = flights(folder, TICKS, block=2)
    shown = json.loads(case.pipeline.read_text())
    shown["journal"]["keep"] = KEEP
    case.pipeline.write_text(json.dumps(shown))
    return Case(case.folder, case.expected, case.events, checkpoints_every(5) + pruning())


def look(case: Case) -> Look:
    async def now() -> list[str]:
        return unfounded(case.left())

    return now


def numbers(journal: Path) -> list[int]:
    with closing(sqlite3.connect(journal)) as database:
        rows = database.execute("SELECT sequence FROM commits ORDER BY sequence")
        return [number for (number,) in rows]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A run that ended well, killed before and after deletions; `older.journal` is from before the last ones."""
    case = kept(tmp_path_factory.mktemp("pruned"))
    for number, point in enumerate(POINTS):
        ended = case.run("--until-end", "--zero-noise", "--dawdle", "6", "--crash", point)
        assert ended.returncode == -9
        assert unfounded(case.left()) == [], point
        if number == OLDER:
            moved(case.journal, case.folder / "older.journal")
            shutil.copytree(case.folder / "state", case.folder / "older.state")
    case.finish("--zero-noise", "--dawdle", "6")
    return case


@pytest.fixture
def case(finished: Case, tmp_path: Path) -> Case:
    shutil.copytree(finished.folder, tmp_path, dirs_exist_ok=True)
    return Case(tmp_path, finished.expected, finished.events)


def test_kills_around_deletions_lose_nothing_and_count_nothing_twice(finished: Case) -> None:
    assert finished.findings() == []
    first, older = (
        numbers(path)[0] for path in (finished.journal, finished.folder / "older.journal")
    )
    assert 0 < older < first
    gone = [tick for commit in finished.left().commits[:first] for tick in commit["ticks"]]
    assert max(gone) < TICKS - 20  # what is kept


def _sql(statement: str) -> Callable[[Case], None]:
    def change(case: Case) -> None:
        with closing(sqlite3.connect(case.journal)) as database, database:
            database.execute(statement)

    return change


def _restored(case: Case) -> None:
    """All commits that were deleted are back."""
    archived = [(int(path.name), path.read_bytes()) for path in case.folder.glob("archived/*")]
    with closing(sqlite3.connect(case.journal)) as database, database:
        database.executemany("INSERT OR IGNORE INTO commits VALUES (?, ?)", archived)


def _taken_back(case: Case) -> None:
    """The last deletions are undone, as brokers undo them that were killed together."""
    begin = numbers(case.folder / "older.journal")[0]
    archived = [(int(path.name), path.read_bytes()) for path in case.folder.glob("archived/*")]
    with closing(sqlite3.connect(case.journal)) as database, database:
        rows = [row for row in archived if row[0] >= begin]
        database.executemany("INSERT OR IGNORE INTO commits VALUES (?, ?)", rows)
    assert numbers(case.journal)[0] == begin


def _next_place(case: Case) -> None:
    """It begins with a later checkpoint than its commits say."""
    _sql("DELETE FROM commits WHERE sequence < (SELECT max(after_commit) FROM checkpoints)")(case)


def _older(case: Case) -> None:
    moved(case.folder / "older.journal", case.journal)


def _older_with_its_releases(case: Case) -> None:
    """Only the mark of this machine knows that there was more."""
    _older(case)
    last = numbers(case.journal)[-1]
    commits = case.left().commits[: last + 1]  # what was archived later is left, too
    held = sum(len(commit["releases"]) for commit in commits)
    lines = case.releases.read_bytes().splitlines(keepends=True)
    case.releases.write_bytes(b"".join(lines[:held]))


def _older_mark(case: Case) -> None:
    shutil.rmtree(case.folder / "state")
    shutil.copytree(case.folder / "older.state", case.folder / "state")


REFUSED: dict[str, tuple[Callable[[Case], object], str]] = {
    "an older copy": (_older, "is older than"),
    "its last commit is lost": (
        _sql("DELETE FROM commits WHERE sequence = (SELECT max(sequence) FROM commits)"),
        "is older than",
    ),
    "an older copy with its releases": (_older_with_its_releases, "is older than it was"),
    "begun one later": (
        _sql("DELETE FROM commits WHERE sequence = (SELECT min(sequence) FROM commits)"),
        "something else deleted them",
    ),
    "begun at a later checkpoint": (_next_place, "something else deleted them"),
    "emptied": (_sql("DELETE FROM commits"), "is older than"),
    "made anew": (lambda case: case.journal.unlink(), "is older than"),
}


@pytest.mark.parametrize("change", REFUSED)
def test_a_pruned_journal_that_is_not_whole_and_newest_is_refused(case: Case, change: str) -> None:
    spoil, words = REFUSED[change]
    spoil(case)
    assert words in refused(case)


GOES_ON: dict[str, tuple[Callable[[Case], object], bool]] = {
    "all its commits are back": (_restored, True),
    "deletions are taken back": (_taken_back, False),
    "its checkpoints are not listed": (_sql("DELETE FROM checkpoints"), False),
    "an older mark": (_older_mark, False),
}


@pytest.mark.parametrize("change", GOES_ON)
def test_a_pruned_journal_that_is_whole_and_newest_goes_on(case: Case, change: str) -> None:
    spoil, whole = GOES_ON[change]
    spoil(case)
    assert (numbers(case.journal)[0] == 0) == whole
    done = case.run("--until-end", "--zero-noise")
    assert done.returncode == 0, done.stderr


def _whole(case: Case) -> Path:
    """The archive of a journal that has all its commits."""
    archive, pruned = case.folder / "all.archive", case.folder / "pruned.journal"
    moved(case.journal, pruned)
    _restored(case)
    added = asyncio.run(
        archive_journal(case.pipeline, archive, case.folder / "operator.key", print)
    )
    assert added == (0, 0, len(numbers(case.journal)))
    moved(pruned, case.journal)
    return archive


def _cut(archive: Path, end: int) -> None:
    with closing(sqlite3.connect(archive)) as database, database:
        database.execute("DELETE FROM commits WHERE sequence >= ?", (end,))


def _begin(journal: Path, begin: int) -> None:
    with closing(sqlite3.connect(journal)) as database, database:
        database.execute("DELETE FROM commits WHERE sequence < ?", (begin,))


def test_an_archive_takes_what_is_new_and_misses_nothing(case: Case) -> None:
    archive, key = _whole(case), case.folder / "operator.key"
    begin, end = numbers(case.journal)[0], numbers(case.journal)[-1] + 1
    kept = read_sealed(archive)
    assert archive.stat().st_mode & 0o777 == 0o600
    for at in (begin, begin + 1, end):
        _cut(archive, at)
        assert asyncio.run(archive_journal(case.pipeline, archive, key, print)) == (0, at, end)
        assert read_sealed(archive) == kept
    later = case.folder / "later.archive"
    assert asyncio.run(archive_journal(case.pipeline, later, key, print)) == (begin, begin, end)
    assert read_sealed(later, start=begin) == kept[begin:]
    _cut(archive, begin - 1)
    with pytest.raises(UsageError, match="were pruned before they were archived"):
        asyncio.run(archive_journal(case.pipeline, archive, key, print))
    with closing(sqlite3.connect(archive)) as database, database:
        database.execute("INSERT INTO commits VALUES (?, ?)", (begin - 1, kept[0]))
    with pytest.raises(
        FailClosed, match=f"commit {begin} of the journal of flights does not follow"
    ):
        asyncio.run(archive_journal(case.pipeline, archive, key, print))


def test_a_checkpoint_vouches_for_what_was_pruned_and_an_archive_shows_it(case: Case) -> None:
    archive, key = _whole(case), case.folder / "operator.key"
    begin = numbers(case.journal)[0]
    left = asyncio.run(read_ledger(case.pipeline, key, print))
    whole = asyncio.run(read_ledger(case.pipeline, key, print, archive=archive))
    assert (left.pop("verified_from_commit"), whole.pop("verified_from_commit")) == (begin, 0)
    assert {"derivation", "loss"} == whole.keys() - left.keys()  # of all, which takes all commits
    left |= {name: whole[name] for name in ("derivation", "loss")}
    assert left == whole
    assert (left["ticks"], left["releases"]) == (TICKS, 5 * TICKS)
    counted = asyncio.run(read_dead_letters(case.pipeline, key, print))
    assert counted["records"] == len(case.events)
    with pytest.raises(UsageError, match="name an archive of this journal"):
        asyncio.run(check_trace(None, case.pipeline, key))


def test_what_is_no_archive_of_a_journal_gets_nothing(case: Case) -> None:
    archive, key = _whole(case), case.folder / "operator.key"
    kept = read_sealed(archive)
    _sql("DELETE FROM commits WHERE sequence = (SELECT max(sequence) FROM commits)")(case)
    for _ in range(2):  # the archive is ahead of the journal, then beside it
        with pytest.raises(UsageError, match="is not an archive of this journal"):
            asyncio.run(archive_journal(case.pipeline, archive, key, print))
        assert read_sealed(archive) == kept
        _sql("INSERT INTO commits SELECT 1 + max(sequence), x'00' FROM commits")(case)


def test_the_ledger_is_not_read_from_where_nobody_pruned(case: Case) -> None:
    _next_place(case)
    with pytest.raises(FailClosed, match="something else deleted them"):
        asyncio.run(read_ledger(case.pipeline, case.folder / "operator.key", print))


def test_an_archive_that_begins_where_the_journal_once_began_is_read(case: Case) -> None:
    archive, key = _whole(case), case.folder / "operator.key"
    begin = numbers(case.folder / "older.journal")[0]
    for first in (begin, begin + 1):
        _begin(archive, first)
        if first == begin:
            shown = asyncio.run(read_ledger(case.pipeline, key, print, archive=archive))
            assert (shown["verified_from_commit"], shown["ticks"]) == (begin, TICKS)
            continue
        with pytest.raises(FailClosed, match=r"something else deleted them|holds no checkpoint"):
            asyncio.run(read_ledger(case.pipeline, key, print, archive=archive))


@pytest.mark.parametrize("more", [0, 3])
def test_what_is_pruned_before_it_is_read_is_not_damaged(
    case: Case, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_access, "_AT_ONCE", 1)
    begin = numbers(case.journal)[0]

    async def read() -> None:
        here = await sealed_commits_of(case.journal)
        if not more:
            _begin(case.journal, begin + 1)
        async for _ in here.commits:
            _begin(case.journal, begin + more)

    with pytest.raises(WorldError, match=r"pruned commits .* try again"):
        asyncio.run(read())


def test_a_pruned_journal_belongs_to_its_file_and_key(case: Case) -> None:
    _other_key(case)
    assert "was written with key" in refused(case)
