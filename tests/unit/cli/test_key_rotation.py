"""`stream-dp key rotate`: the journal stays, one operator's key opens it at any moment, and a KMS may hold that key."""

import asyncio
import base64
import contextlib
import fcntl
import json
import os
import pickle
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.cli.conftest import Said, Site

from stream_dp.errors import FailClosed, WorldError
from stream_dp.files import threads
from stream_dp.files.sqlite import SqliteJournal
from stream_dp.journal import keys as sealing
from stream_dp.journal.keys import KEY_BYTES, Sealer, make_key, read_key, wrap
from stream_dp.operate import keys
from stream_dp.operate.doctor import opens
from stream_dp.operate.keys import issued_for, rotate_key, sealer_for, wrapped_key
from stream_dp.operate.run.lane_processes import LaneProcesses, crew_of
from stream_dp.operate.run.running import Run
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load

KAFKA = """\
version: 1
name: clicks
source: {kind: kafka, topic: clicks, bootstrap: "127.0.0.1:1", processes: 2}
schema: {page: {type: category, domain: [home, help]}}
privacy: {unit: event, neighbors: add_remove, epsilon: 1}
clock: {kind: wall, step: 1h}
series: [{name: clicks, statistic: count, epsilon: 1}]
"""


@pytest.fixture
def former(site: Site) -> Path:
    return site.folder / "operator.key"


@pytest.fixture
def new(site: Site) -> Path:
    path = site.folder / "new.key"
    make_key(path)
    return path


def rotated(site: Site, new: Path, *options: str) -> Said:
    said = site.say("key", "rotate", str(site.pipeline), "--new-key-file", str(new), *options)
    assert said.code == 0, said.err
    return said


def wrapped(site: Site) -> Path:
    return wrapped_key(load(site.pipeline))[0]


def commits(site: Site) -> list[Any]:
    with contextlib.closing(sqlite3.connect(site.journal)) as database:
        tables = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        ]
        return [database.execute(f"SELECT * FROM {name}").fetchall() for name in sorted(tables)]  # noqa: S608


def opened_by(site: Site, key: Path) -> bool:
    try:
        sealer = sealer_for(load(site.pipeline), key)
        asyncio.run(opens(load(site.pipeline), lambda: sealer))
    except FailClosed:
        return False
    return True


def require_rotated(site: Site, new: Path, *former: Path) -> None:
    assert opened_by(site, new)
    assert not any(opened_by(site, key) for key in former)


def test_a_pipeline_of_before_moves_to_a_wrapped_key_and_rotates(
    site: Site, former: Path, new: Path
) -> None:
    site.write("epsilon: 1}\nclock", "epsilon: 2, analysts: [{name: ann, epsilon: 0.5}]}\nclock")
    assert site.command("run", "--until-end").code == 0
    token = site.command("token", "--analyst", "ann").out.strip()
    before, releases = commits(site), site.releases
    said = rotated(site, new)
    assert said.out == f"export STREAM_DP_KEY_FILE={new}\n"
    assert "The data key is the former operator's key" in said.err
    assert site.command("ledger").code == 4
    require_rotated(site, new, former)

    third = site.folder / "third.key"
    make_key(third)
    said = rotated(site, third, "--key-file", str(new))
    assert "former operator's key" not in said.err
    require_rotated(site, third, former, new)
    assert (commits(site), site.releases) == (before, releases)
    for command in ("ledger", "dead-letters", "audit"):
        options = ("--trace",) if command == "audit" else ()
        said = site.say(command, *options, str(site.pipeline), "--key-file", str(third))
        assert said.code == 0, said.err
    assert site.command("run", "--until-end", "--key-file", str(third)).code == 0
    spec = load(site.pipeline)
    assert issued_for(spec, sealer_for(spec, third)).shown(token) is not None
    assert wrapped(site).stat().st_mode & 0o777 == 0o600
    assert read_key(former) not in wrapped(site).read_bytes()


