"""`/metrics`: every line has its source in what is public, nothing published is missing, nothing else is told.

`require_sources` finds the sources; the twins below tell more than is public, or something else, and are found.
"""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from unit.server import public_world as world
from unit.server.conftest import connected

from stream_dp import __version__
from stream_dp.journal.commit import Release
from stream_dp.server import metrics
from stream_dp.server.metrics import OPEN, FiredSoFar
from stream_dp.server.models.published import EXAMPLES
from stream_dp.server.view import PublicView, ReleaseLog

RELEASE = "stream_dp_release_"
LATEST = 2**63


class Sourceless(Exception):
    """A line says what nothing public says."""


def samples(text: bytes) -> list[Sample]:
    families = text_string_to_metric_families(text.decode())  # type: ignore[no-untyped-call]
    return [sample for family in families for sample in family.samples]


def require_sources(text: bytes, view: PublicView, since: int = LATEST) -> int:
    """Return how many lines there are; `since` was the newest sequence at the first scrape.

    Raises:
        Sourceless: one of them says another number than is published, something that is not, or stands there twice.
    """
    found = samples(text)
    if len(found) != sum(not line.startswith(b"#") for line in text.splitlines()):
        raise Sourceless("a line stands there twice")
    for sample in found:
        try:
            said = source(sample.name, sample.labels, view, since)
        except (KeyError, StopIteration, ValueError) as error:
            raise Sourceless(f"{sample.name} {sample.labels}") from error
        if said is None or float(said) != sample.value:
            raise Sourceless(f"{sample.name} {sample.labels}: {sample.value}, not {said}")
    return len(found)


def source(name: str, labels: Mapping[str, str], view: PublicView, since: int) -> Any:
    labels = dict(labels)
    if labels.pop("pipeline") != view.pipeline()["name"]:
        raise ValueError("another pipeline")
    if name == "stream_dp_release_sequence":
        return view.log.last_sequence
    if name.startswith(RELEASE):
        bodies = [json.loads(each.body) for each in view.log.since(-1)]
        mine = [body for body in bodies if body["series"] == labels["series"]]
        if name == f"{RELEASE}fired_ticks_total":
            later = (body for body in mine if body["sequence"] > since)
            return sum(labels["key"] in body["fired"] for body in later)
        return released(name.removeprefix(RELEASE), labels, mine[-1])
    return configured(name.removeprefix("stream_dp_"), labels, view)


def released(what: str, labels: dict[str, str], body: dict[str, Any]) -> Any:
    key = labels.get("key", "")
    match what:
        case "tick" | "confidence" | "not_private":
            return body[what]
        case "end_timestamp_seconds":
            return datetime.fromisoformat(body["end"]).timestamp()
        case "threshold_band":
            return body["band"] if "fired" in body else None
        case "name_info":
            return body["name"] == labels["name"]
        case "fired":
            return key in body["fired"]
    window = labels.get("window", "")
    return numbers(what, key, body["windows"][window] if window else body)


def numbers(what: str, key: str, part: dict[str, Any]) -> Any:
    if what == "rank_band":
        return part["band"] if "quantiles" in part else None
    if "quantiles" in part:
        return part["quantiles"][key][what]
    if "ranks" in part:
        place, rank = next(
            (place, rank) for place, rank in enumerate(part["ranks"], 1) if rank["name"] == key
        )
        tied = len(rank["tied"]) + rank.get("more", 0)
        return {"value": rank["value"], "band": part["band"], "rank": place, "tied": tied}[what]
    if "counts" in part:
        return {"value": part["counts"][key], "band": part["counts_band"]}[what]
    if "value" in part:
        return part[what] if not key else None
    if what in {"low", "high"}:
        return part[f"{what}s"][list(part["values"]).index(key)]
    return part["values"][key] if what == "value" else part["band"]


