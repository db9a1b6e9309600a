"""Distinct users and identifiers from raw records, exact: one record, or all of a user, beside any others of the same.

The oracle knows the description alone: an identifier counts in the tick in which it first comes in its window, of
records that are on time and, of a user, within the cap. Neighbours have the same identifier before and after, in every
window, and of other users. What the engine's releases lose is what `plan` states, where the description says so.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import pytest
from unit.verify.exact.raw_streams import (
    Item,
    Log,
    Logs,
    Rows,
    World,
    event,
    one_more,
    pipeline,
    worst,
)

from stream_dp.engine.memories import UserMemory

WITHIN = {"neighbors": "replace", "moves": "within_tick"}
ANY = {"neighbors": "replace"}
EVER = {"unit": "user", "user": "who", "overall": "2"}
PER = {"unit": "user", "user": "who", "max_events": "2", "per": "2s"}
ID = {"id": {"type": "text", "nullable": "true"}}
WHO = {"name": "s", "statistic": "distinct", "of": "who"}
OTHER = WHO | {"of": "id"}
Record: TypeAlias = dict[str, Any]
Pairs: TypeAlias = list[tuple[Logs, Logs]]


def logs_of(records: Sequence[Record], ticks: int) -> Logs:
    """Records in their ticks, in this order, behind one of somebody who is always there."""
    log: list[Item] = []
    for tick in range(ticks):
        own = [one for one in records if one["time"] == 1000 * tick]
        log += [event(tick, who=f"you{tick}", id=None), *own, tick]
    return (tuple(log),)


def some_of(items: Sequence[Record], most: int) -> Iterator[tuple[Record, ...]]:
    """All choices of at most so many."""
    return itertools.chain.from_iterable(itertools.combinations(items, n) for n in range(most + 1))


def by_event(ticks: int) -> Pairs:
    """Somebody in any of the ticks, and one record more of the same: first, again, late, ahead of its tick."""
    times = [event(tick) for tick in range(ticks)]
    result = (logs_of(some, ticks) for some in some_of(times, ticks))
    return [pair for logs in result for pair in one_more(logs, times)]


def by_other(ticks: int, within: bool, names: Sequence[str | None] = ("p", "q", None)) -> Pairs:
    """One record, with one of two identifiers or none, in place of another; others have them as well."""
    others = [event(tick, who="you", id=name) for tick in range(ticks) for name in "pq"]
    mine = [event(tick, id=name) for tick in range(ticks) for name in names]
    return [
        (logs_of([*some, one], ticks), logs_of([*some, two], ticks))
        for some in some_of(others, 2)
        for one, two in itertools.combinations(mine, 2)
        if not within or one["time"] == two["time"]
    ]


def by_user(ticks: int, window: int | None = None, names: str = "") -> Pairs:
    """All records of a user, or none (of those in the first window), once and twice; others have the identifiers."""
    mine = [event(tick, id=name) for tick in range(ticks) for name in names or "p"]
    others = [event(tick, who="you", id=name) for tick in range(ticks) for name in names]
    result: Pairs = []
    for rest, own in itertools.product(some_of(others, 2), some_of(mine, 3)):
        kept = [one for one in own if window and one["time"] // 1000 >= window]
        result += [
            (logs_of([*rest, *own, *twice], ticks), logs_of([*rest, *kept], ticks))
            for twice in (own[:1], ())
        ]
    return result


def first_ticks(log: Log, series: dict[str, Any], privacy: dict[str, str]) -> Rows:
    """How many identifiers come first in each tick."""
    ticks = sum(isinstance(one, int) for one in log)
    window = int(series.get("every", "9")[0])
    cap = int(privacy.get("max_events", privacy.get("overall", 99)))
    rows, known, used, now = [0] * ticks, list[Any](), dict[Any, int](), 0
    came: list[list[Any]] = [[] for _ in range(ticks)]
    for one in log:
        if isinstance(one, int):
            now = one + 1
            known = [] if one % window == 0 else known
            for name in came[one]:
                rows[one] += name not in known
                known.append(name)
        elif isinstance(one, dict) and (tick := one["time"] // 1000) >= now:
            whose = one["who"], tick // int(privacy.get("per", "9s")[0])
            used[whose] = used.get(whose, 0) + 1
            name = one.get(series["of"])
            if used[whose] <= cap and name is not None:
                came[tick].append(name)
    return tuple((one,) for one in rows)


def windows(
    series: dict[str, Any], ticks: int, epsilon: int, *, running: bool = True
) -> dict[str, Any]:
    """The series in windows of so many ticks, told at every tick, or each at its end."""
    return series | {"every": f"{ticks}s", "running": running, "epsilon": str(epsilon)}


CASES: dict[str, tuple[dict[str, Any], dict[str, str], int, Pairs, int]] = {
    "event": (WHO | {"epsilon": "2"}, {}, 3, by_event(3), 2),
    "event, windows": (windows(WHO, 2, 2), {}, 3, by_event(3), 2),
    "replaced": (OTHER | {"epsilon": "2"}, WITHIN, 2, by_other(2, True), 2),
    "event, at a window's end": (windows(WHO, 2, 1, running=False), {}, 4, by_event(4), 1),
    "replaced, at a window's end": (
        windows(OTHER, 2, 1, running=False),
        WITHIN,
        2,
        by_other(2, True),
        1,
    ),
    "user, at the end of shorter windows": (
        windows(WHO, 1, 2, running=False),
        PER,
        3,
        by_user(3, 2),
        2,
    ),
    "user, at the end of longer windows": (
        windows(WHO, 4, 1, running=False),
        PER,
        4,
        by_user(4, 2),
        1,
    ),
    "user, another field, at the end": (
        windows(OTHER, 2, 2, running=False),
        EVER,
        2,
        by_user(2, None, "pq"),
        2,
    ),
    "replaced, ticks": (windows(OTHER, 1, 1), WITHIN, 2, by_other(2, True), 1),
    "replaced in any tick": (OTHER | {"epsilon": "4"}, ANY, 3, by_other(3, False, "pq"), 4),
    "user for ever": (WHO | {"epsilon": "1"}, EVER, 3, by_user(3), 1),
    "user": (WHO | {"epsilon": "2"}, PER, 3, by_user(3, 2), 2),
    "user, the cap's window": (windows(WHO, 2, 1), PER, 3, by_user(3, 2), 1),
    "user, longer windows": (windows(WHO, 4, 2), PER, 4, by_user(4, 2), 2),
    "user, another field": (OTHER | {"epsilon": "4"}, EVER, 2, by_user(2, None, "pq"), 4),
}


@pytest.mark.parametrize("case", CASES)
def test_first_ticks_lose_what_plan_states_and_noise_for_fewer_loses_more(case: str) -> None:
    """`units` neighbours differ by so many first ticks, each of which has its part of epsilon."""
    series, privacy, ticks, pairs, units = CASES[case]
    world = World(pipeline([series], privacy, ticks, more=ID), 4 if "field" in case else 3)
    for logs in {repr(one): one for pair in pairs for one in pair}.values():
        assert world.rows(logs) == first_ticks(logs[0], series, privacy)
    result, where = worst(world, pairs)
    assert result == world.stated == units, where
    mechanism: Any = world.series[0].mechanism
    assert worst(world.twin(epsilon=2 * mechanism.epsilon), [where])[0] > world.stated


BY_KEY = PER | {"max_events": "4", "key": "key"}
BY = WHO | {"by": "key"}
KEYED: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "one key, the cap's window": (windows(BY, 2, 1, running=False), 1, 3, 1),
    "two keys, the cap's window": (windows(BY, 2, 2, running=False), 2, 3, 2),
    "two keys, running": (windows(BY, 2, 2), 2, 3, 2),
    "one key, so far": (BY | {"epsilon": "2"}, 1, 3, 2),
    "one key, shorter windows": (windows(BY, 1, 2, running=False), 1, 2, 2),
    "one key, longer windows": (windows(BY, 4, 1, running=False), 1, 4, 1),
}


def by_keys(ticks: int) -> Pairs:
    """All records of a user in the first window of the cap, or none; of both values of a key and one outside."""
    mine = [event(tick, key=key) for tick in range(ticks) for key in ("a", None, "zz")]
    result: Pairs = []
    for own in some_of(mine, 2):
        for order in (own, own[::-1]):
            kept = [one for one in order if one["time"] // 1000 >= 2]
            result.append((logs_of(order, ticks), logs_of(kept, ticks)))
    return result


def first_by_key(log: Log, series: dict[str, Any], keys: int) -> Rows:
    """How many users come first in each tick with the value a, and with another or none, of the records that count."""
    ticks = sum(isinstance(one, int) for one in log)
    window = int(series.get("every", "9")[0])
    rows = [[0, 0] for _ in range(ticks)]
    used: dict[Any, list[Any]] = {}
    known: set[Any] = set()
    for one in sorted((r for r in log if isinstance(r, dict)), key=lambda r: int(r["time"])):
        tick = one["time"] // 1000
        had = used.setdefault((one["who"], tick // 2), [])
        if len(had) == 4 or (one["key"] not in had and len({*had}) == keys):
            continue
        had.append(one["key"])
        entry = int(one["key"] != "a")
        here = one["who"], entry, tick // window
        rows[tick][entry] += here not in known
        known.add(here)
    return tuple(map(tuple, rows))


def changed(left: Rows, right: Rows, series: dict[str, Any]) -> int:
    """By how many units two streams of rows differ, or where these end the numbers of their windows."""
    size = int(series["every"][0]) if series.get("running") is False else 1
    gaps = [[a - b for a, b in zip(*rows, strict=True)] for rows in zip(left, right, strict=True)]
    windows = [gaps[at : at + size] for at in range(0, len(gaps), size)]
    return sum(abs(sum(entry)) for window in windows for entry in zip(*window, strict=True))


@pytest.mark.parametrize("case", KEYED)
def test_users_by_key_lose_what_plan_states(case: str) -> None:
    """And more with noise for half of it, as a twin has it that forgets the keys, or what goes."""
    series, keys, ticks, units = KEYED[case]
    world = World(pipeline([series], BY_KEY | {"keys": str(keys)}, ticks), 3)
    by_change: dict[int, tuple[Logs, Logs]] = {}
    for pair in by_keys(ticks):
        assert [world.rows(logs) for logs in pair] == [
            first_by_key(logs[0], series, keys) for logs in pair
        ]
        one, other = map(world.rows, pair)
        by_change.setdefault(changed(one, other, series), pair)
    assert max(by_change) == units
    assert world.stated == units
    if series.get("running") is not False:  # its law is in `mechanisms.test_arrivals_exact`
        return
    result, where = worst(world, [by_change[units]])
    assert result == units
    mechanism: Any = world.series[0].mechanism
    assert worst(world.twin(epsilon=2 * mechanism.epsilon), [where])[0] > world.stated


def test_one_event_counts_by_its_key_and_a_memory_without_the_key_loses_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a pair's hash is that of the user alone, an event of one key takes the user out of another one's number."""
    series = windows(BY, 2, 1, running=False)
    times = [event(tick, key=key) for tick in range(2) for key in ("a", None)]
    pairs = [pair for some in some_of(times, 2) for pair in one_more(logs_of(some, 2), times)]

    def loss() -> Any:
        world = World(pipeline([series], {}, 2), 3)
        assert world.stated == 1
        return worst(world, pairs)[0]

    assert loss() == 1
    admit = UserMemory.admit
    monkeypatch.setattr(
        UserMemory,
        "admit",
        lambda own, users, at: admit(own, users, at // own._entries * own._entries),
    )
    assert loss() == 2
