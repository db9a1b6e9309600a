"""Mechanisms that run alone: one tick one release, plain and asynchronous, and nothing private leaves."""

import asyncio
import copy
import os
import pickle
import re
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from stream_dp import Budget, ContinualAlerts, Counts, FailClosed, RejectedMessage, TickRelease
from stream_dp.core.messages import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.counter import Counter as CounterMechanism
from stream_dp.noise import fresh_seed
from stream_dp.python.standalone import blocks
from stream_dp.testing.noise import SeededNoise, ZeroNoise

KEYS = ("DE", "FR", "PL")
HORIZON = 20
MAKE: dict[str, Callable[[], Any]] = {
    "count": lambda: Budget(epsilon=1).counter(epsilon=1, horizon=HORIZON),
    "endless": lambda: Budget(epsilon=1).counter(epsilon=1),
    "histogram": lambda: Budget(epsilon=1).histogram(
        epsilon=1, keys=KEYS, horizon=HORIZON, method="tree"
    ),
    "hss": lambda: Budget(epsilon=1).histogram(
        epsilon=1, keys=KEYS, horizon=HORIZON, method="hss", expected_events=100
    ),
    "maximum": lambda: Budget(epsilon=1).maximum(
        epsilon=1, keys=KEYS, horizon=HORIZON, expected_events=100
    ),
    "alerts": lambda: Budget(epsilon=1).alerts(epsilon=1, keys=KEYS, threshold=5),
    "windows": lambda: Budget(epsilon=1).counter(
        epsilon=1, horizon=HORIZON, windows=[3, 7, "ever"]
    ),
    "by key over windows": lambda: Budget(epsilon=1).histogram(
        epsilon=1, keys=KEYS, horizon=HORIZON, windows=[7]
    ),
    "top": lambda: Budget(epsilon=1).top(epsilon=1, keys=KEYS, k=2, horizon=HORIZON, windows=[3]),
}
every = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
keyed = pytest.mark.parametrize(
    "make", [MAKE[name] for name in ("histogram", "hss", "maximum", "alerts")]
)


def ticks_for(live: Any, number: int = HORIZON) -> list[Any]:
    """Events of some ticks, empty ones among them, in the form that `over` takes."""
    if not hasattr(live, "keys"):
        return [tick % 4 for tick in range(number)]
    return [{KEYS[tick % 3]: tick % 4, "PL": 1} if tick % 5 else {} for tick in range(number)]


async def later(items: Iterable[Any]) -> AsyncIterator[Any]:
    """The items, each after the loop has had a turn."""
    for item in items:
        await asyncio.sleep(0)
        yield item


@pytest.mark.usefixtures("exact")
def test_without_noise_the_answers_are_those_of_the_events() -> None:
    counter, histogram = MAKE["count"](), MAKE["histogram"]()
    counter.add(3)
    counter.add()
    histogram.add("FR", 2)
    assert (counter.release().value, counter.release().value) == (4, 4)
    assert dict(histogram.release().value) == {"DE": 0, "FR": 2, "PL": 0}
    histogram.add("DE", np.int64(7))
    assert histogram.release().value == {"DE": 7, "FR": 2, "PL": 0}
    alerts = MAKE["alerts"]()
    fired = [r.value for r in alerts.over([{"DE": 4}, {"DE": 1, "PL": 9}, {}, {"DE": 5}])]
    assert fired == [(), ("DE", "PL"), (), ("DE",)]
    maximum = MAKE["maximum"]()
    told = list(maximum.over([{}, {"DE": 1000}, {"FR": 3000, "PL": 3000}, {}]))
    assert [r.value for r in told] == [0, 1000, 3000, 3000]
    assert [r.name for r in told] == [None, "DE", "FR", "FR"]
    assert counter.release().name is None


