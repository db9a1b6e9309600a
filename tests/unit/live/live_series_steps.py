"""What the tests of live series do to an engine: definitions, runs, and what they count."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from live_acts import create_series, halt_series
from unit.live.live_series_worlds import HORIZON, Stopping, World, seen_from

from stream_dp.engine.engine import Engine
from stream_dp.testing.noise import ZeroNoise


def zero(_seed: bytes, _index: int) -> Any:
    return ZeroNoise()


def question(name: str = "large", epsilon: str = "0.5", **more: Any) -> bytes:
    where = [{"field": "amount", "at_least": 5}]
    return json.dumps(
        {"name": name, "statistic": "count", "where": where, "epsilon": epsilon} | more
    ).encode()


async def running(
    world: World, stop: int, then: Callable[[Engine, Stopping], Awaitable[None]]
) -> None:
    """Run to a tick, do something there, run to the end."""
    source = Stopping(stop)
    engine = world.engine(source)
    run = asyncio.create_task(engine.run())
    await world.until(stop)
    try:
        await then(engine, source)
    finally:
        source.go(HORIZON)
        await run


def large(tick: int, start: int) -> int:
    """How many records with an amount of 5 or more lie in ticks start to tick, the early one at its own tick."""
    amounts = [event["amount"] for at, event in seen_from(start) if at <= tick]
    return sum(isinstance(amount, int) and amount >= 5 for amount in amounts)


async def at(engine: Engine, tick: int) -> None:
    """What is asked after a tick, unless an earlier run did it."""
    names = engine.admission.names
    if tick >= 2 and "a" not in names:
        await create_series(engine, question("a", "0.4"))
    if tick >= 4 and "b" not in names:
        await create_series(
            engine, question("b", "0.3", statistic="histogram", by="country", method="tree")
        )
    if tick >= 6 and "a" in {s.series.name for s in engine.admission.registry.live}:
        await halt_series(engine, "a")
    if tick >= 7 and "c" not in names:
        await create_series(engine, question("c", "0.7"))
