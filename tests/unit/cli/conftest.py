"""A small pipeline on disk, and a way to run commands in it."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stream_dp.cli import progress_line
from stream_dp.cli.main import code_of
from stream_dp.operate.run.running import Run
from stream_dp.server.server import PageServer

HORIZON = 6
HIDDEN, GOOD, BROKEN = "hunter2", 1237, 389
"""What stands in every record of `secretive`, and how many of its records are good and broken."""
YAML = """\
version: 1
name: clicks
source: {kind: file, path: clicks.csv}
schema:
  time: {type: time}
  page: {type: category, domain: [home, help]}
privacy: {unit: event, neighbors: add_remove, epsilon: 1}
clock: {kind: replay, field: time, start: 2024-05-01T00:00:00Z, step: 1h, horizon: 6, block: 4}
series:
  - {name: clicks, statistic: count, epsilon: 0.5}
  - {name: by_page, statistic: histogram, by: page, method: tree, epsilon: 1/4}
  - {name: busy, statistic: alerts, by: page, threshold: 3, epsilon: 0.25}
"""
ROWS = [f"2024-05-01T0{hour}:{minute:02}:00Z,{page}" for hour in range(HORIZON)
        for minute, page in enumerate(("home", "help", "elsewhere", "home"))]  # fmt: skip


@dataclass
class Said:
    """What a command ended with."""

    code: int
    out: str
    err: str


@dataclass
class Site:
    """A folder with a pipeline file, its data and its key."""

    folder: Path
    say: Callable[..., Said]

    @property
    def pipeline(self) -> Path:
        return self.folder / "clicks.yaml"

    @property
    def journal(self) -> Path:
        return self.folder / "clicks.journal"

    @property
    def releases(self) -> list[str]:
        path = self.folder / "clicks.releases.jsonl"
        return path.read_text().splitlines() if path.exists() else []

    def write(self, old: str = "", new: str = "", key: bytes = bytes(range(32))) -> None:
        assert old in YAML
        self.pipeline.write_text(YAML.replace(old, new) if old else YAML)
        (self.folder / "clicks.csv").write_text("\n".join(["time,page", *ROWS, ""]))
        path = self.folder / "operator.key"
        path.write_bytes(key)
        path.chmod(0o600)

    def command(self, name: str, *arguments: str) -> Said:
        return self.say(name, str(self.pipeline), *arguments)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("QUIET_S", "EVERY_S"):
        monkeypatch.setattr(progress_line, name, math.inf)

    def run(*arguments: str) -> Said:
        capsys.readouterr()
        code = code_of(list(arguments))
        text = capsys.readouterr()
        return Said(code, text.out, text.err)

    return run


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, say: Callable[..., Said]) -> Site:
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STREAM_DP_KEY_FILE", str(tmp_path / "operator.key"))
    made = Site(tmp_path, say)
    made.write()
    return made


@pytest.fixture
def page_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run ends after its page was opened: one of a few ticks may be over before."""
    is_open, start, until_end = asyncio.Event(), PageServer.start, Run.until_end

    async def starting(self: PageServer, *args: Any, **more: Any) -> None:
        await start(self, *args, **more)
        is_open.set()

    async def ending(self: Run) -> None:
        await until_end(self)
        await is_open.wait()

    monkeypatch.setattr(PageServer, "start", starting)
    monkeypatch.setattr(Run, "until_end", ending)


@pytest.fixture
def secretive(site: Site) -> Site:
    """Records that all hold a secret; some are of no page, some no records at all."""
    good = [f"2024-05-01T0{at % 6}:{at % 60:02}:00Z,{HIDDEN}" for at in range(GOOD)]
    broken = [f"{HIDDEN}{at},{HIDDEN}" for at in range(BROKEN)]
    text = "\n".join(["time,page", *sorted(good), *broken, ""])
    (site.folder / "clicks.csv").write_text(text)
    return site
