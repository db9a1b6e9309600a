"""Every statistic in Python against a pipeline: the same events and noise give the same releases at the same price.

The list of statistics is `STATISTICS`; what a statistic needs is tried from `VALUES`, by the names of its keys.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, count, product
from random import Random
from typing import Any

import pytest

import stream_dp as sdp
from stream_dp.engine.engine import Engine
from stream_dp.engine.memories import SeenMemory
from stream_dp.engine.ports import Batch, Ports
from stream_dp.engine.tick_reader import EveryRecord
from stream_dp.files.memory import MemoryJournal, MemorySink, MemorySource
from stream_dp.journal.keys import Sealer
from stream_dp.noise import fresh_seed
from stream_dp.pipeline import router as routing
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.router import OpenRouter, memories_of
from stream_dp.pipeline.spec import PipelineSpec, diagnose
from stream_dp.pipeline.user_guard import guard_of
from stream_dp.python import series
from stream_dp.python.budget import Budget
from stream_dp.python.series import Prepared
from stream_dp.statistics import STATISTICS
from stream_dp.statistics.parts.series_spec import SeriesSpec
from stream_dp.testing.manual_clock import ManualClock
from stream_dp.testing.noise import SeededNoise

START, HORIZON = "2026-01-01T00:00:00Z", 6
SEALER = Sealer(bytes(range(32)), "shop")
SCHEMA: dict[str, Any] = {
    "country": {"type": "category", "domain": ["DE", "FR"]},
    "kind": {"type": "category", "domain": ["come", "go"]},
    "customer": {"type": "text"},
    "amount": {"type": "number", "nullable": True},
    "tags": {"type": "list", "domain": ["new", "gift"], "most": 3},
}
EVENT: dict[str, Any] = {}
REPLACE: dict[str, Any] = {"neighbors": "replace"}
USER: dict[str, Any] = {"unit": "user", "user": "customer", "overall": 3}
DAY: dict[str, Any] = {
    "unit": "user", "user": "customer", "max_events": 3, "per": "2h", "key": "country", "keys": 1
}  # fmt: skip
INPUTS: list[dict[str, Any]] = [
    {"statistic": "sum", "name": "revenue", "of": "amount", "clamp": [0, 240], "epsilon": 1},
    {"statistic": "count", "name": "orders", "epsilon": 1},
]
VALUES: dict[str, list[Any]] = {
    "of": ["amount", "customer", "kind", "revenue"],
    "over": ["orders"],
    "by": ["country"],
    "k": [2],
    "threshold": [9],
    "rank": [2],
    "level": [9],
    "clamp": [["-2.5", 240]],
    "step": ["0.25", 1],
    "at": [["0.5", "0.9"]],
    "plus": ["come"],
    "minus": ["go"],
    "watch": [[{"name": "many", "above": 9}, {"name": "each", "by": "country", "above": 7}]],
}
TOTAL = {"of": "amount", "clamp": ["0", 240], "at_most": "100.5", "step": "0.5"}
BESIDE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (EVENT, {}),
    (REPLACE, {}),
    (USER, {}),
    (EVENT, {"windows": ["2h", "ever"]}),
    (EVENT, {"windows": ["2h"]}),
    (EVENT, {"by": "country", "where": [{"field": "kind", "equals": "come"}]}),
    (EVENT, {"by": "tags"}),
    (USER, {"where": [{"field": "tags", "contains": "new"}]}),
    (USER, {"clamp": ["0", 240], "user_total": "100.5", "step": "0.5", "every": "2h"}),
    (USER | {"total": TOTAL}, {"clamp": ["0", 240], "shared_total": True, "step": "0.5"}),
    (
        DAY | {"total": TOTAL},
        {"clamp": ["0", 240], "shared_total": True, "step": "0.5", "every": "2h"},
    ),
    (DAY, {"clamp": ["-240", 240], "user_total": "100.5", "step": "0.5", "every": "2h"}),
    (DAY, {"of": "customer", "by": "country", "every": "2h"}),
]


def events() -> list[list[dict[str, Any]]]:
    """Events of each tick: two ticks have none, some amounts lie beyond every clamp or are missing."""
    random = Random(1)
    return [
        [
            {
                "country": random.choice(["DE", "DE", "FR", "IT"]),
                "kind": random.choice(["come", "come", "go"]),
                "customer": f"c{random.randrange(12)}",
                "amount": random.choice([None, -40.5, 0.125, 7.8, 19.95, 1e6]),
                "tags": random.choices(["new", "gift", "odd"], k=random.randrange(4)),
            }
            for _ in range(0 if tick in {0, 3} else 9 * tick)
        ]
        for tick in range(HORIZON)
    ]


def kind_of(word: str) -> type[SeriesSpec]:
    return next(k for k in STATISTICS if k.model_fields["statistic"].default == word)


def file(entries: Sequence[Mapping[str, Any]], privacy: Mapping[str, Any]) -> dict[str, Any]:
    within = {"moves": "within_tick"} if privacy == REPLACE else {}  # as it is in Python
    return {
        "version": 1,
        "name": "shop",
        "source": {"kind": "file", "path": "unused.jsonl"},
        "schema": {"time": {"type": "time"}, **SCHEMA},
        "privacy": {"epsilon": 10, **privacy, **within},
        "clock": {
            "kind": "replay",
            "field": "time",
            "start": START,
            "step": "1h",
            "horizon": HORIZON,
        },
        "series": list(entries),
    }


def entries_of(
    kind: type[SeriesSpec], privacy: Mapping[str, Any], beside: Mapping[str, Any]
) -> list[dict[str, Any]] | None:
    """The first entry of this statistic that a pipeline takes, behind what it is made of; None where there is none."""
    fields = kind.model_fields
    if not beside.keys() <= fields.keys():
        return None
    needed = [name for name, field in fields.items() if field.is_required()]
    needed = [name for name in needed if name not in {"name", "epsilon", *beside}]
    optional = [name for name in VALUES if name in fields and name not in {*needed, *beside}]
    plain = {"statistic": fields["statistic"].default, "name": "asked", **beside}
    priced = {"epsilon": "2/3"} if fields["epsilon"].is_required() else {}
    lacking = [name for name in needed if name not in VALUES]
    assert not lacking, f"give VALUES a value for {', '.join(lacking)}"
    for more in (each for size in (0, 1) for each in combinations(optional, size)):
        names = [*needed, *more]
        for values in product(*(VALUES[name] for name in names)):
            entry = {**plain, **priced, **dict(zip(names, values, strict=True))}
            for entries in ([entry], [*INPUTS, entry]):
                if isinstance(diagnose(file(entries, privacy)), PipelineSpec):
                    return entries
    return None


def cases(kind: type[SeriesSpec]) -> list[tuple[list[dict[str, Any]], dict[str, Any]]]:
    """A statistic under all privacies, and with all keys of `BESIDE`, that a pipeline takes."""
    tried = [(entries_of(kind, privacy, beside), privacy) for privacy, beside in BESIDE]
    return [(entries, privacy) for entries, privacy in tried if entries is not None]


def numbered() -> Callable[..., SeededNoise]:
    numbers = count()
    return lambda *_given: SeededNoise(next(numbers))


async def of_the_pipeline(spec: PipelineSpec) -> list[dict[str, Any]]:
    built, key, bodies = build(spec), SEALER.user_key(), list[bytes]()
    plan, position, batches = built.run_config(0), 0, []
    for tick, some in enumerate(events()):
        time = f"2026-01-01T{tick:02}:30:00Z"
        rows = [json.dumps({"time": time, **event}).encode() for event in some]
        position += len(rows) + 1
        batches.append(Batch(0, rows, range(len(rows)), position, mark=tick))
    source, sink = MemorySource(batches), MemorySink(bodies)
    ports = Ports(source, MemoryJournal(), sink, ManualClock(0), SEALER, fresh_seed)
    router = OpenRouter(spec, plan.origin, built.layout, key)
    guard, seen = guard_of(spec, plan.origin, key), SeenMemory(built.layout.windows(spec))
    _, totals, net = memories_of(built.layout, spec)
    await Engine(plan, router, ports, numbered(), guard=guard, memories=[seen, totals, net]).run()
    return [without_number(body) for body in bodies]


def of_the_face(
    entries: Sequence[Mapping[str, Any]], privacy: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], Budget]:
    """What a budget's series release of the same events, in the same order, and the budget."""
    paid = Budget(epsilon=10, schema=SCHEMA, tick="1h", start=START, **privacy)
    running = []
    for entry in entries:
        keys = {k: value for k, value in entry.items() if k not in {"statistic", "name", "epsilon"}}
        asked = getattr(sdp, kind_of(entry["statistic"]).__name__.removesuffix("Series"))(**keys)
        horizon: Any = {"horizon": HORIZON} if "epsilon" in entry else {}
        made = paid.series(asked, epsilon=entry.get("epsilon"), name=entry["name"], **horizon)
        running.append((made, "epsilon" in entry))
    found = []
    for some in events():
        for made, counts in running:
            if counts:
                made.update(some[:3])
                for event in some[3:]:
                    made.add(event)
            found.append(without_number(made.release().body))
    return found, paid


