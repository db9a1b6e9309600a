"""An engine and its page under attack: releases go on, byte for byte, and the process keeps its files.

Each engine is a process of its own that may open few files, so that few clients are as bad as thousands.
"""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from unit.server.attacked_engine import seeded
from unit.server.attackers import DEAF, SLOW, attacking

from stream_dp.operate.run.run_pipeline import RunOptions, run_pipeline
from stream_dp.operate.run.wiring import Setup

HERE = Path(__file__).parent
FILES = 256
TICKS = 40
PIPELINE = """
version: 1
name: clicks
source: {kind: file, path: clicks.csv}
schema:
  time: {type: time}
  page: {type: category, domain: [a, b]}
privacy: {epsilon: 1}
clock: {kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1m, horizon: HORIZON}
series:
  - {name: clicks, statistic: count, epsilon: 0.5}
  - {name: by_page, statistic: histogram, method: tree, by: page, epsilon: 0.5}
"""


def furnish(folder: Path) -> None:
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(PIPELINE.replace("HORIZON", str(TICKS)))
    lines = [f"2026-01-01T00:{minute:02}:30Z,{'ab'[minute % 2]}" for minute in range(TICKS)]
    (folder / "clicks.csv").write_text("\n".join(["time,page", *lines * 50]) + "\n")
    (folder / "key").write_bytes(bytes(range(32)))
    (folder / "key").chmod(0o600)


@contextmanager
def engine(folder: Path, files: int = FILES) -> Iterator[tuple[subprocess.Popen[str], int]]:
    furnish(folder)
    own = {
        "STREAM_DP_KEY_FILE": str(folder / "key"),
        "STREAM_DP_HOME": str(folder / "state"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, str(HERE / "attacked_engine.py"), "pipeline.yaml", str(files)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, cwd=folder, env=os.environ | own, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline()
        assert url, process.communicate()[1]
        yield process, int(url.rstrip("/\n").rpartition(":")[2])
    finally:
        process.kill()
        process.communicate()


def end(process: "subprocess.Popen[str]") -> str:
    """Let it read on to its end; what it said on standard error."""
    _, said = process.communicate("go\n", timeout=600)
    assert process.returncode == 0, said
    return said


def files_of(process: "subprocess.Popen[str]") -> int:
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("calm") / "engine"
    furnish(folder)
    options = RunOptions(until_end=True, key_file=folder / "key")
    setup = Setup(private=False, adapters=seeded, group=1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("STREAM_DP_HOME", str(folder / "state"))
        asyncio.run(run_pipeline(folder / "pipeline.yaml", options, setup))
    return (folder / "clicks.releases.jsonl").read_bytes()


@pytest.mark.parametrize(("what", "number"), [(SLOW, 400), (DEAF, 400)], ids=["slow", "deaf"])
def test_clients_change_nothing_but_their_own_answers(
    tmp_path: Path, undisturbed: bytes, what: tuple[bytes, ...], number: int
) -> None:
    """400 clients against 256 files: before, these were all taken, nobody else was answered, and the log flooded."""
    folder = tmp_path / "engine"
    with engine(folder) as (process, port), attacking(port, what, number):
        assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=300).status_code == 200
        assert files_of(process) < FILES - 60
        said = end(process)
    assert (folder / "clicks.releases.jsonl").read_bytes() == undisturbed
    assert said.count("\n") < 5
    assert "Traceback" not in said


def test_a_reader_of_the_stream_gets_every_release(tmp_path: Path, undisturbed: bytes) -> None:
    """It connects when there is no room left; another goes."""
    with engine(tmp_path / "engine") as (process, port), attacking(port, DEAF, 200):
        assert process.stdin is not None
        with httpx.stream("GET", f"http://127.0.0.1:{port}/api/stream?after=-1", timeout=300) as answer:  # fmt: skip
            process.stdin.write("go\n")
            process.stdin.flush()
            bodies = []
            for line in answer.iter_lines():
                if line.startswith("data: ") and '"v":1' in line:
                    bodies.append(line.removeprefix("data: "))
                if len(bodies) == 2 * TICKS:
                    break
    assert "\n".join(bodies).encode() + b"\n" == undisturbed


def test_the_test_can_fail() -> None:
    """An attacker's socket takes a file, on this side as on the other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        before = len(list(Path("/proc/self/fd").iterdir()))
        with attacking(listener.getsockname()[1], SLOW, 20):
            assert len(list(Path("/proc/self/fd").iterdir())) == before + 20
