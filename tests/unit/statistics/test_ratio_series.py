"""The statistic `ratio`: what a file says of it and must not, what it is made of, what it costs, what it tells."""

import json
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from stream_dp.core.time import TickGrid
from stream_dp.errors import NotDerivable, UsageError
from stream_dp.journal.release import Shape
from stream_dp.mechanisms.noise_law import NoiseLaw, contrast_widths
from stream_dp.operate.budget_view import PlanView
from stream_dp.operate.observe.public_view import pipeline_json
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.yaml import load, load_series
from stream_dp.python.embedded import Pipeline
from stream_dp.statistics.ratio import RatioSeries

HEAD = """\
version: 1
name: shop
source: {kind: file, path: shop.jsonl}
schema:
  time: {type: time}
  country: {type: category, domain: [DE, FR]}
  tags: {type: list, domain: [new, gift], most: 2}
  amount: {type: number, nullable: true}
privacy: {epsilon: 20}
clock: {kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: 8}
series:
  - {name: all, statistic: count, epsilon: 1}
  - {name: late, statistic: count, where: [{field: amount, at_least: 5}], epsilon: 1}
  - {name: by_country, statistic: histogram, by: country, method: tree, epsilon: 1}
  - {name: late_by_country, statistic: histogram, by: country, method: tree, where: [{field: amount, at_least: 5}],
     epsilon: 1}
  - {name: by_tag, statistic: histogram, by: tags, method: tree, epsilon: 1}
  - {name: rate, statistic: count, windows: [2h], epsilon: 1}
  - {name: late_rate, statistic: count, windows: [2h], where: [{field: amount, at_least: 5}], epsilon: 1}
  - {name: volume, statistic: sum, of: amount, clamp: [-1, 4], step: 0.5, epsilon: 1}
  - {name: busy, statistic: alerts, by: country, threshold: 5, epsilon: 1}
  - {name: hss, statistic: histogram, by: country, method: hss, epsilon: 1}
  - {name: sums, statistic: sum, of: amount, clamp: [0, 4], step: 0.5, windows: [2h, ever], epsilon: 1}
  - {name: late_sums, statistic: sum, of: amount, clamp: [0, 4], step: 0.5, windows: [2h, ever],
     where: [{field: amount, at_least: 5}], epsilon: 1}
  - {name: rate_ever, statistic: count, windows: [2h, ever], epsilon: 1}
  - {name: each, statistic: count, every: 2h, epsilon: 1}
  - {name: late_each, statistic: count, every: 2h, where: [{field: amount, at_least: 5}], epsilon: 1}
  - {name: leaders, statistic: top, by: country, k: 2, epsilon: 1}
  - {name: medians, statistic: quantiles, of: amount, clamp: [0, 10], buckets: 10, at: [0.5], windows: [2h], epsilon: 1}
"""
START = "  - {name: share, statistic: ratio, "
GRID = TickGrid(0, 1000, 8)


def file(folder: Path, what: str) -> Path:
    path = folder / "shop.yaml"
    path.write_text(f"{HEAD}{START}{what}}}\n")
    return path


def made(folder: Path, what: str) -> Built:
    return build(load(file(folder, what)))


def told(built: Built, tick: int, **parts: Any) -> dict[str, Any]:
    series = built.made[0].series
    found: dict[str, Any] = json.loads(
        series.body(
            GRID, 1, tick, {name: json.dumps(part).encode() for name, part in parts.items()}
        )
    )
    return found


def test_where_the_band_depends_on_decisions_no_ratio_is_made(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"series share: the band of hss depends .* such as tree, or windows"
    ):
        made(tmp_path, "of: hss, over: all")


def test_while_it_runs_none_is_created(tmp_path: Path) -> None:
    spec = load(file(tmp_path, "of: late, over: all"))
    with pytest.raises(
        UsageError, match=r"statistic: is made of releases and belongs into the pipeline file"
    ):
        load_series(b'{"name": "more", "statistic": "ratio", "of": "late", "over": "all"}', spec)


