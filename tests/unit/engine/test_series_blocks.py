"""Series that are stepped as one: bodies, states and noise are those of each alone, byte for byte."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from unit.operate.audit.trace_worlds import RICH, checked, lived, seeded

from stream_dp.core.mechanism import IntArray, Noise
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.time import TickGrid
from stream_dp.engine.ensemble import Ensemble
from stream_dp.engine.recovery import initial_states
from stream_dp.engine.series import LiveSeries, Registry, Series, SeriesBlock
from stream_dp.engine.tick_assembler import ClosedTick
from stream_dp.journal.commit import Release
from stream_dp.journal.dead_letters import DeadLetters
from stream_dp.journal.release import Shape
from stream_dp.mechanisms.linear.counter import (
    CountedTrees,
    Counter,
    HandOverCounter,
    HybridCounter,
)
from stream_dp.mechanisms.serving import Bands
from stream_dp.mechanisms.states import STATES
from stream_dp.noise import NoiseStream
from stream_dp.testing.noise import SeededNoise

GRID = TickGrid(0, 1000)
TICKS, HALTED = 80, 3
SEED = bytes(range(32))
EPSILON = Fraction(1, 3)
COUNTERS: list[CountedTrees] = [
    Counter(1, EPSILON, Neighbors.ADD_REMOVE, TICKS),
    Counter(1, EPSILON, Neighbors.REPLACE, TICKS),
    Counter(1, EPSILON, Neighbors.ADD_REMOVE, 3_000, ones=2),
    HybridCounter(1, EPSILON, Neighbors.ADD_REMOVE),
    HandOverCounter(1, EPSILON, Neighbors.REPLACE),
]
Maker = Callable[[bytes, int], Noise]


def series(name: str, column: int, mechanism: CountedTrees) -> Series:
    rows, band = slice(column, column + 1), Bands(mechanism, 0.95)  # type: ignore[arg-type]
    return Series(name, mechanism, rows, ("",), Shape.SCALAR, band, 0.95)  # type: ignore[arg-type]


def some(mechanism: CountedTrees) -> list[Series]:
    """Series of which those at the even places are alike, in rows that stand in another order."""
    other = Counter(1, Fraction(2), Neighbors.ADD_REMOVE, TICKS)
    kinds = [mechanism, other, mechanism, replace(other, horizon=900), mechanism, other]
    return [series(f"säries {at}", 5 - at, kind) for at, kind in enumerate(kinds)]


def seed(tick: int) -> bytes:
    return tick.to_bytes(32, "big")


def row(tick: int) -> IntArray:
    return np.array([tick * at % 7 for at in range(6)], dtype=np.int64)


def closed(tick: int) -> ClosedTick:
    return ClosedTick(tick, row(tick), {}, {}, {}, DeadLetters(), 0, 0)


def alone(every: list[Series], make: Maker) -> tuple[list[Release], dict[int, bytes]]:
    """What each series releases and holds when it is stepped alone; one is halted in the middle."""
    registry, releases = Registry(every), list[Release]()
    states = initial_states(registry.live, SEED, make)
    for tick in range(TICKS):
        if tick == TICKS // 2:
            del states[registry.remove(HALTED - 1).number]
        for live in registry.at(tick):
            noise, number = make(seed(tick), live.number), len(releases) + 1
            state, body = live.series.step(
                GRID, states[live.number], tick, number, row(tick), noise
            )
            states[live.number] = state
            releases.append(Release(number, live.series.name, tick, body))
    return releases, {number: STATES.encode(state) for number, state in states.items()}


async def together(every: list[Series], make: Maker) -> tuple[list[Release], dict[int, bytes]]:
    registry, releases = Registry(every), list[Release]()
    async with asyncio.TaskGroup() as tasks:
        ensemble = Ensemble(registry, GRID, make, tasks, 6)
        ensemble.begin(initial_states(registry.live, SEED, make))
        for first in range(0, TICKS, 5):
            if first == TICKS // 2:
                await ensemble.halt(registry.remove(HALTED - 1).number)
            ticks = [closed(tick) for tick in range(first, first + 5)]
            seeds = [seed(each.tick) for each in ticks]
            releases += await ensemble.releases(ticks, seeds, len(releases) + 1)
        states = (await ensemble.states()).states
        await ensemble.end()
    return releases, states


@pytest.mark.parametrize("mechanism", COUNTERS, ids=lambda each: type(each).__name__)
async def test_a_block_is_its_series_byte_for_byte(mechanism: CountedTrees) -> None:
    every = some(mechanism)
    groups = SeriesBlock.groups(Registry(every).live)
    assert [[live.number for live in group] for group in groups] == [[0, 2, 4], [1, 5]]
    assert await together(every, NoiseStream) == alone(every, NoiseStream)


async def test_other_noise_is_drawn_stream_by_stream() -> None:
    def make(seed: bytes, number: int) -> Noise:
        return SeededNoise(int.from_bytes(seed, "big") + 1, number)

    every = some(COUNTERS[0])
    assert await together(every, make) == alone(every, make)


async def test_a_block_with_streams_in_another_order_is_found() -> None:
    every = some(COUNTERS[0])
    found = await together(every, lambda seed, number: NoiseStream(seed, number ^ 4))
    assert found != alone(every, NoiseStream)


def test_only_what_is_alike_and_began_together_is_a_block() -> None:
    mechanism = COUNTERS[0]
    first, second, *_ = some(mechanism)[::2]

    def alike(other: Series, start: int = 0) -> bool:
        return bool(SeriesBlock.groups([LiveSeries(0, first), LiveSeries(1, other, start)]))

    assert alike(second)
    assert not alike(second, 1)
    assert not alike(replace(second, signed=True))
    assert not alike(replace(second, private=False))
    assert not alike(replace(second, confidence=0.9))
    assert not alike(replace(second, unit=Fraction(1, 2)))
    assert not alike(replace(second, tell=lambda *_: {"value": 1, "low": 0, "high": 2}))
    assert not alike(series("other", 1, replace(mechanism, epsilon=Fraction(1))))  # type: ignore[type-var]


async def test_a_run_with_blocks_is_recovered_and_audited_series_by_series() -> None:
    """Recovery and audit step each series alone, and compare every release and every snapshot."""
    counts = [
        {"name": name, "statistic": "count", "epsilon": "1/2", "where": [{"field": "country", "equals": key}]}
        for name, key in (("a", "DE"), ("b", "FR"), ("c", "DE"))
    ]  # fmt: skip
    world = await lived(seeded({**RICH, "series": [*counts, *RICH["series"]]}))
    config = world.built.run_config(0)
    [group] = SeriesBlock.groups(Registry(config.series).live)
    assert [live.series.name for live in group] == ["a", "b", "c"]
    report = await checked(world)
    assert (report.releases, report.snapshots >= 2) == (len(world.bodies), True)
