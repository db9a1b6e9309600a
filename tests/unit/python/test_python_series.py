"""Series of a program: one tick one release, plain and asynchronous; what they refuse, and nothing private leaves."""

import asyncio
import copy
import json
import pickle
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from decimal import Decimal
from fractions import Fraction
from functools import partial
from math import isqrt
from typing import Any

import numpy as np
import pytest

import stream_dp as sdp
from stream_dp import (
    Budget,
    ContinualAlerts,
    FailClosed,
    NotDerivable,
    RejectedMessage,
    TickRelease,
)
from stream_dp.core.mechanism import Query
from stream_dp.noise import fresh_seed
from stream_dp.python import series
from stream_dp.testing.noise import SeededNoise, ZeroNoise

KEYS = ("DE", "FR", "other")
HORIZON = 12
FIELDS: dict[str, Any] = {
    "key": {"type": "category", "domain": ["DE", "FR"]},
    "amount": {"type": "number"},
    "tags": {"type": "list", "domain": ["DE", "FR"], "most": 2, "nullable": True},
}


def paid(**more: Any) -> Budget:
    return Budget(epsilon=3, schema=FIELDS, tick="1h", **more)


MAKE: dict[str, Callable[[Budget], Any]] = {
    "series": lambda b: b.series(sdp.Histogram(by="key"), epsilon=1, horizon=HORIZON),
    "count": lambda b: b.counter(epsilon=1, horizon=HORIZON),
    "windows": lambda b: b.counter(epsilon=1, horizon=HORIZON, windows=[3, 7, "ever"]),
    "histogram": lambda b: b.histogram(epsilon=1, keys=KEYS, horizon=HORIZON),
    "top": lambda b: b.top(epsilon=1, keys=KEYS, k=2, horizon=HORIZON, windows=[3]),
    "maximum": lambda b: b.maximum(epsilon=1, keys=KEYS, horizon=HORIZON, expected_events=99),
    "alerts": lambda b: b.alerts(epsilon=1, keys=KEYS, threshold=5, horizon=HORIZON),
    "sum": lambda b: b.sum(epsilon=1, clamp=(-20, 240), step="0.01", horizon=HORIZON, windows=[3]),
    "sums": lambda b: b.sum(epsilon=1, clamp=(0, 240), step=5, keys=KEYS, horizon=HORIZON),
}
SAME: dict[str, sdp.Statistic] = {  # what a short name is short for
    "count": sdp.Count(),
    "windows": sdp.Count(windows=["3h", "7h", "ever"]),
    "histogram": sdp.Histogram(by="key", method="auto"),
    "top": sdp.Top(by="key", k=2, windows=["3h"]),
    "maximum": sdp.Maximum(by="key", expected_events=99),
    "alerts": sdp.Alerts(by="key", threshold=5),
    "sum": sdp.Sum(of="amount", clamp=(-20, 240), step="0.01", windows=["3h"]),
    "sums": sdp.Sum(of="amount", clamp=(0, 240), step=5, by="key"),
}
every = pytest.mark.parametrize("name", MAKE)


def happened() -> list[dict[str, list[Any]]]:
    found: list[dict[str, list[Any]]] = []
    for tick in range(HORIZON):
        amounts = {
            "DE": [tick - 5, 7.8, 7.375] * (tick + 1),
            "other": [400, -40.5, 0.125][: tick % 4],
        }
        found.append({key: each for key, each in amounts.items() if each} if tick % 5 else {})
    return found


def ticks_for(name: str) -> list[Any]:
    ticks = happened()
    match name:
        case "series":
            return [[{"key": k, "amount": a} for k, each in t.items() for a in each] for t in ticks]
        case "sum":
            return [[a for each in t.values() for a in each] for t in ticks]
        case "sums":
            return list(ticks)
        case "count" | "windows":
            return [sum(map(len, t.values())) for t in ticks]
    return [{key: len(each) for key, each in t.items()} for t in ticks]


