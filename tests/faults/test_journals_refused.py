"""A journal that is not the newest, whole one of this pipeline and key stops the engine: exit 4, nothing released."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from faults.cases import Case, document, flights, make_key, write
from faults.killing import moved

TICKS = 60
CRASH = ("--until-end", "--dawdle", "1", "--crash", "after-publish:5")
NOT_NEWEST = "is older than, or differs from"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A run of the test kit that ended well; `older.journal` is from an earlier moment of it."""
    case = flights(tmp_path_factory.mktemp("refused"), TICKS)
    assert case.run(*CRASH, anew=True).returncode == -9
    moved(case.journal, case.folder / "older.journal")
    case.finish("--dawdle", "1")
    assert case.expecting(zero_noise=False).findings() == []
    return case


@pytest.fixture
def case(finished: Case, tmp_path: Path) -> Case:
    shutil.copytree(finished.folder, tmp_path, dirs_exist_ok=True)
    return Case(tmp_path, finished.expected, finished.events)


def refused(case: Case, kit: bool = True) -> str:
    """Run it: it must stop with exit 4 and one line, and release nothing."""
    before = case.releases.read_bytes()
    done = case.run("--until-end", kit=kit)
    assert (done.returncode, done.stdout) == (4, ""), done.stderr
    assert done.stderr.startswith("stream-dp: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert case.releases.read_bytes() == before
    return done.stderr


def test_a_journal_restored_from_an_older_copy(case: Case) -> None:
    moved(case.folder / "older.journal", case.journal)
    assert NOT_NEWEST in refused(case)


def _last_commit_lost(case: Case) -> None:
    with closing(sqlite3.connect(case.journal)) as database, database:
        database.execute("DELETE FROM commits WHERE sequence = (SELECT max(sequence) FROM commits)")


def _other_pipeline(case: Case) -> None:
    write(case.folder, document("another", TICKS, 6, {"kind": "file", "path": "slice.csv"}))


def _fewer_series(case: Case) -> None:
    shown = document("flights", TICKS, 6, {"kind": "file", "path": "slice.csv"})
    del shown["series"][-1]
    write(case.folder, shown)


def _other_source(case: Case) -> None:
    shutil.copy(case.folder / "slice.csv", case.folder / "other.csv")
    write(case.folder, document("flights", TICKS, 6, {"kind": "file", "path": "other.csv"}))


def _other_key(case: Case) -> None:
    (case.folder / "operator.key").unlink()
    make_key(case.folder)


def _half(case: Case) -> None:
    content = case.journal.read_bytes()
    case.journal.write_bytes(content[: len(content) // 2])


def _flipped_in(number: int) -> Callable[[Case], None]:
    """A bit of a sealed commit is another one on the disk."""

    def flip(case: Case) -> None:
        with closing(sqlite3.connect(case.journal)) as database:
            blobs = [blob for (blob,) in database.execute("SELECT sealed FROM commits")]
        content = bytearray(case.journal.read_bytes())
        piece = blobs[number][-40:-8]
        assert content.count(piece) == 1
        content[content.index(piece)] ^= 1
        case.journal.write_bytes(content)

    return flip


def _changed_release(case: Case) -> None:
    content = case.releases.read_bytes()
    head, sep, tail = content.rpartition(b'"confidence":0.95')
    case.releases.write_bytes(head + sep.replace(b"5", b"4") + tail)


DAMAGES: dict[str, tuple[Callable[[Case], object], str]] = {
    "its last commit is lost": (_last_commit_lost, NOT_NEWEST),
    "no journal beside releases": (lambda case: case.journal.unlink(), NOT_NEWEST),
    "of another pipeline": (_other_pipeline, "of another is damaged or belongs elsewhere"),
    "a changed pipeline": (_fewer_series, "changed: in the pipeline file: mechanisms, series)"),
    "another source": (_other_source, "'slice.csv'"),
    "another key": (_other_key, "was written with key"),
    "cut in half": (_half, ""),
    "a flipped bit in the first commit": (_flipped_in(0), "is damaged"),
    "a flipped bit in the last commit": (_flipped_in(-1), "is damaged"),
    "no database": (lambda case: case.journal.write_bytes(b"text\n" * 5000), "is damaged"),
    "a changed release": (_changed_release, NOT_NEWEST),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_journal_that_is_damaged_or_belongs_elsewhere(case: Case, damage: str) -> None:
    spoil, message = DAMAGES[damage]
    spoil(case)
    assert message in refused(case)


def test_a_source_that_was_cut(tmp_path: Path) -> None:
    case = flights(tmp_path, TICKS)
    assert case.run(*CRASH).returncode == -9
    text = (tmp_path / "slice.csv").read_text().splitlines(keepends=True)
    (tmp_path / "slice.csv").write_text("".join(text[:100]))
    assert "the source 'slice.csv' was changed, or deleted and created again" in refused(case)


def test_the_test_kits_journal_is_not_for_the_product(case: Case) -> None:
    assert "noise" in refused(case, kit=False)


def test_the_products_journal_is_not_for_the_test_kit(tmp_path: Path) -> None:
    case = flights(tmp_path, ticks=24).expecting(private=True, zero_noise=False)
    assert case.run("--until-end", kit=False).returncode == 0
    assert case.findings() == []
    assert "noise" in refused(case)


def test_a_second_engine_on_the_same_journal(tmp_path: Path) -> None:
    case = flights(tmp_path, TICKS, block=1000)
    first = case.start("--until-end", "--trace", "--dawdle", "2000")
    assert first.stdout is not None
    assert first.stdout.readline() == "before-commit\n"
    try:
        assert "another engine uses this journal" in refused(case)
    finally:
        first.kill()
        first.communicate()
    case.finish()
    assert case.expecting(zero_noise=False).findings() == []
