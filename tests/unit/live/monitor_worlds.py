"""A pipeline in memory with a monitor that is asked, and whose watches come and go by message."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unit.live.live_series_worlds import HORIZON, PIPELINE, seen_from
from unit.live.message_worlds import MessageWorld, sealed, text

from stream_dp.testing.noise import ZeroNoise

WATCHES: list[dict[str, Any]] = [
    {"name": "large", "where": [{"field": "amount", "at_least": "5"}], "above": "30"},
    {"name": "by", "by": "country", "above": "60", "rearm": "false"},
    {"name": "quiet", "where": [{"field": "country", "equals": "DE"}], "below": "6"},
]
MONITOR: dict[str, Any] = {
    "name": "m", "statistic": "monitor", "epsilon": "1", "touch": "4", "most": "9", "watch": WATCHES,
    "ask": ["bob"],
}  # fmt: skip
PIPELINE_M = PIPELINE | {
    "privacy": {
        "epsilon": "6",
        "analysts": [{"name": "ann", "epsilon": "2"}, {"name": "bob", "epsilon": "1"}],
    },
    "series": [{"name": "orders", "statistic": "count", "epsilon": "1"}, MONITOR],
}
FR = {"name": "fr", "where": [{"field": "country", "equals": "FR"}], "above": 4}


def no_noise(seed: bytes, stream: int) -> ZeroNoise:
    return ZeroNoise()


@dataclass
class MonitorWorld(MessageWorld):
    pipeline: dict[str, Any] = field(default_factory=lambda: PIPELINE_M)

    watched: bool = False

    def public_tick(self) -> int:
        """The last tick of which everything is public; -1 before the first."""
        ticks = [json.loads(body)["tick"] for body in self.bodies]
        return max((tick for tick in ticks if ticks.count(tick) >= 2), default=-1)

    def replies(self) -> dict[str, dict[str, Any]]:
        return {each["id"]: each for each in self.said() if each["id"] is not None}


def message(tick: int, name: str, do: str, analyst: str = "", **more: Any) -> tuple[int, bytes]:
    return tick, sealed(text(name, do, analyst, **more), analyst)


def expected(start: int, end: int, where: Mapping[str, Any], above: int) -> list[int]:
    """When a watch of one country fires without noise, that begins before tick `start`: by the records themselves."""
    per_tick = [0] * HORIZON
    for tick, record in seen_from(start):
        if record["country"] == where["equals"]:
            per_tick[tick] += isinstance(record["amount"], int)
    fired, count = [], 0
    for tick in range(start, end):
        count += per_tick[tick]
        if count >= above:
            fired.append(tick)
            count = 0
    return fired


async def wait(world: MonitorWorld, tick: int) -> None:
    while world.public_tick() < tick:  # noqa: ASYNC110 - steps of the loop, no time
        await asyncio.sleep(0)
