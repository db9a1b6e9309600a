"""Queries: the least epsilon for an error, which watches have fired, and when ticks begin."""

import asyncio
import json
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from unit.live.live_series_worlds import PIPELINE

from stream_dp.accounting.amounts import text
from stream_dp.core.time import parse_moment
from stream_dp.errors import NotAccepted, UsageError
from stream_dp.journal.commit import Release
from stream_dp.journal.release import release_of
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.operate.published_bodies import Backlog, TickTimes
from stream_dp.operate.query.series_words import FiredWatches
from stream_dp.operate.run.live_series import STEPS, ErrorSearch, decimal, place_of
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.server.view import Behind, ReleaseLog
from stream_dp.statistics.parts.watch_roster import WatchRoster

LAST = 7200
Curve = Callable[[Fraction], Fraction | float]


async def searched(curve: Curve, wanted: str | float) -> tuple[Fraction, int]:
    """What is found where epsilon has this error, and after how many predictions."""
    tried = list[str]()

    async def predicted(definition: bytes) -> float:
        said = json.loads(definition)
        assert said["name"] == "x"
        assert "error" not in said
        tried.append(said["epsilon"])
        return float(curve(Fraction(said["epsilon"])))

    definition = json.dumps({"name": "x", "error": wanted}).encode()
    found = json.loads(await ErrorSearch().priced(definition, "ann", predicted))["epsilon"]
    return Fraction(found), len(tried)


CURVES: list[Curve] = [
    lambda epsilon: 30 / epsilon,
    lambda epsilon: 3 / epsilon**2 + 2,
    lambda epsilon: 400 if epsilon < Fraction(7, 100) else 1 / epsilon,
]


@pytest.mark.parametrize("curve", CURVES, ids=range(len(CURVES)))
@pytest.mark.parametrize("wanted", ["3", "99.5", "12345"])
async def test_it_is_the_least_of_all_candidates(curve: Curve, wanted: str) -> None:
    found, steps = await searched(curve, wanted)
    fit = next(at for at in range(LAST + 1) if float(curve(decimal(at))) <= Fraction(wanted))
    assert steps <= STEPS
    assert found == decimal(fit)


async def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^error: no epsilon up to 100 makes"):
        await searched(lambda epsilon: 7 + 1 / epsilon, "7")


async def test_one_search_of_an_analyst_and_one_in_all() -> None:
    search, go, running = ErrorSearch(), asyncio.Event(), list[str]()

    async def predicted(definition: bytes) -> float:
        running.append(json.loads(definition)["name"])
        await go.wait()
        return 1 / float(json.loads(definition)["epsilon"])

    def asked(name: str) -> "asyncio.Task[bytes]":
        definition = json.dumps({"name": name, "error": 10}).encode()
        return asyncio.create_task(search.priced(definition, name, predicted))

    first, second = asked("ann"), asked("bob")
    while not running:  # noqa: ASYNC110 - steps of the loop, no time
        await asyncio.sleep(0)
    with pytest.raises(NotAccepted, match="is still running"):
        await asked("ann")
    assert set(running) == {"ann"}
    go.set()
    assert json.loads(await first)["epsilon"] == json.loads(await second)["epsilon"] == "0.1"
    assert (await asked("ann")) == await first


@pytest.mark.parametrize("wanted", ["0.1", "10000000000", "1"])
async def test_what_is_found_is_enough_and_the_work_is_bounded(wanted: str) -> None:
    def stairs(epsilon: Fraction) -> float:
        if epsilon < Fraction(1, 50):
            raise UsageError("epsilon: too little to draw")
        return int(1 / epsilon) if epsilon < 1 else 0

    found, steps = await searched(stairs, wanted)
    assert stairs(found) <= float(wanted)
    assert steps <= STEPS + 2
    less = decimal(max(0, place_of(found) - 1))
    assert less < Fraction(1, 50) or stairs(less) > float(wanted)


async def no_prediction(_definition: bytes) -> float:
    raise AssertionError


@pytest.mark.parametrize("definition", [b'{"name":"x","epsilon":"0.1"}', b"", b"\xff", b"[1]"])
async def test_what_names_no_error_goes_on_as_it_is(definition: bytes) -> None:
    assert await ErrorSearch().priced(definition, "ann", no_prediction) == definition


