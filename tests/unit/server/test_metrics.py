"""`/metrics`: every line has its source in what is public, nothing published is missing, nothing else is told.

`metrics_sources` finds the sources; the twins below tell more than is public, or something else, and are found out.
"""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import Any

import httpx
import pytest
from unit.server import public_world as world
from unit.server.metrics_sources import RELEASE, Sourceless, require_sources, samples, told_numbers

from stream_dp.journal.commit import Release
from stream_dp.server import metrics
from stream_dp.server.api import create_app
from stream_dp.server.metrics import OPEN, FiredSoFar, Gauges
from stream_dp.server.models.published import EXAMPLES
from stream_dp.server.view import PublicView, ReleaseLog

MakeRelease = Callable[..., Release]
VALUE = f"{RELEASE}value"
OPENLY = {"accept": f"{OPEN};version=1.0.0,text/plain;version=0.0.4;q=0.5"}
SHAPES: dict[str, dict[str, Any]] = {
    name: {
        key: told
        for key, told in example.items()
        if key not in {"v", "sequence", "series", "tick", "end"}
    }
    for name, example in EXAMPLES.items()
}
SHAPES |= {
    "maximum": {"name": "ATL", "value": 641, "band": 37},
    "leaders": {"ranks": [{"name": "ATL", "value": 6.5, "tied": ["ORD"], "more": 3}], "band": 2.5},
    "watches": {"fired": ["a", "b"], "band": 12, "counts": {"a": 130, "b": 0}, "counts_band": 9},
    "quiet": {"fired": [], "band": 12},
    "quantiles": {
        "windows": {
            "1h": {"quantiles": {"0.5": {"value": 33.42, "low": 30, "high": 36}}, "band": 468},
            "24h": {"quantiles": {}, "band": 468},
        }
    },
    "wide": {
        "windows": {
            "tick": {"values": {"ATL": 4, "other": -1}, "band": 3},
            "1h": {"values": {"ATL": 0.5, "other": None}, "lows": [0.25, 0], "highs": [None, None]},
            "ever": {"ranks": [{"name": "JFK", "value": 4, "tied": []}], "band": 7},
        }
    },
    "nothing": {"value": None, "low": None, "high": None},
    'odd "name"\n\\': {"values": {'a "quoted"\nkey\\': 3, "é": 4}, "band": 2},
    "kit": {"value": 3, "band": 0, "not_private": True},
}  # fmt: skip


def shaped(release: MakeRelease, log: ReleaseLog) -> None:
    """Two ticks of each shape."""
    for tick in (10, 11):
        for name, content in SHAPES.items():
            log.append(release(log.last_sequence + 1, name, tick, **content))


@pytest.fixture
def log(release: MakeRelease) -> ReleaseLog:
    """A log with releases of all shapes."""
    made = ReleaseLog()
    shaped(release, made)
    return made


@pytest.fixture
def public() -> dict[str, Any]:
    """A configuration in which they all run, and one that never released anything."""
    entries = [world.series(name) for name in [*SHAPES, "silent"]]
    entries[list(SHAPES).index("flags")]["domain"] = ["AA", "UA"]
    made = world.pipeline("flights", *entries)
    made["clock"] |= {"delay": 0.5}
    return made


@pytest.fixture
def view(log: ReleaseLog, public: dict[str, Any]) -> PublicView:
    """A view of both."""
    return PublicView(lambda: deepcopy(public), world.plan, world.budget, log)


@pytest.fixture
async def scraped(view: PublicView) -> AsyncIterator[Callable[[], Any]]:
    """Scrape it once more, as OpenMetrics."""
    transport = httpx.ASGITransport(create_app(view, frozenset({"localhost"})))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8765") as client:

        async def scrape() -> bytes:
            answer = await client.get("/metrics", headers=OPENLY)
            assert answer.status_code == 200, answer.text
            return answer.content

        yield scrape


async def test_every_line_has_its_source_and_no_number_is_missing(
    scraped: Callable[[], Any], view: PublicView
) -> None:
    text = await scraped()
    assert require_sources(text, view) > 90
    told = Counter(sample.value for sample in samples(text) if sample.name == VALUE)
    newest = [json.loads(each.body) for each in view.log.latest().values()]
    assert told == Counter(number for body in newest for number in told_numbers(body))
    assert {
        sample.labels["series"] for sample in samples(text) if sample.name == f"{RELEASE}tick"
    } == {*SHAPES}


