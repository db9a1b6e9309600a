"""The demo without a broker: the JSON of the contract, a second start, `--fresh`, and the paced source."""

import fcntl
import gzip
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from itertools import islice
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stream_dp.operate.demo as module
from stream_dp.core.time import ISO, own_time
from stream_dp.core.wording import unseen
from stream_dp.engine.ports import Batch
from stream_dp.errors import WorldError
from stream_dp.files.memory import MemorySource
from stream_dp.operate.demo import DATA, flights_folder
from stream_dp.operate.replay_feed import Paced
from stream_dp.operate.run.running import Run
from stream_dp.operate.run.settings import settled
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.records.endpoints import ReplayClock

Say = Callable[..., Any]
KEYS = ["broker", "events", "dead_letters", "ticks", "releases", "seconds", "events_per_second",
        "epsilon", "delta", "final"]  # fmt: skip
FLAGS = ("demo", "--embedded", "--headless", "--until-end", "--json")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path))
    return tmp_path


def test_a_year(say: Say, home: Path) -> None:
    shown = last_line(say(*FLAGS))
    assert list(shown) == KEYS
    figures = {
        key: shown[key] for key in KEYS if key not in ("seconds", "events_per_second", "final")
    }
    assert figures == {
        "broker": "embedded", "events": 336_776, "dead_letters": 0, "ticks": 8760, "releases": 61_320,
        "epsilon": 2, "delta": 0,
    }  # fmt: skip
    assert shown["seconds"] > 0
    assert shown["events_per_second"] > 0
    final = shown["final"]
    spans = ["tick", "24h", "7d", "ever"]
    for name in ("departures", "late_flights"):
        assert list(final[name]["windows"]) == spans
        assert all(part.keys() == {"value", "band"} for part in final[name]["windows"].values())
    assert list(final["share_late"]["windows"]) == spans
    share = final["share_late"]["windows"]["ever"]
    assert 0 <= share["low"] <= share["value"] <= share["high"] <= 1
    assert list(final["delays"]["windows"]["7d"]["quantiles"]) == ["0.5", "0.75", "0.9"]
    assert len(final["busiest_airlines"]["windows"]["7d"]["ranks"]) == 10
    assert final["by_destination"].keys() == {"values", "band", "lows", "highs", "ends", "tick"}
    assert final["late_departures"].keys() == {"fired", "band", "tick"}
    assert {release["tick"] for release in final.values()} == {8759}
    assert len(final["by_destination"]["values"]) == 106
    assert len(final["late_departures"]["fired"]) <= 17
    so_far = final["departures"]["windows"]["ever"]
    assert abs(so_far["value"] - 336_776) < 10 * so_far["band"]


