"""The gate: durable first, then visible, in blocks that tick numbers cut and load does not."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.journal.runtime_worlds import plan

from stream_dp.core.time import TickGrid
from stream_dp.engine.gate import CommitChain, Gate
from stream_dp.engine.ports import Ports
from stream_dp.engine.run_config import PUBLIC_BYTES, PublicBlocks
from stream_dp.engine.series import MadeSeries
from stream_dp.errors import WorldError
from stream_dp.files.memory import MemoryJournal, MemorySink, MemorySource, MemoryStore
from stream_dp.journal.checkpoint import PRUNED
from stream_dp.journal.commit import Commit, Release, decode, digest, part
from stream_dp.journal.keys import Sealer
from stream_dp.testing.manual_clock import ManualClock
from stream_dp.testing.port_checks import sample_release

STEP = 1000
SEALER = Sealer(bytes(range(32)), "clicks")


class _Held(MemoryJournal):
    """A disk that answers when it is told to, and then well or badly."""

    def __init__(self, store: MemoryStore, answer: asyncio.Future[None]) -> None:
        super().__init__(store)
        self.answer = answer

    async def append(self, commit: Commit, sealed: bytes) -> None:
        await self.answer
        await super().append(commit, sealed)


class _Blocks(MemorySink):
    """Notes which ticks came in one block."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[list[int]] = []
        self.fails = False

    async def publish(self, releases: Sequence[Release]) -> None:
        if self.fails:
            raise WorldError("no broker")
        await super().publish(releases)
        self.blocks.append([release.tick for release in releases])


@dataclass
class _World:
    gate: Gate
    sink: _Blocks
    store: MemoryStore
    clock: ManualClock
    answer: asyncio.Future[None]
    told: list[Release] = field(default_factory=list)


async def world(
    block: int = 1, hold: int | None = None, horizon: int | None = None, *, held: bool = False
) -> _World:
    """A gate over memory; tick k ends at (k + 1) seconds."""
    store, sink, clock, told = MemoryStore(), _Blocks(), ManualClock(), list[Release]()
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if not held:
        answer.set_result(None)
    journal = _Held(store, answer)
    await journal.open()
    grid = TickGrid(0, STEP, horizon)
    ports = Ports(MemorySource((), partitions=()), journal, sink, clock, SEALER)
    gate = Gate(ports, grid, PublicBlocks(block, horizon), hold, told.append)
    return _World(gate, sink, store, clock, answer, told)


def releases(*ticks: int, series: Sequence[str] = ("a", "b")) -> tuple[Release, ...]:
    made = []
    for tick in ticks:
        for i, name in enumerate(series):
            number = tick * len(series) + i + 1
            made.append(sample_release(number, name, tick))
    return tuple(made)


def commit(sequence: int, *ticks: int) -> Commit:
    return Commit(sequence, b"", ticks=ticks, releases=releases(*ticks))


async def committed(gate: Gate, one: Commit) -> None:
    await gate.commit(one, gate.seal(one)[0])


