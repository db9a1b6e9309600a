"""A journal that is not the newest, whole one of this pipeline and key stops the engine: exit 4, nothing released."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from faults.cases import Case, document, flights, make_key, write
from faults.killing import moved

TICKS = 120
Damage = Callable[[Case], None]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A run of the test kit that ended well; `older.journal` is from an earlier moment of it."""
    case = flights(tmp_path_factory.mktemp("refused"), TICKS)
    crash = ("--until-end", "--dawdle", "1", "--crash", "after-publish:9")
    assert case.run(*crash, anew=True).returncode == -9
    moved(case.journal, case.folder / "older.journal")
    case.finish("--dawdle", "1")
    assert case.expecting(zero_noise=False).findings() == []
    return case


@pytest.fixture
def case(finished: Case, tmp_path: Path) -> Case:
    """A copy of it."""
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
    assert "is older than, or differs from" in refused(case)


def test_a_journal_that_lost_its_last_commit(case: Case) -> None:
    """Cut, and still a sound database in an unbroken chain."""
    with closing(sqlite3.connect(case.journal)) as database, database:
        database.execute("DELETE FROM commits WHERE sequence = (SELECT max(sequence) FROM commits)")
    assert "is older than, or differs from" in refused(case)


def test_no_journal_beside_what_was_published(case: Case) -> None:
    case.journal.unlink()
    assert "is older than, or differs from" in refused(case)


def test_a_journal_of_another_pipeline(case: Case) -> None:
    shown = document("another", TICKS, 6, {"kind": "file", "path": "slice.csv"})
    write(case.folder, shown)
    assert "of another is damaged or belongs elsewhere" in refused(case)


def test_a_pipeline_that_was_changed(case: Case) -> None:
    shown = document("flights", TICKS, 6, {"kind": "file", "path": "slice.csv"})
    del shown["series"][-1]
    write(case.folder, shown)
    assert "changed: in the pipeline file: mechanisms, series)" in refused(case)


def test_another_source(case: Case) -> None:
    shutil.copy(case.folder / "slice.csv", case.folder / "other.csv")
    write(case.folder, document("flights", TICKS, 6, {"kind": "file", "path": "other.csv"}))
    assert "'slice.csv'" in refused(case)


def test_a_source_that_was_cut(tmp_path: Path) -> None:
    case = flights(tmp_path, TICKS)
    assert case.run("--until-end", "--dawdle", "1", "--crash", "after-publish:9").returncode == -9
    text = (tmp_path / "slice.csv").read_text().splitlines(keepends=True)
    (tmp_path / "slice.csv").write_text("".join(text[:100]))
    assert "the file is not the one read before" in refused(case)


def test_a_wrong_key(case: Case) -> None:
    (case.folder / "operator.key").unlink()
    make_key(case.folder)
    assert "was written with key" in refused(case)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.99])
def test_a_journal_cut_short(case: Case, part: float) -> None:
    content = case.journal.read_bytes()
    case.journal.write_bytes(content[: int(len(content) * part)])
    refused(case)


@pytest.mark.parametrize("number", [0, 3, -1])
def test_a_flipped_byte(case: Case, number: int) -> None:
    """Inside of a sealed commit, on the disk."""
    with closing(sqlite3.connect(case.journal)) as database:
        blobs = [blob for (blob,) in database.execute("SELECT sealed FROM commits")]
    content = bytearray(case.journal.read_bytes())
    piece = blobs[number][-40:-8]
    assert content.count(piece) == 1
    content[content.index(piece)] ^= 1
    case.journal.write_bytes(content)
    assert "is damaged" in refused(case)


@pytest.mark.parametrize("place", [3, 20, 70, 4096 + 5])
def test_a_flipped_byte_of_the_file_itself(case: Case, place: int) -> None:
    content = bytearray(case.journal.read_bytes())
    content[place] ^= 0xFF
    case.journal.write_bytes(content)
    refused(case)


def test_something_that_is_no_journal(case: Case) -> None:
    case.journal.write_bytes(b"something else entirely\n" * 1000)
    assert "the journal is damaged" in refused(case)


def test_a_release_that_was_changed(case: Case) -> None:
    lines = case.releases.read_bytes().splitlines(keepends=True)
    lines[-1] = lines[-1].replace(b'"confidence":0.95', b'"confidence":0.94')
    case.releases.write_bytes(b"".join(lines))
    assert "is older than, or differs from" in refused(case)


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
        assert "another engine is running on it" in refused(case)
    finally:
        first.kill()
        first.communicate()
    case.finish()
    assert case.expecting(zero_noise=False).findings() == []
