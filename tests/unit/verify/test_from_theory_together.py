"""Several series over the same raw records: whatever is published, and what later ones see.

A scripted engine publishes what independent parts say, byte for byte: so their joint law is the product.
A series that is created while the engine runs sees records that are read from then on, and no others.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
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

from stream_dp.core.mechanism import IntArray, Update
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


@dataclass(eq=False)
class LiveWorld(World):
    """A pipeline of a count, and beside it the series `asked`, created behind tick 0."""

    asked: dict[str, Any] = field(default_factory=dict)
    price: Fraction = Fraction(0)

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
            self.price, self.series = measure.epsilon, (*self.series[:1], series)

        asyncio.run(run())
        while len(self.machines) < len(self.series):
            self.machines += (Enumerated(Told(self.series[-1]), self.base, self.radius),)
        commits = [decode(SEALER.open(n, each)) for n, each in enumerate(store.commits)]
        rows = tuple(tuple(map(int, row)) for commit in commits for row in commit.rows)
        return rows, bodies

    def law(self, place: int, rows: Rows) -> Law:
        """Of the rows that have the series' columns."""
        return super().law(
            place, tuple(row for row in rows if len(row) >= self.series[place].rows.stop)
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

NEW = COUNT | {"name": "new"}
EACH = {"windows": (), "every": "2s"}
LIVE: dict[str, dict[str, Any]] = {
    "count": NEW | {"windows": ["2s"]},
    "each window": NEW | EACH,
    "running": NEW | EACH | {"running": "true"},
    "nested": NEW | {"windows": ["2s"], "method": "nested"},
    "histogram": KEYS | {"name": "new"} | EACH,
    "sum": SUM | {"name": "new"} | EACH,
    "top": TOP | {"name": "new"},
}
WITHIN, ANY = {"neighbors": "replace", "moves": "within_tick"}, {"neighbors": "replace"}
FEW: Logs = ((event(0, who="you"), 0, event(1, who="you"), 1, 2),)


def of_a_user(records: Sequence[Item], runs: int) -> Iterator[tuple[Logs, Logs]]:
    """Up to four of these records of one user, anywhere, or none."""
    random = Random(1)
    for _ in range(runs):
        logs = FEW
        for _ in range(random.randint(1, 4)):
            logs = inserted(logs, 0, random.randrange(len(logs[0])), random.choice(records))
        yield logs, FEW


@pytest.mark.parametrize(
    "privacy", [{}, WITHIN, ANY, USERS, USERS | {"max_events": "4", "per_tick": "1"}], ids=str
)
@pytest.mark.parametrize("name", LIVE)
def test_a_series_beside_a_later_one_loses_what_both_state(
    name: str, privacy: dict[str, str]
) -> None:
    """Raw neighbours through guard, router and both mechanisms, to the last third of a unit."""
    users = "unit" in privacy
    asked = LIVE[name] | {"epsilon": "12" if name == "sum" else "4"}
    base = BASE_SERIES | {"epsilon": "4"}
    world = LiveWorld(pipeline([base], privacy, 3), 3, asked=asked)
    records = [event(t, key=k, amount=a) for t in (0, 1, 2) for k in ("a", None) for a in (2, -1)]
    pairs = of_a_user(records, 60) if users else (replaced if privacy else one_more)(FEW, records)
    result, where = worst(world, pairs)
    assert result == world.stated, where
