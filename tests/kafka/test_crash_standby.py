"""A standby takes over when the active engine is gone, by kill -9 too, and not before; nothing lost, nothing twice."""

import asyncio
import signal
import time
from pathlib import Path

import pytest
from faults.cases import seen
from faults.forked import Forked, Run
from kafka.test_crash_kafka import fed, judged, look, over

OPTIONS = ("--until-end", "--zero-noise", "--trace")
SLOW = ("--dawdle", "8")


async def taken_over(run: Run, lines: int = 5) -> float:
    """Wait until a run is at work; the seconds until then."""
    began = time.monotonic()
    assert await asyncio.to_thread(seen, run, lines) == lines
    return time.monotonic() - began


async def standing_by(run: Forked, times: int = 1) -> None:
    """Wait until a run has said so often that it stands by."""
    while run.errors.count("Standing by") < times:
        assert run.poll() is None, run.errors
        await asyncio.sleep(0.05)


async def killed_in_turn(kafka: str, folder: Path, ticks: int, kills: int) -> list[float]:
    """Kill the active one again and again while another stands by; the seconds until that one was at work."""
    case = await fed(kafka, over(kafka, folder, ticks))
    active = case.start(*OPTIONS, *SLOW)
    await taken_over(active, 20)
    took = []
    for _ in range(kills):
        standby = case.start(*OPTIONS, *SLOW, "--standby")
        await taken_over(active, 5)
        assert standby.poll() is None
        active.kill()
        await asyncio.to_thread(active.communicate)
        assert active.returncode == -signal.SIGKILL
        took.append(await taken_over(standby))
        assert await look(kafka, case)() == []
        active = standby
    _, errors = await asyncio.to_thread(active.communicate)
    assert active.returncode == 0, errors
    assert await judged(kafka, case) == []
    return took


async def test_a_standby_takes_over_from_one_that_was_killed(kafka: str, tmp_path: Path) -> None:
    await killed_in_turn(kafka, tmp_path, ticks=600, kills=1)


@pytest.mark.slow
async def test_standbys_take_over_from_one_another(kafka: str, tmp_path: Path) -> None:
    took = await killed_in_turn(kafka, tmp_path, ticks=2000, kills=6)
    print("seconds from a kill to the next commits:", " ".join(f"{each:.1f}" for each in took))


async def test_a_standby_leaves_a_living_engine_alone_and_follows_one_that_ends(
    kafka: str, tmp_path: Path
) -> None:
    """The active one is told to stop: it gives its place back at once. Then the standby is, before it may run."""
    case = await fed(kafka, over(kafka, tmp_path, ticks=600))
    active = case.start(*OPTIONS, *SLOW)
    await taken_over(active, 10)
    standby, idle = (
        Forked(
            ("run", str(case.pipeline), *OPTIONS, *SLOW, "--standby"), case.environment(), kit=True
        )
        for _ in range(2)
    )
    await taken_over(active, 60)
    for waiting in (standby, idle):
        await standing_by(waiting)
    await taken_over(active, 60)
    assert (standby.poll(), idle.poll()) == (None, None)
    idle.send_signal(signal.SIGTERM)
    _, errors = await asyncio.to_thread(idle.communicate)
    assert idle.returncode == 0, errors
    active.send_signal(signal.SIGTERM)
    _, errors = await asyncio.to_thread(active.communicate)
    assert active.returncode == 0, errors
    _, errors = await asyncio.to_thread(standby.communicate)
    assert standby.returncode == 0, errors
    assert await judged(kafka, case) == []


async def test_a_standby_that_slept_while_another_took_over_stands_by_again(
    kafka: str, tmp_path: Path
) -> None:
    case = await fed(kafka, over(kafka, tmp_path, ticks=600))
    options = ("run", str(case.pipeline), *OPTIONS, *SLOW, "--standby")
    slept = Forked(options, case.environment(), kit=True)
    await taken_over(slept, 10)
    other = Forked(options, case.environment(), kit=True)
    await standing_by(other)
    slept.send_signal(signal.SIGSTOP)
    await taken_over(other, 10)
    slept.send_signal(signal.SIGCONT)
    await standing_by(slept, 2)
    other.kill()
    for run in (other, slept):
        _, errors = await asyncio.to_thread(run.communicate)
    assert slept.returncode == 0, errors
    assert await judged(kafka, case) == []
