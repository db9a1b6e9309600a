"""The source's clients over a log on paper and a clock set by hand: the whole engine, and no broker.

Rules: `KafkaSource` is the product's; what it asks of a cluster (fetches, offsets, the look at the topic) is answered
from the paper. A batch is there from its arrival on. Clocks of brokers and engine may be off. How much a fetch
brings, of which partitions, and a few milliseconds of delay are by chance, so that what depends on the reading shows.
Time is events only: when nobody can go on, the clock is put to the next moment that somebody waits for.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest.mock import patch

from aiokafka import TopicPartition
from faults.evidence import opened
from kafka.log_worlds import Journalled, LivePipeline
from kafka.paper_log import PaperLog, next_stamp
from oracles.kafka_log import Grid

from stream_dp.engine.engine import Engine
from stream_dp.engine.ports import Clock, Ports, Source
from stream_dp.errors import FailClosed
from stream_dp.files.memory import MemoryJournal, MemorySink, MemoryStore
from stream_dp.files.system_clock import SystemClock
from stream_dp.journal.commit import Release
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.topics import TopicLook
from stream_dp.kafka.log.append_clock import Stamp
from stream_dp.kafka.source import source as kafka_source
from stream_dp.kafka.source import source as kafka_topic_watch
from stream_dp.kafka.source.record_batches import Cell, RecordBatch, record_batches
from stream_dp.kafka.source.source import KafkaSource, StampTicks, TopicWatch
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.testing.manual_clock import ManualClock
from stream_dp.testing.noise import ZeroNoise

TOPIC, NAME, KEY = "paper", "paper", bytes(32)
BEFORE_MS = 60


def _right(_: int) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Clocks:
    """How far each clock is off at a true moment, in milliseconds; the answer to an append takes `answer_ms`."""

    engine: Callable[[int], int] = _right
    brokers: tuple[Callable[[int], int], ...] = (_right,)
    answer_ms: int = 0

    def least(self, moment: int) -> int:
        """The earliest of the brokers' clocks at a true moment."""
        return min(moment + off(moment) for off in self.brokers)


@dataclass(slots=True)
class World:
    """A log, the true time, the chance of how it is read, and clocks that are off."""

    log: PaperLog
    clock: ManualClock
    chance: random.Random
    clocks: Clocks = field(default_factory=Clocks)
    engine_clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.engine_clock = self.clock if self.clocks.engine is _right else _Off(self)


class _Off:
    """The product's clock where the machine's time is off; who sleeps looks again now and then."""

    def __init__(self, world: World) -> None:
        self._true = world.clock
        self._shown = SystemClock(lambda: self._true.now() + world.clocks.engine(self._true.now()))

    def now(self) -> int:
        return self._shown.now()

    async def sleep_until(self, moment: int) -> None:
        await asyncio.sleep(0)
        while (left := moment - self.now()) > 0:
            await self._true.sleep_until(self._true.now() + min(left, 50))


