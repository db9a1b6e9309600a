"""Alerts and monitors as people write them: terms, prices, units of sums, false alarms, and what readers are told."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from unit.live.monitor_worlds import message
from unit.statistics.parts.test_monitor_messages import fired, run
from unit.statistics.statistic_cases import EVENT, MOVES, WITHIN, bodies, built_of, series_of, shop

from stream_dp.cli.main import app
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.serial import mechanism_fingerprint
from stream_dp.errors import UsageError
from stream_dp.journal.release import read
from stream_dp.mechanisms.watches.block import WatchTerms, crossing_chance
from stream_dp.mechanisms.watches.kinds import Alerts, Monitor, SumMonitor, WindowAlerts
from stream_dp.pipeline.builder import Chosen, build
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.yaml import load
from stream_dp.server.models.configured import PlannedSeries

FIFTH = Fraction(1, 5)
PLAIN = "{name: it, epsilon: 0.2, statistic: alerts, by: country, threshold: 50}"
BUSY = PLAIN.replace("50}", "50, windows: [6h]}")
SILENT = BUSY.replace("]}", "], below: true}")
SUM = BUSY.replace("threshold: 50", "of: amount, clamp: [0, 40], step: 0.5, threshold: 900")
BELOW = SUM.replace("[0, 40]", "[-60, 40]").replace("900, ", "-100, below: true, ")
MONITOR = "{name: it, epsilon: 0.2, statistic: monitor, watch: [%s]}"
LARGE = "{name: large, where: [{field: pieces, at_least: 60}], above: 50}"
QUIET = "{name: quiet, where: [{field: kind, equals: look}], below: 3}"
ONCE = "{name: busy, by: country, above: 100, rearm: false}"
THREE = MONITOR % f"{LARGE}, {QUIET}, {ONCE}"
OVER = MONITOR % (
    "{name: since, above: 50}, {name: day, by: country, above: 500, over: 1d}, "
    "{name: silent, by: country, below: 100, over: 1d, usual: 400, rearm: false}, {name: hour, above: 50, over: 1h}"
)
SUMS = (
    MONITOR % "{name: busy, by: country, above: 900, over: 6h}, {name: low, below: -100, over: 1d}"
).replace("monitor,", "monitor, of: amount, clamp: [-60, 40], step: 0.5,")


def chosen(folder: Path, entry: str, privacy: str = EVENT) -> Chosen:
    (found,) = built_of(folder, entry, privacy=privacy, horizon=240).chosen
    return found


def terms(folder: Path, entry: str) -> Sequence[WatchTerms]:
    mechanism = chosen(folder, entry).mechanism
    assert isinstance(mechanism, Monitor | SumMonitor)
    return mechanism.watches


def prints(folder: Path, *entries: str) -> set[str]:
    return {fingerprint(load(shop(folder, entry, horizon=240))) for entry in entries}


def test_each_watch_has_its_terms_and_the_monitor_what_they_overlap(tmp_path: Path) -> None:
    found: Any = chosen(tmp_path, THREE).mechanism
    quiet = WatchTerms(3, tick=True, below=True)
    assert found.watches == (WatchTerms(50), quiet, WatchTerms(100, 3, rearm=False))
    assert (found.width, found.ones, found.scale) == (105, 3, 15)
    assert not found.value_epsilon


def test_alerts_over_a_window_are_a_monitor_of_one_watch(tmp_path: Path) -> None:
    assert isinstance(chosen(tmp_path, PLAIN).mechanism, Alerts)
    assert terms(tmp_path, BUSY) == (WatchTerms(50, 3, window=6),)
    assert terms(tmp_path, SILENT) == (WatchTerms(50, 3, below=True, window=6),)


@pytest.mark.parametrize(
    ("watches", "ones"),
    [
        (("where: [{field: kind, equals: look}]", "where: [{field: kind, equals: enter}]"), 1),
        (("where: [{field: pieces, at_most: 5}]", "where: [{field: pieces, at_least: 5}]"), 2),
        (("by: tags", "by: country"), 3),
    ],
)
def test_filters_that_no_event_passes_together_cost_once(
    tmp_path: Path, watches: tuple[str, ...], ones: int
) -> None:
    both = ", ".join(f"{{name: w{i}, {watch}, above: 5}}" for i, watch in enumerate(watches))
    found = chosen(tmp_path, MONITOR % both)
    assert getattr(found.mechanism, "ones", None) == ones
    assert f"at most {ones} of its places" in found.choice.why
    assert found.derivation.guarantee.measure.epsilon == FIFTH  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("privacy", "share"), [(EVENT, 1), (MOVES, Fraction(1, 2))], ids=["event", "moves"]
)
def test_a_count_at_its_crossing_is_paid_for_beside(
    tmp_path: Path, privacy: str, share: Fraction
) -> None:
    entry = THREE.replace("watch:", "value: 0.1, most: 1000, touch: 4, watch:")
    built = built_of(tmp_path, entry, privacy=privacy)
    (found,), (planned,) = built.chosen, plan_json(built)["series"]
    mechanism: Any = found.mechanism
    assert (mechanism.epsilon, mechanism.value_epsilon) == (FIFTH * share, share * Fraction(1, 10))
    assert (mechanism.width, mechanism.ones) == (1000, 4)
    assert found.spec.price == found.derivation.guarantee.measure.epsilon == Fraction(3, 10)  # type: ignore[union-attr]
    assert (planned["epsilon"], planned["mechanism"]) == (0.3, "Monitor")
    assert "fire too early" in planned["why"]
    assert series_of(built).counts_band == mechanism.value_band(0.95)


@pytest.mark.parametrize("entry", [BUSY, SILENT])
def test_where_events_are_replaced_a_window_has_three_quarters_of_the_noise(
    tmp_path: Path, entry: str
) -> None:
    """In its tick; a replacement that may move is two events, and a single tick one noisy count."""
    alike = chosen(tmp_path, entry, WITHIN)
    assert isinstance(alike.mechanism, WindowAlerts)
    assert alike.mechanism.window_scale == 3 / FIFTH
    before = Monitor(3, FIFTH, Neighbors.REPLACE, alike.mechanism.watches)
    assert before.window_scale == 4 / FIFTH
    assert not mechanism_fingerprint(before).startswith(alike.fingerprint)  # no journal goes on
    for other, privacy in ((entry, MOVES), (entry, EVENT), (entry.replace("6h", "1h"), WITHIN)):
        assert isinstance(chosen(tmp_path, other, privacy).mechanism, Monitor)


def test_readers_are_told_what_a_flag_means(tmp_path: Path) -> None:
    plain, busy, silent, below, sums = (
        chosen(tmp_path, each).spec.described() for each in (PLAIN, BUSY, SILENT, BELOW, SUMS)
    )
    assert plain["meaning"] == "at least about 50 {band} events since the one before"
    assert busy["meaning"] == "at least about 50 {band} events within 6h and since the one before"
    assert silent["meaning"] == "at most about 50 {band} events within 6h and since the one before"
    assert below["meaning"].startswith("at most about -100 {band} of amount within 6h")
    assert "{band} of amount" in sums["meaning"]
    assert {each["shape"] for each in (plain, busy, silent, sums)} == {"flags"}
    assert chosen(tmp_path, OVER).spec.parameters == {
        "since": "above 50",
        "day": "above 500 in 1d for each of country",
        "silent": "below 100 in 1d for each of country, once",
        "hour": "above 50 in 1h",
    }
    assert sums["parameters"]["low"] == "below -100 in 1d"


def test_a_plan_says_how_likely_false_alarms_are(tmp_path: Path) -> None:
    path = shop(tmp_path, BUSY, OVER.replace("name: it", "name: many"), horizon=240)
    busy, many = plan_json(build(load(path)))["series"]
    chance = crossing_chance(25, Fraction(10), 24)
    assert busy["false_alarms"] == [{"name": "it", "usual": 25, "chance": chance, "keyed": True}]
    PlannedSeries.documented(busy)
    said = CliRunner().invoke(app, ["plan", str(path)]).output
    assert (
        f"it: while its count stays at 25, the chance of a false alarm per key and day is at most {chance:.2g}"
        in said
    )
    assert "day: while its count stays at 250, the chance of a false alarm per key and day" in said
    assert "the chance of a false alarm per day is" in said  # it has one count
    told = {each["name"]: (each["usual"], each["chance"]) for each in many["false_alarms"]}
    monitor: Any = chosen(tmp_path, OVER).mechanism
    assert told == {
        "day": (250, crossing_chance(250, Fraction(40), 24)),
        "silent": (400, crossing_chance(301, Fraction(40), 24)),
        "since": (25, crossing_chance(25, Fraction(20), 24)),
        "hour": (25, monitor.false_alarm(WatchTerms(50, tick=True), 25, 24)),
    }


@pytest.mark.parametrize(("step", "ticks"), [("7h", 4), ("2d", 1)])
def test_a_day_of_long_ticks_has_whole_comparisons(tmp_path: Path, step: str, ticks: int) -> None:
    path = shop(tmp_path, PLAIN)
    path.write_text(path.read_text().replace("step: 1h", f"step: {step}"))
    (alarm,) = build(load(path)).chosen[0].choice.alarms
    assert alarm.chance == crossing_chance(25, Fraction(5), ticks)


def test_fingerprints_take_what_watches_mean_and_not_what_is_usual(tmp_path: Path) -> None:
    other = (
        PLAIN, SILENT, BUSY, BUSY.replace("6h", "5h"), SUM, BELOW, SUMS, SUMS.replace("[-60, 40]", "[-60, 41]"),
        THREE, THREE.replace("above: 50", "above: 51"), THREE.replace("at_least: 60", "at_least: 61"),
        THREE.replace(", rearm: false", ""), THREE.replace("large", "huge"),
        THREE.replace("watch:", "touch: 3, watch:"), OVER, OVER.replace("over: 1h", "over: 2h"),
    )  # fmt: skip
    assert len(prints(tmp_path, *other)) == len(other)
    same = THREE.replace("at_least: 60", 'at_least: "060"')
    assert len(prints(tmp_path, THREE, same)) == 1
    assert len(prints(tmp_path, BUSY, BUSY.replace("]}", "], usual: 9}"))) == 1
    assert len(prints(tmp_path, OVER, OVER.replace("usual: 400", "usual: 401"))) == 1


def test_windows_of_more_rows_than_a_state_holds_are_refused(tmp_path: Path) -> None:
    entry = BUSY.replace("6h", "172800h")
    with pytest.raises(
        UsageError, match="series it: the windows of these watches would hold 518,400"
    ):
        built_of(tmp_path, entry, horizon=1_000_000)


def test_noise_that_cannot_be_drawn_is_refused_before_anything_runs(tmp_path: Path) -> None:
    entry = OVER.replace("0.2", "0.000001").replace(
        "watch:", "touch: 1000000, most: 1000000, watch:"
    )
    users = ", unit: user, user: customer, max_events: 1000, per: 1h"
    with pytest.raises(UsageError, match=r"series it: noise of scale .* is too wide for 64 bits"):
        chosen(tmp_path, entry, users)


def test_thresholds_clamps_and_bands_of_sums_are_in_the_fields_unit(tmp_path: Path) -> None:
    found = chosen(tmp_path, SUM)
    mechanism: Any = found.mechanism
    assert mechanism.watches == (WatchTerms(1_800, 3, window=6),)
    assert [mechanism.lowest, mechanism.highest, mechanism.window_scale] == [0, 80, 800]
    (alarm,) = found.choice.alarms
    assert (alarm.usual, alarm.chance) == (450, crossing_chance(900, Fraction(800), 24))
    assert found.choice.expected(11) == mechanism.band((12, True), 0.95) / 2
    sums = chosen(tmp_path, SUMS)
    monitor: Any = sums.mechanism
    below = WatchTerms(-200, below=True, window=24)
    assert monitor.watches == (WatchTerms(1_800, 3, window=6), below)
    assert [monitor.lowest, monitor.highest, monitor.ones] == [-120, 80, 2]
    assert monitor.window_scale == 2 * 2 * 120 / FIFTH  # two watches, 120 units, twice
    busy, low = sums.choice.alarms
    assert (busy.usual, busy.chance) == (450, crossing_chance(900, monitor.window_scale, 24))
    assert (low.usual, low.chance) == (-50, crossing_chance(101, monitor.window_scale, 24))
    assert low.words.startswith("low: while its sum of amount stays at -50, the chance")


def test_a_threshold_below_which_a_signed_sum_fires_may_be_negative(tmp_path: Path) -> None:
    built = built_of(tmp_path, BELOW, horizon=240)
    (found,) = built.chosen
    mechanism: Any = found.mechanism
    assert mechanism.watches == (WatchTerms(-200, 3, below=True, window=6),)
    (alarm,) = found.choice.alarms
    assert alarm.usual == -50  # half the way from 0
    assert alarm.chance == crossing_chance(101, mechanism.window_scale, 24)
    rows = [[amount, 0, 0] for amount in [0] * 6 + [-200, -1, 1, 0]]
    fires = [read(body).fired for body in bodies(series_of(built), rows)]
    assert [at for at, names in enumerate(fires) if names] == [
        7
    ]  # fewer than -200 units in the window


@pytest.mark.parametrize(
    ("privacy", "l1", "epsilon"), [(EVENT, 240, FIFTH), (WITHIN, 480, FIFTH), (MOVES, 240, FIFTH / 2)]
)  # fmt: skip
def test_a_record_that_may_be_replaced_pays_for_both_amounts(
    tmp_path: Path, privacy: str, l1: int, epsilon: Fraction
) -> None:
    monitor: Any = chosen(tmp_path, SUMS, privacy).mechanism
    assert (monitor.l1, monitor.epsilon) == (l1, epsilon)


def test_a_threshold_that_is_asked_is_a_whole_number_of_steps(tmp_path: Path) -> None:
    found = chosen(tmp_path, SUMS.replace("step: 0.5", "step: 20"))
    asking = found.spec.asking(("busy/DE", "busy/FR", "busy/other", "low"), found.mechanism, None)
    assert asking is not None
    assert asking.query({"watch": "low", "threshold": -40}).threshold == -2
    with pytest.raises(UsageError, match="threshold: must be a multiple of the step 20"):
        asking.query({"watch": "low", "threshold": -50})


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
    assert "over: must be a whole number of ticks" in said["w2"]["refused"]["detail"]
    assert "over: is longer than the horizon" in said["w3"]["refused"]["detail"]


async def test_a_watch_whose_window_is_too_long_for_the_state_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stream_dp.statistics.monitor.MOST_HELD", 5)
    monkeypatch.setattr("stream_dp.mechanisms.watches.block.MOST_HELD", 5)
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
