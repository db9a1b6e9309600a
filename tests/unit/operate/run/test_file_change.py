"""A changed pipeline file by the command line, on files: plan --against, run --apply, and starts afterwards."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from stream_dp.cli.main import code_of
from stream_dp.files.sqlite import checkpoints_in
from stream_dp.journal.keys import Sealer, make_key, read_key
from stream_dp.operate.audit import journal_access
from stream_dp.operate.audit.journal_access import built_of
from stream_dp.operate.run.run_pipeline import RunOptions, run_pipeline
from stream_dp.operate.run.running import Run
from stream_dp.operate.run.wiring import Setup
from stream_dp.pipeline.yaml import load

ALL = {"name": "all", "statistic": "count", "epsilon": "0.5"}
COUNTRIES = {"name": "countries", "statistic": "histogram", "by": "country", "epsilon": "0.4"}
LARGE = {"name": "large", "statistic": "count", "epsilon": "0.3"}


class Folder:
    """A pipeline's folder with its key."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        make_key(path / "key")
        monkeypatch.setenv("STREAM_DP_KEY_FILE", str(path / "key"))
        monkeypatch.setenv("STREAM_DP_HOME", str(path / "home"))
        hours = [f"2026-01-0{1 + hour // 24}T{hour % 24:02}:30:00Z" for hour in range(60)]
        lines = [json.dumps({"time": hour, "country": "DE"}) for hour in hours for _ in range(3)]
        (path / "orders.jsonl").write_text("\n".join(lines))

    def file(self, name: str, *series: dict[str, Any], **more: Any) -> Path:
        data = {
            "version": 1, "name": "shop", "source": {"kind": "file", "path": "orders.jsonl"},
            "schema": {"time": {"type": "time"}, "country": {"type": "category", "domain": ["DE"]}},
            "privacy": {"epsilon": "2"},
            "clock": {
                "kind": "replay", "field": "time", "start": "2026-01-01T00:00:00Z", "step": "1h", "horizon": 60,
            },
            "series": list(series), **more,
        }  # fmt: skip
        file = self.path / name
        file.write_text(yaml.safe_dump(json.loads(json.dumps(data))))
        return file

    def begun(self, file: Path) -> None:
        """Start, and stop before the first tick."""

        @asynccontextmanager
        async def at_once(run: Run) -> AsyncIterator[None]:
            run.stop()
            yield

        asyncio.run(run_pipeline(file, RunOptions(), ending=at_once))

    def releases(self) -> set[str]:
        lines = (self.path / "shop.releases.jsonl").read_text().splitlines()
        return {json.loads(line)["series"] for line in lines}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    return Folder(tmp_path, monkeypatch)


def test_a_changed_file_is_planned_applied_and_runs_on(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = folder.file("old.yaml", ALL, COUNTRIES), folder.file("new.yaml", ALL, LARGE)
    against = ["plan", str(new), "--against"]
    assert code_of([*against, "running"]) == 2
    assert code_of([*against, str(old)]) == 6
    folder.begun(old)
    assert code_of([*against, "running"]) == 6
    out = capsys.readouterr().out
    assert "+ series large: epsilon 0.3, counts from tick 1 on" in out
    assert "- series countries: no release from tick 0 on; gives nothing back" in out
    assert "spent 0.9, then 1.2 epsilon; left of 2: 1.1, then 0.8" in out
    assert code_of([*against, "running", "--json"]) == 6
    shown = json.loads(capsys.readouterr().out)
    assert (shown["pending"], shown["refused"], shown["after"]["spent"]) == (True, [], "1.2")
    assert code_of(["plan", str(old), "--against", "running"]) == 0
    assert code_of(["run", str(new), "--until-end"]) == 4
    assert code_of(["run", str(new), "--until-end", "--apply"]) == 0
    assert "+ series large" in capsys.readouterr().err
    assert folder.releases() == {"all", "large"}
    assert code_of([*against, "running"]) == 0
    assert code_of(["run", str(new), "--until-end", "--apply"]) == 0
    assert code_of(["run", str(old), "--until-end"]) == 4
    assert "goes on with another pipeline file" in capsys.readouterr().err
    assert code_of(["ledger", str(new), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["spent"] == "1.2"
    assert shown["file"] == {
        "start": 0,
        "start_time": "2026-01-01T00:00:00Z",
        "ended": ["countries"],
    }
    assert code_of(["ledger", str(new)]) == 0
    assert "ended series of the first file: countries." in capsys.readouterr().out
    assert code_of(["ledger", str(old), "--json"]) == 4
    assert code_of(["audit", "--trace", str(new)]) == 0
    assert code_of(["doctor", str(new)]) == 0
    assert code_of(["doctor", str(old)]) == 4


def test_what_cannot_change_and_what_does_not_fit_has_its_exit_code(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.begun(folder.file("old.yaml", ALL, COUNTRIES))
    for file, code, why in (
        (
            folder.file("a.yaml", ALL, privacy={"epsilon": "3"}),
            2,
            "privacy (epsilon): the ledger promises",
        ),
        (
            folder.file("b.yaml", ALL, LARGE | {"epsilon": "1.2"}),
            3,
            "series large: large asks for epsilon 1.2",
        ),
        (
            folder.file("c.yaml", ALL | {"epsilon": "0.6"}),
            2,
            "series: one of those that run must stay",
        ),
    ):
        assert code_of(["plan", str(file), "--against", "running"]) == code
        assert why in capsys.readouterr().err
        assert code_of(["run", str(file), "--until-end", "--apply"]) == code
    assert code_of(["run", str(folder.path / "old.yaml"), "--until-end"]) == 0


def test_a_start_finds_the_change_behind_the_last_checkpoint(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.engine.engine.SNAPSHOT_TICKS", 1)
    old, new = folder.file("old.yaml", ALL, COUNTRIES), folder.file("new.yaml", ALL, LARGE)
    folder.begun(old)
    applied = RunOptions(until_end=True, apply=True)
    asyncio.run(run_pipeline(new, applied, Setup(group=1)))
    starts, read = list[int](), journal_access.sealed_commits_of

    async def noted(*given: Any, **more: Any) -> Any:
        starts.append(more.get("start", 0))
        return await read(*given, **more)

    monkeypatch.setattr(journal_access, "sealed_commits_of", noted)
    sealer = Sealer(read_key(folder.path / "key"), "shop")
    assert asyncio.run(built_of(load(new), sealer)).same
    places = checkpoints_in(folder.path / "shop.journal")
    assert max(starts) == max(places) > 0
    assert not asyncio.run(built_of(load(old), sealer, sure=True)).same