def last_line(said: Any) -> dict[str, Any]:
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads(said.out.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def sliced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of the demo's first days: more than 48 hours."""
    path = tmp_path_factory.mktemp("demo") / DATA
    with gzip.open(flights_folder() / DATA, "rt") as file, gzip.open(path, "wt") as out:
        out.writelines(islice(file, 3000))
    return path


@pytest.fixture
def brief(home: Path, sliced: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's first 48 hours, without most of the year's data behind them."""

    def loaded(path: Path) -> PipelineSpec:
        spec = load(path)
        clock = spec.clock.model_copy(update={"horizon": 48})
        return spec.model_copy(update={"clock": clock})

    monkeypatch.setattr(module, "load", loaded)
    monkeypatch.setattr(module, "DATA", str(sliced))


@pytest.mark.usefixtures("brief")
def test_a_second_start_goes_on_and_fresh_begins_anew(say: Say, home: Path) -> None:
    first, second = last_line(say(*FLAGS)), last_line(say(*FLAGS))
    assert first["final"] == second["final"]
    assert first["ticks"] == second["ticks"] == 48
    assert first["dead_letters"] > 1000
    fresh = say(*FLAGS, "--fresh")
    assert last_line(fresh)["final"] != first["final"]
    deleted = [line for line in fresh.err.splitlines() if line.startswith("--fresh deletes ")]
    state = home / "state" / "demo" / "embedded"
    assert f"--fresh deletes {state / 'flights.journal'}" in deleted
    assert all(str(state) in line for line in deleted)


@pytest.mark.usefixtures("brief")
def test_exact_values_stand_beside_the_private_ones(say: Say) -> None:
    said = say(*FLAGS, "--compare-exact")
    exact = last_line(said)["exact"]
    assert exact.keys() == {"departures", "late_flights", "by_destination"}
    flown, late = exact["departures"]["ever"], exact["late_flights"]["ever"]
    assert flown == sum(exact["by_destination"].values()) > 1000
    assert 0 < late < flown
    assert "exact (public data)" in said.out
    rows = [[cell.strip() for cell in row.split("│")[1:-1]] for row in said.out.splitlines()]
    beside = {row[0]: row[-1] for row in rows if len(row) == 5}
    assert beside["departures ever"] == f"{flown:,}"
    assert (beside["late_flights ever"], beside["late_flights 7d"]) == (f"{late:,}", "")
    assert "101 more keys" in said.out


def test_exact_figures_need_public_data(
    say: Say, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setattr(
        module, "load", lambda path: load(path).model_copy(update={"public_data": False})
    )
    said = say(*FLAGS)
    assert said.code == 2
    assert "must declare public_data: true" in said.err
    assert list(home.rglob("*.journal")) == []


@pytest.mark.usefixtures("brief")
def test_without_kafkas_files_it_goes_on(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(_: object) -> None:
        raise WorldError("no network")

    monkeypatch.setattr(module, "resolve_jars", nowhere)
    said = say(*[flag for flag in FLAGS if flag != "--embedded"])
    assert last_line(said)["broker"] == "embedded"
    assert "No local Kafka can be started (no network); continuing with --embedded" in said.err


@pytest.mark.usefixtures("brief", "page_first")
def test_the_page_of_the_paced_demo(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_FOR_A_YEAR", 0.2)
    said = say("demo", "--embedded", "--until-end", "--port", "0")
    assert said.code == 0
    assert re.search(r"The page is at http://127.0.0.1:\d+/#token=[0-9a-f]{64}\n", said.err)
    (asked,) = (line for line in said.err.splitlines() if " query create " in line)
    assert asked.strip().startswith(f"STREAM_DP_HOME={os.environ['STREAM_DP_HOME']} ")
    assert "Private values at tick 47" in said.out
    again = say("demo", "--embedded", "--until-end", "--port", "0")
    assert " query create " not in again.err  # the year is over: no tick is left to ask about


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("lock", ["embedded/flights.journal.lock", "embedded/broker/lock"])
def test_fresh_deletes_nothing_under_a_demo_that_runs(say: Say, home: Path, lock: str) -> None:
    last_line(say(*FLAGS))
    held = next(home.rglob("embedded")).parent / lock
    held.parent.mkdir(exist_ok=True)
    with held.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = sorted(home.rglob("*"))
        said = say(*FLAGS, "--fresh")
        assert (said.code, sorted(home.rglob("*"))) == (2, before)
        assert "a demo is running. Stop it first" in said.err
    last_line(say(*FLAGS, "--fresh"))


def _marks(count: int) -> list[Batch]:
    return [Batch(0, (b"x",), (tick,), 2 * tick + 2, mark=tick) for tick in range(count)]


async def test_a_paced_source_holds_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("stream_dp.operate.replay_feed.PAUSE", 0)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Whole(MemorySource):
        async def read(self) -> Any:
            found: list[Batch] = []
            while batch := await super().read():
                found += batch
            return found

    paced = Paced(Whole(_marks(9)), lambda _: 2)
    await paced.open(0)
    await paced.seek({})
    sizes = []
    for moment in (0.0, 1.0, 1.0, 3.0, 9.0):
        now[0] = moment
        sizes.append(len(await paced.read()))
    assert sizes == [1, 1, 1, 3, 3]


def test_its_plan_says_what_each_number_is_worth(say: Say) -> None:
    said = say("plan", str(flights_folder() / "pipeline.yaml"))
    assert (said.code, said.err) == (0, "")
    assert "Verdicts: 7 useful, 7 rough, 3 noise" in said.out
    said = say("plan", str(flights_folder() / "pipeline.yaml"), "--notes")
    assert "share_late: post-processing of late_flights and departures" in said.out


def test_a_month_is_there_at_once_then_the_pace_is_steady() -> None:
    speed = module._speed(load(flights_folder() / "pipeline.yaml"))
    paces = {0: inf, 719: inf, 720: 73, 6569: 73, 6570: 1.2, 8759: 1.2, 437_999: 1.2}
    assert {tick: speed(tick) for tick in paces} == paces


async def test_the_flights_come_again_each_year_in_the_demo_with_a_page() -> None:
    year = load(flights_folder() / "pipeline.yaml")
    embedded = module._embedded(module._lasting(year, 3), Path("state"))
    source = module._flights(embedded, 8760, None)()
    await source.open(settled(year.clock, ReplayClock).start)
    await source.seek({})
    years: list[list[Batch]] = [[], [], []]
    while batches := await source.read():
        for batch in batches:
            assert batch.mark is not None
            years[batch.mark // 8760].append(batch)
    assert [len(ticks) for ticks in years] == [8760] * 3
    grid = settled(embedded.clock, ReplayClock).grid
    for number, ticks in enumerate(years):
        assert sum(len(batch.payloads) for batch in ticks) == 336_776
        for first, batch in zip(years[0][::97], ticks[::97], strict=True):
            before, now = map(json.loads, first.payloads), map(json.loads, batch.payloads)
            for one, other in zip(before, now, strict=True):
                assert {**one, "time": ""} == {**other, "time": ""}
                then, later = own_time(one["time"], ISO), own_time(other["time"], ISO)
                assert then is not None
                assert later is not None
                assert grid.tick_of(later) == batch.mark == number * 8760 + grid.tick_of(then)
    whole = years[2][4000]
    await source.seek({0: years[2][3999].position})
    again = (await source.read())[0]
    assert (again.payloads, again.position, again.mark) == (whole.payloads, whole.position, 21_520)


@pytest.mark.usefixtures("brief", "page_first")
def test_the_demo_with_a_page_has_a_state_of_its_own(
    say: Say, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal of one year cannot go on for `YEARS`: so neither finds the other's."""
    monkeypatch.setattr(module, "YEARS", 2)
    monkeypatch.setattr(module, "FIRST_TICKS", inf)
    until_end = Run.until_end

    async def ending(self: Run) -> None:
        await until_end(self)
        self.stop()

    monkeypatch.setattr(Run, "until_end", ending)
    page = ("demo", "--embedded", "--json", "--port", "0")
    years, year = last_line(say(*page)), last_line(say(*FLAGS))
    assert (year["ticks"], years["ticks"]) == (48, 96)
    assert years["events"] == 2 * year["events"] > 0
    assert last_line(say(*FLAGS))["final"] == year["final"]
    assert last_line(say(*page))["final"] == years["final"]
    states = home / "state" / "demo"
    assert (states / "embedded" / "flights.journal").exists()
    assert (states / "years" / "embedded" / "flights.journal").exists()


async def test_the_broker_outlives_its_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    up: list[bool] = []

    @asynccontextmanager
    async def broker(_: Path) -> AsyncIterator[Any]:
        up.append(True)
        yield SimpleNamespace(bootstrap="127.0.0.1:1")
        up.clear()

    async def nothing(*_: Any, **__: Any) -> None:
        return None

    monkeypatch.setattr(module, "LocalKafka", broker)
    monkeypatch.setattr(module, "_kafka_can_be_had", lambda told: True)
    monkeypatch.setattr(module, "create_topic", nothing)
    monkeypatch.setattr(module, "_run", nothing)
    monkeypatch.setattr(module, "local_dir", lambda: tmp_path)
    options = module.DemoOptions(False, True, True, False, 0)
    said = module.Told(lambda text: None, unseen, lambda url, on: None, lambda run: nullcontext())
    async with module.run_demo(options, said):
        assert up
    assert not up