def said(value: Any) -> Any:
    match value:
        case sdp.Counts() | sdp.Sums():
            return {"values": dict(value)}
        case (sdp.Ranked(), *_):
            more = [{} if not r.more else {"more": r.more} for r in value]
            plain = [{"name": r.name, "value": r.value, "tied": list(r.tied)} for r in value]
            return {"ranks": [one | two for one, two in zip(plain, more, strict=True)]}
        case tuple():
            return {"fired": list(value)}
    return {"value": value}


@pytest.mark.parametrize("name", SAME)
def test_a_short_name_releases_what_its_series_does(name: str, opened: list[SeededNoise]) -> None:
    live = MAKE[name](paid())
    short = list(live.over(ticks_for(name)))
    opened.clear()
    budget = paid()
    generic = budget.series(SAME[name], epsilon=1, horizon=HORIZON)
    assert live.guarantee == generic.guarantee
    assert live.prepared.chosen.mechanism == generic.prepared.chosen.mechanism
    for mine, theirs in zip(short, generic.over(ticks_for("series")), strict=True):
        told = json.loads(theirs.body, parse_float=Decimal)
        parts = list(told["windows"].values()) if "windows" in told else [told]
        shown = list(mine.windows.values()) or [mine]
        assert len(shown) == len(parts)
        for window, part in zip([mine, *shown], [parts[0], *parts], strict=True):
            want = {**said(window.value), "band": window.band}
            assert want == {key: part[key] for key in want}
        assert (mine.tick, mine.confidence) == (theirs.tick, theirs.confidence)
        assert mine.name == told.get("name")


@pytest.mark.usefixtures("exact")
def test_without_noise_the_answers_are_those_of_the_events() -> None:
    counter = MAKE["count"](paid())
    counter.add(3)
    counter.add()
    assert (counter.release().value, counter.release().value) == (4, 4)
    histogram = MAKE["histogram"](paid())
    histogram.add("DE", np.int64(7000))
    assert histogram.release().value == {"DE": 7000, "FR": 0, "other": 0}
    maximum = MAKE["maximum"](paid())
    told = list(maximum.over([{}, {"DE": 1000}, {"FR": 3000, "other": 3000}, {}]))
    assert [r.value for r in told] == [0, 1000, 3000, 3000]
    assert [r.name for r in told] == [None, "DE", "FR", "FR"]
    volume = MAKE["sum"](paid())
    volume.add(12.5, 300, Fraction(1, 3))
    assert str(volume.release().value) == "252.83"
    volume.add(-1e300)
    (release,) = volume.over([[]])
    assert (release.value, release.windows[3].value) == (Decimal("-20.00"), Decimal("232.83"))
    mean = paid().series(sdp.Mean(of="amount", clamp=(0, 240), step="0.5", by="key"), epsilon=1)
    mean.add({"key": "DE", "amount": np.float64(12.5), "unknown": None})
    mean.update([{"key": "IT", "amount": Decimal("0.5")}, {"key": "IT", "amount": Fraction(3, 2)}])
    shown: Any = mean.release().value
    assert shown == {"DE": 12.5, "FR": None, "other": 1}


async def later(items: Iterable[Any]) -> AsyncIterator[Any]:
    for item in items:
        await asyncio.sleep(0)
        yield item


def one_by_one(live: Any, name: str, events: Any) -> None:
    match events:
        case list() if name == "series":
            for event in events:
                live.add(event)
        case list():
            live.add(*events)
        case dict() if name == "sums":
            for key, amounts in events.items():
                live.add(key, *amounts)
        case dict():
            for entry in events.items():
                live.add(*entry)
        case _:
            live.add(events)


