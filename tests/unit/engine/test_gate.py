"""The gate: durable first, then visible, in blocks that tick numbers cut and load does not."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.core.time import TickGrid
from stream_dp.engine.gate import Gate
from stream_dp.engine.ports import Ports
from stream_dp.engine.run_config import PublicBlocks
from stream_dp.errors import WorldError
from stream_dp.files.memory import MemoryJournal, MemorySink, MemorySource, MemoryStore
from stream_dp.journal.commit import Commit, Release, decode, digest
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
