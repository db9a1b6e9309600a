"""A standby takes over when the active engine is gone, and not before; a sleeper that was replaced stands by again."""

import asyncio
import signal
from pathlib import Path

from faults.cases import Case, seen
from faults.forked import Forked, Run
from kafka.flight_topics import fed, judged, look

OPTIONS = ("--until-end", "--zero-noise", "--trace", "--dawdle", "8", "--standby")


def standby(case: Case) -> Forked:
    return Forked(("run", str(case.pipeline), *OPTIONS), case.environment(), kit=True)


async def at_work(run: Run, lines: int = 10) -> None:
    assert await asyncio.to_thread(seen, run, lines) == lines


async def standing_by(run: Forked, times: int = 1) -> None:
    """Wait until a run has said so often that it stands by."""
    while run.errors.count("Standing by") < times:
        assert run.poll() is None, run.errors
        await asyncio.sleep(0.05)


async def ended(run: Run, code: int = 0) -> None:
    _, errors = await asyncio.to_thread(run.communicate)
    assert run.returncode == code, errors


async def test_standbys_take_over_from_engines_that_ended_slept_or_were_killed(
    kafka: str, tmp_path: Path
) -> None:
    case = await fed(kafka, tmp_path, ticks=900)
    first = standby(case)
    await at_work(first)
    second, idle = standby(case), standby(case)
    for waiting in (second, idle):
        await standing_by(waiting)
    await at_work(first, 60)
    assert (second.poll(), idle.poll()) == (None, None)  # a living engine is left alone
    idle.send_signal(signal.SIGTERM)
    await ended(idle)

    first.send_signal(signal.SIGTERM)  # it gives its place back at once
    await ended(first)
    await at_work(second)
    third = standby(case)
    await standing_by(third)
    second.send_signal(signal.SIGSTOP)
    await at_work(third)
    second.send_signal(signal.SIGCONT)
    await standing_by(second, 2)
    third.kill()
    await ended(third, -signal.SIGKILL)
    await at_work(second)
    assert await look(kafka, case)() == []
    await ended(second)
    assert await judged(kafka, case) == []
