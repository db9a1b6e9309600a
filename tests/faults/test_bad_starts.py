"""What cannot start: one clear message, the right exit code, nothing charged, nothing released."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.cases import Case, document, flights, write
from faults.evidence import sqlite_rows
from stream_dp.cli.main import code_of
from stream_dp.operate.run import settings


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    made = flights(tmp_path, 12)
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("STREAM_DP_KEY_FILE", str(tmp_path / "operator.key"))
    monkeypatch.setattr(settings, "WAIT_S", 0.0)
    return made


def changed(case: Case, part: str, **values: Any) -> None:
    shown = json.loads(case.pipeline.read_text())
    shown[part].update(values)
    write(case.folder, shown)


def _unreachable(case: Case) -> None:
    source = {"kind": "kafka", "topic": "flights", "bootstrap": "127.0.0.1:1"}
    write(case.folder, document("flights", 12, 6, source))


CAUSES: dict[str, tuple[Callable[[Case], object], int, str]] = {
    "a budget of nothing": (lambda c: changed(c, "privacy", epsilon=0), 2, "privacy.epsilon"),
    "too small a budget": (lambda c: changed(c, "privacy", epsilon="19.99"), 3, "asks for epsilon"),
    "no pipeline file": (lambda c: c.pipeline.unlink(), 2, "pipeline.yaml"),
    "no source": (lambda c: (c.folder / "slice.csv").unlink(), 2, "slice.csv: no such file"),
    "no columns": (lambda c: (c.folder / "slice.csv").write_text("a\n1\n"), 2, "no column 'time'"),
    "no key": (lambda c: (c.folder / "operator.key").unlink(), 2, "no operator key at"),
    "an open key": (lambda c: (c.folder / "operator.key").chmod(0o644), 2, "read by others"),
    "no folder": (lambda c: changed(c, "journal", path="nowhere/p.journal"), 5, "nowhere"),
    "no broker": (_unreachable, 5, "127.0.0.1:1"),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_what_cannot_start_is_told_and_leaves_nothing(
    case: Case, capsys: pytest.CaptureFixture[str], cause: str
) -> None:
    spoil, code, word = CAUSES[cause]
    spoil(case)
    assert code_of(["run", str(case.pipeline), "--until-end"]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("stream-dp: ")
    assert word in said.err
    assert "Traceback" not in said.err
    assert not case.releases.exists() or case.releases.read_bytes() == b""
    assert sqlite_rows(case.journal, "SELECT * FROM commits") == []


def test_after_a_start_that_failed_a_good_one_works(case: Case) -> None:
    (case.folder / "slice.csv").rename(case.folder / "elsewhere.csv")
    assert case.run("--until-end").returncode == 2
    (case.folder / "elsewhere.csv").rename(case.folder / "slice.csv")
    case.finish("--zero-noise")
    assert case.findings() == []
