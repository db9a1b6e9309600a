"""What an operator keeps in order: `stream-dp key`, `token` and `doctor`, without a broker."""

import json
import os
import shutil
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.cli.conftest import Site

from stream_dp.journal.keys import KEY_BYTES, read_key, read_token
from stream_dp.operate.keys import issued_for, sealer_for
from stream_dp.pipeline.yaml import load

Say = Callable[..., Any]


@pytest.fixture
def pipeline(site: Any) -> Path:
    path: Path = site.pipeline
    text = path.read_text()
    path.write_text(
        text.replace("epsilon: 1}", "epsilon: 2, analysts: [{name: ann, epsilon: 0.5}]}")
    )
    return path


def test_a_token_is_made_listed_and_revoked(pipeline: Path, say: Say, tmp_path: Path) -> None:
    made = say("token", str(pipeline), "--analyst", "ann", "--days", "7")
    assert made.code == 0
    text = made.out.removesuffix("\n")
    assert "\n" not in text
    assert f"token {text.partition('.')[0]} of ann, valid until 20" in made.err
    assert text.partition(".")[2] not in made.err
    file = tmp_path / "ann.token"
    file.write_text(made.out)
    file.chmod(0o600)
    assert read_token(file) == text

    spec = load(pipeline)
    engine = issued_for(spec, sealer_for(spec, None))
    found = engine.shown(text)
    assert found is not None
    assert found.analyst == "ann"

    listed = json.loads(say("token", str(pipeline), "--list", "--json").out)["tokens"]
    assert [(one["id"], one["analyst"], one["state"]) for one in listed] == [
        (found.id, "ann", "valid")
    ]
    taken = say("token", str(pipeline), "--revoke", found.id)
    assert (taken.code, taken.err) == (0, "")
    assert taken.out.startswith(f"{found.id}: revoked. ann can no longer ask with this token")
    table = say("token", str(pipeline), "--list").out
    assert found.id in table
    assert "revoked" in table
    assert text.partition(".")[2] not in table
    gone = engine.shown(text)
    assert gone is not None
    assert gone.revoked


def test_a_readers_token_is_made_listed_and_revoked(pipeline: Path, say: Say) -> None:
    made = say("token", str(pipeline), "--reader", "bi", "--days", "7")
    text = made.out.removesuffix("\n")
    assert (made.code, text.count("\n")) == (0, 0)
    assert f"token {text.partition('.')[0]} of bi, valid until 20" in made.err
    keyless = issued_for(load(pipeline), None)
    found = keyless.shown_reading(text)
    assert found is not None
    listed = json.loads(say("token", str(pipeline), "--list", "--json").out)["tokens"]
    assert [(one["id"], one["analyst"], one["reader"]) for one in listed] == [(found.id, "", "bi")]
    taken = say("token", str(pipeline), "--revoke", found.id)
    assert taken.out.startswith(f"{found.id}: revoked. bi can no longer read with this token")
    gone = keyless.shown_reading(text)
    assert gone is not None
    assert gone.revoked


@pytest.mark.parametrize("command", ["run", "page"])
def test_a_wrong_file_of_access_is_refused(
    pipeline: Path, say: Say, tmp_path: Path, command: str
) -> None:
    (tmp_path / "access.yaml").write_text("reads: nobody")
    told = say(command, str(pipeline), "--access", str(tmp_path / "access.yaml"))
    assert (told.code, told.out) == (2, "")
    assert "access.yaml:1:8: reads: must be anyone or known" in told.err


