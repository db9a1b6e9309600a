"""Users from raw records, exact: all records of one user, wherever they lie and whatever they hold, or none of them.

Events of that user come readable, unreadable, late, twice, under other spellings and from other partitions; others'
records stay. The worst of many drawn streams loses what `plan` states; with a cap or a group rule forgotten, more.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from unit.verify.exact.raw_streams import Item, Log, Logs, World, event, inserted, pipeline, worst

from stream_dp.engine.memories import NetMemory, SharedTotalMemory, TotalMemory

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


EACH = {"name": "each", "statistic": "count", "every": "2s", "epsilon": "2"}
RUNNING = EACH | {"running": "true"}
NESTED = COUNT | {"windows": ["2s"], "method": "nested"}
TOP = KEYS | {"name": "top", "statistic": "top", "k": "1"}
HOP = {
    "name": "hop", "statistic": "quantiles", "of": "amount", "clamp": ["0", "2"], "buckets": "2", "at": ["0.5"],
    "windows": ["2s"], "hop": "2s", "epsilon": "2",
}  # fmt: skip


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
    privacy: Mapping[str, Any], logs: Logs, ticks: int, radius: int, *series: dict[str, Any]
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
        (PER, (SHORT,), 2, 3, (EACH,), 40),
        (BY_TICK, (SHORT,), 2, 3, (EACH,), 40),
        (BY_KEY, (SHORT,), 2, 3, (EACH,), 40),
        (EVER, (LONG,), 3, 3, (EACH | {"every": "3s"},), 40),
        (PER, (SHORT, SHORT), 2, 3, (EACH,), 60),
        (PER, (SHORT,), 2, 3, (KEYS | {"every": "2s", "windows": ()},), 40),
        (PER, (SHORT,), 2, 3, (TOP | {"every": "2s", "windows": ()},), 40),
        (PER, (SHORT,), 2, 3, (TAGGED | {"every": "2s", "windows": ()}, EACH), 200),
    ],
    ids=[
        "count",
        "histogram",
        "sum",
        "for ever",
        "three together",
        "by tick",
        "by key",
        "keys",
        "each window",
        "each window, by tick",
        "each window, by key",
        "each window, for ever",
        "each window, two partitions",
        "keys, each window",
        "top, each window",
        "two in each window",
    ],
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


@pytest.mark.parametrize("privacy", [PER, BY_TICK], ids=["per", "by tick"])
@pytest.mark.parametrize(
    ("series", "radius", "part"),
    [
        (RUNNING, 3, "counters"), (NESTED, 3, "counter"), (HOP, 3, ""),
        (RUNNING | {"every": ["1s", "2s"], "epsilon": "4"}, 3, ""),
    ],
    ids=["running", "nested", "hop", "running in two"],
)  # fmt: skip
def test_a_user_in_windows_of_one_noise_loses_what_plan_states(
    privacy: dict[str, str], series: dict[str, Any], radius: int, part: str
) -> None:
    """And more where what counts inside is made for a user of one event."""
    world, plain = (
        world_of(privacy, (SHORT,), 2, radius, series),
        [event(0), event(1), event(1, amount=None)],
    )
    result, where = worst(world, list(with_and_without((SHORT,), plain, 4, 40)))
    assert result == world.stated == Fraction(series["epsilon"]), where
    if part:
        wrong = twice(getattr(world.series[0].mechanism, part))
        assert worst(world.twin(**{part: wrong}), [where])[0] > world.stated


def twice(part: Any) -> Any:
    """The same with twice the epsilon."""
    if isinstance(part, tuple):
        return tuple(map(twice, part))
    inner = getattr(part, "counts", None)
    return replace(
        part, **({"epsilon": 2 * part.epsilon} if inner is None else {"counts": twice(inner)})
    )


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


NET = TOTAL | {"clamp": ["-2", "2"]}


def nets(ticks: Sequence[int]) -> list[Item]:
    """What the user may send where amounts have both signs."""
    amounts = [-3, -2, -1, 1, 2, None]
    return [event(t, amount=a, key=k) for t in ticks for a in amounts for k in ("a", None)]


@pytest.mark.parametrize("by", [{}, {"by": "key"}], ids=["all", "by key"])
def test_a_user_with_a_total_of_both_signs_loses_what_plan_states(
    by: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What two records of a window come to is in the noise; a memory that clamps nothing loses more."""
    world = world_of(PER, (SHORT,), 2, 5 - len(by), NET | {"every": "2s"} | by)
    pairs = list(with_and_without((SHORT,), nets((0, 1)), 3, 120))
    result, where = worst(world, pairs)
    assert result == world.stated == 2, where
    inner: Any = world.series[0].mechanism
    less = replace(inner.inner, epsilon=2 * inner.inner.epsilon)
    assert worst(world.twin(inner=less), [where])[0] > world.stated
    monkeypatch.setattr("stream_dp.pipeline.router.NetMemory", AnyNet)
    wrong = world_of(PER, (SHORT,), 2, 5 - len(by), NET | {"every": "2s"} | by)
    assert worst(wrong, pairs)[0] > world.stated