def test_it_is_free_and_the_plan_says_so(tmp_path: Path) -> None:
    with_it = made(tmp_path, "of: late, over: all")
    (tmp_path / "without.yaml").write_text(HEAD)
    alone = build(load(tmp_path / "without.yaml"))
    assert (with_it.derivation, with_it.layout) == (alone.derivation, alone.layout)
    assert with_it.ledger.entries == alone.ledger.entries
    planned = plan_json(with_it)["series"][-1]
    assert (planned["epsilon"], planned["mechanism"]) == (0, "post-processing")
    bands = [with_it.chosen[place].mechanism.band(8, 0.95) for place in (1, 0)]
    assert planned["why"] == (
        "post-processing of late and all, which costs no epsilon; the ratio is a share, because late counts a "
        "part of all; at tick 7, for a ratio r and a value n of all, the distance of `low` and `high` from r is "
        f"at most about sqrt({bands[0]}^2 + ({bands[1]} r)^2) / (n - {bands[1]})"
    )
    *_, last = str(Pipeline.load(file(tmp_path, "of: late, over: all")).plan()).splitlines()
    assert last.startswith("share: post-processing, epsilon 0 (post-")
    shown = PlanView(file(tmp_path, "of: late, over: all")).shown()["series"][-1]
    assert (shown["epsilon"], shown["errors"]) == ("0", {})


def test_its_keys_belong_to_what_a_journal_is_of(tmp_path: Path) -> None:
    keys = ("of: late, over: all", "of: late, over: all, digits: 5", "of: volume, over: all")
    assert len({fingerprint(load(file(tmp_path, what))) for what in keys}) == 3


def test_the_ends_are_where_the_two_releases_begin_to_speak_against_a_quotient(
    tmp_path: Path,
) -> None:
    """By the law of both noises at 0.95, in the units of both: just beyond an end the difference is too far from 0."""
    built = made(tmp_path, "of: volume, over: all, digits: 3")
    laws: list[Any] = [
        next(chosen.mechanism for chosen in built.chosen if chosen.spec.name == name)
        for name in ("volume", "all")
    ]
    for tick, a, b in product(range(8), (-40, 3, 300), (0, 9, 400)):
        found = told(built, tick, volume={"value": a / 2}, all={"value": b})
        above, below = (NoiseLaw(tuple(each.noise_terms(tick + 1))) for each in laws)
        widths = contrast_widths(above, below, 1 - 0.95).scaled(Fraction(1, 2), Fraction(1))
        for name, side in (("low", -1), ("high", 1)):
            if found[name] is None:
                assert b <= max(slope for _, slope in widths.pairs)
                continue
            end = Fraction(str(found[name]))
            inside, outside = (end + step * Fraction(side, 1000) for step in (-1, 1))
            assert abs(Fraction(a, 2) - inside * b) <= widths.at(inside)
            assert abs(Fraction(a, 2) - outside * b) > widths.at(outside)
        assert (found["value"] is None) == (b == 0)


def test_a_share_stays_from_0_to_1(tmp_path: Path) -> None:
    parts = {"late": {"value": 9}, "all": {"value": 7}}
    found = told(made(tmp_path, "of: late, over: all"), 3, **parts)
    assert (found["value"], found["high"]) == (1, 1)
    assert told(made(tmp_path, "of: all, over: late"), 3, **parts)["value"] == 0.7778


def test_a_ratio_by_key(tmp_path: Path) -> None:
    built = made(tmp_path, "of: late_by_country, over: by_country, digits: 2")
    late = {"values": {"DE": 40, "FR": 4, "other": 0}}
    every = {"values": {"DE": 100, "FR": 40, "other": 0}}
    found = told(built, 0, late_by_country=late, by_country=every)
    assert found["values"] == {"DE": 0.4, "FR": 0.1, "other": None}
    assert (found["lows"][2], found["highs"][2]) == (0, 1)
    assert all(low < high for low, high in zip(found["lows"], found["highs"], strict=True))
    over_all = made(tmp_path, "of: by_country, over: all, digits: 2")
    found = told(over_all, 0, by_country=every, all={"value": 200})
    assert found["values"] == {"DE": 0.5, "FR": 0.2, "other": 0}


def test_each_window_has_its_own_ends(tmp_path: Path) -> None:
    built = made(tmp_path, "of: late_rate, over: rate")
    of = {"windows": {"tick": {"value": 5}, "2h": {"value": 50}}}
    over = {"windows": {"tick": {"value": 50}, "2h": {"value": 500}}}
    windows = told(built, 5, late_rate=of, rate=over)["windows"]
    assert [part["value"] for part in windows.values()] == [0.1, 0.1]
    assert len({part["high"] - part["low"] for part in windows.values()}) == 2