@every
def test_over_is_add_and_release_plain_and_asynchronous(
    name: str, opened: list[SeededNoise], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 0)
    over = MAKE[name](paid())
    released = list(over.over(ticks_for(name)))
    assert [release.tick for release in released] == list(range(HORIZON))
    opened.clear()
    again = MAKE[name](paid())

    async def gather() -> list[Any]:
        return [release async for release in again.over(later(ticks_for(name)))]

    assert asyncio.run(gather()) == released
    opened.clear()
    one = MAKE[name](paid())
    for tick, events in enumerate(ticks_for(name)):
        one_by_one(one, name, events)
        assert one.release() == released[tick]
    assert len(opened) == 1 + HORIZON


@every
def test_a_release_stays_as_it_is(name: str) -> None:
    live = MAKE[name](paid())
    assert live.last is None
    release = live.release()
    text = repr(release)
    with pytest.raises(FrozenInstanceError):
        release.value = 3
    live.release()
    assert repr(release) == text
    assert pickle.loads(pickle.dumps(release)) == copy.deepcopy(release) == release  # noqa: S301 - our own


class Forgetful(ContinualAlerts):
    """A broken twin: it asks its mechanism again, with fresh noise, whenever somebody looks."""

    __slots__ = ()

    @property
    def last(self) -> TickRelease[tuple[str, ...]]:
        """Another release of the same tick."""
        _, answer = self.prepared.runs.mechanism.step(self._state, Query(), series.new_noise())
        assert answer is not None
        return TickRelease(self._tick - 1, (), 0, 0.95)


def drawn_by_looking(alerts: ContinualAlerts, opened: list[SeededNoise]) -> int:
    """How many noise streams a tick takes that is looked at twice."""
    before = len(opened)
    alerts.release()
    _ = alerts.last, alerts.last
    return len(opened) - before


def test_a_tick_is_released_once_however_often_it_is_asked_for(opened: list[SeededNoise]) -> None:
    alerts = MAKE["alerts"](paid())
    assert drawn_by_looking(alerts, opened) == 1
    assert alerts.release() is alerts.last
    assert drawn_by_looking(Forgetful(alerts.prepared, alerts.keys), opened) == 3


COUNTS: list[Any] = [-1, 1.0, 2**40 + 1, True, "3", None, np.float64(2), np.array([1, 2])]
AMOUNTS: list[Any] = [True, "77777", None, float("nan"), Decimal("inf"), 10**400, 1j]
GOOD = {"key": "DE", "amount": 1}
KEYED = (
    [*(("DE", each) for each in COUNTS), *(((k,)) for k in ("Atlantis", 1, None, ("DE",), ["DE"]))],
    [{"DE": 1, "Atlantis": 1}, {"DE": 1, "FR": -1}, ["DE"], "DE", 3],
)
BAD: dict[str, tuple[list[Any], list[Any]]] = {  # arguments of `add`, and items of `over`
    "series": (
        [(each,) for each in (3, "Atlantis", {}, {"key": 77777, "amount": 1}, {"key": object()})],
        [GOOD, [GOOD, {}], 3],
    ),
    "count": ([(each,) for each in COUNTS], COUNTS),
    "windows": ([(each,) for each in COUNTS], COUNTS),
    "sum": ([(1, each) for each in AMOUNTS], [3, "77777"]),
    "sums": (
        [*(("DE", 1, each) for each in AMOUNTS), ("Atlantis", 1)],
        [{"DE": [1], "Atlantis": [2]}, [1], {"DE": 1}],
    ),
}


def refusals(live: Any, name: str) -> Iterator[Callable[[], Any]]:
    added, ticks = BAD.get(name, KEYED)
    yield from (partial(live.add, *each) for each in added)
    yield from (partial(next, live.over([each])) for each in ticks)


@every
def test_a_bad_event_changes_nothing_and_is_not_repeated(
    name: str, opened: list[SeededNoise]
) -> None:
    plain, live = (MAKE[name](paid(start="2026-01-01T00:00:00Z")) for _ in range(2))
    streams = len(opened)
    for refused in refusals(live, name):
        with pytest.raises(RejectedMessage) as error:
            refused()
        assert not re.search("Atlantis|77777", str(error.value))
    assert (len(opened), live.ticks) == (streams, 0)
    releases = []
    for one in (plain, live):
        opened.clear()
        one._state = one.prepared.runs.mechanism.init(series.new_noise())
        one_by_one(one, name, ticks_for(name)[1])
        releases.append(one.release())
    assert releases[0] == releases[1]