def test_a_counter_is_the_mechanism_and_its_band(opened: list[SeededNoise]) -> None:
    counter = MAKE["count"]()
    released = list(counter.over([5, 0, 2]))
    mechanism = CounterMechanism(1, Fraction(1), Neighbors.ADD_REMOVE, HORIZON)
    state = mechanism.init(SeededNoise(0))
    for tick, events in enumerate([5, 0, 2]):
        noise = SeededNoise(tick + 1)
        state, _ = mechanism.step(state, Update(np.array([events])), noise)
        state, answer = mechanism.step(state, Query(), noise)
        assert answer is not None
        band = blocks.band_of(mechanism, 0.95)(tick, state)
        assert released[tick] == TickRelease(tick, int(answer[0]), band, 0.95)
    assert len(opened) == 4


@every
def test_plain_and_asynchronous_iterators_release_the_same(
    make: Callable[[], Any], opened: list[SeededNoise]
) -> None:
    plain = make()
    released = list(plain.over(ticks_for(plain)))
    opened.clear()
    again = make()

    async def gather() -> list[Any]:
        return [release async for release in again.over(later(ticks_for(again)))]

    assert asyncio.run(gather()) == released
    assert [release.tick for release in released] == list(range(HORIZON))
    assert again.ticks == plain.ticks == HORIZON


@every
def test_over_is_add_and_release(make: Callable[[], Any], opened: list[SeededNoise]) -> None:
    over = make()
    released = list(over.over(ticks_for(over)))
    opened.clear()
    one = make()
    for tick, events in enumerate(ticks_for(one)):
        for entry in events.items() if isinstance(events, dict) else [(events,)]:
            one.add(*entry)
        assert one.release() == released[tick]


@every
def test_a_release_stays_as_it_is(make: Callable[[], Any]) -> None:
    live = make()
    assert live.last is None
    release = live.release()
    text = repr(release)
    with pytest.raises(FrozenInstanceError):
        release.value = 3
    if isinstance(release.value, Counts):
        with pytest.raises(TypeError):
            release.value["DE"] = 3  # type: ignore[index]
    live.release()
    assert repr(release) == text
    assert pickle.loads(pickle.dumps(release)) == release  # noqa: S301 - our own
    assert copy.deepcopy(release) == release


class Forgetful(ContinualAlerts):
    """A broken twin: it asks its mechanism again, with fresh noise, whenever somebody looks."""

    __slots__ = ()

    @property
    def last(self) -> TickRelease[tuple[str, ...]]:
        """Another release of the same tick."""
        now, mechanism = self._now, self._charged.mechanism
        _, answer = mechanism.step(now.state, Query(), blocks.new_noise())
        assert answer is not None
        return TickRelease(now.tick - 1, self._value(answer), 0, 0.95)


def drawn_by_looking(alerts: ContinualAlerts, opened: list[SeededNoise]) -> tuple[int, bool]:
    """How many noise streams it takes to look at a release twice, and whether it is the same object."""
    release, before = alerts.release(), len(opened)
    return len(opened) - before, alerts.last is release is alerts.last


def drawn_in_all(alerts: ContinualAlerts, opened: list[SeededNoise]) -> int:
    """How many noise streams a tick takes that is looked at twice."""
    before = len(opened)
    alerts.release()
    _ = alerts.last, alerts.last
    return len(opened) - before


def test_a_tick_is_released_once_however_often_it_is_asked_for(opened: list[SeededNoise]) -> None:
    alerts = MAKE["alerts"]()
    assert drawn_in_all(alerts, opened) == 1
    assert drawn_by_looking(alerts, opened) == (0, True)
    twin = Forgetful(alerts._charged)
    assert drawn_in_all(twin, opened) == 3
    assert not drawn_by_looking(twin, opened)[1]


def refusals(live: Any) -> Iterator[Callable[[], Any]]:
    """Bad rows for `add` and `over`."""
    counts: list[Any] = [-1, 1.0, 2**40 + 1, True, "3", None, np.float64(2), np.array([1, 2])]
    if not hasattr(live, "keys"):
        for count in counts:
            yield partial(live.add, count)
            yield partial(next, live.over([count]))
        return
    for count in counts:
        yield partial(live.add, "DE", count)
    for key in ("Atlantis", 1, None, ("DE",), ["DE"]):
        yield partial(live.add, key)
    for events in ({"DE": 1, "Atlantis": 1}, {"DE": 1, "FR": -1}, ["DE"], "DE", 3):
        yield partial(next, live.over([events]))


