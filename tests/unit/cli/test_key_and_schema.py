"""`stream-dp key` makes the operator's key once; `stream-dp schema` prints what editors want."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.journal.keys import KEY_BYTES, read_key
from stream_dp.pipeline.json_schema import pipeline_schema

Say = Callable[..., Any]


def test_a_key_is_made_that_nobody_else_can_read(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert "is there already and stays" in said.err


def test_what_is_there_and_no_key_is_refused(say: Say, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("something else")
    path.chmod(0o600)
    said = say("key", str(path))
    assert (said.code, path.read_text()) == (2, "something else")
    assert "exactly 32 bytes" in said.err


def test_a_folder_that_cannot_be_written_is_5(say: Say, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert say("key", str(tmp_path / "file" / "a.key")).code == 5


def test_the_schema_is_printed(say: Say) -> None:
    said = say("schema")
    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out) == pipeline_schema()
