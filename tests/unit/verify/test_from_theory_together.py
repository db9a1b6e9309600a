"""Several series over the same raw records: whatever is published, and what later ones see.

A scripted engine publishes what independent parts say, byte for byte: so their joint law is the product.
A series that is created while the engine runs sees records that are read from then on, and no others.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations_with_replacement
from random import Random
from typing import Any

import numpy as np
import pytest
from live_acts import create_series
from unit.verify.exact.raw_streams import (
    SEALER,
    Item,
    Law,
    Logs,
    Rows,
    Told,
    World,
    batches_of,
    event,
    inserted,
    one_more,
    pipeline,
    replaced,
    worst,
)

from stream_dp.core.mechanism import IntArray, Noise, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.engine.engine import Engine
from stream_dp.engine.messages.answering import Requests
from stream_dp.engine.ports import Batch, Ports
from stream_dp.files.memory import MemoryJournal, MemorySink, MemorySource, MemoryStore
from stream_dp.journal.commit import decode
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.user_guard import guard_of
from stream_dp.testing.manual_clock import ManualClock
from stream_dp.testing.noise import ScriptedNoise, ZeroNoise
from stream_dp.verify.exact.enumeration import Enumerated

KEYS = {"name": "keys", "statistic": "histogram", "by": "key", "windows": ["1s"], "epsilon": "1"}
COUNT = {"name": "count", "statistic": "count", "windows": ["1s"], "epsilon": "1"}
SUM = {
    "name": "sum", "statistic": "sum", "of": "amount", "clamp": ["-1", "2"], "windows": ["2s"], "epsilon": "2",
}  # fmt: skip
TOP = {"name": "top", "statistic": "top", "by": "key", "k": "2", "windows": ["1s"], "epsilon": "1"}
LOGS: Logs = ((event(0, key=None), 0, event(1), 1),)
ALL = [KEYS, COUNT, SUM, TOP]


def test_a_scripted_engine_publishes_what_the_parts_say() -> None:
    """The same noise in the engine and in the parts: the same bytes, but for the number of each release."""
    world = World(pipeline(ALL, {}, 2), 3)
    random = Random(3)
    for _ in range(20):
        script = {n: [random.randint(-4, 4) for _ in range(20)] for n in range(len(ALL))}
        used: dict[int, int] = defaultdict(int)

        def make(_seed: bytes, number: int, script: Any = script, used: Any = used) -> "Continued":
            return Continued(script[number], used, number)

        rows, bodies = world.run(LOGS, make)
        for place, series in enumerate(world.series):
            told, noise = Told(series), ScriptedNoise(script[place])
            state = told.init(noise)
            own = [body for body in bodies if json.loads(body)["series"] == series.name]
            for row, body in zip(rows, own, strict=True):
                state, expected = told.step(state, Update(np_row(row, series.rows)), noise)
                assert without_number(body) == without_number(expected)


def np_row(row: Sequence[int], columns: slice) -> IntArray:
    return np.array(row[columns], np.int64)


def without_number(body: bytes) -> dict[str, Any]:
    return {name: each for name, each in json.loads(body).items() if name != "sequence"}


class Continued:
    """A script that goes on where the series' last noise ended."""

    def __init__(self, values: list[int], used: dict[int, int], number: int) -> None:
        self.values, self.used, self.number = values, used, number

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        start = self.used[self.number]
        self.used[self.number] += size
        return ScriptedNoise(self.values[start:]).laplace(scale, size)

    geometric = gaussian = laplace


# --- a series that is created later --------------------------------------------------------------


class Halting(MemorySource):
    """Gives the batches of the first tick, and the others when it is told."""

    def __init__(self, logs: Logs) -> None:
        super().__init__(batches_of(logs), partitions=range(len(logs)))
        self.free = asyncio.Event()

    async def read(self) -> Sequence[Batch]:
        if self._left and (self._left[0].mark or 0) > 0:
            await self.free.wait()
        return await super().read()


BASE_SERIES = COUNT | {"epsilon": "2"}


class FromTickOne(Told):
    def init(self, noise: Noise) -> Any:
        return self.series.mechanism.init(noise), 1


