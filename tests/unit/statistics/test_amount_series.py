"""Sums and means: units of amounts, numbers on the grid, ends of a mean, live ones, sums that stop no engine."""

import asyncio
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_acts import create_series
from unit.live.live_series_steps import zero
from unit.live.live_series_worlds import HORIZON, Stopping, World, record
from unit.statistics.statistic_cases import AMOUNTS, bodies, built_of, rows_of, series_of, shop

from stream_dp.client.public_release import PublicRelease
from stream_dp.core.neighbors import Neighbors
from stream_dp.engine.ports import Batch
from stream_dp.errors import NotDerivable
from stream_dp.journal.release import read, told_number
from stream_dp.mechanisms.linear.counter import Counter, SumCounter
from stream_dp.mechanisms.linear.noisy_forest import FLAT
from stream_dp.mechanisms.linear.pairs import SumsAndCounts
from stream_dp.mechanisms.linear.window_forest import SumForest, WindowForest
from stream_dp.mechanisms.noise_law import contrast_widths
from stream_dp.pipeline.report import plan_json
from stream_dp.python.embedded import Pipeline
from stream_dp.records.amount_units import Amount, Centred, Fitting
from stream_dp.records.record_columns import Numbers

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
SUM, MEAN = f"statistic: sum, {AMOUNTS}", f"statistic: mean, {AMOUNTS}"
PLAIN = "of: amount, clamp: [0, 240]"


def test_a_double_becomes_units_by_itself() -> None:
    """Alone, and in a batch at every place: the same units; beside a Fraction, at most half a step off."""
    amount = Amount("amount", Fraction(-10), Fraction(240), Fraction(1, 100))
    values = np.array([0.005, 0.015, 0.145, 1.005, 2.675, -0.125, 239.994, 1e300, -1e300, 7.0] * 37)
    together = amount.of(Numbers(values, None))
    for at, value in enumerate(values.tolist()):
        assert amount.of(Numbers(np.array([value]), None)).tolist() == [together[at]]
        exact = min(max(Fraction(value), amount.lowest), amount.highest) / amount.step
        assert abs(together[at] - exact) <= Fraction(1, 2) + Fraction(1, 10**9)
    assert together[:6].tolist() == [0, 2, 14, 100, 268, -12]


def test_a_null_adds_nothing_where_every_amount_adds_something() -> None:
    amount, known = Amount("paid", Fraction(2), Fraction(5)), np.array([False, True, True])
    assert amount.of(Numbers(np.array([0.0, 9.0, -9.0]), known)).tolist() == [0, 5, 2]


def test_the_middle_of_a_clamp_is_whole_in_units() -> None:
    centred = Centred(Amount("amount", Fraction(-1), Fraction(2), Fraction(1, 100)))
    assert (centred.middle, centred.units, centred.centre) == (50, (-150, 150), Fraction(1, 2))
    odd = Centred(Amount("amount", Fraction(-2), Fraction(1)))
    assert (odd.middle, odd.units) == (-1, (-1, 2))


def test_what_fits_into_a_total_adds_what_is_above_the_clamp() -> None:
    """Null adds nothing, and not less than that, though the guard's units of it are 0, as many as it has."""
    amount, units = Amount("paid", Fraction(2), Fraction(5)), np.array([0, 5, 2, 4])
    numbers = Numbers(np.array([0.0, 9.0, 1.0, 5.0]), np.array([False, True, True, True]))
    added, counted = Fitting(amount), Fitting(amount, counted=True)
    assert (added.of(numbers, units).tolist(), added.units) == ([0, 3, 0, 0], (0, 3))
    assert (counted.of(numbers, units).tolist(), counted.units) == ([0, 1, 1, 0], (0, 1))


def test_numbers_of_units_are_exact() -> None:
    assert str(told_number(10**17 + 1, Fraction(1, 10**6))) == "100000000000.000001"
    assert str(told_number(3, Fraction(1, 4))) == "0.75"
    assert told_number(-3, Fraction(20)) == -60
    with pytest.raises(ValueError, match="at most 6 places"):
        told_number(1, Fraction(1, 3))


