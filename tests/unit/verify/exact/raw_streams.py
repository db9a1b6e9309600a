"""From raw records to the law of everything published: a real engine makes the rows, real series tell what they tell.

Rules: a log is what stands in one partition, dicts (records), bytes (records as they are) and ints (the end of a tick);
the engine is the product's, with guard and router; its journal says which rows its mechanisms were sent. The law of all
releases is that of the real mechanism under every noise value in turn, as the series words it; one unit of epsilon is
-ln(BASE). What is cut off of noise is `missing`, and no judgement rests on it.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

from stream_dp.core.guarantee import PureDP
from stream_dp.core.mechanism import Message, Noise, Query
from stream_dp.core.time import TickGrid
from stream_dp.engine.engine import Engine
from stream_dp.engine.messages.answering import Requests
from stream_dp.engine.ports import Batch, Ports
from stream_dp.engine.series import Series
from stream_dp.files.memory import MemoryJournal, MemorySink, MemorySource, MemoryStore
from stream_dp.journal.commit import decode
from stream_dp.journal.keys import Sealer
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.router import OpenRouter, memories_of
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import guard_of
from stream_dp.testing.manual_clock import ManualClock
from stream_dp.testing.noise import ZeroNoise
from stream_dp.verify.exact.enumeration import Enumerated

BASE = Fraction(1, 64)
SEALER = Sealer(bytes(range(32)), "raw")
SECOND = 1000
Item: TypeAlias = dict[str, Any] | bytes | int
Log: TypeAlias = tuple[Item, ...]
Logs: TypeAlias = tuple[Log, ...]
Rows: TypeAlias = tuple[tuple[int, ...], ...]
Law: TypeAlias = Mapping[Any, Fraction]

SCHEMA: dict[str, Any] = {
    "time": {"type": "time", "format": "epoch_ms"},
    "who": {"type": "text"},
    "key": {"type": "category", "domain": ["a"], "nullable": "true"},
    "tags": {"type": "list", "domain": ["x", "y", "z"], "most": "2"},
    "amount": {"type": "number", "nullable": "true"},
}
PLAIN: dict[str, Any] = {"time": 0, "who": "me", "key": "a", "tags": [], "amount": 1}


def event(tick: int = 0, **values: Any) -> dict[str, Any]:
    return PLAIN | {"time": SECOND * tick} | values


def pipeline(
    series: Sequence[Mapping[str, Any]],
    privacy: Mapping[str, Any],
    ticks: int,
    source: Mapping[str, str] | None = None,
    more: Mapping[str, Any] | None = None,
) -> PipelineSpec:
    """A pipeline of some ticks; all values are text, as in YAML. `more` are fields beside those of SCHEMA."""
    return PipelineSpec.model_validate(
        {
            "version": "1",
            "name": "raw",
            "source": source or {"kind": "file", "path": "unused.jsonl"},
            "schema": SCHEMA | dict(more or {}),
            "privacy": {"epsilon": "100", **privacy},
            "clock": {
                "kind": "replay", "field": "time", "start": "1970-01-01T00:00:00Z", "step": "1s",
                "horizon": str(ticks),
            },
            "series": [dict(each) for each in series],
        }
    )  # fmt: skip


def batches_of(logs: Logs) -> list[Batch]:
    """The batches of these logs, one a tick and partition; partitions take turns tick by tick."""
    return sorted(_each(logs), key=lambda one: -1 if one.mark is None else one.mark)


def _each(logs: Logs) -> Iterator[Batch]:
    for partition, log in enumerate(logs):
        values: list[bytes] = []
        first = 0
        for at, item in enumerate(log):
            if isinstance(item, int):
                yield Batch(partition, values, range(first, first + len(values)), at + 1, mark=item)
                values, first = [], at + 1
            else:
                values.append(item if isinstance(item, bytes) else json.dumps(item).encode())


@dataclass(eq=False)
class World:
    """A pipeline that reads logs; `laws` and `seen` remember what was found."""

    spec: PipelineSpec
    radius: int = 2
    base: Fraction = BASE
    seen: dict[str, Rows] = field(default_factory=dict)
    built: Built = field(init=False)
    series: tuple[Series, ...] = field(init=False)
    machines: tuple[Enumerated, ...] = field(init=False)
    laws: dict[tuple[int, Rows], Law] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.built = build(self.spec)
        self.series = self.built.run_config(0).series
        self.machines = tuple(Enumerated(Told(one), self.base, self.radius) for one in self.series)

    @property
    def stated(self) -> Fraction:
        """The epsilon that `plan` states for all series, in units."""
        measure = self.built.derivation.guarantee.measure
        assert isinstance(measure, PureDP)
        return measure.epsilon

    def twin(self, **changes: Any) -> "World":
        """The same, but the first series' mechanism is made for something else."""
        other = World(self.spec, self.radius, self.base, self.seen)
        first: Any = self.series[0].mechanism
        wrong = replace(self.series[0], mechanism=replace(first, **changes))
        other.series = (wrong, *self.series[1:])
        other.machines = tuple(
            Enumerated(Told(one), self.base, self.radius) for one in other.series
        )
        return other

    def run(self, logs: Logs, make_noise: Any = None) -> tuple[Rows, list[bytes]]:
        """The rows by tick that mechanisms were sent, and all that was published."""
        plan = self.built.run_config(0)
        store, bodies = MemoryStore(), list[bytes]()
        batches = batches_of(logs)
        ports = Ports(
            MemorySource(batches, partitions=range(len(logs))), MemoryJournal(store), MemorySink(bodies),
            ManualClock(10**12), SEALER,
        )  # fmt: skip
        make = make_noise or (lambda seed, number: ZeroNoise())
        key, layout = SEALER.user_key(), self.built.layout
        engine = Engine(
            plan, OpenRouter(self.spec, plan.origin, layout, key), ports, make,
            requests=Requests(subledgers=self.built.subledgers()),
            guard=guard_of(self.spec, plan.origin, key), memories=memories_of(layout, self.spec),
        )  # fmt: skip
        asyncio.run(engine.run())
        commits = [decode(SEALER.open(n, each)) for n, each in enumerate(store.commits)]
        rows = tuple(tuple(map(int, row)) for commit in commits for row in commit.rows)
        return rows, bodies

    def rows(self, logs: Logs) -> Rows:
        name = repr(logs)
        if name not in self.seen:
            self.seen[name] = self.run(logs)[0]
        return self.seen[name]

    def law(self, place: int, rows: Rows) -> Law:
        """The law of all releases of one series."""
        part = self.series[place].rows
        own = tuple(row[part] for row in rows)
        if (place, own) not in self.laws:
            machine = self.machines[place]
            law: dict[Any, Fraction] = {
                (state, ()): chance for state, chance in machine.initial().items()
            }
            for row in own:
                after: dict[Any, Fraction] = {}
                for (state, answers), chance in law.items():
                    for (answer, following), more in machine.step(state, row).items():
                        key = following, (*answers, answer)
                        after[key] = after.get(key, Fraction(0)) + chance * more
                law = after
            result: dict[Any, Fraction] = {}
            for (_, answers), chance in law.items():
                result[answers] = result.get(answers, Fraction(0)) + chance
            self.laws[place, own] = result
        return self.laws[place, own]