@dataclass(eq=False)
class LiveWorld(World):
    """A pipeline of a count, and beside it the series `asked`, created behind tick 0."""

    asked: dict[str, Any] = field(default_factory=dict)
    price: Fraction = Fraction(0)
    broken: dict[str, Any] = field(default_factory=dict)

    @property
    def stated(self) -> Fraction:
        return super().stated + self.price

    def run(self, logs: Logs, make_noise: Any = None) -> tuple[Rows, list[bytes]]:
        """The rows by tick, those from tick 1 on with the columns of the new series, and what was published."""
        plan, key = self.built.run_config(0), SEALER.user_key()
        store, bodies, source = MemoryStore(), list[bytes](), Halting(logs)
        router = OpenRouter(self.spec, plan.origin)
        planner = LiveSeriesPlanner(self.spec, router)
        engine = Engine(
            plan, router, Ports(source, MemoryJournal(store), MemorySink(bodies), ManualClock(10**12), SEALER),
            lambda seed, number: ZeroNoise(), requests=Requests(planner, self.built.subledgers()),
            guard=guard_of(self.spec, plan.origin, key),
        )  # fmt: skip

        async def run() -> None:
            running = asyncio.create_task(engine.run())
            for _ in range(10_000):
                if bodies:
                    break
                await asyncio.sleep(0)
            created = await create_series(engine, json.dumps(self.asked).encode())
            source.free.set()
            await running
            planned = planner.running[created.number]
            measure: Any = planned.derivation.guarantee.measure
            width = planned.chosen.mechanism.width
            series = planned._runs(slice(created.column, created.column + width))
            series = replace(series, mechanism=_remade(series.mechanism, self.broken))
            self.price, self.series = measure.epsilon, (*self.series[:1], series)

        asyncio.run(run())
        while len(self.machines) < len(self.series):
            self.machines += (Enumerated(FromTickOne(self.series[-1]), self.base, self.radius),)
        commits = [decode(SEALER.open(n, each)) for n, each in enumerate(store.commits)]
        rows = tuple(tuple(map(int, row)) for commit in commits for row in commit.rows)
        return rows, bodies

    def law(self, place: int, rows: Rows) -> Law:
        return super().law(place, rows[1:] if place else rows)


def _remade(mechanism: Any, changes: dict[str, Any]) -> Any:
    """The mechanism with other parameters; those of a dict are of a part of it."""
    return replace(
        mechanism,
        **{
            name: _remade(getattr(mechanism, name), value) if isinstance(value, dict) else value
            for name, value in changes.items()
        },
    )


def born_later(logs: Logs, asked: dict[str, Any], privacy: dict[str, str]) -> list[dict[str, Any]]:
    """What a series says, without noise, that is created behind tick 0."""
    _, bodies = LiveWorld(pipeline([BASE_SERIES], privacy, 4), asked=asked).run(logs)
    return [without_number(one) for one in bodies if json.loads(one)["series"] == asked["name"]]


LATER: list[dict[str, Any]] = [
    COUNT | {"name": "new", "windows": ["2s", "ever"]},
    SUM | {"name": "new"},
    {"name": "new", "statistic": "quantiles", "of": "amount", "clamp": ["0", "9"], "buckets": "3", "at": ["0.5"],
     "windows": ["1s"], "epsilon": "1"},
    TOP | {"name": "new", "windows": ["2s"]},
]  # fmt: skip
USERS = {"unit": "user", "user": "who", "max_events": "2", "per": "2s"}
STREAM: Logs = ((event(0, who="you"), 0, event(1, who="you"), 1, event(2, who="you"), 2, 3),)


@pytest.mark.parametrize("asked", LATER, ids=lambda each: str(each["statistic"]))
@pytest.mark.parametrize("privacy", [{}, USERS], ids=["events", "users"])
def test_a_later_series_tells_nothing_of_what_came_before(
    asked: dict[str, Any], privacy: dict[str, str]
) -> None:
    """Records of ticks before it begins change none of its releases, whenever they are read; later ones do."""
    plain = born_later(STREAM, asked, privacy)
    assert [each["tick"] for each in plain] == [1, 2, 3]
    before: list[Item] = [event(0, amount=8), event(0, amount="bad"), event(0, key=None)]
    for record in before:
        for place in range(len(STREAM[0])):
            assert born_later(inserted(STREAM, 0, place, record), asked, privacy) == plain
    later = event(1, amount=8, key=None)
    assert born_later(inserted(inserted(STREAM, 0, 3, later), 0, 3, later), asked, privacy) != plain


def test_a_users_cap_goes_on_where_a_series_begins() -> None:
    """What was used before a series began counts in the same window: it sees no more than is left."""
    asked = COUNT | {"name": "new"}
    logs = inserted(STREAM, 0, 3, event(1))
    logs = inserted(logs, 0, 3, event(1))
    full = born_later(logs, asked, USERS)
    half = born_later(inserted(logs, 0, 0, event(0)), asked, USERS)
    none = born_later(inserted(inserted(logs, 0, 0, event(0)), 0, 0, event(0)), asked, USERS)
    values = [each[0]["windows"]["tick"]["value"] for each in (full, half, none)]
    assert values == [3, 2, 1]


# --- what both lose together ----------------------------------------------------------------------


def ended(series: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in series.items() if key != "windows"} | {"every": "2s"}


