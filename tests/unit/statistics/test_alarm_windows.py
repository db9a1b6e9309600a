"""Alerts and watches over windows as people write them: their meaning, what is said beforehand, what is refused."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from unit.live.monitor_worlds import message
from unit.statistics.parts.test_monitor_messages import fired, run

from stream_dp.cli.main import app
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import UsageError
from stream_dp.mechanisms.states import mechanism_fingerprint
from stream_dp.mechanisms.watches.kinds import Alerts, Monitor, WindowAlerts
from stream_dp.mechanisms.watches.monitor_state import WatchTerms
from stream_dp.mechanisms.watches.watch_noise import crossing_chance
from stream_dp.pipeline.builder import Chosen, build
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.yaml import load
from stream_dp.server.models.configured import PlannedSeries

FILE = """\
version: 1
name: watched
source: {kind: file, path: flights.jsonl}
schema:
  time: {type: time}
  destination: {type: category, domain: [ATL, BOS]}
privacy: {epsilon: 2}
clock: {kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: 240}
series:
"""
PLAIN = "  - {name: a, statistic: alerts, by: destination, threshold: 50, epsilon: 0.2}\n"
BUSY = PLAIN.replace("epsilon", "windows: [6h], epsilon")
SILENT = BUSY.replace("epsilon", "below: true, epsilon")
MANY = """\
  - name: m
    statistic: monitor
    epsilon: 0.2
    watch:
      - {name: since, above: 50}
      - {name: day, by: destination, above: 500, over: 1d}
      - {name: silent, by: destination, below: 100, over: 1d, usual: 400, rearm: false}
      - {name: hour, above: 50, over: 1h}