def test_a_proxys_analyst_must_be_one(pipeline: Path, say: Say, tmp_path: Path) -> None:
    (tmp_path / "access.yaml").write_text(
        "proxy: {header: X-User, from: [127.0.0.1], analysts: {carl@x.org: carl}}"
    )
    told = say("run", str(pipeline), "--serve", "--access", str(tmp_path / "access.yaml"))
    assert told.code == 2
    assert "--access: proxy.analysts names carl, but `privacy.analysts` of" in told.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "name exactly one of --analyst NAME, --reader NAME, --list and --revoke ID"),
        (("--reader", "bi", "--analyst", "ann"), "name exactly one of"), (("--reader", "Bi"), "--reader: must be"),
        (("--analyst", "ann", "--list"), "name exactly one of"), (("--analyst", "carl"), "names ann"),
        (("--revoke", "0" * 12), "has no token with this id"), (("--analyst", "ann", "--days", "0"), "days"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(
    pipeline: Path, say: Say, options: tuple[str, ...], said: str
) -> None:
    told = say("token", str(pipeline), *options)
    assert (told.code, told.out) == (2, "")
    assert said in told.err


def test_the_list_lies_beside_the_journal_or_where_it_is_told(
    pipeline: Path, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def place() -> Path:
        spec = load(pipeline)
        return issued_for(spec, sealer_for(spec, None)).path

    journal = load(pipeline).journal
    assert place() == Path(f"{journal.path}.tokens")  # type: ignore[union-attr]
    monkeypatch.setenv("STREAM_DP_TOKEN_LIST", str(tmp_path / "elsewhere"))
    assert place() == tmp_path / "elsewhere"
    assert str(tmp_path / "elsewhere") in say("token", str(pipeline), "--analyst", "ann").err


def test_a_made_key_is_private(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = say("key")
    made = tmp_path / "stream-dp.key"
    assert (said.code, said.out) == (0, f"export STREAM_DP_KEY_FILE={made}\n")
    assert len(read_key(made)) == KEY_BYTES
    assert "Keep a copy" in said.err


def test_a_key_that_is_there_stays(say: Say, tmp_path: Path) -> None:
    path = tmp_path / "a key"
    say("key", str(path))
    before = path.read_bytes()
    said = say("key", str(path))
    assert (said.code, path.read_bytes()) == (0, before)
    assert said.out == f"export STREAM_DP_KEY_FILE='{path}'\n"
    assert "exists already and was left as it is" in said.err


def test_what_is_there_and_no_key_is_refused(say: Say, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("something else")
    path.chmod(0o600)
    said = say("key", str(path))
    assert (said.code, path.read_text()) == (2, "something else")
    assert "exactly 32 bytes" in said.err


KAFKA = """source:
  kind: kafka
  topic: clicks
  bootstrap: "127.0.0.1:1,no.such.name.invalid:9092"
  security: {protocol: SASL_PLAINTEXT, mechanism: PLAIN, username: engine, password_file: password}
"""
Usage = namedtuple("Usage", "total used free")


def not_well(site: Site) -> tuple[int, dict[str, str]]:
    """The exit code, and what is not well: the level of each."""
    said = site.command("doctor", "--json")
    checks = json.loads(said.out)["checks"]
    return said.code, {one["about"]: one["level"] for one in checks if one["level"] != "ok"}


def test_all_is_well_before_and_after_a_run(site: Site) -> None:
    said = site.command("doctor")
    assert (said.code, said.err) == (0, "")
    first = "         ok  operator's key: exists, and nobody else can read it"
    assert said.out.splitlines()[0] == first
    assert not_well(site) == (0, {})
    assert not site.journal.exists()
    assert not (site.folder / "home").exists()
    assert site.command("run", "--until-end").code == 0
    assert not_well(site) == (0, {})
    shutil.rmtree(site.folder / "home")
    assert not_well(site) == (0, {"high-water mark": "warning"})


def test_open_keys_and_those_of_another_journal_are_wrong(site: Site) -> None:
    assert site.command("run", "--until-end").code == 0
    (site.folder / "operator.key").chmod(0o644)
    assert not_well(site) == (4, {"operator's key": "wrong"})
    assert "-> the operator key" in site.command("doctor").out
    site.write(key=b"x" * 32)
    assert not_well(site) == (4, {"journal": "wrong"})
    site.write("epsilon: 0.5", "epsilon: 0.4")
    assert not_well(site) == (4, {"journal": "wrong"})


@pytest.mark.parametrize("damage", ["header", "table", "page"])
def test_damage_that_no_start_reads_is_wrong(site: Site, damage: str) -> None:
    assert site.command("run", "--until-end").code == 0
    content = bytearray(site.journal.read_bytes())
    page = len(content) // 2 // 4096 * 4096
    begin, size = {"header": (20, 1), "table": (4096 + 5, 1), "page": (page, 4096)}[damage]
    content[begin : begin + size] = bytes(byte ^ 255 for byte in content[begin : begin + size])
    site.journal.write_bytes(content)
    code, findings = not_well(site)
    assert (code, findings["journal"]) == (4, "wrong")
    assert "has damaged pages" in site.command("doctor").out


@pytest.mark.parametrize(
    ("free", "level", "code"), [(10 << 20, "wrong", 5), (500 << 20, "warning", 0), (2 << 30, "", 0)]
)
def test_space(
    site: Site, monkeypatch: pytest.MonkeyPatch, free: int, level: str, code: int
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, free))
    found, levels = not_well(site)
    assert (found, set(levels.values())) == (code, {level} if level else set())


def test_a_folder_that_may_not_be_written(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: mode == os.R_OK)
    code, levels = not_well(site)
    assert (code, set(levels.values())) == (5, {"wrong"})


def test_an_absent_kafka_is_told_for_each_address(site: Site) -> None:
    site.write("source: {kind: file, path: clicks.csv}\n", KAFKA)
    password = site.folder / "password"
    assert not_well(site) == (5, {"source.security": "warning", "cluster": "wrong"})
    assert f"security.password_file {password} cannot be read" in site.command("doctor").out
    password.write_text("swordfish")
    password.chmod(0o600)
    said = site.command("doctor")
    assert said.code == 5
    assert "swordfish" not in said.out
    lines = said.out.splitlines()
    assert "      wrong  broker 127.0.0.1:1: nothing listens there" in lines
    assert "      wrong  broker no.such.name.invalid:9092: the name is not known" in lines