def test_a_pipeline_that_begins_has_a_data_key_of_its_own(
    site: Site, former: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STREAM_DP_KEY_FILE")
    assert "a new data key is wrapped" in rotated(site, new).err
    monkeypatch.setenv("STREAM_DP_KEY_FILE", str(new))
    made = sealer_for(load(site.pipeline), None)
    assert made.key_id not in {Sealer(read_key(key), "clicks").key_id for key in (former, new)}
    assert site.command("run", "--until-end").code == 0
    assert site.command("ledger").code == 0
    assert site.command("doctor").out.count(f"opens the wrapped key {wrapped(site)}") == 1

    lost = wrapped(site).rename(site.folder / "lost")
    for command in (("run", "--until-end"), ("ledger",)):
        said = site.command(*command)
        assert (said.code, "bring back the journal's wrapped key" in said.err) == (4, True)
    refused = site.say("key", "rotate", str(site.pipeline), "--new-key-file", str(former))
    assert (refused.code, wrapped(site).exists()) == (4, False)
    lost.rename(wrapped(site))
    site.journal.unlink()
    wrapped(site).unlink()
    refused = site.say("key", "rotate", str(site.pipeline), "--new-key-file", str(former))
    assert (refused.code, wrapped(site).exists()) == (4, False)
    assert "is missing, although this pipeline has run before" in refused.err


@pytest.mark.parametrize("ignored", ["replace_file", "operator"])
def test_a_rotation_that_leaves_the_former_key_is_caught(
    site: Site, former: Path, new: Path, ignored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twins: one writes nothing; one derives the wrap's key from the pipeline alone."""
    if ignored == "replace_file":
        monkeypatch.setattr(keys, "replace_file", lambda *_, **__: None)
    else:
        wrapping = vars(sealing)["_wrapping"]
        monkeypatch.setattr(sealing, "id_of_key", lambda key: "same")
        monkeypatch.setattr(sealing, "_wrapping", lambda _, name: wrapping(bytes(32), name))
    assert site.command("run", "--until-end").code == 0
    rotated(site, new)
    assert opened_by(site, former)
    with pytest.raises(AssertionError):
        require_rotated(site, new, former)


class Killed(BaseException):
    """The process is gone at this point."""


def torn(path: Path, content: bytes, mode: int) -> None:
    """A twin: it writes the file in its place."""
    system = vars(threads)["os"]
    handle = system.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    for part in (content[:50], content[50:]):
        system.write(handle, part)
        system.fsync(handle)


class Calls:
    """`os` for the module that writes, which kills at call number `at`."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._killing(real) if callable(real) else real

    def _killing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            self.left -= 1
            if not self.left:
                raise Killed
            return real(*arguments, **more)

        return call


def killed_rotations(site: Site, new: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Kill a rotation at each call of the system in turn; yield after each whether it was."""
    replace = Path.replace
    for at in range(1, 20):
        calls = Calls(at)
        with monkeypatch.context() as patch:
            patch.setattr(threads, "os", calls)
            patch.setattr(Path, "replace", calls._killing(replace))
            try:
                asyncio.run(rotate_key(site.pipeline, None, new, "", opens))
            except Killed:
                yield True
                continue
        yield False
        return


def require_one_key(site: Site, former: Path, new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert site.command("run", "--until-end").code == 0
    outcomes = []
    for killed in killed_rotations(site, new, monkeypatch):
        outcome = opened_by(site, former), opened_by(site, new)
        assert outcome in ((True, False), (False, True))
        assert killed or outcome == (False, True)
        outcomes.append(outcome)
        wrapped(site).unlink(missing_ok=True)
    assert len(set(outcomes)) == 2
    assert len(outcomes) > 3


def test_a_rotation_killed_anywhere_leaves_the_one_key_or_the_other(
    site: Site, former: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_one_key(site, former, new, monkeypatch)


def test_a_rotation_that_writes_in_place_is_caught(
    site: Site, former: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "replace_file", torn)
    with pytest.raises(AssertionError):
        require_one_key(site, former, new, monkeypatch)


def test_an_engine_that_runs_is_not_disturbed(
    site: Site, former: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    until_end = Run.until_end

    async def ending(self: Run) -> None:
        await rotate_key(site.pipeline, None, new, "", opens_now)
        await until_end(self)

    async def opens_now(spec: PipelineSpec, sealer: Callable[[], Sealer]) -> bool:
        return True  # the engine is about to make its journal, as if it had

    monkeypatch.setattr(Run, "until_end", ending)
    assert site.command("run", "--until-end").code == 0
    require_rotated(site, new, former)
    assert site.command("ledger", "--key-file", str(new)).code == 0


def test_what_lies_in_the_way_of_a_rotation_counts_for_nothing(site: Site, new: Path) -> None:
    assert site.command("run", "--until-end").code == 0
    part, other = wrapped(site).with_name(f".{wrapped(site).name}.part"), site.folder / "other"
    other.write_text("other")
    part.symlink_to(other)
    rotated(site, new)
    assert (other.read_text(), wrapped(site).is_symlink()) == ("other", False)
    part.touch()
    part.chmod(0o666)
    third = site.folder / "third.key"
    make_key(third)
    rotated(site, third, "--key-file", str(new))
    assert (part.exists(), wrapped(site).stat().st_mode & 0o777) == (False, 0o600)


def test_a_rotation_syncs_all_that_the_file_needs_before_it_is_replaced(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could leave a wrapped key without the operator's key, or without its folder."""
    new, deep = tmp_path / "keys" / "new.key", tmp_path / "one" / "two"
    make_key(new)
    monkeypatch.setenv("STREAM_DP_WRAPPED_KEY_FILE", str(deep / "wrapped"))
    done, fsync, replace = list[int | str](), os.fsync, Path.replace

    def synced(handle: int) -> None:
        done.append(os.fstat(handle).st_ino)
        fsync(handle)

    def replaced(self: Path, to: Path) -> Path:
        done.append("replaced")
        return replace(self, to)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    rotated(site, new)
    before, after = done[: done.index("replaced")], done[done.index("replaced") :]
    needed = (tmp_path, deep.parent, new, new.parent, deep / "wrapped")
    assert {path.stat().st_ino for path in needed} == set(before)
    assert after == ["replaced", deep.stat().st_ino]


def test_a_wrapped_key_whose_volume_is_gone_is_missed(
    site: Site, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a pipeline that has not run yet would begin under the operator's key."""
    wrapped(site).symlink_to(site.folder / "volume" / "wrapped")
    for command in (
        ("run", str(site.pipeline), "--until-end"),
        ("key", "rotate", str(site.pipeline), "--new-key-file", str(new)),
    ):
        said = site.say(*command)
        assert (said.code, "is a link, and what it names is not there" in said.err) == (4, True)
    assert not site.journal.exists()


def test_a_journal_without_a_commit_has_begun(site: Site, former: Path, new: Path) -> None:
    """Its engine, which has the key already, is about to write the first one."""
    journal = SqliteJournal(site.journal)

    async def made() -> None:
        await journal.open()
        await journal.close()

    asyncio.run(made())
    assert "The data key is the former operator's key" in rotated(site, new).err
    spec = load(site.pipeline)
    assert sealer_for(spec, new).key_id == Sealer(read_key(former), spec.name).key_id


def test_of_public_data_a_rotation_makes_no_operators_key(
    site: Site, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.write("name: clicks\n", "name: clicks\npublic_data: true\n")
    monkeypatch.delenv("STREAM_DP_KEY_FILE")
    rotated(site, new)
    again = site.say("key", "rotate", str(site.pipeline), "--new-key-file", str(new))
    ran = site.command("run", "--until-end")
    for said in (again, ran):
        assert (said.code, "no operator key at" in said.err) == (2, True), said.err
    assert not list(site.folder.glob("home/**/*.key"))
    assert site.command("run", "--until-end", "--key-file", str(new)).code == 0


def test_behind_a_link_the_file_is_replaced_and_not_the_link(
    site: Site, former: Path, new: Path
) -> None:
    """Else the place that others look at would keep what the former key opens."""
    assert site.command("run", "--until-end").code == 0
    behind = site.folder / "secrets" / "wrapped"
    behind.parent.mkdir()
    behind.write_bytes(wrap(read_key(former), bytes(KEY_BYTES), "clicks"))
    wrapped(site).symlink_to(behind)
    zero = site.folder / "zero.key"
    zero.write_bytes(bytes(KEY_BYTES))
    zero.chmod(0o600)
    rotated(site, new, "--key-file", str(zero))
    assert wrapped(site).is_symlink()
    require_rotated(site, new, former, zero)


@pytest.mark.parametrize("lay", [Path.mkdir, lambda path: path.symlink_to(path)])
def test_a_wrapped_key_that_cannot_be_read_is_not_taken_for_none(
    site: Site, new: Path, lay: Callable[[Path], None]
) -> None:
    lay(wrapped(site))
    for command in (
        ("run", str(site.pipeline), "--until-end"),
        ("key", "rotate", str(site.pipeline), "--new-key-file", str(new)),
    ):
        said = site.say(*command)
        assert (said.code, "cannot be read" in said.err) == (5, True), said.err


def copied(site: Site) -> Site:
    """The pipeline and its data in another folder, without journal and wrapped key."""
    copy = Site(site.folder / "copy", site.say)
    copy.folder.mkdir()
    copy.write()
    return copy


def test_a_copy_without_journal_and_wrapped_key_does_not_begin_anew(
    site: Site, former: Path, new: Path
) -> None:
    """Law 8: as without a wrapped key. The same records would get a second version of what is public."""
    rotated(site, former)
    assert site.command("run", "--until-end").code == 0
    rotated(site, new)
    copy = copied(site)
    for key in (former, new):
        said = copy.command("run", "--until-end", "--key-file", str(key))
        assert (said.code, "has run on clicks.csv before, at" in said.err) == (4, True)
        assert copy.releases == []
        copy.journal.unlink()


def test_a_rotation_does_not_begin_a_copy_anew(site: Site, former: Path, new: Path) -> None:
    assert site.command("run", "--until-end").code == 0
    copy = copied(site)
    said = copy.say("key", "rotate", str(copy.pipeline), "--new-key-file", str(new))
    assert (said.code, "this pipeline has run before" in said.err) == (4, True)
    assert not wrapped(copy).exists()
    assert "has run before" in copy.command("doctor").out


def test_only_one_rotation_at_a_time(site: Site, new: Path) -> None:
    folder = os.open(site.folder, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_SH)  # which two that only share would not notice
        said = site.say("key", "rotate", str(site.pipeline), "--new-key-file", str(new))
    finally:
        os.close(folder)
    assert (said.code, wrapped(site).exists()) == (2, False)
    assert "another rotation is running" in said.err


def test_a_rotation_looks_again_once_it_is_alone(
    site: Site, former: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert site.command("run", "--until-end").code == 0
    third, alone = site.folder / "third.key", vars(keys)["_alone"]
    make_key(third)

    def after_another(path: Path) -> Any:
        path.write_bytes(wrap(read_key(former), read_key(third), "clicks"))
        return alone(path)

    monkeypatch.setattr(keys, "_alone", after_another)
    said = site.say("key", "rotate", str(site.pipeline), "--new-key-file", str(new))
    assert (said.code, "is wrapped under operator key" in said.err) == (4, True)
    require_rotated(site, third, former, new)


def test_what_cannot_be_rotated_is_left_as_it_was(site: Site, former: Path, new: Path) -> None:
    assert site.command("run", "--until-end").code == 0
    rotate = "key", "rotate", str(site.pipeline)
    wrong = site.folder / "wrong.key"
    make_key(wrong)
    for options, code, why in (
        ((), 2, "name either --new-key-file"),
        (("--new-key-file", str(new), "--new-key-command", "true"), 2, "name either"),
        (("--new-key-file", str(former)), 2, "is the operator's key already"),
        (("--new-key-file", str(site.folder / "none")), 2, "no operator key at"),
        (("--new-key-file", str(new), "--key-file", str(wrong)), 4, "was written with key"),
        (("--new-key-command", "''"), 5, "cannot be started"),
        (("--new-key-command", "'"), 2, "a program with its arguments"),
    ):
        said = site.say(*rotate, *options)
        assert (said.code, why in said.err) == (code, True), said.err
        assert not wrapped(site).exists()
    rotated(site, new)
    said = site.say(*rotate, "--new-key-file", str(former), "--key-file", str(new))
    assert (said.code, "is the data key itself" in said.err) == (2, True)
    wrapped(site).write_bytes(wrapped(site).read_bytes()[:-9])
    said = site.command("ledger", "--key-file", str(new))
    assert (said.code, "is damaged; bring back its newest copy" in said.err) == (4, True)


def test_the_wrapped_key_may_lie_elsewhere(
    site: Site, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = site.folder / "secrets" / "clicks.wrapped"
    monkeypatch.setenv("STREAM_DP_WRAPPED_KEY_FILE", str(elsewhere))
    said = site.command("run", "--until-end")
    assert (said.code, f"no wrapped key at {elsewhere}" in said.err) == (2, True)
    rotated(site, new)
    assert wrapped(site) == elsewhere
    assert elsewhere.exists()
    (site.folder / "views.yaml").write_text(
        site.pipeline.read_text().replace("name: clicks\nsource", "name: views\nsource")
    )
    said = site.say("run", str(site.folder / "views.yaml"), "--key-file", str(new))
    assert (said.code, "the wrapped key of views was made for the pipeline clicks" in said.err) == (
        4,
        True,
    )


def test_a_topics_journal_has_it_in_the_state_folder_and_lanes_get_neither_key(
    site: Site, former: Path, new: Path
) -> None:
    site.pipeline.write_text(KAFKA)

    async def none_yet(spec: PipelineSpec, sealer: Callable[[], Sealer]) -> bool:
        return False

    done = asyncio.run(rotate_key(site.pipeline, None, new, "", none_yet))
    assert done.path == site.folder / "home" / "state" / "keys" / "clicks.wrapped-key"
    spec = load(site.pipeline)
    _, record = wrapped_key(spec)
    assert record is not None
    data = record.data_key(read_key(new))
    sealer = sealer_for(spec, new)
    assert sealer.key_id == Sealer(data, "clicks").key_id
    crew = crew_of(spec, sealer)
    assert isinstance(crew, LaneProcesses)
    handed = pickle.dumps((crew._spec, crew._keys))
    assert sealer.user_key() in handed
    assert sealer.mark_key() in handed
    assert data not in handed
    assert read_key(new) not in handed


# --- a program that holds the operator's key ---------------------------------------------------------

STUB = """
import base64, json, os, pathlib, subprocess, sys, time
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

folder = pathlib.Path(sys.argv[1])
mode = (folder / "mode").read_text()
given = sys.stdin.read()
with (folder / "calls").open("a") as file:
    file.write(json.dumps([sys.argv[1:], dict(os.environ), given]) + "\\n")
master = AESGCM((folder / "master").read_bytes())
def wrap(): print("stub:v1:" + base64.b64encode(master.encrypt(bytes(12), base64.b64decode(given), None)).decode())
def unwrap(): print(base64.b64encode(master.decrypt(bytes(12), base64.b64decode(given.split(":")[2]), None)).decode())
if mode == "echo":
    print(given)
elif mode == "lingers":
    unwrap()
    sys.stdout.flush()
    os.close(1)
    time.sleep(60)
if mode == "fails":
    print(given)
    sys.exit(3)
if mode == "hangs":
    subprocess.run([sys.executable, "-c", "import time; time.sleep(60)", str(folder)])
if mode == "agent":
    subprocess.Popen(["sleep", "60"])
if mode == "garbage":
    sys.stdout.buffer.write(b"\\xff\\x00" + given.encode())
elif mode in {"empty", "echo"}:
    pass
elif mode == "short":
    print(base64.b64encode(bytes(31)).decode())
elif mode == "other":
    print(base64.b64encode(bytes(32)).decode())
elif mode == "flood":
    while True: print(given * 1000)
else:
    {"wrap": wrap, "unwrap": unwrap}[sys.argv[2]]()
"""


@pytest.fixture
def kms(site: Site, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = site.folder / "kms"
    folder.mkdir()
    (folder / "stub.py").write_text(STUB)
    (folder / "master").write_bytes(os.urandom(KEY_BYTES))
    (folder / "mode").write_text("works")
    monkeypatch.setenv("STREAM_DP_KEY_COMMAND", f"{sys.executable} {folder / 'stub.py'} {folder}")
    return folder


def to_kms(site: Site, *options: str) -> Said:
    command = os.environ["STREAM_DP_KEY_COMMAND"]
    return site.say("key", "rotate", str(site.pipeline), "--new-key-command", command, *options)


def test_a_program_holds_the_operators_key(
    site: Site, former: Path, new: Path, kms: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert site.command("run", "--until-end").code == 0
    before = commits(site)
    said = to_kms(site)
    assert said.code == 0, said.err
    assert said.out.startswith("export STREAM_DP_KEY_COMMAND=")
    assert commits(site) == before
    monkeypatch.setenv("STREAM_DP_KEY_FILE", str(new))  # of another pipeline
    assert site.command("ledger").code == 0
    assert site.command("run", "--until-end").code == 0

    earlier = wrapped(site).read_bytes()
    assert to_kms(site).code == 0  # the KMS has rotated its own key
    assert wrapped(site).read_bytes() != earlier
    assert site.command("ledger").code == 0
    rotated(site, new)
    monkeypatch.delenv("STREAM_DP_KEY_COMMAND")
    require_rotated(site, new, former)


def test_a_program_is_shown_nothing_but_what_it_must_see(site: Site, kms: Path) -> None:
    """No key stands in arguments or the environment; the data key is not given to it at all."""
    assert to_kms(site).code == 0
    sealer_for(load(site.pipeline), None)
    calls = [json.loads(line) for line in (kms / "calls").read_text().splitlines()]
    assert [arguments for arguments, _, _ in calls] == [
        [str(kms), verb] for verb in ("wrap", "unwrap", "unwrap")
    ]
    operator = base64.b64decode(calls[0][2])
    _, record = wrapped_key(load(site.pipeline))
    assert record is not None
    data = record.data_key(operator)
    for key in (operator, data):
        shown = base64.b64encode(key).decode()
        assert all(shown not in json.dumps([arguments, env]) for arguments, env, _ in calls)
        assert shown not in wrapped(site).read_text()
    assert base64.b64encode(data).decode() not in (kms / "calls").read_text()


@pytest.mark.parametrize(
    ("mode", "code", "why"),
    [
        ("fails", 5, "unwrap: ended with status 3"), ("hangs", 5, "unwrap: no answer within 3 seconds"),
        ("agent", 5, "unwrap: no answer within 3 seconds"),
        ("lingers", 5, "unwrap: no answer within 3 seconds"), ("garbage", 4, "unwrap: its answer is not one line"),
        ("empty", 4, "unwrap: its answer is not one line"), ("flood", 4, "unwrap: its answer is not one line"),
        ("short", 4, "unwrap: its answer is not 32 bytes in base64"), ("other", 4, "wrapped under operator key"),
    ],
)  # fmt: skip
def test_an_answer_of_no_use_is_told_plainly_and_shown_nowhere(
    site: Site, kms: Path, mode: str, code: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert to_kms(site).code == 0
    assert site.command("run", "--until-end").code == 0
    if code == 5 and mode != "fails":
        monkeypatch.setattr(keys, "PROGRAM_S", 3.0)
    (kms / "mode").write_text(mode)
    begin = time.monotonic()
    said = site.command("ledger")
    assert time.monotonic() - begin < 30
    assert (said.code, why in said.err) == (code, True), said.err
    if mode != "other":
        assert f"stream-dp: the key command {sys.executable} unwrap" in said.err
    given = json.loads((kms / "calls").read_text().splitlines()[-1])[2].strip()
    assert given not in said.err + said.out
    assert site.command("doctor").out.count("cannot be used") == 1


@pytest.mark.parametrize("mode", ["fails", "garbage", "other", "echo"])
def test_a_program_that_could_not_unwrap_gets_no_key(site: Site, kms: Path, mode: str) -> None:
    assert site.command("run", "--until-end").code == 0
    (kms / "mode").write_text(mode)
    assert to_kms(site).code in {4, 5}
    assert not wrapped(site).exists()
    assert site.command("ledger").code == 0


def test_what_names_another_holder_of_the_key_is_told(
    site: Site, former: Path, kms: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert to_kms(site).code == 0
    said = site.command("ledger", "--key-file", str(former))
    assert (said.code, "a program holds the operator's key" in said.err) == (2, True)
    monkeypatch.setenv("STREAM_DP_KEY_COMMAND", str(site.folder / "nosuch"))
    with pytest.raises(WorldError, match="nosuch unwrap: cannot be started"):
        sealer_for(load(site.pipeline), None)
    monkeypatch.delenv("STREAM_DP_KEY_COMMAND")
    said = site.command("ledger")
    assert (said.code, "STREAM_DP_KEY_COMMAND" in said.err) == (2, True)


def test_its_time_is_for_answer_and_end_together(
    site: Site, kms: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, wait = list[float | None](), subprocess.Popen.wait

    def waited(self: Any, timeout: float | None = None) -> int:
        waits.append(timeout)
        return wait(self, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", waited)
    assert to_kms(site).code == 0
    timed = [seconds for seconds in waits if seconds is not None]
    assert len(timed) == 2
    assert all(seconds < keys.PROGRAM_S for seconds in timed)


def test_nothing_of_the_program_is_left_when_it_hangs(
    site: Site, kms: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert to_kms(site).code == 0
    (kms / "mode").write_text("hangs")
    monkeypatch.setattr(keys, "PROGRAM_S", 2.0)
    assert site.command("run").code == 5
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(kms) not in listed.stdout


AWS = """#!{python}
import base64, os, sys
verb, flag = {{"encrypt": (1, "--plaintext"), "decrypt": (-1, "--ciphertext-blob")}}[sys.argv[2]]
assert sys.argv[1] == "kms" and sys.argv[sys.argv.index(flag) + 1] == "fileb:///dev/stdin"
given = sys.stdin.buffer.read()
print(base64.b64encode(bytes((byte + verb) % 256 for byte in given)).decode())
"""


def test_the_script_of_the_page_does_with_a_stand_in_for_its_kms(
    site: Site, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).parents[3] / "docs" / "how_to" / "rotate_keys.md"
    script, aws = site.folder / "kms.sh", site.folder / "aws"
    script.write_text(
        "#!/bin/sh\n" + page.read_text().partition("```sh\n#!/bin/sh\n")[2].partition("```")[0]
    )
    aws.write_text(AWS.format(python=sys.executable))
    for program in (script, aws):
        program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{site.folder}:{os.environ['PATH']}")
    monkeypatch.setenv("STREAM_DP_KEY_COMMAND", str(script))
    assert to_kms(site).code == 0
    assert site.command("run", "--until-end").code == 0
    rotated(site, new)
    require_rotated(site, new)