def configured(what: str, labels: dict[str, str], view: PublicView) -> Any:
    pipeline, budget, kind = view.pipeline(), view.budget(), labels.pop("kind", "")
    match what:
        case "pipeline_info":
            shown = {"fingerprint": pipeline["fingerprint"], "version": __version__}
            return labels == shown
        case "series_info":
            name = labels.pop("series")
            named = next(each for each in pipeline["series"] if each["name"] == name)
            return all(str(named.get(key, "")) == said for key, said in labels.items())
        case "tick_seconds":
            return pipeline["clock"]["step"]
        case "tick_delay_seconds":
            return pipeline["clock"]["delay"]
        case "catching_up":
            return view.catching_up()
        case _ if what.startswith("budget_"):
            return budgeted(what, kind, labels, budget)
    raise ValueError("nothing public is called so")


def budgeted(what: str, kind: str, labels: dict[str, str], budget: Mapping[str, Any]) -> Any:
    match what:
        case "budget_filter" if labels["unit"] == budget["unit"]:
            return budget["epsilon"]["spent"] if kind == "spent" else budget[kind]
        case "budget_epsilon" if kind != "spent" or budget["unit"] == "epsilon":
            return budget["epsilon"][kind]
        case "budget_delta":
            return budget["delta"][kind]
        case "budget_odometer_epsilon":
            return budget["odometer"]["bound"]
        case "budget_analyst_epsilon":
            mine = (a for a in budget["analysts"] if a["name"] == labels["analyst"])
            return next(mine)["epsilon"][kind]
        case "budget_series_epsilon":
            mine = (s for s in budget["series"] if s["name"] == labels["series"])
            return next(mine)["epsilon"]
    raise ValueError("nothing public is called so")


def told_numbers(body: dict[str, Any]) -> Iterator[float]:
    """Yield the released values of a release, of whatever shape: what `stream_dp_release_value` must all say."""
    for part in body.get("windows", {"": body}).values():
        several: Iterable[Any] = (
            [part.get("value")],
            part.get("values", {}).values(),
            part.get("counts", {}).values(),
            (rank["value"] for rank in part.get("ranks", ())),
            (quantile["value"] for quantile in part.get("quantiles", {}).values()),
        )
        for each in several:
            yield from (float(value) for value in each if value is not None)


MakeRelease = Callable[..., Release]
VALUE = f"{RELEASE}value"
OPENLY = {"accept": f"{OPEN};version=1.0.0,text/plain;version=0.0.4;q=0.5"}
HEAD = {"v", "sequence", "series", "tick", "end"}
SHAPES: dict[str, dict[str, Any]] = {
    name: {key: told for key, told in example.items() if key not in HEAD}
    for name, example in EXAMPLES.items()
}
SHAPES |= {
    "maximum": {"name": "ATL", "value": 641, "band": 37},
    "leaders": {"ranks": [{"name": "ATL", "value": 6.5, "tied": ["ORD"], "more": 3}], "band": 2.5},
    "watches": {"fired": ["a", "b"], "band": 12, "counts": {"a": 130, "b": 0}, "counts_band": 9},
    "quiet": {"fired": [], "band": 12},
    "quantiles": {"windows": {
        "1h": {"quantiles": {"0.5": {"value": 33.42, "low": 30, "high": 36}}, "band": 468},
        "24h": {"quantiles": {}, "band": 468},
    }},
    "wide": {"windows": {
        "tick": {"values": {"ATL": 4, "other": -1}, "band": 3},
        "1h": {"values": {"ATL": 0.5, "other": None}, "lows": [0.25, 0], "highs": [None, None]},
        "ever": {"ranks": [{"name": "JFK", "value": 4, "tied": []}], "band": 7},
    }},
    "nothing": {"value": None, "low": None, "high": None},
    'odd "name"\n\\': {"values": {'a "quoted"\nkey\\': 3, "é": 4}, "band": 2},
    "kit": {"value": 3, "band": 0, "not_private": True},
}  # fmt: skip


def shaped(release: MakeRelease, log: ReleaseLog) -> None:
    for tick in (10, 11):
        for name, content in SHAPES.items():
            log.append(release(log.last_sequence + 1, name, tick, **content))


@pytest.fixture
def log(release: MakeRelease) -> ReleaseLog:
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
    return PublicView(lambda: deepcopy(public), world.plan, world.budget, log)


@pytest.fixture
async def scraped(view: PublicView) -> AsyncIterator[Callable[[], Any]]:
    async with connected(view) as client:

        async def scrape() -> bytes:
            answer = await client.get("/metrics", headers=OPENLY)
            assert answer.status_code == 200, answer.text
            return answer.content

        yield scrape