@every
def test_a_bad_row_changes_nothing(make: Callable[[], Any], opened: list[SeededNoise]) -> None:
    live = make()
    next(live.over(ticks_for(live)))
    now, row, streams = live._now, live._now.row.copy(), len(opened)
    for refused in refusals(live):
        with pytest.raises(RejectedMessage) as error:
            refused()
        assert "Atlantis" not in str(error.value)
    assert live._now is now
    assert live._now.row.tolist() == row.tolist()
    assert len(opened) == streams
    assert live.release().tick == 1


@pytest.mark.usefixtures("exact")
def test_a_tick_holds_no_more_than_the_engine_takes() -> None:
    counter = MAKE["count"]()
    counter.add(2**40)
    with pytest.raises(RejectedMessage, match="nothing was added"):
        counter.add(1)
    assert counter.release().value == 2**40


@pytest.mark.parametrize("make", [MAKE[n] for n in ("count", "histogram", "hss", "maximum")])
def test_the_horizon_is_the_end(make: Callable[[], Any], opened: list[SeededNoise]) -> None:
    live = make()
    assert live.horizon == HORIZON
    released = list(live.over(ticks_for(live)))
    streams = len(opened)
    for refused in (
        live.release,
        lambda: live.add(*(["DE"] if hasattr(live, "keys") else [])),
        lambda: list(live.over(ticks_for(live))),
    ):
        with pytest.raises(RejectedMessage, match="made for 20 ticks"):
            refused()
    assert (live.last, live.ticks, len(opened)) == (released[-1], HORIZON, streams)


def test_without_a_horizon_there_is_no_end() -> None:
    endless = MAKE["endless"]()
    assert endless.horizon is None
    assert [r.tick for r in endless.over([1] * 300)] == list(range(300))


@every
def test_there_is_one_of_it(make: Callable[[], Any], another_process: Callable[[], None]) -> None:
    live = make()
    live.release()
    for double in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(FailClosed, match="neither copied nor pickled"):
            double(live)
    now = live._now
    another_process()
    for refused in (
        live.release,
        lambda: live.add(*(["DE"] if hasattr(live, "keys") else [])),
        lambda: next(live.over(ticks_for(live))),
    ):
        with pytest.raises(FailClosed, match="forked process"):
            refused()
    assert live._now is now


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_process_releases_nothing() -> None:
    counter = MAKE["count"]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: forking beside other threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            counter.release()
        except FailClosed:
            code = 42
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 42
    assert counter.release().tick == 0


@every
def test_its_text_shows_nothing_private(make: Callable[[], Any]) -> None:
    live = make()
    live.add(*(["DE"] if hasattr(live, "keys") else []), 77_777)
    shown = repr(live) + repr(live._now) + repr(live._charged)
    assert "77777" not in re.sub(r" at 0x[0-9a-f]+", "", shown)  # an address may have any digits
    live.release()
    assert repr(live).endswith(": 1 tick released>")
    assert not hasattr(live, "__dict__")


@pytest.mark.usefixtures("exact")
def test_threads_lose_no_event_and_no_tick() -> None:
    counter = Budget(epsilon=1).counter(epsilon=1)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: counter.add(), range(400)))
        ticks = [r.tick for r in pool.map(lambda _: counter.release(), range(40))]
    assert sorted(ticks) == list(range(40))
    assert counter.last is not None
    assert counter.last.value == 400


def test_noise_is_fresh_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[bytes] = []

    def fresh() -> bytes:
        seeds.append(fresh_seed())
        return seeds[-1]

    monkeypatch.setattr(blocks, "fresh_seed", fresh)
    counter = MAKE["count"]()
    list(counter.over([1] * 5))
    assert len(set(seeds)) == len(seeds) == 6


def test_the_test_kit_has_other_noise() -> None:
    assert not isinstance(blocks.new_noise(), ZeroNoise)
