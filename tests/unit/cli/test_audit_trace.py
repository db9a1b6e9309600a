"""`stream-dp audit --trace`: a run of the product, and the journals of released versions; nothing exact is shown."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fixtures.old_journals import FOLDERS, KEY_FILE, ready

from stream_dp.cli.main import code_of
from stream_dp.files.sqlite import read_sealed
from stream_dp.journal.commit import decode, digest, encode
from stream_dp.operate.audit import trace_check
from stream_dp.operate.keys import sealer_for
from stream_dp.pipeline.yaml import load
from stream_dp.testing.__main__ import app as kit


@pytest.fixture
def ran(live_series: Any) -> Any:
    """A pipeline that has run to its end."""
    said = live_series.command("run", "--until-end")
    assert said.code == 0, said.err
    return live_series


def test_a_run_is_the_composition_and_nothing_changes(ran: Any) -> None:
    before = {path: path.read_bytes() for path in ran.folder.iterdir() if path.is_file()}
    said = ran.say("audit", "--trace", str(ran.pipeline))
    assert (said.code, said.err) == (0, "")
    for text in (
        "3 creations, 36 asks, 0 halts in 6 ticks",
        "18 releases and 0 answers to queries compared: equal, byte for byte",
        "0 snapshots compared", "accepts the trace beside itself with one event more",
        "it refuses it with two, in two ticks", "NOT PRIVATE",
    ):  # fmt: skip
        assert text in said.out
    beside = {path: path.read_bytes() for path in ran.folder.iterdir() if path.is_file()}
    assert {path for path in beside if beside[path] != before.get(path)} <= {
        ran.journal.with_name(ran.journal.name + end) for end in ("-shm", "-wal")
    }


def test_a_copy_of_a_journal_is_compared_too(ran: Any) -> None:
    with closing(sqlite3.connect(ran.journal)) as database:
        database.execute("VACUUM INTO ?", (str(ran.folder / "copy.journal"),))
    said = ran.command("audit", "--trace", str(ran.folder / "copy.journal"), "--json")
    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out) == {
        "pipeline": "clicks", "neighbors": "add_remove", "ticks": 6, "creations": 3, "asks": 36, "halts": 0,
        "releases": 18, "answers": 0, "snapshots": 0, "equal": True,
        "one_event_passes": True, "two_events_are_refused": True,
    }  # fmt: skip


def test_a_copy_is_made_checked_and_can_be_checked_elsewhere(ran: Any) -> None:
    copy = ran.folder / "copy.journal"
    said = ran.say("audit", "--trace", str(ran.pipeline), "--copy", str(copy), "--json")
    assert (said.code, said.err) == (0, "")
    assert copy.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in ran.folder.glob("copy*")] == ["copy.journal"]
    assert read_sealed(copy) == read_sealed(ran.journal)
    again = ran.command("audit", "--trace", str(copy), "--json")
    assert (again.code, again.out) == (0, said.out)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--trace", "copy.journal"), "--copy: the journal copy.journal is read where it is"),
        ((), "--copy: is for --trace PIPELINE.yaml, whose journal it copies"),
    ],
)  # fmt: skip
def test_a_copy_is_of_a_pipelines_journal(ran: Any, more: tuple[str, ...], words: str) -> None:
    (ran.folder / "copy.journal").write_bytes(ran.journal.read_bytes())
    said = ran.command("audit", *more, "--copy", str(ran.folder / "other"))
    assert said.code == 2
    assert words in said.err
    assert not (ran.folder / "other").exists()


def test_a_copy_overwrites_nothing_and_a_refused_one_is_not_left(ran: Any) -> None:
    copy = ran.folder / "copy.journal"
    copy.write_text("mine")
    arguments = ("audit", "--trace", str(ran.pipeline), "--copy", str(copy))
    said = ran.say(*arguments)
    assert (said.code, copy.read_text()) == (2, "mine")
    assert "is there already; name a new file" in said.err
    copy.unlink()
    with closing(sqlite3.connect(ran.journal)) as database, database:
        database.execute("UPDATE commits SET sealed = zeroblob(99) WHERE sequence = 0")
    assert ran.say(*arguments).code == 4
    assert list(ran.folder.glob("copy*")) == []


def test_where_there_is_no_journal_there_is_no_copy(live_series: Any) -> None:
    copy = live_series.folder / "copy.journal"
    said = live_series.say("audit", "--trace", str(live_series.pipeline), "--copy", str(copy))
    assert (said.code, copy.exists()) == (2, False)
    assert "no journal here; it begins with the first run" in said.err


def test_a_long_journal_is_copied_a_part_at_a_time(
    ran: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_check, "_AT_ONCE", 1)
    copy = ran.folder / "copy.journal"
    said = ran.say("audit", "--trace", str(ran.pipeline), "--copy", str(copy))
    assert (said.code, said.err) == (0, "")
    assert read_sealed(copy) == read_sealed(ran.journal)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.name))
def test_recorded_journals_are_the_composition(folder: Path, tmp_path: Path, say: Any) -> None:
    """With live series, an analyst's among them, halts, snapshots and releases that were not yet public."""
    case = ready(folder, "embedded", tmp_path)
    key = ("--key-file", str(tmp_path / "operator.key"))
    said = say("audit", "--trace", str(case.pipeline), "--json", *key)
    assert (said.code, said.err) == (0, "")
    found = json.loads(said.out)
    assert found["asks"] == 2 * found["releases"] > 100
    assert min(found["creations"] - 5, found["halts"], found["snapshots"]) >= 2
    assert found["two_events_are_refused"] is True
    assert KEY_FILE not in said.out


