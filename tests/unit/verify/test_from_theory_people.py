"""Users from raw records, exact: all records of one user, wherever they lie and whatever they hold, or none of them.

Events of that user come readable, unreadable, late, twice, under other spellings and from other partitions; others'
records stay. The worst of many drawn streams loses what `plan` states; with a cap or a group rule forgotten, more.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any, TypeAlias

import pytest
from unit.verify.exact.raw_streams import (
    Item,
    Log,
    Logs,
    Rows,
    World,
    event,
    inserted,
    one_more,
    pipeline,
    worst,
)

from stream_dp.engine.memories import KeyCapMemory, TotalMemory
from stream_dp.pipeline.user_guard import UserGuard

PER = {"unit": "user", "user": "who", "max_events": "2", "per": "2s"}
BY_TICK = PER | {"max_events": "4", "per_tick": "1"}
BY_KEY = PER | {"max_events": "4", "key": "key", "per_key": "1", "keys": "2"}
EVER = {"unit": "user", "user": "who", "overall": "2"}
KEYED = {
    "kind": "kafka",
    "topic": "t",
    "bootstrap": "a:1",
    "keyed_by": "who",
    "partitioner": "murmur2",
}
COUNT = {"name": "count", "statistic": "count", "windows": ["1s"], "epsilon": "2"}
KEYS = {"name": "keys", "statistic": "histogram", "by": "key", "windows": ["1s"], "epsilon": "2"}
SUM = {
    "name": "sum", "statistic": "sum", "of": "amount", "clamp": ["-1", "2"], "windows": ["1s"], "epsilon": "4",
}  # fmt: skip
TAGGED = {
    "name": "tagged", "statistic": "count", "windows": ["1s"], "epsilon": "2",
    "where": [{"field": "tags", "contains": "x"}],
}  # fmt: skip


TOTAL = {
    "name": "total", "statistic": "sum", "of": "amount", "clamp": ["0", "2"], "user_total": "2", "epsilon": "2",
}  # fmt: skip


def other(tick: int) -> Item:
    return event(tick, who="you")


SHORT: Log = (other(0), 0, other(1), 1)
LONG: Log = (other(0), other(1), 0, other(1), 1, other(2), 2)


def theirs(ticks: Sequence[int]) -> list[Item]:
    """What the user may send: readable or not, and named in other ways."""
    result: list[Item] = []
    for tick in ticks:
        plain = json.dumps(event(tick))
        result += [
            event(tick), event(tick, key=None, amount=2, tags=["x", "y"]), event(tick, key="zz", amount=2),
            event(tick, amount=None), event(tick, amount="bad"), event(tick, tags=["x", "y", "z"]), event(tick, key=7),
            plain.replace('"me"', '"\\u006de"').encode(),
            plain.replace('"who": "me"', '"who": "you", "who": "me"').encode(),
            plain.replace('"me"', '"me", "more": {"who": "you"}').encode(),
            f'{json.dumps(event(9 - tick))[:-1]}, "time": {1000 * tick}}}'.encode(),
            event(tick, time=1000 * tick + 999),
        ]  # fmt: skip
    return result


def with_and_without(
    logs: Logs, some: Sequence[Item], most: int, runs: int
) -> Iterator[tuple[Logs, Logs]]:
    """The same streams every time: up to `most` of these records, each at some place of some partition."""
    random = Random(1)
    for _ in range(runs):
        result = logs
        for _ in range(random.randint(1, most)):
            partition = random.randrange(len(result))
            place = random.randrange(len(result[partition]))
            result = inserted(result, partition, place, random.choice(some))
        yield result, logs


def world_of(
    privacy: dict[str, str], logs: Logs, ticks: int, radius: int, *series: dict[str, Any]
) -> World:
    """A pipeline for users; of several partitions, with keyed records."""
    return World(pipeline(series, privacy, ticks, KEYED if len(logs) > 1 else None), radius)


@pytest.mark.parametrize(
    ("privacy", "logs", "ticks", "radius", "series", "runs"),
    [
        (PER, (SHORT,), 2, 3, (COUNT,), 300),
        (PER | {"per": "1s"}, (SHORT[:2],), 1, 3, (KEYS,), 80),
        (PER, (SHORT,), 2, 5, (SUM,), 300),
        (EVER, (LONG,), 3, 3, (COUNT,), 100),
        (PER, (SHORT,), 2, 5, (COUNT, TAGGED, SUM), 200),
        (BY_TICK, (SHORT,), 2, 3, (COUNT,), 200),
        (BY_KEY, (SHORT,), 2, 3, (COUNT,), 200),
        (BY_KEY, (SHORT,), 2, 3, (KEYS,), 200),
    ],
    ids=["count", "histogram", "sum", "for ever", "three together", "by tick", "by key", "keys"],
)
def test_a_user_loses_what_plan_states_and_no_less_would_do(
    privacy: dict[str, str], logs: Logs, ticks: int, radius: int, series: tuple[dict[str, Any], ...], runs: int,
) -> None:  # fmt: skip
    """Up to four or five records where two count; a mechanism made for one event at all of epsilon loses more."""
    world = world_of(privacy, logs, ticks, radius, *series)
    pairs = list(with_and_without(logs, theirs(range(ticks)), 4, runs))
    result, where = worst(world, pairs)
    assert result == world.stated, where
    whole = Fraction(series[0]["epsilon"])
    assert worst(world.twin(epsilon=whole), [where])[0] > world.stated


def test_a_user_in_two_partitions_counts_in_one() -> None:
    """Wherever the records lie; in one of the partitions they change rows, in the other one nothing."""
    logs: Logs = (SHORT, SHORT)
    world = world_of(PER, logs, 2, 3, COUNT)
    pairs = list(with_and_without(logs, theirs((0, 1)), 6, 300))
    result, where = worst(world, pairs)
    assert result == world.stated == 2, where
    for record in theirs((0, 1)):
        rows = [world.rows(inserted(logs, partition, 0, record)) for partition in (0, 1)]
        assert world.rows(logs) in rows
    first = [world.rows(inserted(logs, partition, 0, event(0))) for partition in (0, 1)]
    assert len({world.rows(logs), *first}) == 2


TOTALS = pytest.mark.parametrize(
    ("privacy", "logs", "ticks", "radius", "series"),
    [
        (PER, (SHORT,), 2, 5, TOTAL | {"every": "2s"}),
        (PER, (SHORT,), 2, 5, TOTAL | {"windows": ["1s"]}),
        (PER, (SHORT,), 2, 4, TOTAL | {"every": "2s", "by": "key"}),
        (BY_TICK, (SHORT,), 2, 4, TOTAL),
        (PER, (SHORT, SHORT), 2, 5, TOTAL | {"every": ["1s", "2s"], "user_total": "1"}),
        (EVER, (LONG,), 3, 5, TOTAL | {"every": "3s", "where": [{"field": "key", "equals": "a"}]}),
    ],
    ids=["day", "ticks", "by key", "so far", "two lengths", "for ever"],
)


@TOTALS
def test_a_user_with_a_total_loses_what_plan_states(
    privacy: dict[str, str], logs: Logs, ticks: int, radius: int, series: dict[str, Any]
) -> None:
    """Two records of up to 2 each, in any ticks and entries: their total of 2 is what the noise is for, to the unit."""
    world = world_of(privacy, logs, ticks, radius, series)
    pairs = list(with_and_without(logs, theirs(range(ticks)), 4, 60))
    result, where = worst(world, pairs)
    assert result == world.stated == 2, where
    inner: Any = world.series[0].mechanism
    less = replace(inner.inner, epsilon=2 * inner.inner.epsilon)
    assert worst(world.twin(inner=less), [where])[0] > world.stated


class Forgetful(TotalMemory):
    """Forgets with each tick what users have added."""

    def _enter(self, tick: int) -> None:
        self._begin()


class Uncapped(TotalMemory):
    """Lets users add what they like."""

    def __init__(self, totals: Mapping[tuple[int, int], int], window: int | None) -> None:
        super().__init__(dict.fromkeys(totals, 1000), window)


@pytest.mark.parametrize("twin", [Forgetful, Uncapped])
def test_a_user_loses_more_by_a_memory_that_is_wrong(
    twin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.pipeline.router.TotalMemory", twin)
    world = world_of(PER, (SHORT,), 2, 5, TOTAL | {"windows": ["1s"]})
    pairs = list(with_and_without((SHORT,), theirs((0, 1)), 4, 60))
    result, _ = worst(world, pairs)
    assert result > world.stated


def test_a_user_loses_more_by_a_guard_that_forgets_the_cap_of_ticks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four records count, and the noise is for two."""
    monkeypatch.setattr(UserGuard, "_for_all_keys", property(lambda guard: (guard.memory,)))
    world = world_of(BY_TICK, (SHORT,), 2, 5, COUNT)
    result, _ = worst(world, list(with_and_without((SHORT,), theirs((0, 1)), 4, 60)))
    assert result > world.stated