class PaperReader:
    """What the source uses of a consumer of whole batches."""

    def __init__(self, world: World, *, wait: bool, cell: Cell | None) -> None:
        self._world = world
        self._cell = cell
        self._wait = wait
        self._positions: dict[int, int] = {}
        self._known: dict[int, int] = {}

    async def start(self) -> None: ...
    async def stop(self) -> None: ...

    def assign(self, places: Iterable[Any]) -> None:
        self._positions = {at.partition: 0 for at in places}
        self._known = {}

    def unsubscribe(self) -> None:
        self.assign(())

    def seek(self, at: Any, offset: int) -> None:
        self._positions[at.partition] = offset

    def highwater(self, at: Any) -> int | None:
        return self._known.get(at.partition)

    async def position(self, at: Any) -> int:
        return self._positions[at.partition]

    async def getmany(
        self, *_: Any, timeout_ms: int, max_records: int | None = None
    ) -> dict[Any, Sequence[RecordBatch]]:
        clock, chance = self._world.clock, self._world.chance
        if chance.random() < 0.2:
            await clock.sleep_until(clock.now() + chance.randrange(1, 10))
        if not (found := self._fetched()):
            arrival = next_stamp(self._world.log, clock.now())
            due = clock.now() + timeout_ms
            await clock.sleep_until(due if arrival is None else min(due, arrival))
            found = self._fetched()
        return found

    def _fetched(self) -> dict[Any, Sequence[RecordBatch]]:
        found: dict[Any, Sequence[RecordBatch]] = {}
        for number in self._world.chance.sample(sorted(self._positions), len(self._positions)):
            if found and self._world.chance.random() < 0.3:
                continue
            batches = self._from(number)
            if batches:
                self._positions[number] = batches[-1].next
                found[TopicPartition(TOPIC, number)] = batches
        return found

    def _from(self, number: int) -> list[RecordBatch]:
        """Some batches from the position on, the last one perhaps cut; at least one where there is one."""
        one, now = self._world.log[number], self._world.clock.now()
        end = one.stable(now) if self._wait else one.end(now)
        self._known[number] = end
        kept = [each for each in one.since(self._positions[number], now) if each.base < end]
        taken = self._world.chance.randint(1, 6)
        data = b"".join(each.data for each in kept[:taken])
        data += b"".join(each.data[:-3] for each in kept[taken : taken + 1])
        return list(record_batches(data, self._positions[number], self._cell))


class PaperOffsets:
    """What the source uses of `KafkaOffsets`."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def start(self) -> None: ...
    async def stop(self) -> None: ...

    async def begins(self, partitions: Iterable[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, 0)

    async def ends(self, partitions: Iterable[int]) -> dict[int, int]:
        return {one: self._world.log[one].end(self._world.clock.now()) for one in partitions}

    async def cuts(self, partitions: Iterable[int], moment: int) -> dict[int, int]:
        now = self._world.clock.now()
        return {one: self._world.log[one].at(moment, now) for one in partitions}


class PaperEyes:
    """What the source uses of `TopicEyes`; a partition is there from its birth on."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def start(self) -> None: ...
    async def stop(self) -> None: ...

    async def look(self) -> TopicLook:
        log, now = self._world.log, self._world.clock.now()
        return TopicLook("id", tuple(sorted(one for one in log if log[one].born <= now)))


class PaperClocks:
    """What the source uses of `BrokerClocks`."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def check(self) -> None:
        """The topic is there."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...

    async def ask(self) -> list[Stamp]:
        world, true = self._world, self._world.clock.now()
        sent = world.engine_clock.now()
        stamps = [true + off(true) for off in world.clocks.brokers]
        await world.clock.sleep_until(true + world.clocks.answer_ms)
        told = world.engine_clock.now() + 1
        return [Stamp(f"broker {number}", sent, one, told) for number, one in enumerate(stamps, 1)]


async def _unchecked(_: TopicWatch) -> None:
    """The topic's settings are right."""


@contextmanager
def on_paper(world: World) -> Iterator[None]:
    """Sources that are opened meanwhile read the paper."""
    answers: dict[str, Any] = {
        "consumer": lambda _, *, wait, fetch_wait_ms, cell=None: PaperReader(
            world, wait=wait, cell=cell
        ),
        "KafkaOffsets": lambda *_: PaperOffsets(world),
        "BrokerClocks": lambda *_: PaperClocks(world),
    }
    with (
        patch.multiple(kafka_source, **answers),
        patch.object(kafka_topic_watch, "TopicEyes", lambda *_: PaperEyes(world)),
        patch.object(TopicWatch, "check", _unchecked),
    ):
        yield