class AnyNet(NetMemory):
    """Lets users come to what they like."""

    def __init__(self, totals: Mapping[tuple[int, int], int], window: int | None) -> None:
        super().__init__(dict.fromkeys(totals, 1000), window)


class Forgetful(TotalMemory):
    """Forgets with each tick what users have added."""

    def _enter(self, tick: int) -> None:
        self._begin()


def test_a_user_loses_more_by_a_memory_that_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_dp.pipeline.router.TotalMemory", Forgetful)
    world = world_of(PER, (SHORT,), 2, 5, TOTAL | {"windows": ["1s"]})
    pairs = list(with_and_without((SHORT,), theirs((0, 1)), 4, 60))
    result, _ = worst(world, pairs)
    assert result > world.stated


SHARED = PER | {"total": {"of": "amount", "clamp": ["0", "2"], "at_most": "2"}}
WITHIN = {key: of for key, of in TOTAL.items() if key != "user_total"} | {"shared_total": "true"}
LOW = WITHIN | {"name": "low", "where": [{"field": "amount", "at_most": "1"}], "windows": ["1s"]}
HIGH = WITHIN | {"name": "high", "where": [{"field": "amount", "at_least": "2"}], "every": "2s"}


class Unbounded(SharedTotalMemory):
    """Lets users add what they like, and remembers nothing."""

    def add(self, users: Any, windows: Any, units: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("series", "stated"), [((LOW, HIGH), 2), ((WITHIN, COUNT), 4)], ids=["apart", "beside a count"]
)
def test_a_user_with_a_shared_total_loses_what_plan_states(
    series: tuple[dict[str, Any], ...], stated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sums of different records cost as much as one; a guard that forgets lets a user lose more."""
    world = world_of(SHARED, (SHORT,), 2, 5, *series)
    pairs = list(with_and_without((SHORT,), theirs((0, 1)), 4, 150))
    result, where = worst(world, pairs)
    assert result == world.stated == stated, where
    inner: Any = world.series[0].mechanism
    less = replace(inner.inner, epsilon=2 * inner.inner.epsilon)
    assert worst(world.twin(inner=less), pairs)[0] > world.stated
    monkeypatch.setattr("stream_dp.pipeline.user_guard.SharedTotalMemory", Unbounded)
    wrong = world_of(SHARED, (SHORT,), 2, 5, *series)
    assert worst(wrong, pairs)[0] > wrong.stated


MEAN = {key: of for key, of in WITHIN.items() if key != "statistic"} | {
    "name": "mean", "statistic": "mean", "every": "2s", "epsilon": "4",
}  # fmt: skip
LOW_MEAN = MEAN | {"where": [{"field": "amount", "at_most": "1"}]}
HIGH_MEAN = MEAN | {"name": "high", "where": [{"field": "amount", "at_least": "2"}]}


def plain(ticks: Sequence[int]) -> list[Item]:
    amounts = (0, 1, 2, None)
    return [event(t, amount=a, key=k) for t in ticks for a in amounts for k in ("a", None)]


@pytest.mark.parametrize(
    ("series", "stated"),
    [((MEAN,), 4), ((MEAN | {"by": "key"},), 4), ((LOW_MEAN, HIGH_MEAN), 4), ((MEAN, HIGH), 6)],
    ids=["all", "by key", "apart", "beside a sum"],
)
def test_a_user_with_a_shared_total_loses_by_means_what_plan_states(
    series: tuple[dict[str, Any], ...], stated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums are bounded by the total, the numbers of records by the cap: two records of 1 use up both."""
    world = world_of(SHARED, (SHORT,), 2, 4, *series)
    pairs = list(with_and_without((SHORT,), plain((0, 1)), 3, 60))
    result, where = worst(world, pairs)
    assert world.stated == stated
    if len(series) == 1 or series[1] is HIGH_MEAN:
        assert result == stated, where
    else:  # the record that the sum sees is one of two, and what it adds is not added to the mean again
        assert 4 < result <= stated, where
    first: Any = world.series[0].mechanism
    inner = first.sums.inner
    wide = replace(first.sums, inner=replace(inner, epsilon=2 * inner.epsilon))
    for twin in ({"sums": wide}, {"counts": twice_ended(first.counts)}) if len(series) == 1 else ():
        assert any(worst(world.twin(**twin), some)[0] > result for some in ([where], pairs))
    many = inserted(inserted((SHORT,), 0, 2, event(1, amount=2)), 0, 0, event(0, amount=2))
    assert change(world, many) <= stated
    monkeypatch.setattr("stream_dp.pipeline.user_guard.SharedTotalMemory", Unbounded)
    assert change(world_of(SHARED, (SHORT,), 2, 4, *series), many) > stated


def change(world: World, logs: Logs) -> int:
    """By how many units and records rows differ from those of SHORT; each costs 1, but a sum's unit beside a mean."""
    pairs = zip(world.rows(logs), world.rows((SHORT,)), strict=True)
    return sum(abs(a - b) for left, right in pairs for a, b in zip(left, right, strict=True))


def twice_ended(counts: Any) -> Any:
    return replace(counts, epsilon=2 * counts.epsilon)


def test_records_of_a_mean_are_counted_by_the_cap_and_not_by_the_total() -> None:
    """A total of 1 and a cap of 2: two records of 0 and 1 change both halves in full. Noise for as many records as the
    total has units is for half of what two records change.
    """
    one = PER | {"total": {"of": "amount", "clamp": ["0", "1"], "at_most": "1"}}
    world = world_of(one, (SHORT,), 2, 4, MEAN | {"clamp": ["0", "1"]})
    pairs = list(with_and_without((SHORT,), plain((0, 1)), 3, 60))
    result, where = worst(world, pairs)
    assert result == world.stated == 4, where
    first: Any = world.series[0].mechanism
    assert (first.sums.inner.epsilon, first.counts.epsilon) == (2, 1)
    assert worst(world.twin(counts=twice_ended(first.counts)), [where])[0] > world.stated


MORE: dict[str, Any] = {"pieces": {"type": "integer", "nullable": "true"}}
TWO_TOTALS = PER | {
    "max_events": "3",
    "totals": [
        {"of": "amount", "clamp": ["0", "2"], "at_most": "2"},
        {"of": "pieces", "clamp": ["0", "1"], "at_most": "1"},
    ],
}
PIECES = WITHIN | {"name": "pieces", "of": "pieces", "clamp": ["0", "1"], "every": "2s"}


def both(ticks: Sequence[int]) -> list[Item]:
    amounts = (0, 1, 2, None)
    return [event(t, amount=a, pieces=p) for t in ticks for a in amounts for p in (0, 1, None)]


class OneForgotten(SharedTotalMemory):
    """Remembers nothing of the second total."""

    def add(self, users: Any, windows: Any, units: Any) -> Any:
        return None if self.kind.endswith("pieces") else super().add(users, windows, units)


@pytest.mark.parametrize("apart", [False, True], ids=["all", "apart"])
def test_a_user_with_two_totals_loses_both(apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no record is seen by sums of both: all of one lie in one record, all of the other in another one."""
    sides = {"at_least": "2"}, {"at_most": "1"}
    sees = [{"where": [{"field": "amount", **side}]} for side in sides]
    first, second = (s if apart else {} for s in sees)
    series = WITHIN | {"every": "2s"} | first, PIECES | second

    def made() -> World:
        return World(pipeline(series, TWO_TOTALS, 2, more=MORE), 5)

    world = made()
    pairs = list(with_and_without((SHORT,), both((0, 1)), 3, 80))
    result, where = worst(world, pairs)
    assert result == world.stated == 4, where
    monkeypatch.setattr("stream_dp.pipeline.user_guard.SharedTotalMemory", OneForgotten)
    many: Log = (event(0, amount=2), event(0, amount=0, pieces=1), other(0), 0)
    again: Log = (event(1, amount=0, pieces=1), other(1), 1)
    assert worst(made(), [(((*many, *again),), (SHORT,))])[0] > world.stated