class EachBatch(KeyCapMemory):
    """Has room for all of a key in every batch."""

    def room(self, users: Any, windows: Any) -> Any:
        cells, counted, left = super().room(users, windows)
        return cells, 0 * counted, left + counted

    def admit(self, users: Any, windows: Any) -> Any:
        return [True] * len(users), None


def test_a_user_loses_more_by_a_guard_that_forgets_the_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of each key one record counts of a window, and not of each batch of it."""
    monkeypatch.setattr("stream_dp.pipeline.user_guard.KeyCapMemory", EachBatch)
    monkeypatch.setattr("stream_dp.pipeline.user_guard.KeysMemory", EachBatch)
    world = world_of(BY_KEY, (SHORT,), 2, 5, COUNT)
    result, _ = worst(world, list(with_and_without((SHORT,), theirs((0, 1)), 4, 60)))
    assert result > world.stated


# Distinct users and identifiers from raw records, exact: one record, or all of a user, beside any others of the same.


WITHIN = {"neighbors": "replace", "moves": "within_tick"}
ANY = {"neighbors": "replace"}
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


def first_ticks(log: Log, series: dict[str, Any], privacy: dict[str, str], room: int = 99) -> Rows:
    """How many identifiers come first in each tick; a memory of less room forgets who came longest ago."""
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
                known = [*(each for each in known if each != name), name][-room:]
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


def test_a_user_who_is_counted_per_event_is_caught() -> None:
    """The guard alone is not enough: a count's rows have k units of a user, and the noise is for one."""
    series, privacy, ticks, pairs, units = CASES["user for ever"]
    plain = {"name": "s", "statistic": "count", "epsilon": series["epsilon"]}
    count = World(pipeline([plain], privacy, ticks, more=ID))
    for one, other in pairs:
        count.rows(one), count.rows(other)
    wrong = World(pipeline([series], privacy, ticks, more=ID), 3, seen=count.seen)
    assert worst(wrong, pairs)[0] == 2 * units


def test_a_memory_that_forgets_for_want_of_room_is_caught() -> None:
    """One record makes it forget somebody else, who then comes first again and makes it forget the next one."""
    series, privacy, ticks, _, units = CASES["event"]
    first, after = [event(who="a"), event(who="b")], [event(1, who="a"), event(1, who="b")]
    pair: tuple[Log, Log] = (*first, 0, *after, 1, 2), (*first, event(who="c"), 0, *after, 1, 2)
    for room, loses_more in ((9, False), (2, True)):
        seen = {repr((log,)): first_ticks(log, series, privacy, room) for log in pair}
        world = World(pipeline([series], privacy, ticks, more=ID), 4, seen=seen)
        assert (worst(world, [((pair[0],), (pair[1],))])[0] > units) is loses_more