@pytest.mark.parametrize(
    ("definition", "says"),
    [
        (b'{"error":-1}', "must be a number"),
        (b'{"error":"1e9"}', "must be a number"),
        (b'{"error":1234567890123}', "must be a number"),
        (b'{"error":true}', "must be a number"),
        (b'{"error":"s3cr3t"}', "must be a number"),
        (b'{"error":3,"epsilon":"1"}', "name either"),
    ],
)
async def test_what_is_no_error_is_refused_and_not_repeated(definition: bytes, says: str) -> None:
    with pytest.raises(UsageError, match=f"^error: {says}") as refused:
        await ErrorSearch().priced(definition, "ann", no_prediction)
    assert "s3cr3t" not in str(refused.value)


REAL: list[dict[str, Any]] = [
    {"statistic": "count", "windows": ["3h", "ever"]},
    {"statistic": "histogram", "by": "country"},
    {"statistic": "alerts", "by": "country", "threshold": "50"},
    {"statistic": "mean", "of": "price", "clamp": ["0", "1000"], "windows": ["3h"]},
]


@pytest.mark.parametrize("asked", REAL, ids=lambda asked: asked["statistic"])
async def test_of_real_statistics_one_step_less_is_not_enough(asked: dict[str, Any]) -> None:
    """Nor is an error kept in the tick alone: it holds in every window."""
    schema = {**PIPELINE["schema"], "price": {"type": "integer"}}
    spec = build(PipelineSpec.model_validate({**PIPELINE, "schema": schema})).spec
    planner = LiveSeriesPlanner(spec, OpenRouter(spec, 0))

    async def predicted(definition: bytes) -> float:
        return planner.propose(definition, 3).predicted()[1]

    definition = json.dumps({"name": "x", "error": "9", **asked}).encode()
    found = await ErrorSearch().priced(definition, "ann", predicted)
    proposal = planner.propose(found, 3)
    assert proposal.predicted()[1] <= 9
    windows = proposal.chosen.choice.windows.values()
    errors = [error(proposal.predicted()[0] - 3) for error in windows]
    assert max([0.0, *errors]) in (0, proposal.predicted()[1])
    told = json.loads(found)
    less = decimal(place_of(Fraction(told["epsilon"])) - 1)
    assert await predicted(json.dumps({**told, "epsilon": text(less)}).encode()) > 9


def watch_named(name: str, *, rearm: bool = False, by: str | None = None) -> Any:
    return SimpleNamespace(name=name, by=by, rearm=rearm)


def live_of(asking: object, start: int = 0, version: int = 1) -> Any:
    series = SimpleNamespace(name="m", asking=asking, version=version)
    return SimpleNamespace(series=series, start=start)


def registry(asking: object) -> Any:
    live = live_of(asking)
    return SimpleNamespace(named={"m": live}.get)


def fired_at(tick: int, *fired: str, series: str = "m") -> Release:
    body = {
        "v": 1, "sequence": tick + 1, "series": series, "tick": tick, "end": "2026-01-01T00:00:00Z", "fired": fired,
        "band": 3, "confidence": 0.95,
    }  # fmt: skip
    return Release(tick + 1, series, tick, json.dumps(body).encode())


ROSTER = WatchRoster.of(
    ("again", "once", "by/AA", "by/UA", "", ""),
    [watch_named("again", rearm=True), watch_named("once"), watch_named("by", by="airline")],
    None,
    1,
)


def test_each_key_of_a_watch_that_fires_once_has_its_end() -> None:
    seen = FiredWatches()
    seen.take(fired_at(4, "again", "by/UA"), registry(ROSTER))
    seen.take(fired_at(6, "by/AA", "again"), registry(ROSTER))
    seen.take(fired_at(7, "once", series="other"), registry(ROSTER))
    seen.take(fired_at(8), registry(None))
    again, once, by = ROSTER.placed
    assert [seen.ends(live_of(ROSTER), one) for one in (again, once, by)] == [
        {},
        {},
        {"by/UA": 5, "by/AA": 7},
    ]


def test_what_was_told_where_it_was_asked_counts_too() -> None:
    told = ROSTER.answered({"watch": "by/AA", "threshold": 1, "fired": True}, 3)
    for kept in (
        ROSTER.answered({"watch": "by/AA", "threshold": 1, "fired": False}, 3),
        ROSTER.answered({"watch": "again", "threshold": 1, "fired": True}, 3),
    ):
        assert kept is ROSTER
    seen = FiredWatches()
    seen.take(fired_at(4, "by/UA"), registry(told))
    assert seen.ends(live_of(told), told.placed[2]) == {"by/AA": 3, "by/UA": 5}
    assert told.placed[2].places == 2
    ended = ROSTER.without(ROSTER.named("once"), 9)
    late = ended.answered({"watch": "once", "threshold": 1, "fired": True}, 9)
    assert [(one.end, one.asked) for one in late.gone] == [(9, {"once": 9})]