def without_number(body: bytes) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(body)
    return {name: value for name, value in said.items() if name != "sequence"}


async def differences(entries: list[dict[str, Any]], privacy: dict[str, Any]) -> list[str]:
    spec = PipelineSpec.model_validate(file(entries, privacy))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(series, "new_noise", numbered())
        patch.setattr(series, "_TOGETHER", 4)  # so that ticks are added up in several parts
        ours, paid = of_the_face(entries, privacy)
    built, theirs = build(spec), await of_the_pipeline(spec)
    spent = Fraction(built.ledger.spent, built.ledger.filter.scale)
    return [
        *["releases"] * (ours != theirs),
        *["spent"] * (paid.spent != spent),
        *["promise"] * (paid.promise != built.promise.guarantee),
    ]


@pytest.mark.parametrize(
    "kind", STATISTICS, ids=lambda kind: kind.model_fields["statistic"].default
)
async def test_a_statistic_releases_what_a_pipeline_does(kind: type[SeriesSpec]) -> None:
    tried = cases(kind)
    assert tried, "no values of VALUES make an entry that a pipeline takes"
    for entries, privacy in tried:
        assert await differences(entries, privacy) == [], (entries[-1], privacy)


def dropped(self: Any, tick: int) -> Any:
    """A twin: nothing counts in tick 2."""
    row = CLOSE(self, tick)
    return row * 0 if tick == 2 else row


