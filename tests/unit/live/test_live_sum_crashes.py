"""Sums over windows that are created while the engine runs, across crashes: every release comes once, byte for byte."""

import asyncio
import json
from itertools import count
from typing import Any

from live_acts import create_series
from unit.live.live_series_worlds import HORIZON, Stopping, World

from stream_dp.errors import UsageError, WorldError
from stream_dp.files.memory import MemoryJournal
from stream_dp.journal.commit import Commit

SUM: dict[str, Any] = {
    "name": "wide", "statistic": "sum", "of": "amount", "clamp": ["-4", "3"], "step": "0.5",
    "windows": ["3h", "ever"], "by": "country", "epsilon": "1/3",
}  # fmt: skip
START = 4


class Crash(Exception):
    """The end of a process."""


def numbered() -> Any:
    """Seeds that tell which they are, so that two worlds have the same noise."""
    numbers = count()
    return lambda: next(numbers).to_bytes(32, "big")


async def lived(world: World, fuse: list[int]) -> None:
    """Run to the end, the sum created at its tick; crash before or after a commit when the fuse has burned down."""

    class Journal(MemoryJournal):
        async def append(self, commit: Commit, sealed: bytes) -> None:
            burn(fuse)
            await super().append(commit, sealed)
            burn(fuse)

    source = Stopping(-1)
    engine = world.engine(source, Journal(world.store))
    run = asyncio.create_task(engine.run())
    try:
        for tick in range(HORIZON):
            source.go(tick)
            await world.until(tick, run)
            if run.done():
                break
            if tick >= START - 1 and engine.ready.is_set() and "wide" not in engine.admission.names:
                await create_series(engine, json.dumps(SUM).encode())
    except (UsageError, WorldError, Crash):
        pass
    await run


def burn(fuse: list[int]) -> None:
    fuse[0] -= 1
    if fuse[0] == 0:
        raise Crash


async def test_a_crash_anywhere_changes_no_byte_that_was_recorded() -> None:
    """What the journal holds is what is public, once each; a mechanism restored goes on from where it was."""
    crashes = 0
    for place in range(1, 40):
        world, fuse, before = World(seeds=numbered()), [place], list[bytes]()
        for _ in range(3):
            try:
                await lived(world, fuse)
                break
            except Crash:
                crashes += 1
                before = list(world.bodies)
        assert world.bodies[: len(before)] == before
        assert [r.body for c in world.commits() for r in c.releases] == world.bodies
        wide = [json.loads(body) for body in world.bodies if json.loads(body)["series"] == "wide"]
        ticks = [each["tick"] for each in wide]
        assert ticks == list(range(ticks[0], HORIZON))
        assert ticks[0] >= START
        for early, each in enumerate(wide):
            assert list(each["windows"]) == ["tick", "3h", "ever"]
            same = each["windows"]["ever"] == each["windows"]["3h"]
            assert same == (early < 3)  # while the window covers all ticks of the series
    assert crashes >= 20