@pytest.mark.parametrize(
    ("keys", "row", "wanted"),
    [
        (SUM, [1250], b'"value":12.50,"band":'),
        (f"statistic: sum, {PLAIN}", [-7], b'"value":0,"band":'),
        (f"statistic: sum, {PLAIN}, windows: [2h, ever]", [-7], b'"ever":{"value":0,'),
        (f"{SUM}, windows: [2h]", [-700], b'"tick":{"value":-7.00,"band":'),
        (MEAN, [-300, 2], b'"value":113.5000,"low":-10.0000,"high":240.0000,"confidence":0.95'),
        (MEAN, [0, 0], b'"value":null,"low":-10.0000,"high":240.0000,'),
    ],
)
def test_releases_are_on_the_grid_and_within_what_can_be(
    tmp_path: Path, keys: str, row: list[int], wanted: bytes
) -> None:
    (body,) = bodies(series_of(built_of(tmp_path, keys)), [row])
    assert wanted in body
    released, program = read(body), PublicRelease.of(body)
    if released.windows is None:
        assert (released.value, released.band) == (program.value, program.band)
        assert (released.low, released.high) == (program.low, program.high)


def test_noise_beyond_the_clamp_is_cut_from_a_mean(tmp_path: Path) -> None:
    """Sums beyond what so few can have, and counts below 0."""
    keys = "statistic: mean, of: pieces, clamp: [-4, 9], by: country, windows: [2h, 4h]"
    series = series_of(built_of(tmp_path, keys))
    tell = series.views[0].tell
    assert tell is not None
    found = tell(series.keys, np.array([70, -70, 3, 5, 5, -2]), 0, None)
    assert [str(value) for value in found["values"].values()] == ["9.00", "-4.00", "None"]
    assert [str(found[ends][2]) for ends in ("lows", "highs")] == ["-4.00", "9.00"]


def test_only_a_known_amount_counts_in_a_mean_from_the_middle_on(tmp_path: Path) -> None:
    """Null is in neither half, what the clamp cuts is at its end, and a condition excludes from both."""
    built = built_of(tmp_path, f"{MEAN}, by: country")
    assert built.layout.keys("it")[2:4] == ("sum/other", "count/DE")
    amounts = [("DE", 115.0), ("DE", 115.01), ("FR", None), ("FR", 1e308), ("ES", -1e308)]
    found = rows_of(built, *({"country": c, "amount": a} for c, a in amounts))
    assert found.tolist() == [1, 12_500, -12_500, 2, 1, 1]
    some = built_of(tmp_path, f"statistic: mean, {PLAIN}, where: [{{field: country, equals: DE}}]")
    records = ({"country": "FR", "amount": 200}, {"country": "DE", "amount": 200})
    assert rows_of(some, *records).tolist() == [80, 1]