@dataclass(frozen=True)
class Told:
    """A series as a machine: a row goes in, what is published of it comes out, as plain values."""

    series: Series

    def init(self, noise: Noise) -> Any:
        """That of the mechanism, before tick 0."""
        return self.series.mechanism.init(noise), 0

    def step(self, state: Any, message: Message, noise: Noise) -> tuple[Any, Any]:
        """A row, and what the release says."""
        inner, tick = state
        mechanism = self.series.mechanism
        inner, _ = mechanism.step(inner, message, noise)
        after, answer = mechanism.step(inner, Query(), noise)
        assert answer is not None
        body = self.series.body(TickGrid(0, SECOND), tick, tick, after, answer)
        return (after, tick + 1), body


def delta(left: Law, right: Law, units: Fraction | int) -> Fraction:
    """The largest Pr[left in S] - e^(units) Pr[right in S], of what is not cut off."""
    ratio = _power(Fraction(units))
    zero = Fraction(0)
    return sum((max(zero, p - ratio * right.get(o, zero)) for o, p in left.items()), zero)


@lru_cache
def _power(units: Fraction) -> Fraction:
    sixths = units * 6
    assert sixths.denominator == 1
    return Fraction(2) ** sixths.numerator


def cut_off(law: Law) -> Fraction:
    """What was cut off of a law."""
    return 1 - sum(law.values(), Fraction(0))


