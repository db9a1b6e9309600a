"""`distinct` and `cut_off`: bands and ends of shares hold, twins are caught; what is remembered of whom."""

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from unit.statistics.statistic_cases import (
    EVENT,
    FILE,
    HORIZON,
    OVERALL,
    PER,
    bodies,
    built_of,
    series_of,
)

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.mechanisms import serving
from stream_dp.mechanisms.linear.arrival_counter import CutOffCounter
from stream_dp.mechanisms.noise_law import NoiseLaw, contrast_widths
from stream_dp.mechanisms.states import mechanism_fingerprint
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.fingerprints import meaning
from stream_dp.pipeline.promise import caveats
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.statistics.distinct import DistinctSeries
from stream_dp.testing.noise import SeededNoise

RUNS = 200
DAILY = "statistic: distinct, of: customer, every: 4h, running: true"
EACH = pytest.mark.parametrize(
    ("keys", "privacy"), [("statistic: cut_off, window: 4h", PER), ("statistic: cut_off", OVERALL)]
)


@pytest.mark.parametrize(
    ("keys", "privacy", "changes", "share"),
    [
        ("of: pieces, every: 1h, running: true", EVENT, 1, "1"), (DAILY, ", neighbors: replace", 2, "1/4"),
        ("of: customer, every: 3h, running: true", PER, 4, "1/4"), (DAILY, OVERALL, 20, "1/20"),
        ("of: pieces", PER, 2, "1/40"),
    ],
)  # fmt: skip
def test_an_identifiers_noise_is_for_what_an_event_or_a_user_moves(
    tmp_path: Path, keys: str, privacy: str, changes: int, share: str
) -> None:
    keys = keys if "statistic" in keys else f"statistic: distinct, {keys}"
    mechanism: Any = built_of(tmp_path, keys, privacy=privacy).chosen[0].mechanism
    assert (mechanism.rows.changes, mechanism.inner.epsilon) == (changes, Fraction(share))


FORMER: dict[str, dict[str, Any]] = {
    "": {"window": None, "windows": []},
    ", every: 4h, running: true": {"window": "4h", "windows": []},
    ", every: [4h], running: true": {"window": None, "windows": ["4h"]},
    ", every: 4h": {"every": ["4h"]}, ", every: [4h]": {"every": ["4h"]},
}  # fmt: skip
"""What fingerprints say of a series in former versions' keys; a window that is told at its end was none of theirs."""


@pytest.mark.parametrize("keys", FORMER)
def test_a_journal_of_a_number_that_ran_goes_on_under_its_new_keys(
    tmp_path: Path, keys: str
) -> None:
    built = built_of(tmp_path, f"statistic: distinct, of: customer{keys}")
    PipelineSpec.model_validate(built.spec)  # validated again, it means the same
    DistinctSeries.model_validate(built.spec.series[0])
    (series,) = meaning(built.spec)["series"]
    own = {"statistic": "distinct", "name": "it", "epsilon": "1", "of": "customer", "where": []}
    assert series == own | FORMER[keys]
    if "running" in keys:
        mechanism = mechanism_fingerprint(built.chosen[0].mechanism)
        assert mechanism.startswith("44fe2318c743")  # of the commit before the key was renamed


@pytest.mark.parametrize(
    ("keys", "noted"),
    [
        (DAILY, "it remembers every different customer until its window of 4h is over: at most 64 bytes of memory "
         "each, and 20 bytes in the private commit of the tick where it counts, 16 more in an earlier one for"),
        ("statistic: cut_off, window: 4h", "it remembers every different user until its window of 4h is over: at most "
         "128 bytes of memory each, and 40 bytes in the private commit of the tick where it counts, 32 more"),
    ],
)  # fmt: skip
def test_a_plan_says_what_is_remembered_of_whom(tmp_path: Path, keys: str, noted: str) -> None:
    assert any(note.startswith(noted) for note in caveats(built_of(tmp_path, keys, privacy=PER)))


