"""A pipeline in memory with a monitor that is asked, and whose watches come and go by message."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from unit.journal.runtime_worlds import CrashingJournal, CrashingSink, Fuse
from unit.live.live_series_worlds import HORIZON, PIPELINE, SEALER, Stopping, batches
from unit.live.message_worlds import (
    CrashingAnswers,
    MessageWorld,
    ScriptedQuestions,
    sealed,
    text,
)

from stream_dp.engine.engine import Engine
from stream_dp.engine.messages.answering import Requests, Understanding
from stream_dp.engine.ports import Audience, Ports
from stream_dp.live.analyst_messages import SignedMessages
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.operate.query.series_words import FiredWatches, SeriesWords
from stream_dp.pipeline.router import OpenRouter
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
    """None."""
    return ZeroNoise()


@dataclass
class MonitorWorld(MessageWorld):
    """What outlives an engine with a monitor."""

    pipeline: dict[str, Any] = field(default_factory=lambda: PIPELINE_M)

    def messaging(self, source: Stopping, fuse: Fuse | None = None) -> Engine:
        """A new engine over what is kept."""
        fuse, built = fuse or Fuse(), self.built
        ports = Ports(
            source, CrashingJournal(self.store, fuse), CrashingSink(self.bodies, fuse), self.clock, SEALER, self.seed,
            ScriptedQuestions(self.script, self.public_tick), CrashingAnswers(self.answers, fuse),
        )  # fmt: skip
        plan = replace(
            built.run_config(0, private=self.noise is not no_noise),
            group=1,
            read_again=self.read_again,
        )
        router = OpenRouter(built.spec, plan.origin)
        self.planner = LiveSeriesPlanner(built.spec, router)
        seen = FiredWatches()
        self.words = words = SeriesWords(built, self.planner, lambda tick: None, seen)
        engine: Engine = self.kind(
            plan, router, ports, self.noise,
            Audience(lambda release: seen.take(release, engine.admission.registry)),
            requests=Requests(
                self.planner, built.subledgers(),
                Understanding(SignedMessages("shop", SEALER.query_token), words), self.per_tick,
            ),
        )  # fmt: skip
        return engine

    def public_tick(self) -> int:
        """The last tick of which everything is public; -1 before the first."""
        ticks = [json.loads(body)["tick"] for body in self.bodies]
        return max((tick for tick in ticks if ticks.count(tick) >= 2), default=-1)

    def replies(self) -> dict[str, dict[str, Any]]:
        """The answers by id."""
        return {each["id"]: each for each in self.said() if each["id"] is not None}


def message(tick: int, name: str, do: str, analyst: str = "", **more: Any) -> tuple[int, bytes]:
    """A message that comes after a tick, signed by whom it names."""
    return tick, sealed(text(name, do, analyst, **more), analyst)


def expected(start: int, end: int, where: Mapping[str, Any], above: int) -> list[int]:
    """When a watch of one country fires without noise, that begins before tick `start`: by the records themselves."""
    per_tick = [0] * HORIZON
    for batch in batches():
        for payload in batch.payloads:
            record = json.loads(payload)
            tick, behind = int(record["time"][11:13]), (batch.mark or 0) >= start
            if behind and tick >= start and record["country"] == where["equals"]:
                per_tick[tick] += isinstance(record["amount"], int)
    fired, count = [], 0
    for tick in range(start, end):
        count += per_tick[tick]
        if count >= above:
            fired.append(tick)
            count = 0
    return fired


async def wait(world: MonitorWorld, tick: int) -> None:
    """Until this tick is public."""
    while world.public_tick() < tick:  # noqa: ASYNC110 - steps of the loop, no time
        await asyncio.sleep(0)