async def test_lines_read_as_documented(scraped: Callable[[], Any]) -> None:
    lines = (await scraped()).decode().splitlines()
    for line in (
        'stream_dp_release_value{key="",pipeline="flights",series="scalar",window=""} 1203.0',
        'stream_dp_release_band{key="",pipeline="flights",series="scalar",window=""} 37.0',
        'stream_dp_release_value{key="ATL",pipeline="flights",series="wide",window="tick"} 4.0',
        'stream_dp_release_low{key="0.5",pipeline="flights",series="quantiles",window="1h"} 30.0',
        'stream_dp_release_rank_band{pipeline="flights",series="quantiles",window="1h"} 468.0',
        'stream_dp_release_tied{key="ATL",pipeline="flights",series="leaders",window=""} 4.0',
        'stream_dp_release_fired{key="AA",pipeline="flights",series="flags"} 0.0',
        'stream_dp_release_fired{key="UA",pipeline="flights",series="flags"} 1.0',
        'stream_dp_release_name_info{name="ATL",pipeline="flights",series="maximum"} 1.0',
        'stream_dp_release_end_timestamp_seconds{pipeline="flights",series="kit"} 1.3584888e+09',
        'stream_dp_release_not_private{pipeline="flights",series="kit"} 1.0',
        'stream_dp_budget_epsilon{kind="left",pipeline="flights"} 0.5',
        "# EOF",
    ):
        assert line in lines


def told_too_much(gauges: Gauges, *_: object) -> None:
    """A broken twin's line: how many releases are in memory."""
    gauges.set("stream_dp_tick_seconds", 17, "flights")


def told_wrong(gauges: Gauges, *_: object) -> None:
    """A broken twin's line: a value that was never released."""
    gauges.set(VALUE, 1204, "flights", "scalar", "", "")


@pytest.mark.parametrize("twin", [told_too_much, told_wrong])
async def test_a_line_without_a_source_is_found(
    scraped: Callable[[], Any], view: PublicView, monkeypatch: pytest.MonkeyPatch, twin: Any
) -> None:
    monkeypatch.setattr(metrics, "add_budget", twin)
    with pytest.raises(Sourceless):
        require_sources(await scraped(), view)


@pytest.mark.parametrize(
    "name", ["process_resident_memory_bytes", "python_gc_objects_collected_total"]
)
def test_what_the_library_tells_of_a_process_would_be_found(view: PublicView, name: str) -> None:
    with pytest.raises(Sourceless):
        require_sources(f"# TYPE x gauge\n{name} 1.0\n# EOF\n".encode(), view)


async def test_ticks_at_which_keys_fire_between_two_scrapes_are_counted(
    scraped: Callable[[], Any], view: PublicView, release: MakeRelease
) -> None:
    def fired(text: bytes) -> dict[str, float]:
        wanted = (
            s
            for s in samples(text)
            if s.name == f"{RELEASE}fired_ticks_total" and s.labels["series"] == "flags"
        )
        return {sample.labels["key"]: sample.value for sample in wanted}

    assert fired(await scraped()) == {"AA": 0, "UA": 0}
    first = view.log.last_sequence
    for tick, keys in enumerate((["UA"], ["AA", "UA"], [])):
        view.log.append(
            release(view.log.last_sequence + 1, "flags", 12 + tick, fired=keys, band=12)
        )
    assert require_sources(await scraped(), view, first)
    assert fired(await scraped()) == {"AA": 1, "UA": 2}