def unclipped(self: Budget, *given: Any) -> Prepared:
    """A twin: values below 0 are released where the pipeline has 0, and the other way round."""
    prepared = PAID(self, *given)
    return replace(prepared, runs=replace(prepared.runs, signed=not prepared.runs.signed))


def surer(self: Budget, *given: Any) -> Prepared:
    """A twin: bands hold with less confidence than is said."""
    prepared = PAID(self, *given)
    return replace(prepared, runs=replace(prepared.runs, band=lambda tick, state: 0))


def free(self: Budget, derivation: Any) -> Any:
    """A twin: nothing is charged."""
    return self._ledger


def unlimited(self: Budget, *given: Any) -> Any:
    """A twin: it forgets the horizon."""
    request = REQUEST(self, *given)
    clock = {name: value for name, value in request.parts["clock"].items() if name != "horizon"}
    return replace(request, parts={**request.parts, "clock": clock})


def narrower(self: Budget, *given: Any) -> Any:
    """A twin: amounts are clamped elsewhere."""
    request = REQUEST(self, *given)
    return replace(request, entry={**request.entry, "clamp": ["-2.5", 239]})


CLOSE, PAID, REQUEST = series._Lane.close, Budget._paid, Budget._request
TWINS: list[tuple[str, Any, str, Any, dict[str, Any]]] = [
    ("count", series._Lane, "close", dropped, EVENT),
    ("histogram", Budget, "_paid", unclipped, EVENT),
    ("sum", Budget, "_request", narrower, EVENT),
    ("gauge", Budget, "_paid", surer, EVENT),
    ("histogram", Budget, "_after", free, EVENT),
    ("count", Budget, "_request", unlimited, EVENT),
    ("count", series, "guard_of", lambda *_: EveryRecord(), USER),
    ("distinct", routing, "SeenMemory", lambda windows: SeenMemory(), EVENT),
]


@pytest.mark.parametrize(("word", "place", "name", "twin", "privacy"), TWINS)
async def test_a_twin_is_found(
    word: str, place: Any, name: str, twin: Any, privacy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    entries = entries_of(kind_of(word), privacy, {"windows": ["2h"]} if twin is unclipped else {})
    assert entries is not None
    monkeypatch.setattr(place, name, twin)
    assert await differences(entries, privacy)