class TimedSink(MemorySink):
    """Also says when each tick became visible."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock
        self.moments: list[tuple[int, str, int]] = []

    async def publish(self, releases: Sequence[Release]) -> None:
        """Note the tick, the series and the moment of each release."""
        await super().publish(releases)
        now = self._clock.now()
        self.moments += [(one.tick, one.series, now) for one in releases]


@dataclass(slots=True)
class Outcome:
    """What a run has left: the journal's sums, dead letters by reason, the order and moments of all releases, why it
    stopped before its end.

    A run that has not ended long after its last tick is held up, and left there.
    """

    journal: Journalled
    dead: Counter[tuple[int, str, str | None]] = field(default_factory=Counter)
    moments: list[tuple[int, str, int]] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)


@cache
def _built(grid: Grid) -> Built:
    from pathlib import Path

    shown = LivePipeline(NAME, TOPIC, "127.0.0.1:1", Path(), grid).document()
    return build(PipelineSpec.model_validate(shown))


def live_source(world: World, grid: Grid, *, wait: bool = False) -> Source:
    ticks = StampTicks(grid.step, grid.delay // 2, "clock")
    return KafkaSource(KafkaSettings("127.0.0.1:1"), TOPIC, world.engine_clock, ticks, wait=wait)


def run(
    log: PaperLog,
    grid: Grid,
    seed: int,
    kills: Sequence[int] = (),
    source: Callable[..., Source] = live_source,
    clocks: Clocks | None = None,
) -> Outcome:
    """Run an engine over the log, read as `seed` will have it, killed when these ticks have become visible.

    Where it stops, the clocks are mended and it runs again.
    """
    return asyncio.run(_run(log, grid, seed, kills, source, clocks or Clocks()))


async def _run(
    log: PaperLog,
    grid: Grid,
    seed: int,
    kills: Sequence[int],
    source: Callable[..., Source],
    clocks: Clocks,
) -> Outcome:
    world = World(log, ManualClock(grid.origin - BEFORE_MS), random.Random(seed), clocks)
    store, sink = MemoryStore(), TimedSink(world.clock)
    much_later = grid.origin + 2 * grid.horizon * grid.step + grid.delay
    stops: list[str] = []
    worlds, lives = [world], [grid.horizon, *reversed(kills)]

    def enough() -> bool:
        return _visible(sink, lives[-1]) or world.clock.now() > much_later

    while lives:
        try:
            with on_paper(worlds[-1]):
                await _driven(world.clock, _engine(worlds[-1], grid, store, sink, source), enough)
            lives.pop()
        except FailClosed as error:
            if stops:
                raise
            stops.append(str(error))
            worlds.append(World(log, world.clock, world.chance))
    commits = opened(store.commits, KEY, NAME)
    dead: Counter[tuple[int, str, str | None]] = Counter()
    for _, partition, reason, name, records, _ in (
        letter for commit in commits for letter in commit["dead_letters"]
    ):
        dead[partition, reason, name] += records
    return Outcome(Journalled.of(commits), dead, sink.moments, stops)


def _visible(sink: TimedSink, tick: int) -> bool:
    return bool(sink.moments) and sink.moments[-1][0] >= tick


def _engine(
    world: World, grid: Grid, store: MemoryStore, sink: TimedSink, source: Callable[..., Source]
) -> Engine:
    built = _built(grid)
    clock = world.engine_clock
    config = built.run_config(clock.now())
    ports = Ports(source(world, grid), MemoryJournal(store), sink, clock, Sealer(KEY, NAME))
    return Engine(config, Router(built.spec, config.origin), ports, lambda *_: ZeroNoise())


async def _driven(clock: ManualClock, engine: Engine, enough: Callable[[], bool]) -> None:
    """Run an engine to its end, or until there is enough and it is killed."""
    running, killed = asyncio.create_task(engine.run()), False
    while True:
        await _nobody_can_go_on()
        if running.done():
            break
        if not killed and enough():
            killed = running.cancel()  # a commit in flight is finished
        elif clock.sleepers:
            clock.advance(clock.sleepers[0] - clock.now())
        else:
            await asyncio.sleep(0.001)  # a real timer: a client is being closed
    if not running.cancelled():
        await running


async def _nobody_can_go_on() -> None:
    loop: Any = asyncio.get_running_loop()
    while loop._ready:  # noqa: ASYNC110 - no event tells of it
        await asyncio.sleep(0)
