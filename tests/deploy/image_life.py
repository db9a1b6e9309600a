"""A container's life: what it needs to find, and that it starts, answers its health check, and ends well by SIGTERM.

Rules: no sleep decides: each wait is for an answer, with a limit of minutes.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

PIPELINE = """\
version: 1
name: clicks
source: {{kind: file, path: clicks.csv}}
schema:
  time: {{type: time}}
  page: {{type: category, domain: [home, help]}}
privacy: {{unit: event, neighbors: add_remove, epsilon: 1}}
clock: {{kind: replay, field: time, start: 2024-05-01T00:00:00Z, step: 1h, horizon: 6}}
series:
  - {{name: clicks, statistic: count, epsilon: 0.5}}
journal: {{kind: sqlite, path: {state}/clicks.journal}}
releases: {{path: {state}/clicks.releases.jsonl}}
"""
LIMIT_S = 280.0
Begin = Callable[[Sequence[str]], "subprocess.Popen[str]"]


def furnish(configuration: Path, state: Path, key: Path) -> None:
    for folder in (configuration, state, key.parent):
        folder.mkdir(parents=True, exist_ok=True)
    (configuration / "pipeline.yaml").write_text(PIPELINE.format(state=state))
    (configuration / "clicks.csv").write_text("time,page\n2024-05-01T00:01:00Z,home\n")
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)


def lives(command: Sequence[str], healthcheck: Sequence[str], begin: Begin) -> str:
    """What is wrong with a container that is started by this command; its health check is asked until it is well."""
    engine = begin(command)
    try:
        until = time.monotonic() + LIMIT_S
        while code_of(begin([*healthcheck, "--ready"])) != 0:
            if engine.poll() is not None or time.monotonic() > until:
                return f"it never answered: {ended(engine)}"
        if code_of(begin(healthcheck)) != 0:
            return "it is told to be ill"
        engine.send_signal(signal.SIGTERM)
        said = engine.communicate(timeout=LIMIT_S)[0]
        return "" if engine.returncode == 0 else f"exit code {engine.returncode}: {said}"
    finally:
        ended(engine)


def code_of(process: "subprocess.Popen[str]") -> int:
    process.communicate(timeout=LIMIT_S)
    return process.returncode


def ended(process: "subprocess.Popen[str]") -> str:
    if process.poll() is None:
        process.kill()
    if process.stdout is not None and not process.stdout.closed:
        return process.communicate(timeout=LIMIT_S)[0]
    return ""
