"""Rows of a sum with a total for each user, on the real path: what the definition says, and what a user changes.

Guard, router, assembler and memories run as in the engine; batches are cut by lot. First every sequence of records of
one user on a small grid: the largest l1, l2 and l-infinity norms are those of the formula.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from oracles.first_arrivals import first_arrivals
from oracles.user_caps import Event, Log, Mark
from oracles.user_totals import counting, net_totals, totals
from unit.pipeline.routing.user_worlds import (
    CAP,
    FOR_EVER,
    HORIZON,
    KEYS,
    PIPELINE,
    SEALER,
    WINDOW,
    cut,
    less_window,
    payload,
    some_log,
)

from stream_dp.core.mechanism import IntArray
from stream_dp.engine.memories import NetMemory, TotalMemory
from stream_dp.engine.ports import Batch
from stream_dp.engine.tick_assembler import TickAssembler
from stream_dp.pipeline.layout import Feature
from stream_dp.pipeline.router import OpenRouter, memories_of
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import guard_of
from stream_dp.records.conditions import Test

TOTAL = 4
SUM = {
    "statistic": "sum", "of": "amount", "clamp": ["0", "2"], "user_total": str(TOTAL), "epsilon": "2",
}  # fmt: skip
SERIES: list[dict[str, Any]] = [
    {"name": "so_far", **SUM},
    {"name": "some", **SUM, "where": [{"field": "key", "one_of": ["b", "c"]}], "user_total": "3"},
    {"name": "keyed", **SUM, "by": "key", "every": "4s"},
    {"name": "people", "statistic": "distinct", "of": "customer", "epsilon": "2"},
    {"name": "all", "statistic": "count", "epsilon": "2"},
]
USERS = tuple(f"user {number}" for number in range(5))
CAPS = [(PIPELINE["privacy"], WINDOW), (FOR_EVER, None)]


def amount(event: Event) -> int:
    """The amount of the record, clamped: nothing, 1, 2, and 2 for 3."""
    return min(2, KEYS.index(event.key))


def specification(privacy: Any, **changes: Any) -> PipelineSpec:
    return PipelineSpec.model_validate(PIPELINE | {"privacy": privacy, "series": SERIES} | changes)


def expected(logs: Mapping[int, Log], window: int | None) -> list[tuple[int, ...]]:
    kept = counting(logs, CAP, window)
    some = [event for event in kept if event.key in ("b", "c")]
    parts = [
        totals(kept, amount, TOTAL, window, HORIZON),
        totals(some, amount, 3, window, HORIZON),
        totals(kept, amount, TOTAL, window, HORIZON, KEYS),
    ]
    ticks = [[event for event in kept if event.tick == tick] for tick in range(HORIZON)]
    people = first_arrivals([[event.user for event in events] for events in ticks], None)
    columns = [*parts, list(zip(people, map(len, ticks), strict=True))]
    return [(*one, *other, *third, *last) for one, other, third, last in zip(*columns, strict=True)]


def rows_of(spec: PipelineSpec, logs: dict[int, Log], random: Random) -> IntArray:
    """The rows of the real path, without an engine; shape (ticks, width). Batches and closings are by lot."""
    router = OpenRouter(spec, 0, None, SEALER.user_key())
    guard = guard_of(spec, 0, SEALER.user_key())
    guard.begin(sorted(logs))
    memories = memories_of(router.layout, spec)
    ticks = TickAssembler(sorted(logs), router.width)
    rows: list[IntArray] = []
    for batch in cut(logs, random):
        admitted = guard.admit(router.decode(batch), ticks.passed(batch.partition))
        ticks.add(admitted, router.route(admitted))
        while closed := ticks.closed(random.randint(1, 3)):
            counted: Sequence[Any] = closed
            for memory in memories:
                counted, _ = memory.record(counted)
            rows += [one.row for one in counted]
    return np.array(rows)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("privacy", "window"), CAPS, ids=["window", "ever"])
def test_rows_are_those_of_the_definition(privacy: Any, window: int | None, seed: int) -> None:
    """However records are cut into batches and ticks are closed."""
    logs: dict[int, Log] = {0: some_log(Random(seed), USERS, 120)}
    spec = specification(privacy)
    for lot in (1, 2):
        rows = list(map(tuple, rows_of(spec, logs, Random(lot)).tolist()))
        assert rows == expected(logs, window)


NET_SERIES: list[dict[str, Any]] = [
    {"name": "net", **SUM, "clamp": ["-3", "2"], "every": "4s"},
    {"name": "keyed", **SUM, "clamp": ["-3", "2"], "every": "4s", "by": "key"},
    {"name": "all", "statistic": "count", "epsilon": "2"},
]


def net_amount(event: Event) -> int:
    """Nothing, 1, 2, and 5 less, which is 3 less."""
    return (0, 1, 2, -3)[KEYS.index(event.key)]


def net_payload(event: Event) -> bytes:
    return payload(event).replace(b'"amount": 3', b'"amount": -5')


def net_specification() -> PipelineSpec:
    return specification(PIPELINE["privacy"], series=NET_SERIES)


def net_expected(logs: Mapping[int, Log]) -> list[tuple[int, ...]]:
    """The rows of both series, by definition."""
    kept = counting(logs, CAP, WINDOW)
    parts = [net_totals(kept, net_amount, TOTAL, WINDOW, HORIZON, keys) for keys in (None, KEYS)]
    number = [(sum(event.tick == tick for event in kept),) for tick in range(HORIZON)]
    return [(*one, *other, *last) for one, other, last in zip(*parts, number, strict=True)]


@pytest.mark.parametrize("seed", range(6))
def test_rows_of_both_signs_are_those_of_the_definition(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what a user changes: at most the total, in a window, and as much."""
    monkeypatch.setattr("unit.pipeline.routing.user_worlds.payload", net_payload)
    spec, worst = net_specification(), [0, 0]
    log = some_log(Random(seed), USERS[:2], 60)
    rows = rows_of(spec, {0: log}, Random(1))
    for lot, gone in enumerate(range(HORIZON // WINDOW)):
        assert list(map(tuple, rows.tolist())) == net_expected({0: log})
        without = less_window(log, USERS[seed % 2], WINDOW, gone)
        other = rows_of(spec, {0: without}, Random(lot))
        apart = np.abs(rows - other)
        found = [int(apart[:, 0].sum()), int(apart[:, 1:5].sum())]
        worst = [max(pair) for pair in zip(worst, found, strict=True)]
    assert max(worst) <= TOTAL
    assert worst[1] == TOTAL


def test_thin_rows_say_the_same() -> None:
    """Several ticks in a batch, of which each has a very wide row."""
    domain = [*KEYS[:-1], *(f"k{n}" for n in range(20_000))]
    schema = PIPELINE["schema"] | {"key": {"type": "category", "domain": domain}}
    spec = specification(PIPELINE["privacy"], schema=schema)
    log = [item for item in some_log(Random(1), USERS, 60) if isinstance(item, Event)]
    logs: dict[int, Log] = {0: [*log, *(Mark(tick) for tick in range(HORIZON))]}
    rows = rows_of(spec, logs, Random(3))
    other = domain.index("k19999") + 3
    own = [tuple(row[[0, 1, 2, 3, 4, other, -2, -1]].tolist()) for row in rows]
    assert own == expected(logs, WINDOW)


def sequences(records: int) -> Iterator[tuple[Event, ...]]:
    """Every sequence of so many records of one user on three ticks and three keys."""
    kinds = [Event("u", tick, key) for tick in range(3) for key in KEYS[:3]]
    for number in range(1, records + 1):
        yield from itertools.product(kinds, repeat=number)


def norms(rows: Sequence[Sequence[int]]) -> tuple[int, int, int]:
    """l1, l-infinity and the square of l2."""
    cells = [units for row in rows for units in row]
    return sum(cells), max(cells), sum(units**2 for units in cells)


@pytest.mark.parametrize("total", range(1, 9))
@pytest.mark.parametrize("keys", [None, KEYS])
def test_all_sequences_of_a_user_change_what_the_formula_says(
    total: int, keys: Sequence[str] | None
) -> None:
    """Of k records of at most M each: l1 = l-infinity = min(C, k M), as all of it may lie in one cell."""
    largest = [0, 0, 0]
    for events in sequences(3):
        changed = norms(totals(events, amount, total, WINDOW, 3, keys))
        largest = list(map(max, largest, changed))
    most = min(total, 3 * 2)
    assert largest == [most, most, most**2]


def test_records_that_a_live_series_cannot_read_add_what_they_added_before() -> None:
    """Each of them once, wherever it stands in its batch."""
    schema = PIPELINE["schema"] | {"note": {"type": "text"}}
    spec = specification(PIPELINE["privacy"], schema=schema)
    names = ("u", "v")
    records = [
        {"time": 1000 * tick, "customer": names[tick % 2], "key": "c", "amount": 2}
        | ({} if tick % 3 else {"note": "n"})
        for tick in range(8)
    ]
    batch = Batch(0, [json.dumps(record).encode() for record in records], range(8), 8)
    key, counted = SEALER.user_key(), []
    for live in (False, True):
        router = OpenRouter(spec, 0, None, key)
        if live:
            feature = Feature(None, frozenset([Test("note", "equals", frozenset(["n"]))]))
            router.open(feature, router.place(feature), 7)
        guard = guard_of(spec, 0, key)
        guard.begin((0,))
        routed = router.route(guard.admit(router.decode(batch), -1))
        arrived = [(t, c, a) for t, columns in routed.arrived.items() for c, a in columns.items()]
        counted.append({(t, c): a.tolist() for t, c, a in arrived if a.shape[1] == 3})
    assert counted[0] == counted[1]
    assert {amounts[0][2] for amounts in counted[0].values()} == {2}
    assert len(counted[0]) == 8 * 3


def test_a_total_of_both_signs_needs_windows_that_end() -> None:
    with pytest.raises(ValueError, match="need windows that end"):
        NetMemory({(0, 1): 2}, None)


def test_a_total_that_commits_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 4,294,967,295 units"):
        TotalMemory({(0, 1): 1 << 32}, None)