GRID = [Fraction(n, 3) for n in range(60)]


def lost(left: Law, right: Law, slack: Fraction = Fraction(1, 200)) -> Fraction:
    """The least number of thirds of units at which not more than `slack` is lost, either way, what is cut off too.

    A third less loses far more than the slack: three quarters of something likely.
    """
    assert max(cut_off(left), cut_off(right)) < slack / 2
    for units in GRID:
        if max(delta(left, right, units), delta(right, left, units)) <= slack:
            return units
    return Fraction(10**6)


def together(pairs: Sequence[tuple[Law, Law]]) -> tuple[Law, Law]:
    """The joint law of independent parts under both streams, outcomes told apart by their odds alone."""
    joint: dict[Fraction | None, tuple[Fraction, Fraction]] = {
        Fraction(1): (Fraction(1), Fraction(1))
    }
    for left, right in pairs:
        after: dict[Fraction | None, tuple[Fraction, Fraction]] = {}
        for outcome in left.keys() | right.keys():
            p, q = left.get(outcome, Fraction(0)), right.get(outcome, Fraction(0))
            for a, b in joint.values():
                x, y = a * p, b * q
                key = None if y == 0 else x / y
                old = after.get(key, (Fraction(0), Fraction(0)))
                after[key] = (old[0] + x, old[1] + y)
        joint = after
    return {k: v[0] for k, v in joint.items()}, {k: v[1] for k, v in joint.items()}


def worst(world: World, pairs: Iterable[tuple[Logs, Logs]]) -> tuple[Fraction, tuple[Logs, Logs]]:
    """The most that all series together lose over neighbouring raw logs, and where."""
    known: dict[tuple[Rows, Rows], Fraction] = {}
    best: tuple[Fraction, tuple[Logs, Logs]] = (Fraction(-1), ((), ()))
    for one, other in pairs:
        rows = world.rows(one), world.rows(other)
        if rows not in known:
            laws = [
                (world.law(place, rows[0]), world.law(place, rows[1]))
                for place in range(len(world.series))
            ]
            known[rows] = lost(*together(laws))
        best = max(best, (known[rows], (one, other)), key=lambda result: result[0])
    return best


def inserted(logs: Logs, partition: int, at: int, item: Item) -> Logs:
    """The logs with one more item before place `at` of a partition."""
    log = logs[partition]
    return (*logs[:partition], (*log[:at], item, *log[at:]), *logs[partition + 1 :])


def one_more(logs: Logs, records: Sequence[Item]) -> Iterator[tuple[Logs, Logs]]:
    """Each record at each place of each partition, beside the logs without it."""
    for partition, log in enumerate(logs):
        for at in range(len(log)):
            for record in records:
                yield inserted(logs, partition, at, record), logs


def replaced(logs: Logs, records: Sequence[Item]) -> Iterator[tuple[Logs, Logs]]:
    for partition, log in enumerate(logs):
        for at in range(len(log)):
            for number, one in enumerate(records):
                for other in records[:number]:
                    yield inserted(logs, partition, at, one), inserted(logs, partition, at, other)