def test_of_windows_that_end_nothing_is_told_before_the_first_has(tmp_path: Path) -> None:
    built = made(tmp_path, "of: late_each, over: each")
    silent, first = ({"windows": {"2h": {"value": value, "band": 3}}} for value in (None, 50))
    ended = {"windows": {"2h": {"value": 200, "band": 3}}}
    assert told(built, 0, late_each=silent, each=silent)["windows"] == {
        "2h": {"value": None, "low": None, "high": None}
    }
    (part,) = told(built, 1, late_each=first, each=ended)["windows"].values()
    assert part["low"] < part["value"] == 0.25 < part["high"]


def test_it_is_described_as_what_it_is_made_of(tmp_path: Path) -> None:
    spec = load(file(tmp_path, "of: late_by_country, over: all"))
    series = spec.series[-1]
    assert isinstance(series, RatioSeries)
    assert (series.form, series.inputs) == (Shape.HISTOGRAM, ("late_by_country", "all"))
    assert series.price == 0
    assert series.described() == {
        "name": "share", "statistic": "ratio", "by": "country", "shape": "histogram",
        "about": "late_by_country over all", "meaning": None, "nonnegative": True,
        "parameters": {"of": "late_by_country", "over": "all", "digits": 4},
    }  # fmt: skip
    assert load(file(tmp_path, "of: late_rate, over: rate")).series[-1].views == ("tick", "2h")
    with pytest.raises(NotDerivable, match="has no mechanism"):
        series.choose(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("what", "share"),
    [("of: late, over: all", True), ("of: by_tag, over: all", True), ("of: late_by_country, over: late", True),
     ("of: by_country, over: late_by_country", False), ("of: sums, over: rate_ever", False)],
)  # fmt: skip
def test_plan_and_readers_are_told_what_is_a_share(tmp_path: Path, what: str, share: bool) -> None:
    built = made(tmp_path, what)
    said = pipeline_json(built, built.spec.series)["series"][-1]["parameters"]
    of, over = what.removeprefix("of: ").split(", over: ")
    assert said == {"of": of, "over": over, "digits": 4} | ({"within": "0 to 1"} if share else {})
    assert ("a share" in built.made[0].why) == share


def test_readers_are_told_that_the_windows_of_distinct_users_do_not_slide(tmp_path: Path) -> None:
    path = file(tmp_path, "of: new_tags, over: users")
    field = "schema:\n  user: {type: text}"
    users = "".join(
        f"  - {{name: {name}, statistic: distinct, of: user, every: 4h, running: true, epsilon: 1}}\n"
        for name in ("users", "new_tags")
    )
    path.write_text(path.read_text().replace("schema:", field).replace(START, users + START))
    series = load(path).series[-1]
    assert series.parameters["told"] == "since a window began"


def test_windows_that_are_told_at_other_times_are_not_divided(tmp_path: Path) -> None:
    """The number of the day that ended, over those since the day began, is a ratio of nothing."""
    path = file(tmp_path, "of: ended, over: running")
    field = "schema:\n  user: {type: text}"
    users = "".join(
        f"  - {{name: {name}, statistic: distinct, of: user, every: 4h{more}, epsilon: 1}}\n"
        for name, more in (("ended", ""), ("running", ", running: true"))
    )
    path.write_text(path.read_text().replace("schema:", field).replace(START, users + START))
    with pytest.raises(UsageError, match="tell the same windows at other times: since a window be"):
        load(path)


def test_a_ratio_of_gaussian_counts(tmp_path: Path) -> None:
    path = file(tmp_path, "of: late_rate, over: rate")
    budget = "privacy: {epsilon: 60, delta: 1e-6, filter: zcdp}"
    text = path.read_text().replace("privacy: {epsilon: 20}", budget)
    text = text.replace("windows: [2h]", "windows: [2h, ever], method: gaussian")
    path.write_text(
        text.replace("at: [0.5], windows: [2h, ever], method: gaussian", "at: [0.5], windows: [2h]")
    )
    built = build(load(path))
    parts = {name: {"value": 50} for name in ("tick", "2h", "ever")}
    found = told(built, 5, late_rate={"windows": parts}, rate={"windows": parts})
    assert all(part["low"] < part["value"] == part["high"] for part in found["windows"].values())