@pytest.mark.usefixtures("exact")
def test_a_tick_holds_no_more_than_the_engine_takes() -> None:
    counter = MAKE["count"](paid())
    counter.add(2**40)
    with pytest.raises(RejectedMessage, match="nothing was added"):
        counter.add(1)
    assert counter.release().value == 2**40
    volume = Budget(epsilon=1).sum(epsilon=1, clamp=(-(10**9), 10**9))
    volume._open[0] = -(2**60)
    with pytest.raises(RejectedMessage, match=r"at most 2\^60 steps"):
        volume.add(-1)
    assert volume.release().value == -(2**60)


@every
def test_the_horizon_is_the_end(name: str, opened: list[SeededNoise]) -> None:
    live = MAKE[name](paid())
    *_, last = live.over(ticks_for(name))
    streams = len(opened)
    for refused in (live.release, lambda: one_by_one(live, name, ticks_for(name)[1])):
        with pytest.raises(RejectedMessage, match="created for 12 ticks"):
            refused()
    assert (live.last, live.ticks, len(opened)) == (last, HORIZON, streams)
    endless = paid().counter(epsilon=1)
    assert endless.horizon is None
    assert [r.tick for r in endless.over([1] * 50)] == list(range(50))


@every
def test_there_is_one_of_it(name: str, another_process: Callable[[], None]) -> None:
    live = MAKE[name](paid())
    release = live.release()
    for double in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(FailClosed, match="cannot be copied or pickled"):
            double(live)
    another_process()
    for refused in (
        live.release,
        lambda: one_by_one(live, name, ticks_for(name)[1]),
        lambda: next(live.over(ticks_for(name))),
    ):
        with pytest.raises(FailClosed, match="forked process"):
            refused()
    assert live.last is release


@every
def test_its_text_shows_nothing_private(name: str) -> None:
    live = MAKE[name](paid())
    one_by_one(live, name, ticks_for(name)[1])
    shown = repr(live) + repr(live.prepared)
    live.release()
    assert "7.8" not in shown + repr(live)
    assert re.fullmatch(r"<\w+ '[\w-]+': 1 tick released>", repr(live))


@pytest.mark.usefixtures("exact")
def test_threads_lose_no_event_and_no_tick() -> None:
    counter = paid().series(sdp.Count(), epsilon=1)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: counter.add({}), range(400)))
        ticks = [r.tick for r in pool.map(lambda _: counter.release(), range(40))]
    assert sorted(ticks) == list(range(40))
    assert counter.last is not None
    assert counter.last.value == 400


def test_noise_is_fresh_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[bytes] = []

    def fresh() -> bytes:
        seeds.append(fresh_seed())
        return seeds[-1]

    monkeypatch.setattr(series, "fresh_seed", fresh)
    list(MAKE["count"](paid()).over([1] * 5))
    assert len(set(seeds)) == len(seeds) == 6
    assert not isinstance(series.new_noise(), ZeroNoise)


def test_a_release_that_fails_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = MAKE["series"](paid())
    counter.release()

    def no_randomness() -> None:
        raise OSError("no randomness")

    with monkeypatch.context() as patch:
        patch.setattr(series, "new_noise", no_randomness)
        with pytest.raises(OSError, match="no randomness"):
            counter.release()
    for refused in (counter.release, lambda: counter.add({"key": "DE", "amount": 1})):
        with pytest.raises(FailClosed, match="release of tick 1 failed"):
            refused()