def test_what_a_scrape_reads_is_bounded(
    release: MakeRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.server.metrics.MOST_READ", 3)
    log, counted = ReleaseLog(), FiredSoFar()
    log.append(release(1, "late", 0, fired=["AA"], band=1))
    counted = counted.counting(counted.unread(log), log.names())
    for tick in range(1, 8):
        log.append(release(tick + 1, "late", tick, fired=["UA"], band=1))
    seen = []
    while unread := counted.unread(log):
        assert counted.behind(log.latest())
        counted = counted.counting(unread, log.names())
        seen.append(counted.of("late")["UA"])
    assert seen == [3, 6, 7]
    assert not counted.behind(log.latest())


class Handing(list[Release]):
    """Releases that know how many of them were handed out at once, in all."""

    handed = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.handed += len(found) if isinstance(at, slice) else 0
        return found


def looked_at(release: MakeRelease) -> tuple[int, int]:
    """How many releases scrapes took that had to count 500 of them, and how many the looks that follow them."""
    log, counted = ReleaseLog(), FiredSoFar()
    log.append(release(1, "late", 0, fired=["AA"], band=1))
    counted = counted.counting(counted.unread(log), log.names())
    for tick in range(1, 501):
        log.append(release(tick + 1, "late", tick, fired=["UA"], band=1))
    late = log._series["late"]
    kept = late.releases = Handing(late.releases)
    while unread := counted.unread(log):
        counted = counted.counting(unread, log.names())
    handed, kept.handed = kept.handed, 0
    assert counted.of("late") == {"UA": 500}
    for _ in range(10):
        assert not counted.behind(log.latest())
        assert counted.unread(log) == []
    return handed, kept.handed


def test_a_scrape_takes_what_is_new_and_no_more(
    release: MakeRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.server.metrics.MOST_READ", 50)
    assert looked_at(release) == (500, 0)


def test_one_that_takes_all_that_is_kept_is_caught(
    release: MakeRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.server.metrics.MOST_READ", 50)

    def unread(self: FiredSoFar, log: ReleaseLog) -> list[Release]:
        if self._upto.get("late") is None:
            return list(log.latest().values())
        return [*log.series_between("late", self._upto["late"] + 1, 2**62)[:50]]

    monkeypatch.setattr(FiredSoFar, "unread", unread)
    assert looked_at(release) == (50 * sum(range(1, 11)), 0)


def test_series_that_are_kept_no_longer_are_forgotten(release: MakeRelease) -> None:
    log, counted = ReleaseLog(), FiredSoFar()
    log.append(release(1, "here", 0, fired=[], band=1))
    log.append(release(2, "gone", 0, fired=[], band=1))
    counted = counted.counting(counted.unread(log), log.names())
    log.append(release(3, "here", 1, fired=["UA"], band=1))
    counted = counted.counting(counted.unread(log), {"here"})
    assert (counted._upto, counted._counts) == ({"here": 1}, {"here": {"UA": 1}})


async def test_the_text_is_made_again_only_for_what_is_new(
    scraped: Callable[[], Any],
    view: PublicView,
    public: dict[str, Any],
    release: MakeRelease,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, plain = [], metrics._text

    def watched(*arguments: Any) -> bytes:
        threads.append(threading.get_ident())
        return plain(*arguments)

    monkeypatch.setattr(metrics, "_text", watched)
    first = await asyncio.gather(*(scraped() for _ in range(4)))
    assert len({*first}) == len(threads) == 1
    assert threading.get_ident() not in threads  # the engine's loop does not wait for it
    view.log.append(release(view.log.last_sequence + 1, "scalar", 12, value=7, band=37))
    assert require_sources(await scraped(), view)
    assert len(threads) == 2
    del public["series"][0]  # it was halted
    assert 'series="scalar"' not in (await scraped()).decode()
    assert len(threads) == 3


async def test_a_text_is_paid_for_by_a_pause_before_the_next_one(
    scraped: Callable[[], Any],
    view: PublicView,
    release: MakeRelease,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times: list[tuple[float, float]] = []
    plain = metrics._text

    def watched(*arguments: Any) -> bytes:
        began = time.monotonic()
        text = plain(*arguments)
        times.append((began, time.monotonic()))
        return text

    monkeypatch.setattr(metrics, "_text", watched)
    for tick in range(3):
        view.log.append(release(view.log.last_sequence + 1, "scalar", 12 + tick, value=7, band=37))
        await scraped()
    for (began, ended), (after, _) in pairwise(times):
        assert after - ended >= min(
            3 * (ended - began), 0.9
        )  # of a share of 1/5, pauses are 4 times


async def test_amounts_that_are_no_epsilons_are_not_called_so(view: PublicView) -> None:
    rho = {**world.budget(), "unit": "rho", "capacity": "0.0012", "peak": "0.001"}
    changed = replace(view, budget=lambda: rho)
    text, _ = await metrics.Exposition(changed).text(OPEN)
    require_sources(text, changed)
    told = {s.labels["kind"] for s in samples(text) if s.name == "stream_dp_budget_epsilon"}
    assert told == {"total", "left"}


async def test_the_form_follows_the_request_and_repeats_nothing_of_it(view: PublicView) -> None:
    transport = httpx.ASGITransport(create_app(view, frozenset({"localhost"})))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8765") as client:
        openly = await client.get(
            "/metrics", headers={"accept": f"{OPEN};version=s3cr3t;escaping=s3cr3t"}
        )
        plainly = await client.get("/metrics", headers={"accept": "s3cr3t/*;version=9.9.9"})
        assert openly.headers["content-type"] == f"{OPEN}; version=1.0.0; charset=utf-8"
        assert plainly.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        for answer in (openly, plainly):
            assert "s3cr3t" not in answer.text + str(answer.headers)
            assert answer.headers["cache-control"] == "no-store"
        strange = await client.get("/metrics", headers={"host": "evil.example"})
        assert strange.status_code == 421
        assert (
            await client.post("/metrics", headers={"origin": "http://evil.example"})
        ).status_code == 403
