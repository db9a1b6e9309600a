"""An engine is there before it runs, so that a standby that begins with it waits."""

import asyncio
from typing import Any

import pytest

from stream_dp.errors import TakenOver
from stream_dp.operate.run import run_pipeline
from stream_dp.operate.run.run_pipeline import lived, standing_by


class Slow:
    """A presence that brokers take in when they are told to."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.taken = asyncio.Event()
        self.left = 0

    async def join(self) -> None:
        self.asked.set()
        await self.taken.wait()

    async def leave(self) -> None:
        self.left += 1


async def running(presence: Any, stopped: asyncio.Event, entered: asyncio.Event) -> None:
    """An engine that runs until it is told to stop."""
    async with standing_by(presence, stopped, None) as to_run:
        assert to_run
        entered.set()
        await stopped.wait()


async def test_an_engine_runs_once_it_is_there() -> None:
    presence, stopped, entered = Slow(), asyncio.Event(), asyncio.Event()
    run = asyncio.create_task(running(presence, stopped, entered))
    await presence.asked.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    assert not entered.is_set()
    presence.taken.set()
    await entered.wait()
    stopped.set()
    await run
    assert presence.left == 1


async def test_an_engine_that_nobody_takes_in_runs_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_pipeline, "_JOINING_S", 0.0)
    presence, stopped, entered = Slow(), asyncio.Event(), asyncio.Event()
    run = asyncio.create_task(running(presence, stopped, entered))
    await entered.wait()
    assert not presence.taken.is_set()
    stopped.set()
    await run


async def test_a_stop_does_not_wait_for_the_brokers() -> None:
    presence, stopped, entered = Slow(), asyncio.Event(), asyncio.Event()
    run = asyncio.create_task(running(presence, stopped, entered))
    await presence.asked.wait()
    stopped.set()
    await run
    assert presence.left == 1


async def lives(outcomes: list[str], *, standby: bool) -> int:
    """How many runs were begun until one came to its end; `outcomes` says what becomes of each."""
    every: list[object] = []

    def begun() -> Any:
        every.append(object())
        return every[-1]

    async def live(_: Any) -> None:
        if outcomes[len(every) - 1] == "shut out":
            raise TakenOver("another engine has taken over")

    found: Any = await lived(begun, live, standby=standby)
    assert found is every[-1]
    return len(every)


async def test_a_standby_that_is_shut_out_stands_by_again() -> None:
    assert await lives(["shut out", "shut out", "ends"], standby=True) == 3


async def test_one_that_is_no_standby_ends() -> None:
    with pytest.raises(TakenOver):
        await lives(["shut out", "ends"], standby=False)
