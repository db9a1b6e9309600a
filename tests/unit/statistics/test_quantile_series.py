"""The statistic `quantiles`: its buckets and price, what its releases say and when, and what is refused, and where."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.time import TickGrid
from stream_dp.engine.cut_changes import selected
from stream_dp.engine.series import Series
from stream_dp.errors import NotDerivable
from stream_dp.journal.release import Quantile, Shape, read
from stream_dp.live.planner import canonical_series
from stream_dp.mechanisms.quantiles.tumbling_quantiles import TumblingQuantiles
from stream_dp.mechanisms.serving import derived
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.yaml import load, load_series
from stream_dp.statistics.quantiles import ValueGrid
from stream_dp.testing.noise import SeededNoise, ZeroNoise

FILE = """\
version: 1
name: orders
source: {{kind: file, path: orders.jsonl}}
schema:
  time: {{type: time}}
  amount: {{type: number, nullable: true}}
  items: {{type: integer}}
  shop: {{type: category, domain: [a, b]}}
privacy: {{epsilon: 2}}
clock: {{kind: replay, field: time, start: "2026-03-01T00:00:00Z", step: 1h, horizon: 48}}
series:
  - {{name: one, statistic: quantiles, {keys}, epsilon: 1}}
"""
RIGHT = {
    "of": "amount",
    "clamp": "[0, 6]",
    "buckets": "4",
    "at": "[0.5, 0.9]",
    "every": "[2h, 3h]",
}
GRID = TickGrid(1_772_323_200_000, 3_600_000)


def file(folder: Path, **more: str) -> Path:
    """A pipeline file with one series of these keys; an empty text leaves a key out."""
    keys = ", ".join(f"{key}: {value}" for key, value in {**RIGHT, **more}.items() if value)
    path = folder / "orders.yaml"
    path.write_text(FILE.format(keys=keys))
    return path


def series_of(path: Path) -> Series:
    """What the engine runs."""
    built = build(load(path))
    (chosen,) = built.chosen
    return chosen.series(built.spec, built.layout.slice("one"), built.layout.keys("one"))


def windows(series: Series, rows: list[list[int]]) -> list[dict[str, Any]]:
    """The windows of each release, without noise."""
    mechanism, found = series.mechanism, []
    state = mechanism.init(ZeroNoise())
    for tick, row in enumerate(rows):
        state, _ = mechanism.step(state, Update(np.array(row, dtype=np.int64)), ZeroNoise())
        state, answer = mechanism.step(state, Query(), ZeroNoise())
        assert answer is not None
        body = series.body(GRID, tick + 1, tick, state, answer)
        assert len(body) <= series.most_bytes
        assert read(body).shape is Shape.WINDOWS
        found.append(msgspec.json.decode(body)["windows"])
    return found


def test_what_a_window_tells_stays_until_the_next_one_ends(tmp_path: Path) -> None:
    """Entries of a row: below 0, four buckets, 6 and more, no number. Nothing is told before an end."""
    series = series_of(file(tmp_path))
    low, mid, none = [0, 5, 0, 0, 0, 0, 90], [0, 0, 0, 7, 0, 3, 0], [0] * 7
    first, second, third, fourth = windows(series, [low, mid, mid, none])
    assert list(first) == ["2h", "3h"]
    assert first["2h"]["quantiles"] == first["3h"]["quantiles"] == {}
    pair = {
        "0.5": {"value": 3.75, "bucket": [3, 4.5]},
        "0.9": {"value": 6, "bucket": [6, 6]},
    }
    assert second["2h"]["quantiles"] == third["2h"]["quantiles"] == pair
    assert third["3h"]["quantiles"]["0.5"] == pair["0.5"]
    assert fourth["3h"] == third["3h"]
    assert {each["band"] for each in first.values()} == {series.band(0, None)}


def test_an_event_pays_for_each_quantile_of_each_length(tmp_path: Path) -> None:
    built = build(load(file(tmp_path)))
    mechanism = built.chosen[0].mechanism
    assert isinstance(mechanism, TumblingQuantiles)
    assert mechanism.windows == (2, 3)
    assert mechanism.at == (Fraction(1, 2), Fraction(9, 10))
    assert mechanism.choice_epsilon == Fraction(1, 4)
    assert (mechanism.width, mechanism.buckets) == (7, 6)
    (planned,) = plan_json(built)["series"]
    assert planned["epsilon"] == 1
    errors = {each["window"]: each["predicted_error"][-1]["error"] for each in planned["windows"]}
    assert errors == dict.fromkeys(("2h", "3h"), mechanism.band(None, 0.95))


def test_buckets_are_200_where_none_are_named(tmp_path: Path) -> None:
    assert series_of(file(tmp_path, buckets="")).mechanism.width == 203


@pytest.mark.parametrize(
    ("of", "clamp", "buckets"),
    [
        ("items", "[0, 600]", 200),
        ("items", "[-20, 400]", 210),
        ("items", "[0, 9]", 9),
        ("items", "[0, 1202]", 601),
        ("amount", "[0, 9]", 200),
    ],
)
@pytest.mark.parametrize("every", ["2h", ""])
def test_of_integers_as_many_buckets_as_fit_are_taken_where_none_are_named(
    tmp_path: Path, of: str, clamp: str, buckets: int, every: str
) -> None:
    built = build(load(file(tmp_path, of=of, clamp=clamp, buckets="", every=every)))
    (chosen,) = built.chosen
    assert chosen.spec.parameters["buckets"] == buckets
    said = f"; {buckets} buckets, the number nearest to 200 that divides the clamp into integers"
    assert chosen.choice.why.endswith(said) == (buckets != 200)
    named = build(load(file(tmp_path, of=of, clamp=clamp, buckets=str(buckets), every=every)))
    assert named.chosen[0].fingerprint == chosen.fingerprint
    assert "the number nearest to" not in named.chosen[0].choice.why


def test_a_live_series_takes_as_many_and_has_them_on_record(tmp_path: Path) -> None:
    spec = load(file(tmp_path))
    asked = b"{name: two, statistic: quantiles, of: items, clamp: [0, 9], at: [0.5], epsilon: 1}"
    assert b'"buckets":9' in canonical_series(load_series(asked, spec)).replace(b" ", b"")


def test_a_quantile_may_be_asked_by_its_name(tmp_path: Path) -> None:
    series = series_of(file(tmp_path))
    assert series.keys == ("0.5", "0.9")
    state = series.mechanism.init(ZeroNoise())
    body = series.body(GRID, 1, 0, state, np.array([1, 2, -1, -1]))
    found = selected(series, body, {"keys": ["0.9"]})
    assert found["windows"]["2h"]["quantiles"] == {"0.9": {"value": 2.25, "bucket": (1.5, 3)}}
    assert found["windows"]["3h"]["quantiles"] == {}


def test_noise_that_cannot_be_drawn_is_refused_before_anything_is_charged() -> None:
    quantile = Fraction("0.1234567890123")
    made = TumblingQuantiles(5, Fraction(1), Neighbors.ADD_REMOVE, (2,), (quantile,))
    with pytest.raises(NotDerivable, match="too wide to be drawn"):
        derived(made, "q")
    derived(replace(made, at=(Fraction("0.123456"),)), "q")


FINE = {"buckets": "100", "at": "[0.5]"}


def medians(series: Series) -> tuple[int, int]:
    """Of 40 medians of six hours on a fine grid: how many have a `low` and a `high`, and how many lie outside."""
    outside = told = 0
    for run in range(40):
        rng, noise = np.random.default_rng(run), SeededNoise(run)
        state, places = series.mechanism.init(noise), rng.integers(1, 101, 60)
        for tick in range(6):
            row = np.bincount(places[tick * 10 : tick * 10 + 10], minlength=series.mechanism.width)
            state, _ = series.mechanism.step(state, Update(row.astype(np.int64)), noise)
        state, answer = series.mechanism.step(state, Query(), noise)
        assert answer is not None
        body = msgspec.json.decode(series.body(GRID, 6, 5, state, answer))
        found, right = body["windows"]["6h"]["quantiles"]["0.5"], np.median(places) * 0.06 - 0.03
        if "low" in found:
            told += 1
            outside += not found["low"] - 0.06 <= right <= found["high"] + 0.06
        else:
            assert found.keys() == {"value", "bucket"}
            assert found["bucket"][0] <= found["value"] <= found["bucket"][1]
    return told, outside


@pytest.mark.parametrize("windows", [{"every": "6h"}, {"every": "", "windows": "[6h]"}])
def test_ends_beside_a_confidence_hold_or_are_not_told_as_ends(
    tmp_path: Path, windows: dict[str, str]
) -> None:
    """`low` and `high` hold it with 95 % (7 or more of 40 outside: below 0.4 %); a bucket promises nothing."""
    told, outside = medians(series_of(file(tmp_path, **FINE, **windows)))
    assert told == (0 if windows["every"] else 40)
    assert outside < 7


def test_the_twin_that_tells_a_bucket_as_low_and_high_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_ends(grid: ValueGrid, place: int) -> Quantile:
        low, high = grid.buckets[place]
        return Quantile(value=float(low + high) / 2, low=float(low), high=float(high))

    monkeypatch.setattr(ValueGrid, "bucket", with_ends)
    told, outside = medians(series_of(file(tmp_path, **FINE, every="6h")))
    assert told == 40
    assert outside >= 7