def test_a_ratio_is_of_the_releases_of_one_tick() -> None:
    budget = paid()
    revenue = budget.series(sdp.Sum(of="amount", clamp=(0, 9)), epsilon=1, name="revenue")
    orders = budget.series(sdp.Count(), epsilon=1, name="orders")
    each = budget.series(sdp.Ratio(of="revenue", over="orders"), name="each")
    assert budget.spent == 2
    for refused in (each.release, lambda: each.add({"key": "DE", "amount": 1})):
        with pytest.raises(RejectedMessage, match=r"computed from releases.* revenue and orders"):
            refused()
    revenue.release()
    with pytest.raises(RejectedMessage, match="same tick"):
        each.release()
    orders.release()
    assert each.release().tick == 0
    with pytest.raises(RejectedMessage, match="same tick"):
        each.release()
    with pytest.raises(NotDerivable, match="computed from releases"):
        _ = each.guarantee
    with pytest.raises(sdp.UsageError, match="name: a series 'each' is already there"):
        budget.series(sdp.Count(), epsilon=1, name="each")
    other = {"amount": {"type": "integer"}}
    others = budget.series(sdp.Count(), epsilon="0.5", name="others", schema=other)
    with pytest.raises(sdp.UsageError, match=r"schema\.amount: this field is declared otherwise"):
        budget.series(sdp.Ratio(of="revenue", over=others.name))


LISTS: dict[str, Callable[..., Any]] = {
    "tree": lambda b, **more: b.histogram(epsilon=1, keys=KEYS, method="tree", horizon=9, **more),
    "hss": lambda b, **more: b.histogram(epsilon=1, keys=KEYS, method="hss", **more),
    "maximum": lambda b, **more: b.maximum(epsilon=1, keys=KEYS, **more),
    "alerts": lambda b, **more: b.alerts(epsilon=1, keys=KEYS, threshold=5, **more),
    "windows": lambda b, **more: b.histogram(epsilon=1, keys=KEYS, windows=[3, "ever"], **more),
    "top": lambda b, **more: b.top(epsilon=1, keys=KEYS, k=2, method="tree", **more),
}


@pytest.mark.parametrize("create", LISTS.values(), ids=LISTS)
def test_a_list_counts_once_at_each_key_and_costs_the_same(create: Callable[..., Any]) -> None:
    budget = Budget(epsilon=1)
    made = create(budget, most=2)
    assert made.guarantee.measure == sdp.PureDP(Fraction(1))
    assert made.most == made.prepared.chosen.mechanism.ones == 2
    made.add_list(["DE", "FR", "DE"])
    made.add_list([])
    made.add("FR", 3)
    for wrong in (KEYS, ["DE", "IT"], "DE", [["DE"]]):
        with pytest.raises(
            RejectedMessage, match=r"no more than 2 of the keys|declared|list of texts"
        ):
            made.add_list(wrong)
    assert made._open.tolist() == [1, 4, 0]
    single = create(Budget(epsilon=1))
    assert single.most == 1
    with pytest.raises(RejectedMessage, match="no more than 1 of the keys"):
        single.add_list(["DE", "FR"])


def test_noise_grows_with_what_one_event_may_set() -> None:
    """A tree's scale by the number of keys, a Gaussian deviation by its root."""
    wide: dict[str, Any] = {"keys": [str(n) for n in range(9)], "horizon": 50, "epsilon": 1}
    gaussian = {"delta": "1e-6", "filter": "zcdp"}
    for method, given, factor in (("tree", {}, 9), ("gaussian", gaussian, isqrt(9))):
        one, all_ = (
            Budget(epsilon=1, **given).histogram(method=method, most=most, **wide).release().band  # type: ignore[arg-type]
            for most in (1, 9)
        )
        assert all_ == pytest.approx(factor * one, rel=0.1)


def test_a_tick_whose_events_failed_midway_is_never_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it would be released without them."""
    counted = MAKE["series"](paid())
    monkeypatch.setattr(series, "_TOGETHER", 1)
    monkeypatch.setattr(type(counted._lane._router), "route", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        counted.add({"key": "DE", "amount": 1})
    with pytest.raises(FailClosed, match="create another"):
        counted.release()
