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

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    made = flights(tmp_path, 12)
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("STREAM_DP_KEY_FILE", str(tmp_path / "operator.key"))
    return made


def changed(case: Case, change: Change) -> None:
    shown = json.loads(case.pipeline.read_text())
    change(shown)
    write(case.folder, shown)


def message(case: Case, capsys: pytest.CaptureFixture[str], code: int, *options: str) -> str:
    """Run the product's command: its message, once it is sure that nothing else has happened."""
    assert code_of(["run", str(case.pipeline), "--until-end", *options]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("stream-dp: ")
    assert "Traceback" not in said.err
    assert not case.releases.exists() or case.releases.read_bytes() == b""
    assert sqlite_rows(case.journal, "SELECT * FROM commits") == []
    return said.err


def _epsilon(value: object) -> Change:
    return lambda shown: shown["privacy"].update(epsilon=value)


def _series_epsilon(value: object) -> Change:
    return lambda shown: shown["series"][0].update(epsilon=value)


def _twice(shown: dict[str, Any]) -> None:
    shown["schema"]["airline"]["domain"].append("UA")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (_epsilon(-1), "privacy.epsilon"),
        (_epsilon(0), "privacy.epsilon"),
        (_epsilon(10**30), "privacy.epsilon"),
        (_epsilon("1e999999999"), "privacy.epsilon"),
        (_epsilon("nan"), "privacy.epsilon"),
        (_series_epsilon(-1), "series[0].epsilon"),
        (_series_epsilon(0), "series[0].epsilon"),
        (_twice, "domain"),
        (lambda shown: shown.update(surprise=1), "surprise"),
        (lambda shown: shown["series"][0].update(surprise=1), "surprise"),
        (lambda shown: shown["clock"].update(horizon=0), "horizon"),
    ],
)
def test_a_bad_pipeline_file(
    case: Case, capsys: pytest.CaptureFixture[str], change: Change, word: str
) -> None:
    changed(case, change)
    said = message(case, capsys, 2)
    assert word in said
    assert "pipeline.yaml:" in said
    assert not case.journal.exists()
    assert not case.releases.exists()


def test_all_problems_are_named_at_once(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    def several(shown: dict[str, Any]) -> None:
        _epsilon(-1)(shown)
        _twice(shown)
        shown["surprise"] = 1

    changed(case, several)
    said = message(case, capsys, 2)
    assert all(word in said for word in ("epsilon", "domain", "surprise"))


def test_mechanisms_that_exceed_the_budget(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    changed(case, _epsilon("19.99"))
    said = message(case, capsys, 3)
    assert "asks for epsilon 20; of 19.99" in said
    assert said.count("\n") == 1
    assert not case.journal.exists()
    assert not case.releases.exists()


def test_no_pipeline_file(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    case.pipeline.unlink()
    assert "pipeline.yaml" in message(case, capsys, 2)


def test_no_source_file(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    (case.folder / "slice.csv").unlink()
    said = message(case, capsys, 2)
    assert "slice.csv: no such file" in said
    assert said.count("\n") == 1


def test_a_source_without_its_columns(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    (case.folder / "slice.csv").write_text("when,who\n1,2\n")
    assert "no column 'time'" in message(case, capsys, 2)


def test_no_key(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    (case.folder / "operator.key").unlink()
    assert "no operator key at" in message(case, capsys, 2)
    assert not case.journal.exists()


def test_a_key_that_others_can_read(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    (case.folder / "operator.key").chmod(0o644)
    assert "can be read by others" in message(case, capsys, 2)
    assert not case.journal.exists()


def test_a_folder_that_does_not_exist(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    changed(case, lambda shown: shown["journal"].update(path="nowhere/pipeline.journal"))
    said = message(case, capsys, 5)
    assert "nowhere" in said
    assert said.count("\n") == 1


def test_a_broker_that_cannot_be_reached(
    case: Case, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "WAIT_S", 0.0)
    source = {"kind": "kafka", "topic": "flights", "bootstrap": "127.0.0.1:1"}
    write(case.folder, document("flights", 12, 6, source))
    said = message(case, capsys, 5)
    assert "127.0.0.1:1" in said
    assert said.count("\n") == 1


def test_after_a_start_that_failed_a_good_one_works(case: Case) -> None:
    (case.folder / "slice.csv").rename(case.folder / "elsewhere.csv")
    assert case.run("--until-end").returncode == 2
    (case.folder / "elsewhere.csv").rename(case.folder / "slice.csv")
    case.finish("--zero-noise")
    assert case.findings() == []