async def settle() -> None:
    """Let every other task run until it waits."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_nothing_is_visible_before_it_is_durable() -> None:
    made = await world(held=True)
    task = asyncio.create_task(committed(made.gate, commit(0, 0)))
    await settle()
    assert (made.sink.bodies, made.told, made.store.commits) == ([], [], [])
    made.answer.set_result(None)
    await task
    assert made.sink.bodies == [r.body for r in releases(0)]
    assert made.told == list(releases(0))
    assert len(made.store.commits) == 1


async def test_nothing_is_visible_when_the_journal_fails() -> None:
    made = await world(held=True)
    made.answer.set_exception(WorldError("disk full"))
    with pytest.raises(WorldError, match="disk full"):
        await committed(made.gate, commit(0, 0))
    await made.gate.publish(())
    assert (made.sink.bodies, made.told, made.store.commits) == ([], [], [])


async def test_what_is_sealed_is_the_commit_and_its_digest_links_the_next() -> None:
    made = await world()
    sealed, link = made.gate.seal(commit(0, 0))
    assert decode(SEALER.open(0, sealed)) == commit(0, 0)
    assert link == digest(sealed)


@settings(max_examples=60, deadline=None)
@given(
    block=st.integers(1, 7),
    groups=st.lists(st.integers(1, 6), max_size=10),
    horizon=st.none() | st.integers(1, 40),
)
async def test_blocks_are_cut_by_tick_numbers_alone(
    block: int, groups: list[int], horizon: int | None
) -> None:
    made = await world(block, horizon=horizon)
    tick = 0
    for number, size in enumerate(groups):
        ticks = [t for t in range(tick, tick + size) if horizon is None or t < horizon]
        await committed(made.gate, commit(number, *ticks))
        tick += len(ticks)
    wanted = [list(range(b, b + block)) for b in range(0, tick - block + 1, block)]
    if tick == horizon and tick % block:
        wanted.append(list(range(tick - tick % block, tick)))
    assert made.sink.blocks == [sorted(2 * each) for each in wanted]
    assert [release.body for release in made.told] == made.sink.bodies


@dataclass(frozen=True)
class _Late:
    """An engine that starts at `now`, behind: from tick `first` on, `ticks` ticks become durable. A series is created
    before tick `wide`, and from it on releases take `bytes[1]` a tick, not `bytes[0]`.
    """

    block: int
    hold: int
    horizon: int | None
    now: int
    first: int
    ticks: int
    wide: int
    bytes: tuple[int, int]

    def expected(self) -> list[list[int]]:
        """The oracle: the ticks of each public block, from what is public alone."""

        def declared(tick: int) -> list[int]:
            begin = tick - tick % self.block
            rest = range(begin, begin + self.block)
            return [t for t in rest if self.horizon is None or t < self.horizon]

        def overdue(tick: int) -> bool:
            return (declared(tick)[-1] + 1) * STEP + self.hold <= self.now

        def is_last(tick: int) -> bool:
            if declared(tick)[-1] != tick:
                return False
            if not overdue(tick) or tick + 1 == self.horizon or not overdue(tick + 1):
                return True
            size = self.bytes[tick >= self.wide]
            counts = [n for n in range(1, 101) if 100 // self.block % n == 0]
            fits = [n for n in counts if n * self.block * size <= PUBLIC_BYTES] or [1]
            return (tick + 1) % (max(fits) * self.block) == 0

        blocks, waiting = list[list[int]](), list[int]()
        for tick in range(self.first, self.first + self.ticks):
            waiting.append(tick)
            if is_last(tick):
                blocks.append(waiting)
                waiting = []
        return blocks

    async def published(self, random: Random, kind: type[Gate] = Gate) -> list[list[int]]:
        """The ticks of each block that a gate publishes, where commits are as large, and time passes, as chance has
        it.
        """
        made = await world()
        grid = TickGrid(0, STEP, self.horizon)
        config = replace(plan(self.horizon or 0, self.block), hold=self.hold, horizon=self.horizon)
        blocks = config.blocks(grid, self.now)
        size = self.bytes[0]
        gate = kind(made.gate.ports, grid, blocks, self.hold, releasing=lambda: [_sized(size)])
        made.clock.advance(self.now)
        tick, end, number = self.first, self.first + self.ticks, 0
        while tick < end:
            size = self.bytes[tick >= self.wide]
            stop = min(end, tick + random.randint(1, 40))
            stop = min(stop, self.wide) if tick < self.wide else stop
            due = (stop + random.choice([0, 0, 50])) * STEP + self.hold
            made.clock.advance(max(0, due - made.clock.now()))
            await committed(gate, commit(number, *range(tick, stop)))
            tick, number = stop, number + 1
        return [list(dict.fromkeys(block)) for block in made.sink.blocks]


def _sized(size: int) -> MadeSeries:
    """A series whose releases have at most about so many bytes."""
    empty = MadeSeries("made", (), (), (), (), 0.95)
    sized = replace(empty, keys=("k" * max(1, size - replace(empty, keys=("",)).most_bytes),))
    assert abs(sized.most_bytes - size) <= max(0, empty.most_bytes - size) + 2, sized.most_bytes
    return sized


_LATE = st.builds(
    _Late,
    block=st.sampled_from([1, 1, 2, 7, 60]),
    hold=st.integers(1, 3 * STEP),
    horizon=st.none() | st.integers(150, 260),
    now=st.integers(0, 300 * STEP),
    first=st.integers(0, 120),
    ticks=st.just(0),
    wide=st.integers(0, 260),
    bytes=st.tuples(st.sampled_from([1000, 9_000, 80_000]), st.sampled_from([1000, 200_000])),
).map(lambda late: replace(late, ticks=(late.horizon or 250) - late.first))
_SEEDS = st.integers(0, 2**32)


@settings(max_examples=80, deadline=None)
@given(late=_LATE, seed=_SEEDS)
async def test_overdue_ticks_come_in_blocks_that_public_facts_cut(late: _Late, seed: int) -> None:
    assert await late.published(Random(seed)) == late.expected()


class _AllThatWaits(Gate):
    """The twin: publishes at once what is durable, as a gate does that wants to be fast."""

    async def publish(self, durable: Sequence[Release]) -> None:
        self.blocks = PublicBlocks()
        await self.ports.sink.publish(durable)


class _OverdueByNow(Gate):
    """The twin: what is overdue is what the clock says when a commit is durable."""

    async def publish(self, durable: Sequence[Release]) -> None:
        now = self.grid.passed(self.ports.clock.now() - (self.hold or 0))
        self.blocks = replace(self.blocks, overdue=now)
        await super().publish(durable)


_BEHIND = _Late(1, 500, None, 130 * STEP, 3, 250, 70, (1000, 200_000))


@pytest.mark.parametrize("twin", [_AllThatWaits, _OverdueByNow])
async def test_blocks_that_depend_on_the_load_are_caught(twin: type[Gate]) -> None:
    runs = [await _BEHIND.published(Random(seed), twin) for seed in range(5)]
    assert all(run not in (_BEHIND.expected(), runs[0]) for run in runs[1:])


def test_blocks_of_overdue_ticks() -> None:
    """Tick 128 is the last one that should be public at the start; from tick 70 on two ticks fill a block."""
    pairs = [[tick, tick + 1] for tick in range(72, 128, 2)]
    alone = [[tick] for tick in range(128, 253)]
    assert _BEHIND.expected() == [[*range(3, 72)], *pairs, *alone]


async def test_a_block_is_held_until_its_time() -> None:
    made = await world(block=2, hold=500)
    task = asyncio.create_task(committed(made.gate, commit(0, 0, 1, 2, 3)))
    await settle()
    assert made.clock.sleepers == (2500,)
    assert len(made.store.commits) == 1
    for moment, visible in ((2499, 0), (2500, 1), (4499, 1), (4500, 2)):
        made.clock.advance(moment - made.clock.now())
        await settle()
        assert len(made.sink.blocks) == visible
    await task
    assert made.sink.blocks == [[0, 0, 1, 1], [2, 2, 3, 3]]


async def test_what_an_earlier_engine_did_not_publish_comes_first() -> None:
    made = await world(block=2)
    left = releases(0, 1, 2)[1:]  # the first release of the block was visible when it died
    made.sink.bodies.append(releases(0)[0].body)
    await made.gate.publish(left)
    assert made.sink.blocks == [[0, 1, 1]]
    await committed(made.gate, commit(0, 3))
    assert made.sink.blocks[1:] == [[2, 2, 3, 3]]
    assert made.sink.bodies == [r.body for r in releases(0, 1, 2, 3)]


async def test_what_the_sink_did_not_take_is_kept() -> None:
    made = await world()
    made.sink.fails = True
    with pytest.raises(WorldError):
        await committed(made.gate, commit(0, 0))
    assert made.told == []
    made.sink.fails = False
    await made.gate.publish(())
    assert made.sink.blocks == [[0, 0]]


async def test_a_deletion_is_said_with_what_memories_hold() -> None:
    done = list[object]()

    async def add(commit: Commit) -> None:
        done.append(commit.parts)

    chain: Any = SimpleNamespace(add=add)
    await CommitChain.say(chain, 7, {"messages": b"some"})
    assert done == [{"messages": b"some", PRUNED: part(7)}]


async def test_the_manual_clock() -> None:
    clock, woken = ManualClock(10), list[int]()

    async def sleeper(moment: int) -> None:
        await clock.sleep_until(moment)
        woken.append(moment)

    async with asyncio.TaskGroup() as tasks:
        for moment in (30, 5, 20, 40):
            tasks.create_task(sleeper(moment))
        last = tasks.create_task(sleeper(99))
        await settle()
        assert (woken, clock.sleepers) == ([5], (20, 30, 40, 99))
        clock.advance(25)
        await settle()
        assert (woken, clock.sleepers) == ([5, 20, 30], (40, 99))
        with pytest.raises(ValueError, match="backwards"):
            clock.advance(-1)
        clock.advance(5)
        await settle()
        last.cancel()
    assert (woken, clock.sleepers, clock.now()) == ([5, 20, 30, 40], (), 40)