"""


def written(folder: Path, series: str) -> Path:
    """A pipeline file with this series."""
    path = folder / "watched.yaml"
    path.write_text(FILE + series)
    return path


def chosen(folder: Path, series: str) -> Chosen:
    """What is chosen for it."""
    (found,) = build(load(written(folder, series))).chosen
    return found


def watching(folder: Path, series: str) -> Monitor:
    """The same, of what is a monitor."""
    found = chosen(folder, series).mechanism
    assert isinstance(found, Monitor)
    return found


def test_alerts_over_a_window_are_a_monitor_of_one_watch(tmp_path: Path) -> None:
    busy = chosen(tmp_path, BUSY)
    assert isinstance(chosen(tmp_path, PLAIN).mechanism, Alerts)
    assert isinstance(busy.mechanism, Monitor)
    assert busy.mechanism.watches == (WatchTerms(50, 3, window=6),)
    assert watching(tmp_path, SILENT).watches == (WatchTerms(50, 3, below=True, window=6),)


@pytest.mark.parametrize("series", [BUSY, SILENT])
def test_where_events_are_replaced_a_window_has_three_quarters_of_the_noise(
    tmp_path: Path, series: str
) -> None:
    """In its tick; a replacement that may move is two events, and a single tick one noisy count."""
    path, fifth = written(tmp_path, series), Fraction(1, 5)

    def under(privacy: str) -> Chosen:
        path.write_text((FILE + series).replace("epsilon: 2}", f"epsilon: 2{privacy}}}"))
        (found,) = build(load(path)).chosen
        return found

    alike = under(", neighbors: replace, moves: within_tick")
    assert isinstance(alike.mechanism, WindowAlerts)
    assert alike.mechanism.window_scale == 3 / fifth
    before = Monitor(3, fifth, Neighbors.REPLACE, alike.mechanism.watches)
    assert before.window_scale == 4 / fifth
    assert not mechanism_fingerprint(before).startswith(alike.fingerprint)  # no journal goes on
    assert isinstance(under(", neighbors: replace").mechanism, Monitor)
    assert isinstance(under("").mechanism, Monitor)
    series = series.replace("[6h]", "[1h]")
    assert isinstance(under(", neighbors: replace, moves: within_tick").mechanism, Monitor)


def test_readers_are_told_what_an_alert_means(tmp_path: Path) -> None:
    plain, busy, silent = (
        chosen(tmp_path, each).spec.described() for each in (PLAIN, BUSY, SILENT)
    )
    assert plain["meaning"] == "at least about 50 {band} events since the one before"
    assert busy["meaning"] == "at least about 50 {band} events within 6h and since the one before"
    assert silent["meaning"] == "at most about 50 {band} events within 6h and since the one before"
    assert (plain["parameters"], busy["parameters"]) == (
        {"threshold": 50},
        {"threshold": 50, "window": "6h"},
    )
    assert silent["parameters"] == {"threshold": 50, "window": "6h", "fires": "below"}
    assert (plain["shape"], busy["shape"], busy["about"]) == (
        "flags",
        "flags",
        "alerts by destination over 6h",
    )
    assert chosen(tmp_path, MANY).spec.parameters == {
        "since": "above 50",
        "day": "above 500 in 1d for each of destination",
        "silent": "below 100 in 1d for each of destination, once",
        "hour": "above 50 in 1h",
    }


def test_a_plan_says_how_likely_false_alarms_are(tmp_path: Path) -> None:
    path = written(tmp_path, BUSY)
    (planned,) = plan_json(build(load(path)))["series"]
    chance = crossing_chance(25, Fraction(10), 24)
    assert planned["false_alarms"] == [{"name": "a", "usual": 25, "chance": chance, "keyed": True}]
    PlannedSeries.documented(planned)
    said = CliRunner().invoke(app, ["plan", str(path)]).output
    assert f"a: a false alarm per key and day with a chance of at most {chance:.2g}" in said
    path = written(tmp_path, MANY)
    said = CliRunner().invoke(app, ["plan", str(path)]).output
    assert "day: a false alarm per key and day" in said
    assert "hour: a false alarm per day" in said  # it has one count
    (many,) = plan_json(build(load(path)))["series"]
    told = {each["name"]: (each["usual"], each["chance"]) for each in many["false_alarms"]}
    assert told["day"] == (250, crossing_chance(250, Fraction(40), 24))
    assert told["silent"] == (400, crossing_chance(301, Fraction(40), 24))
    assert told["since"] == (25, crossing_chance(25, Fraction(20), 24))
    assert 0 < told["hour"][1] < 1
    monitor = watching(tmp_path, MANY)
    assert told["hour"][1] == monitor.false_alarm(WatchTerms(50, tick=True), 25, 24)


def test_long_ticks_have_one_comparison_a_day_and_others_end_with_it(tmp_path: Path) -> None:
    for step, ticks in (("7h", 4), ("2d", 1)):
        file = (FILE + PLAIN).replace("step: 1h", f"step: {step}")
        path = tmp_path / "steps.yaml"
        path.write_text(file)
        (found,) = build(load(path)).chosen
        (alarm,) = found.choice.alarms
        assert alarm.chance == crossing_chance(25, Fraction(5), ticks)


def test_the_fingerprint_takes_the_window_and_not_what_is_usual(tmp_path: Path) -> None:
    now = fingerprint(load(written(tmp_path, BUSY)))
    for other in (PLAIN, SILENT, BUSY.replace("6h", "5h")):
        assert fingerprint(load(written(tmp_path, other))) != now
    usual = BUSY.replace("epsilon", "usual: 9, epsilon")
    assert fingerprint(load(written(tmp_path, usual))) == now
    many = fingerprint(load(written(tmp_path, MANY)))
    assert fingerprint(load(written(tmp_path, MANY.replace("usual: 400", "usual: 401")))) == many
    assert fingerprint(load(written(tmp_path, MANY.replace("over: 1h", "over: 2h")))) != many


def test_windows_of_more_rows_than_a_state_holds_are_refused(tmp_path: Path) -> None:
    file = FILE.replace("horizon: 240", "horizon: 1000000").replace("step: 1h", "step: 1s")
    path = tmp_path / "long.yaml"
    path.write_text(file + BUSY.replace("6h", "2d"))
    with pytest.raises(
        UsageError, match="series a: the windows of these watches would hold 518,400"
    ):
        build(load(path))


def test_noise_that_cannot_be_drawn_is_refused_before_anything_runs(tmp_path: Path) -> None:
    many = MANY.replace("epsilon: 0.2", "epsilon: 0.000001\n    touch: 1000000\n    most: 1000000")
    path = tmp_path / "watched.yaml"
    text = (FILE + many).replace("neighbors", "neighbors").replace("privacy: {epsilon: 2}",
        "privacy: {epsilon: 2, unit: user, user: destination, max_events: 1000, per: 1h}")  # fmt: skip
    path.write_text(text)
    with pytest.raises(UsageError, match=r"series m: noise of scale .* is too wide for 64 bits"):
        build(load(path))


FR_DAY: dict[str, Any] = {
    "name": "fr", "where": [{"field": "country", "equals": "FR"}], "above": 4, "over": "3h",
}  # fmt: skip


async def test_a_watch_over_a_window_comes_by_message_and_is_asked() -> None:
    world = await run(
        [
            message(0, "w1", "watch", series="m", watch=FR_DAY),
            message(4, "a1", "ask", series="m", watch="fr", threshold=10**6),
            message(5, "l1", "list"),
            message(5, "w2", "watch", series="m", watch={**FR_DAY, "name": "odd", "over": "90m"}),
            message(5, "w3", "watch", series="m", watch={**FR_DAY, "name": "long", "over": "999d"}),
        ]
    )
    said = world.replies()
    assert fired(world, "fr")
    assert said["a1"]["answer"]["fired"] is False
    (m,) = [each for each in said["l1"]["answer"]["queries"] if each["name"] == "m"]
    (fr,) = [each for each in m["watches"] if each["name"] == "fr"]
    assert (fr["over"], fr["above"]) == ("3h", 4)
    assert "over: is no whole number of ticks" in said["w2"]["refused"]["detail"]
    assert "over: is longer than the horizon" in said["w3"]["refused"]["detail"]


async def test_a_watch_whose_window_is_too_long_for_the_state_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stream_dp.statistics.monitor.MOST_HELD", 5)
    monkeypatch.setattr("stream_dp.mechanisms.watches.monitor_state.MOST_HELD", 5)
    again = {**FR_DAY, "name": "more"}
    world = await run(
        [
            message(0, "w1", "watch", series="m", watch=FR_DAY),
            message(1, "w2", "watch", series="m", watch=again),
            message(2, "u1", "unwatch", series="m", watch="fr"),
            message(2, "w3", "watch", series="m", watch=again),
        ]
    )
    said = world.replies()
    assert "would hold 6 numbers, more than 5" in said["w2"]["refused"]["detail"]
    assert "answer" in said["w3"]
