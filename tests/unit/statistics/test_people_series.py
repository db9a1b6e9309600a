"""`distinct` and `cut_off`: what their noise is for, the ends of shares, and what is remembered of whom."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
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

from stream_dp.core.serial import mechanism_fingerprint
from stream_dp.mechanisms.linear.arrival_counter import CutOffCounter
from stream_dp.mechanisms.noise_law import NoiseLaw, contrast_widths
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.fingerprints import meaning
from stream_dp.pipeline.promise import caveats
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.statistics.distinct import DistinctSeries

DAILY = "statistic: distinct, of: customer, every: 4h, running: true"


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
        (DAILY, "it remembers every different customer until its window of 4h is over. Each takes at most 64 bytes "
        "of memory, and 20 bytes in the private commit of the tick where it counts, and 16 bytes more in an earlier "
        "commit"),
        ("statistic: cut_off, window: 4h", "it remembers every different user until its window of 4h is over. Each "
        "takes at most 128 bytes of memory, and 40 bytes in the private commit of the tick where it counts, and "
        "32 bytes more"),
    ],
)  # fmt: skip
def test_a_plan_says_what_is_remembered_of_whom(tmp_path: Path, keys: str, noted: str) -> None:
    assert any(note.startswith(noted) for note in caveats(built_of(tmp_path, keys, privacy=PER)))


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


def test_the_page_of_users_shows_an_entry_that_builds(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "people.md").read_text().splitlines()
    (entry,) = (one.strip() for one in page if "statistic: cut_off" in one and "- {" in one)
    path = tmp_path / "people.yaml"
    path.write_text(
        FILE.format(privacy=PER.replace("4h", "1d"), horizon=6 * HORIZON) + f"  {entry}\n"
    )
    assert isinstance(build(load(path)).chosen[0].mechanism, CutOffCounter)