def test_an_altered_release_is_4(ran: Any) -> None:
    """Sealed with the key, in an unbroken chain, as only the operator could."""
    sealer = sealer_for(load(ran.pipeline), None)
    with closing(sqlite3.connect(ran.journal)) as database, database:
        rows = database.execute("SELECT sealed FROM commits ORDER BY sequence").fetchall()
        previous = b""
        for n, (blob,) in enumerate(rows):
            commit = decode(sealer.open(n, blob))
            if n == len(rows) - 1:
                first, *rest = commit.releases
                louder = first.body.replace(b'"band":', b'"band":1')
                changed = msgspec.structs.replace(first, body=louder)
                commit = msgspec.structs.replace(commit, releases=(changed, *rest))
            sealed = sealer.seal(n, encode(msgspec.structs.replace(commit, previous=previous)))
            previous = digest(sealed)
            database.execute("UPDATE commits SET sealed = ? WHERE sequence = ?", (sealed, n))
    said = ran.say("audit", "--trace", str(ran.pipeline))
    assert (said.code, said.out) == (4, "")
    assert "series clicks, tick" in said.err
    assert "gives other bytes than the recorded release" in said.err


def test_bad_input_is_named(ran: Any) -> None:
    folder = ran.folder
    (folder / "plain.txt").write_text("no journal")
    for code, arguments, message in (
        (2, ("--trace", str(ran.journal)), "name the pipeline file it belongs to"),
        (2, ("--trace", str(folder / "none.yaml")), "there is no such file"),
        (2, (str(ran.pipeline), "--trace", str(folder / "none.journal")), "no journal here"),
        (2, (str(ran.pipeline), "--trace", str(folder / "plain.txt")), "plain.txt is no journal"),
        (2, ("--rules", "--trace", str(ran.pipeline)), "one at a time"),
    ):
        said = ran.say("audit", *arguments)
        assert (said.code, said.out) == (code, "")
        assert message in said.err
    ran.write(key=bytes(32))
    said = ran.say("audit", "--trace", str(ran.pipeline))
    assert said.code == 4
    assert "key" in said.err
    ran.write("epsilon: 0.5}", "epsilon: 0.25}")
    said = ran.say("audit", "--trace", str(ran.pipeline))
    assert said.code == 4
    assert "written for something else" in said.err


def test_the_test_kits_journal_is_refused(live_series: Any) -> None:
    assert code_of(["run", str(live_series.pipeline), "--until-end"], kit) == 0
    said = live_series.say("audit", "--trace", str(live_series.pipeline))
    assert said.code == 4
    assert "whether its noise is private" in said.err