LIVE: dict[str, dict[str, Any]] = {
    "count": COUNT | {"windows": ["2s"]},
    "nested": COUNT | {"windows": ["2s"], "method": "nested"},
    "each window": ended(COUNT),
    "running": ended(COUNT) | {"running": "true"},
    "histogram": ended(KEYS),
    "sum": ended(SUM),
    "top": ended(TOP),
    "hop": {
        "statistic": "quantiles", "of": "amount", "clamp": ["0", "2"], "buckets": "2", "at": ["0.5"],
        "windows": ["2s"], "hop": "2s",
    },
    "gauge": {"statistic": "gauge", "of": "kind", "plus": "enter", "minus": "leave", "every": "2s"},
    "mean": {"statistic": "mean", "of": "amount", "clamp": ["0", "2"], "every": "2s"},
}  # fmt: skip
EPSILON = {"sum": "12", "gauge": "8", "mean": "10"}
KIND = {"kind": {"type": "category", "domain": ["enter", "leave", "look"]}}
WITHIN, ANY = {"neighbors": "replace", "moves": "within_tick"}, {"neighbors": "replace"}
UNITS = {
    "added": {},
    "within": WITHIN,
    "any": ANY,
    "users": USERS,
    "by tick": USERS | {"max_events": "4", "per_tick": "1"},
}
FEW: Logs = ((event(0, who="you", kind="look"), 0, event(1, who="you", kind="look"), 1, 2),)
ONLY = {"any": ("count", "nested"), "within": ("histogram", "sum", "top", "gauge", "mean")}
"""Where one window ends, an event in any tick shows itself by half its price; a count shows no other content."""
CELLS = [(name, unit) for name in LIVE for unit in UNITS if name in ONLY.get(unit, LIVE)]
MET = {"within": (Fraction(0), Fraction(1)), "by tick": (Fraction(1), Fraction(1, 2))}
"""The parts of both prices that are met, where not all are: other content, and one event of a user in tick 0."""
MEAN_WITHIN = Fraction(7, 10)
"""Of a mean: another amount moves the sums by 2 units, and no amount the sums by 1 and the counts."""
TWINS: dict[tuple[str, str], dict[str, Any]] = {
    ("gauge", "added"): {"epsilon": Fraction(16)},
    ("gauge", "within"): {"neighbors": Neighbors.ADD_REMOVE},
    ("gauge", "users"): {"epsilon": Fraction(8)},
    ("mean", "added"): {"counts": {"epsilon": Fraction(8)}},
    ("mean", "within"): {"sums": {"epsilon": Fraction(28)}},
    ("mean", "users"): {"sums": {"epsilon": Fraction(6)}},
}
"""Twice a part's epsilon, a gauge for one unit where another content moves two, a cap of one event for one of two."""


def neighbours(name: str, unit: str) -> Iterator[tuple[Logs, Logs]]:
    """Records of one event, or two and three of a user in one window of the cap."""
    contents: list[dict[str, Any]] = [
        {"key": key, "amount": amount} for key in ("a", None) for amount in (2, -1)
    ]
    if name == "gauge":
        contents = [{"kind": kind} for kind in ("enter", "leave", "look")]
    some: list[Item] = [
        event(tick, **{"kind": "look"} | content) for tick in (1, 0) for content in contents
    ]
    if unit == "any":
        yield from replaced(FEW, [event(tick, kind="look") for tick in range(3)])
    elif unit == "within":
        yield from replaced(FEW, some[: len(contents)])
    elif unit == "added":
        yield from one_more(FEW, some)
    else:
        for own in combinations_with_replacement(range(len(some)), 2):
            logs = FEW
            for at in own:  # behind tick 0, or in it
                logs = inserted(logs, 0, 2 if at < len(contents) else 0, some[at])
            yield logs, FEW
            yield inserted(logs, 0, logs[0].index(1), event(1, kind="look")), FEW


def beside_a_count(name: str, unit: str, **more: Any) -> LiveWorld:
    epsilon = "20" if (name, unit) == ("mean", "within") else EPSILON.get(name, "4")
    asked = LIVE[name] | {"name": "new", "epsilon": epsilon}
    base = pipeline([COUNT | {"name": "base", "epsilon": "4"}], UNITS[unit], 3, more=KIND)
    return LiveWorld(base, 5 if name == "sum" else 3, asked=asked, **more)


@pytest.mark.parametrize(("name", "unit"), CELLS)
def test_a_series_beside_a_later_one_loses_what_both_state(name: str, unit: str) -> None:
    """Raw neighbours through guard, router and both mechanisms, to a third of a unit."""
    world = beside_a_count(name, unit)
    result, where = worst(world, neighbours(name, unit))
    of_base, of_new = MET.get(unit, (Fraction(1), Fraction(1)))
    if (name, unit) == ("mean", "within"):
        of_new = MEAN_WITHIN
    assert result == of_base * 4 + of_new * world.price <= world.stated == 4 + world.price, where


@pytest.mark.parametrize(("name", "unit"), TWINS)
def test_a_later_series_that_is_made_for_less_loses_more(name: str, unit: str) -> None:
    world = beside_a_count(name, unit, broken=TWINS[name, unit])
    assert worst(world, neighbours(name, unit))[0] > world.stated