WALL: dict[str, Any] = PIPELINE | {
    "source": {"kind": "kafka", "topic": "shop", "bootstrap": "127.0.0.1:9"},
    "clock": {"kind": "wall", "step": "500ms", "delay": "2s"},
}


def log_of(tick: int, end: str) -> ReleaseLog:
    log = ReleaseLog()
    release = {"v": 1, "sequence": 0, "series": "orders", "tick": tick, "end": end, "value": 1}
    log.append(release_of(json.dumps(release).encode()))
    return log


def test_a_declared_start_needs_no_release() -> None:
    spec = PipelineSpec.model_validate(PIPELINE)
    assert TickTimes(spec, ReleaseLog())(0) == "2026-01-01T00:00:00Z"
    assert TickTimes(spec, ReleaseLog())(7) == "2026-01-01T07:00:00Z"


def test_a_wall_clock_without_one_is_known_from_the_first_release_on() -> None:
    log = ReleaseLog()
    begins = TickTimes(PipelineSpec.model_validate(WALL), log)
    assert begins(0) is None
    log.append(log_of(3, "2026-01-18T06:04:00Z").latest()["orders"])
    assert begins(0) == "2026-01-18T06:03:58Z"
    assert begins(3) == "2026-01-18T06:03:59.500Z"
    assert begins(4) == "2026-01-18T06:04:00Z", "as the release's tick ends"


def behind_at(log: ReleaseLog, clock: dict[str, Any]) -> tuple[Backlog, Callable[[float], None]]:
    """What says how late public ticks of 500 ms are; and what sets its clock, in seconds since tick 0 began."""
    now, origin = [0], parse_moment("2026-01-18T06:04:00Z")
    assert origin is not None

    def at(seconds: float) -> None:
        now[0] = origin + round(1000 * seconds)

    spec = PipelineSpec.model_validate(WALL | {"clock": {**WALL["clock"], **clock}})
    return Backlog(spec, log, lambda: now[0]), at


def tick_of(number: int) -> Release:
    (release,) = log_of(number, "2026-01-18T06:04:00Z").latest().values()
    return msgspec.structs.replace(release, sequence=number)


def test_how_late_public_ticks_are_and_when_they_will_not_be() -> None:
    log = ReleaseLog()
    behind, at = behind_at(log, {"start": "2026-01-18T06:04:00Z"})
    at(12.4)
    assert behind() is None  # tick 0 should be public after 2.5 s: less than ten seconds ago
    at(602.5)
    assert behind() == Behind(600, None)
    log.append(tick_of(99))
    assert behind() == Behind(550, None), "after no time there is no rate"
    at(612.5)
    log.append(tick_of(299))
    assert behind() == Behind(460, 32), "300 ticks in 10 s, in which 20 ended: 921 are left"
    at(700)
    assert behind() == Behind(547, None), "no tick within half a minute"
    log.append(tick_of(305))
    at(1000)
    assert behind() == Behind(844, None), "slower than ticks end"
    log.append(tick_of(1990))
    assert behind() is None


def test_a_backlog_ends_at_the_horizon() -> None:
    log = ReleaseLog()
    behind, at = behind_at(log, {"start": "2026-01-18T06:04:00Z", "horizon": 300})
    at(100_000)
    assert behind() == Behind(99_997, None)
    log.append(tick_of(99))
    at(100_010)
    assert behind() == Behind(99_957, 20)
    log.append(tick_of(299))
    assert behind() is None


def test_a_replay_and_a_clock_that_has_not_begun_are_not_behind() -> None:
    assert (
        Backlog(PipelineSpec.model_validate(PIPELINE), log_of(1, "2020-01-01T00:00:00Z"))() is None
    )
    assert Backlog(PipelineSpec.model_validate(WALL), ReleaseLog())() is None


def test_a_later_series_of_the_name_begins_without_the_ends_of_the_one_before() -> None:
    seen, later = FiredWatches(), live_of(ROSTER, 6, 2)
    seen.take(fired_at(4, "once"), registry(ROSTER))
    now: Any = SimpleNamespace(named={"m": later}.get)
    seen.take(fired_at(5, "by/UA"), now)
    again, once, by = ROSTER.placed
    assert [seen.ends(later, one) for one in (again, once, by)] == [{}, {}, {}]
    seen.take(fired_at(6, "by/UA"), now)
    assert [seen.ends(later, one) for one in (once, by)] == [{}, {"by/UA": 7}]
