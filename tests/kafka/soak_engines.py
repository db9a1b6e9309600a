"""The engine of a soak and its standby, as a supervisor keeps them: one is there again whenever one has ended.

Rules: the product's command, with its page and with noise. An end that was asked for is planned; any other is not, and
is kept with what the engine said. One that finds that another took over stands by again, and does not end.
"""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from free_ports import free_port
from kafka.log_worlds import LivePipeline

_COMMAND = "from stream_dp.cli.start import start; start()"
_ENDING_S = 60.0
_WAITS, _RUNS = "Standing by", "The page is at"


@dataclass(slots=True)
class Engine:
    """A process and what it says on stderr."""

    process: "subprocess.Popen[bytes]"
    errors: Path

    def said(self) -> str:
        return self.errors.read_text(errors="replace")

    @property
    def waits(self) -> bool:
        said = self.said()
        return said.rfind(_WAITS) > said.rfind(_RUNS)


class Engines:
    """As many as `number` of one pipeline; those beyond the first stand by."""

    def __init__(self, pipeline: LivePipeline, number: int = 2) -> None:
        self._pipeline = pipeline
        self._number = number
        self._running: list[Engine] = []
        self._errors: list[Path] = []
        self.kills = 0
        self.unplanned: list[str] = []

    @property
    def shut_out(self) -> int:
        """How often one found that another had taken over, and stood by again."""
        return sum(
            max(0, file.read_text(errors="replace").count(_WAITS) - 1) for file in self._errors
        )

    def keep(self) -> None:
        for engine in list(self._running):
            if engine.process.poll() is not None:
                self._running.remove(engine)
                self.unplanned.append(f"exit {engine.process.returncode}: {engine.said()[-2000:]}")
        while len(self._running) < self._number:
            self._running.append(self._started())

    def sleep(self, seconds: float) -> None:
        """Stop the one at work for so long, so that its place may be taken; then let it go on."""
        self.keep()
        engine = self._one(active=True)
        engine.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        engine.process.send_signal(signal.SIGCONT)

    def _one(self, *, active: bool) -> Engine:
        return next((one for one in self._running if one.waits != active), self._running[0])

    def kill(self, *, active: bool) -> None:
        """Kill -9 the one at work, or the one that stands by."""
        self.keep()
        engine = self._one(active=active)
        engine.process.kill()
        engine.process.wait()
        self._running.remove(engine)
        self.kills += 1

    def ports(self) -> list[int]:
        """Where the pages are, of those that have one."""
        said = [
            re.search(r"The page is at http://[^:]+:(\d+)", one.said()) for one in self._running
        ]
        return [int(found[1]) for found in said if found]

    def end(self) -> None:
        """Tell all to end; an end that is no good one is unplanned too."""
        for engine in reversed(self._running):
            engine.process.send_signal(signal.SIGTERM)
        for engine in self._running:
            try:
                code: int | None = engine.process.wait(_ENDING_S)
            except subprocess.TimeoutExpired:
                code = None
            if code != 0:
                self.unplanned.append(f"at the end, exit {code}: {engine.said()[-2000:]}")
        self.close()

    def close(self) -> None:
        for engine in self._running:
            engine.process.kill()
            engine.process.wait()
            self._running.clear()

    def _started(self) -> Engine:
        folder = self._pipeline.folder
        key, port = str(folder / "operator.key"), free_port()
        own = {"STREAM_DP_HOME": str(folder / "state"), "STREAM_DP_KEY_FILE": key}
        options = [
            "run",
            str(folder / "pipeline.yaml"),
            "--serve",
            "--port",
            str(port),
            "--standby",
        ]
        errors = folder / f"engine-{len(self._errors)}.stderr"
        self._errors.append(errors)
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-c", _COMMAND, *options],
                env={**os.environ, **own},
                stdout=subprocess.DEVNULL,
                stderr=file,
            )
        return Engine(process, errors)
