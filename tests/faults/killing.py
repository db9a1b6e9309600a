"""Killing runs: at random moments that are counted in what the run has reached, and at fixed points."""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from faults.cases import Case, seen

POINTS = (
    "before-commit:1", "mid-commit:1", "after-commit:1", "before-publish:1", "mid-publish:1",
    "after-publish:1", "mid-publish:3", "after-commit:5", "mid-commit:4", "before-commit:3",
    "before-publish:2", "mid-publish:2",
)  # fmt: skip
Look = Callable[[], Awaitable[list[str]]]
DERIVED_HERE = """
from stream_dp.operate.run import deriving
def none():
    raise OSError
deriving._started = none
"""
"""Lets an engine derive definitions in its own process: another one is 1.2 s of imports for each run that is killed."""


def checkpoints_every(ticks: int) -> str:
    """Let an engine take a snapshot every so many ticks, and write its checkpoints in many small pieces."""
    return (
        f"from stream_dp.engine import engine\nengine.SNAPSHOT_TICKS = {ticks}\n"
        "from stream_dp.journal import checkpoint\ncheckpoint.PIECE_BYTES = 200\n"
    )


def pruning() -> str:
    """Let an engine look often for what `journal: keep` lets it delete, and put aside what it deletes."""
    return (
        "from pathlib import Path\nfrom stream_dp.engine import engine\nengine.LOOK_S = .01\n"
        "from stream_dp.files.highwater import HighWater\nprune = HighWater.prune\n"
        "async def archiving(self, before):\n"
        "    folder, number = self._path.parents[3] / 'archived', self.begin\n"
        "    folder.mkdir(exist_ok=True)\n"
        "    async for sealed in self.marked.read():\n"
        "        if number < before:\n"
        "            (folder / str(number)).write_bytes(sealed)\n"
        "        number += 1\n"
        "    await prune(self, before)\n"
        "HighWater.prune = archiving\n"
    )


def lanes_of(engine: int) -> list[int]:
    """The processes that read lanes for this one."""
    found = []
    for each in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid, parent = int(each.name), (each / "stat").read_text().rsplit(")", 1)[1].split()[1]
            if int(parent) == engine and b"lane_processes" in (each / "cmdline").read_bytes():
                found.append(pid)
    return sorted(found)


async def killed_at_random(
    case: Case, chance: random.Random, kills: int, look: Look, *options: str, every: int = 1
) -> int:
    """Kill `kills` runs of the pipeline at random moments; how many of them had begun to work.

    `look` says after each `every`-th kill what is wrong. A fifth of the kills hit the start or the recovery. The first
    kill of either sort is of a new interpreter, the others are of forked processes. Every run waits for its reader,
    who may not read: else it could be over before a slow machine kills it.
    """
    working = 0
    for kill in range(kills):
        anew, early = kill in (0, 4), kill % 5 == 4
        run = case.start("--until-end", "--trace", *options, anew=anew, paced=True)
        if early:
            await asyncio.sleep(chance.uniform(0.05, 0.6) if anew else chance.uniform(0, 0.1))
        else:
            working += await asyncio.to_thread(seen, run, chance.randint(1, 60)) > 0
            await asyncio.sleep(chance.uniform(0, 0.01))
        assert run.poll() is None, "the run was over before it could be killed"
        run.kill()
        _, errors = await asyncio.to_thread(run.communicate)
        assert run.returncode == -signal.SIGKILL
        assert "stream-dp:" not in errors, errors
        assert "Traceback" not in errors, errors
        if kill % every == 0:
            assert await look() == [], f"after kill {kill}"
    return working


async def killed_at(case: Case, look: Look, point: str, *options: str, anew: bool = False) -> None:
    """Let a run kill itself at `point`; `anew`: a new interpreter, not a forked process."""
    done = await asyncio.to_thread(case.run, "--until-end", "--crash", point, *options, anew=anew)
    assert done.returncode == -signal.SIGKILL, (point, done.stderr)
    assert await look() == [], f"after {point}"


def moved(source: Path, target: Path) -> None:
    """Copy a database with what has not been written back yet."""
    for suffix in ("", "-wal"):
        part = source.with_name(source.name + suffix)
        copy = target.with_name(target.name + suffix)
        copy.unlink(missing_ok=True)
        if part.exists():
            copy.write_bytes(part.read_bytes())
