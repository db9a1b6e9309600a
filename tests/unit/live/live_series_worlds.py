"""A pipeline in memory whose source stops where it is told, so that series can be created between two ticks."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from msgspec.structs import replace as changed

from stream_dp.engine.engine import Engine
from stream_dp.engine.messages.answering import Requests, Understanding
from stream_dp.engine.ports import Audience, Batch, Journal, Ports
from stream_dp.engine.recovery import NoiseMaker
from stream_dp.files.memory import MemoryJournal, MemorySink, MemorySource, MemoryStore
from stream_dp.journal.commit import Commit, Release, decode, digest, encode
from stream_dp.journal.keys import Sealer
from stream_dp.live.analyst_messages import SignedMessages
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.noise import NoiseStream, fresh_seed
from stream_dp.operate.query.series_words import FiredWatches, SeriesWords
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.testing.manual_clock import ManualClock

HORIZON = 12
PIPELINE: dict[str, Any] = {
    "version": "1",
    "name": "shop",
    "source": {"kind": "file", "path": "unused.jsonl"},
    "schema": {
        "time": {"type": "time"},
        "country": {"type": "category", "domain": ["DE", "FR"]},
        "amount": {"type": "integer", "nullable": "true"},
    },
    "privacy": {"epsilon": "2"},
    "clock": {
        "kind": "replay", "field": "time", "start": "2026-01-01T00:00:00Z", "step": "1h", "horizon": str(HORIZON),
    },
    "series": [{"name": "orders", "statistic": "count", "epsilon": "1"}],
}  # fmt: skip
SEALER = Sealer(bytes(range(32)), "shop")


def record(tick: int, country: str, amount: int | str | None) -> bytes:
    time = f"2026-01-01T{tick:02}:30:00Z"
    return json.dumps({"time": time, "country": country, "amount": amount}).encode()


def batches() -> list[Batch]:
    """Two partitions, one tick a batch: tick + 1 orders from DE, one from FR; an early record, and unreadable ones."""
    found, position = list[Batch](), [0, 0]
    for tick in range(HORIZON):
        for partition in (0, 1):
            events = [record(tick, "DE", tick)] * (tick + 1)
            events += [record(tick, "FR", 10 * partition)]
            if (tick, partition) == (3, 0):
                events.append(record(7, "FR", 10))
            if tick == 5:
                events.append(record(tick, "DE", "many"))
            labels = range(position[partition], position[partition] + len(events))
            position[partition] += len(events) + 1
            found.append(Batch(partition, events, labels, position[partition], mark=tick))
    return found


def seen_from(start: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records that a series counts which begins before tick `start`, each with its own tick."""
    for batch in batches():
        for event in map(json.loads, batch.payloads):
            tick = int(event["time"][11:13])
            if tick >= start and (batch.mark or 0) >= start:
                yield tick, event


class Stopping(MemorySource):
    """Gives batches up to `limit`'s mark, and no more until `go` is set anew; those of `batches` unless others."""

    def __init__(self, limit: int = HORIZON, given: Sequence[Batch] | None = None) -> None:
        super().__init__(batches() if given is None else given, partitions=(0, 1))
        self.limit = limit
        self.moved = asyncio.Event()

    def go(self, limit: int) -> None:
        self.limit = limit
        self.moved.set()

    async def read(self) -> Sequence[Batch]:
        while self._left and (self._left[0].mark or 0) > self.limit:
            self.moved.clear()
            await self.moved.wait()
        return await super().read()


@dataclass
class World:
    """What outlives an engine; what is read again for a change is a tick of an hour at most, unless it says less."""

    pipeline: dict[str, Any] = field(default_factory=lambda: PIPELINE)
    store: MemoryStore = field(default_factory=MemoryStore)
    bodies: list[bytes] = field(default_factory=list)
    seeds: Callable[[], bytes] = fresh_seed
    noise: NoiseMaker = NoiseStream
    drawn: list[bytes] = field(default_factory=list)
    begins: Callable[[int], str | None] = lambda tick: None
    read_again: int = 3_600_000
    shown: int = 0
    planner: LiveSeriesPlanner = field(init=False)
    words: SeriesWords = field(init=False)

    @cached_property
    def built(self) -> Built:
        return build(PipelineSpec.model_validate(self.pipeline))

    def seed(self) -> bytes:
        self.drawn.append(self.seeds())
        return self.drawn[-1]

    def engine(self, source: MemorySource, journal: Journal | None = None) -> Engine:
        ports = Ports(
            source, journal or MemoryJournal(self.store), MemorySink(self.bodies), ManualClock(0), SEALER, self.seed,
        )  # fmt: skip
        return self.started(ports)

    def started(self, ports: Ports, kind: type[Engine] | None = None, **more: Any) -> Engine:
        """A new engine over these ports; `more` are fields of its plan, and `per_tick`."""
        built, per_tick = self.built, more.pop("per_tick", 100)
        plan = built.run_config(0, private=self.noise is NoiseStream)
        plan = replace(plan, read_again=self.read_again, **more)
        router = OpenRouter(built.spec, plan.origin)
        self.planner, seen = LiveSeriesPlanner(built.spec, router), FiredWatches()
        self.words = SeriesWords(built, self.planner, self.begins, seen)

        def published(release: Release) -> None:
            self.shown += 1
            seen.take(release, engine.admission.registry)

        reader = Understanding(SignedMessages("shop", SEALER.query_token), self.words)
        engine: Engine = (kind or Engine)(
            plan, router, ports, self.noise,
            Audience(
                published, wanted=lambda shown: min(shown, seen.since(engine.admission.registry) or 0)
            ),
            requests=Requests(self.planner, built.subledgers(), reader, per_tick), memories=(seen,),
        )  # fmt: skip
        return engine

    def releases(self, series: str) -> dict[int, Any]:
        """Tick -> value, values or the keys that fired of a series, of what is public."""
        every = [json.loads(body) for body in self.bodies]
        shown = ("value", "values", "fired")
        return {
            b["tick"]: next(b[name] for name in shown if name in b)
            for b in every
            if b["series"] == series
        }

    def commits(self) -> list[Commit]:
        return [decode(SEALER.open(n, each)) for n, each in enumerate(self.store.commits)]

    def rewrite(self, change: Callable[[Commit], Mapping[str, Any]]) -> None:
        """Have the commits say something else, in an unbroken chain."""
        commits, previous = self.commits(), b""
        self.store.commits.clear()
        for commit in commits:
            new = changed(commit, previous=previous, **change(commit))
            self.store.commits.append(SEALER.seal(new.sequence, encode(new)))
            previous = digest(self.store.commits[-1])

    async def until(self, tick: int, run: "asyncio.Task[None] | None" = None) -> None:
        for _ in range(10_000):
            public = self.bodies and json.loads(self.bodies[-1])["tick"] >= tick
            if public or (run is not None and run.done()):
                return
            await asyncio.sleep(0)
        raise AssertionError(f"tick {tick} does not come")