def test_the_band_of_distinct_values_covers_and_is_tight(tmp_path: Path) -> None:
    """200 runs at each tick: too few inside has probability below 1e-4, and half the scale's band is caught."""
    mechanism: Any = built_of(tmp_path, DAILY).chosen[0].mechanism
    rows, off = [3, 0, 2, 1, 4, 0, 0, 1], list[list[int]]()
    for run in range(RUNS):
        noise, state = SeededNoise(run), mechanism.init(SeededNoise(run + 1000))
        off.append([])
        for tick, row in enumerate(rows):
            state, _ = mechanism.step(state, Update(np.array([row])), noise)
            _, answer = mechanism.step(state, Query(), noise)
            off[-1].append(abs(int(answer[0]) - sum(rows[tick - tick % 4 : tick + 1])))
    for tick, errors in enumerate(zip(*off, strict=True)):
        band = mechanism.band(mechanism.public(tick + 1, None), 0.95)
        assert binom.cdf(sum(e <= band for e in errors), RUNS, 0.95) > 1e-4
        assert band <= 1.3 * np.quantile(errors, 0.95) + 1
    assert binom.cdf(sum(e <= band // 2 for e in errors), RUNS, 0.95) < 1e-4


def test_ends_of_a_share_are_where_both_numbers_speak_against_it(tmp_path: Path) -> None:
    rows = [(400, 0), (100, 50), (300, 150), (0, 0), (1000, 10)]
    built = built_of(tmp_path, "statistic: cut_off, window: 4h", privacy=PER)
    told = [json.loads(body)["windows"] for body in bodies(series_of(built), rows)]
    assert told[0]["4h before"] == {"value": None, "low": None, "high": None}
    mechanism: Any = built.chosen[0].mechanism
    each = NoiseLaw(tuple(mechanism.inner.inner.noise_terms(4)))
    widths = contrast_widths(each, each, 1 - 0.95, Fraction(1))
    for part in (told[3]["4h"], told[4]["4h before"]):
        for name, side in (("low", -1), ("high", 1)):
            end = Fraction(str(part[name]))
            inside, outside = (end + step * Fraction(side, 10_000) for step in (-1, 1))
            assert abs(200 - inside * 800) <= widths.at(inside)
            assert abs(200 - outside * 800) > widths.at(outside)


def misses(built: Built, rows: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """How often of 200 runs a share's ends miss the true one, and the active users their band, at each tick."""
    shares, counts = [0] * len(rows), [0] * len(rows)
    series = series_of(built)
    mechanism: Any = series.mechanism
    size = mechanism.users.window or len(rows)
    true = [np.sum(rows[t - t % size : t + 1], axis=0).tolist() for t in range(len(rows))]
    for run in range(RUNS):
        for tick, body in enumerate(bodies(series, rows, SeededNoise(run))):
            told = json.loads(body)
            part = told["windows"]["4h"] if "windows" in told else told
            shares[tick] += not (part["low"] <= true[tick][1] / true[tick][0] <= part["high"])
        noise, state = SeededNoise(run), mechanism.init(SeededNoise(run + 1000))
        for tick, row in enumerate(rows):
            state, _ = mechanism.step(state, Update(np.array(row)), noise)
            answer: IntArray = mechanism.step(state, Query(), noise)[1][:2]
            band = mechanism.band(mechanism.public(tick + 1, None), 0.95)
            counts[tick] += bool(np.abs(answer - true[tick])[0] > band)
    return shares, counts


@EACH
def test_the_ends_of_the_share_hold_as_often_as_is_said(
    tmp_path: Path, keys: str, privacy: str
) -> None:
    """200 runs at each tick: too many outside has probability below 1e-4, and they are not too few either."""
    rows = [(60, 5), (20, 10), (10, 2), (30, 9), (50, 1), (9, 3), (8, 1), (20, 7)]
    shares, counts = misses(built_of(tmp_path, keys, privacy=privacy), rows)
    for outside in (*shares, *counts):
        assert binom.sf(outside - 1, RUNS, 0.05) > 1e-4
    assert all(sum(each) > RUNS * len(rows) * 0.01 for each in (shares, counts)), (shares, counts)


@EACH
def test_a_quarter_of_the_widths_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str, privacy: str
) -> None:
    def narrow(*given: Any) -> Any:
        return contrast_widths(*given).scaled(Fraction(1, 4), Fraction(1, 4))

    monkeypatch.setattr(serving, "contrast_widths", narrow)
    rows = [(60, 30), (20, 10), (10, 5), (30, 15)]
    shares, _ = misses(built_of(tmp_path, keys, privacy=privacy), rows)
    assert binom.sf(shares[-1] - 1, RUNS, 0.05) < 1e-4


def test_the_page_of_users_shows_an_entry_that_builds(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "people.md").read_text().splitlines()
    (entry,) = (one.strip() for one in page if "statistic: cut_off" in one and "- {" in one)
    path = tmp_path / "people.yaml"
    path.write_text(
        FILE.format(privacy=PER.replace("4h", "1d"), horizon=6 * HORIZON) + f"  {entry}\n"
    )
    assert isinstance(build(load(path)).chosen[0].mechanism, CutOffCounter)