def test_rows_of_a_mean_without_its_middle_are_no_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin that forgets it: an amount of 240 is more than the noise for 120 is for."""
    built = built_of(tmp_path, f"statistic: mean, {PLAIN}")
    accepting = built.chosen[0].mechanism.rows.relation(ADD)
    for forgotten in (False, True):
        if forgotten:
            monkeypatch.setattr(Centred, "of", lambda self, numbers: self.whole.of(numbers))
        row = rows_of(built, {"amount": 240})
        assert (accepting.accept(row, np.zeros_like(row)) is None) == forgotten


@pytest.mark.parametrize(
    ("more", "window", "place"),
    [("", None, None), (", windows: [2h]", "2h", 1), (", every: 2h", "2h", 0)],
)
@pytest.mark.parametrize("sums", [-3_000, 550_000])
def test_the_ends_are_where_sums_and_counts_begin_to_speak_against_a_mean(
    tmp_path: Path, more: str, window: str | None, place: int | None, sums: int
) -> None:
    """By the law of both noises at 0.95; no mean is farther from the middle than 120."""
    built, counts = built_of(tmp_path, f"statistic: mean, {PLAIN}{more}"), 5_000
    both: Any = built.chosen[0].mechanism
    told = json.loads(bodies(series_of(built), [[0, 0], [sums, counts]])[1])
    told = told if window is None else told["windows"][window]
    assert told["value"] == 120 + sums / counts
    laws = [
        each.noise(2) if place is None else each.noise(each.view_public(place, 2, None), place)
        for each in (both.sums, both.counts)
    ]
    widths = contrast_widths(laws[0], laws[1], 1 - 0.95, Fraction(120))
    for name, side in (("low", -1), ("high", 1)):
        end = Fraction(str(told[name])) - 120
        inside, outside = (end + step * Fraction(side, 100) for step in (-1, 1))
        assert abs(sums - inside * counts) <= widths.at(inside)
        assert abs(sums - outside * counts) > widths.at(outside)


def test_nothing_is_told_of_a_mean_before_a_window_has_ended(tmp_path: Path) -> None:
    """Then its ends are those of the pair of noisy numbers; where nothing counted, those of the clamp."""
    keys = f"statistic: mean, {PLAIN}, every: 2h"
    (first, ended, _, empty) = bodies(
        series_of(built_of(tmp_path, keys)), [[9, 1], [-309, 2], [0, 0], [0, 0]]
    )
    nothing = {"value": None, "low": None, "high": None}
    assert json.loads(first)["windows"] == {"2h": nothing}
    part = json.loads(ended)["windows"]["2h"]
    assert part["value"] == 20
    assert part["low"] < 20 < part["high"]
    assert json.loads(empty)["windows"]["2h"] == {"value": None, "low": 0, "high": 240}
    by_key = series_of(built_of(tmp_path, f"{keys}, by: country"))
    told = json.loads(bodies(by_key, [[9, 0, 0, 1, 0, 0]])[0])["windows"]["2h"]
    ends = [None] * 3
    assert told == {"values": {"DE": None, "FR": None, "other": None}, "lows": ends, "highs": ends}


def test_the_plan_of_a_mean_says_what_its_error_depends_on(tmp_path: Path) -> None:
    (shown,) = plan_json(built_of(tmp_path, f"statistic: mean, {PLAIN}, windows: [3h, ever]"))[
        "series"
    ]
    sums = SumForest(1, Fraction(2, 5), ADD, (1, 3), FLAT, -120, 120).view_band(0, 1, 0.95)
    counts = WindowForest(1, Fraction(4, 15), ADD, (1, 3), FLAT).view_band(0, 1, 0.95)
    assert f"tick: sqrt({sums}^2 + ({counts} (r - 120))^2) / (n - {counts})" in shown["why"]
    assert shown["why"].endswith("; the errors shown are for r = 120 and n = 1,000")
    found = shown["windows"][0]["predicted_error"][-1]["error"]
    assert found == pytest.approx(sums / 1_000, rel=0.02)


def test_long_windows_of_sums_get_levels(tmp_path: Path) -> None:
    keys = f"statistic: sum, {PLAIN}, windows: [30d]"
    (shown,) = plan_json(built_of(tmp_path, keys, horizon=9_000))["series"]
    assert "windows from a forest, with these parts of its epsilon:" in shown["why"]
    assert "on sums of 1 tick" in shown["why"]


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        (Counter(2, Fraction(1), ADD, 8), "width"), (Counter(1, Fraction(1), REPLACE, 8), "neighbors"),
        (Counter(1, Fraction(1), ADD, 8, 2), "ones"), (Counter(1, Fraction(1), ADD, 9), "horizon"),
        (WindowForest(1, Fraction(1), ADD, (1,), FLAT), "windows"),
    ],
)  # fmt: skip
def test_sums_and_counts_of_other_events_are_refused(counts: Any, why: str) -> None:
    with pytest.raises(NotDerivable, match=f"must have the same {why}"):
        SumsAndCounts(SumCounter(1, Fraction(1), ADD, 8, -1, 1), counts)


@pytest.mark.parametrize(
    ("entries", "amounts"),
    [
        ((f"{SUM}, by: country", f"{{name: other, epsilon: 1, {MEAN}}}"), [-3.5, -9.0, None]),
        (("statistic: sum, of: amount, clamp: [0, 1000], step: 0.000001",), [1000.0] * 1_101),
    ],
    ids=["below 0", "more units than there are events"],
)
def test_no_sum_decides_whether_the_engine_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: tuple[str, ...], amounts: list[Any]
) -> None:
    """The row of a tick may hold any sum: what cannot be a count stops nothing."""
    plain = {
        "time": "2026-01-01T00:30:00Z",
        "country": "DE",
        "pieces": 1,
        "customer": "c",
        "tags": [],
    }
    lines = [json.dumps(plain | {"amount": amount}) + "\n" for amount in amounts]
    (tmp_path / "shop.jsonl").write_text("".join(lines))
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path / "home"))
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    key.chmod(0o600)
    released: list[PublicRelease] = []
    Pipeline.load(shop(tmp_path, *entries), key_file=key).run(released.append)
    assert [one.tick for one in released if one.series == "it"] == list(range(8))


def refunds() -> list[Batch]:
    """Two partitions, one tick a batch: tick + 1 orders of tick - 5 from DE, and one of -10 from FR in the second."""
    found, position = list[Batch](), [0, 0]
    for tick in range(HORIZON):
        for partition in (0, 1):
            events = [record(tick, "DE", tick - 5)] * (tick + 1)
            events += [record(tick, "FR", -10 * partition), record(tick, "FR", None)]
            labels = range(position[partition], position[partition] + len(events))
            position[partition] += len(events)
            found.append(Batch(partition, events, labels, position[partition], mark=tick))
    return found


def refunded(first: int, last: int) -> dict[str, int]:
    """What was sold in ticks `first` to `last`, each order clamped to -4 .. 3."""
    clamped = {tick: min(max(tick - 5, -4), 3) for tick in range(HORIZON)}
    orders = sum(2 * (tick + 1) * clamped[tick] for tick in range(first, last + 1))
    return {"DE": orders, "FR": -4 * (last + 1 - first), "other": 0}


ASKED = {"of": "amount", "clamp": ["-4", "3"], "epsilon": "1/4"}
LIVE: list[dict[str, Any]] = [
    {"name": "far", "statistic": "sum", **ASKED},
    {"name": "wide", "statistic": "sum", **ASKED, "windows": ["3h", "ever"], "by": "country"},
    {"name": "mean", "statistic": "mean", **ASKED, "by": "country"},
]


async def test_live_amounts_count_from_their_first_tick_and_are_asked_by_window() -> None:
    """What is asked of one window is what was released."""
    world, answers, start = World(noise=zero), dict[str, Any](), 4
    source = Stopping(start - 1, refunds())
    engine = world.engine(source)
    run = asyncio.create_task(engine.run())
    await world.until(start - 1)
    for definition in LIVE:
        assert (await create_series(engine, json.dumps(definition).encode())).start == start
    source.go(9)
    await world.until(9)
    for window in ("tick", "3h", "ever"):
        asked = {"do": "ask", "series": "wide", "id": window, "until": "1970-01-01T01:00:00Z"}
        said = await engine.tell(json.dumps({**asked, "window": window}).encode(), "")
        answers[window] = json.loads(said)
    source.go(HORIZON)
    await run
    released = {(each["series"], each["tick"]): each for each in map(json.loads, world.bodies)}
    for tick in range(start, HORIZON):
        ever = refunded(start, tick)
        assert released["far", tick]["value"] == sum(ever.values())
        windows = released["wide", tick]["windows"]
        assert {name: part["values"] for name, part in windows.items()} == {
            "tick": refunded(tick, tick), "3h": refunded(max(start, tick - 2), tick), "ever": ever,
        }  # fmt: skip
        orders = sum(2 * (each + 1) for each in range(start, tick + 1))
        means = released["mean", tick]["values"]
        assert means["DE"] == pytest.approx(ever["DE"] / orders, abs=0.01)
        assert (means["FR"], means["other"]) == (-2, None)
    assert ("far", start - 1) not in released
    for window, answer in answers.items():
        assert answer["answer"]["windows"] == {window: released["wide", 9]["windows"][window]}