async def test_every_line_and_number_has_its_source(
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
        'stream_dp_release_value{key="ATL",pipeline="flights",series="wide",window="tick"} 4.0',
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


@pytest.mark.parametrize("twin", [("stream_dp_tick_seconds", 17), (VALUE, 1204, "scalar", "", "")])
async def test_a_line_without_a_source_is_found(
    scraped: Callable[[], Any], view: PublicView, monkeypatch: pytest.MonkeyPatch, twin: Any
) -> None:
    """How many releases are in memory, and a value that was never released."""
    name, value, *labels = twin
    told = lambda gauges, *_: gauges.set(name, value, "flights", *labels)  # noqa: E731
    monkeypatch.setattr(metrics, "add_budget", told)
    with pytest.raises(Sourceless):
        require_sources(await scraped(), view)
    with pytest.raises(Sourceless):
        require_sources(b"# TYPE x gauge\nprocess_resident_memory_bytes 1.0\n# EOF\n", view)


async def test_ticks_at_which_keys_fire_between_two_scrapes_are_counted(
    scraped: Callable[[], Any], view: PublicView, release: MakeRelease
) -> None:
    def fired(text: bytes) -> dict[str, float]:
        every = (s for s in samples(text) if s.name == f"{RELEASE}fired_ticks_total")
        return {s.labels["key"]: s.value for s in every if s.labels["series"] == "flags"}

    assert fired(await scraped()) == {"AA": 0, "UA": 0}
    first = view.log.last_sequence
    for tick, keys in enumerate((["UA"], ["AA", "UA"], [])):
        view.log.append(
            release(view.log.last_sequence + 1, "flags", 12 + tick, fired=keys, band=12)
        )
    assert require_sources(await scraped(), view, first)
    assert fired(await scraped()) == {"AA": 1, "UA": 2}


def test_firings_of_each_version_are_counted_anew(release: MakeRelease) -> None:
    """Also where the version before fired other keys, or released no alerts at all, or the next one does not."""
    log, counted = ReleaseLog(), FiredSoFar()
    fires: dict[str, Any] = {"fired": ["AA"], "band": 1}
    number: dict[str, Any] = {"value": 3, "band": 1}
    seen = list[dict[str, int]]()
    for tick, (version, said) in enumerate(
        ((1, fires), (1, fires), (2, fires), (2, fires), (3, number), (3, number), (4, fires), (4, fires))
    ):  # fmt: skip
        log.append(release(tick, "late", tick, **said, version=version))
        counted = counted.counting(counted.unread(log), log.names())
        assert not counted.behind(log.latest())
        seen.append(dict(counted.of("late")))
    assert seen == [{}, {"AA": 1}, {"AA": 1}, {"AA": 2}, {}, {}, {"AA": 1}, {"AA": 2}]


def test_scrapes_read_bounded_parts(release: MakeRelease, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_amounts_that_are_no_epsilons_are_not_called_so(view: PublicView) -> None:
    rho = {**world.budget(), "unit": "rho", "capacity": "0.0012", "peak": "0.001"}
    changed = replace(view, budget=lambda: rho)
    text, _ = await metrics.Exposition(changed).text(OPEN)
    require_sources(text, changed)
    told = {s.labels["kind"] for s in samples(text) if s.name == "stream_dp_budget_epsilon"}
    assert told == {"total", "left"}


async def test_the_form_follows_the_request_and_repeats_nothing_of_it(view: PublicView) -> None:
    async with connected(view) as client:
        for accept, form in (
            (f"{OPEN};version=s3cr3t;escaping=s3cr3t", f"{OPEN}; version=1.0.0; charset=utf-8"),
            ("s3cr3t/*;version=9.9.9", "text/plain; version=0.0.4; charset=utf-8"),
        ):
            answer = await client.get("/metrics", headers={"accept": accept})
            assert answer.headers["content-type"] == form
            assert "s3cr3t" not in answer.text + str(answer.headers)
        strange = await client.get("/metrics", headers={"host": "evil.example"})
        assert strange.status_code == 421
