"""The statistic `mean`: what a file says of it, what one record changes, its releases, live, users, audited."""

import asyncio
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_acts import create_series
from unit.live.live_series_steps import zero
from unit.live.live_series_worlds import HORIZON, Stopping, World
from unit.mechanisms.broken_means import BareCounts, ScaleOfCounts
from unit.statistics.test_sum_series import FILE, VALUES, WITHIN, T, bodies, rows_of
from unit.statistics.test_sum_windows import refunds

from stream_dp.core.guarantee import differential_privacy
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import BudgetRefused, NotDerivable
from stream_dp.journal.release import read
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.noisy_forest import FLAT
from stream_dp.mechanisms.linear.sum_counter import SumCounter
from stream_dp.mechanisms.linear.sums_and_counts import SumsAndCounts
from stream_dp.mechanisms.linear.window_forest import SumForest, WindowForest
from stream_dp.mechanisms.noise_law import NoiseLaw, contrast_widths
from stream_dp.operate.audit.attack import attack, fresh_noise
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.yaml import load
from stream_dp.python.embedded import Pipeline
from stream_dp.python.tick_release import PublicRelease
from stream_dp.records.amount_units import Amount, Centred
from stream_dp.statistics.mean import MeanSeries
from stream_dp.statistics.parts.choice import Setting
from stream_dp.verify.games.lower_bound import audit_mechanism

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
PLAIN = "of: amount, clamp: [0, 240]"
FINE = "of: amount, clamp: [-10, 240], step: 0.01"
WINDOWS = ", windows: [2h, 4h]"
EVER = ", windows: [3h, ever]"
USERS = ", unit: user, user: pieces, max_events: 3, per: 2h"


def file(folder: Path, what: str = PLAIN, more: str = "") -> Path:
    """A pipeline file with one mean."""
    path = folder / "shop.yaml"
    path.write_text(
        FILE.format(what=what, more=more)
        .replace("statistic: sum", "statistic: mean")
        .replace("name: volume", "name: average")
    )
    return path


def built_of(folder: Path, what: str = PLAIN, more: str = "") -> Built:
    """The pipeline with its mechanism."""
    return build(load(file(folder, what, more)))


def mechanism_of(built: Built) -> SumsAndCounts:
    """The mechanism of the mean."""
    found = built.chosen[0].mechanism
    assert isinstance(found, SumsAndCounts)
    return found


@pytest.mark.parametrize(
    ("what", "more", "l1", "share"),
    [
        (PLAIN, "", 120, "3/5"), (FINE, "", 12_500, "3/5"), (PLAIN, WITHIN, 240, "7/10"),
        (f"{PLAIN}, by: country", "", 120, "3/5"), (f"{PLAIN}, by: country", WITHIN, 240, "3/5"),
        (f"{FINE}, by: tags{WINDOWS}", "", 25_000, "3/5"), (PLAIN + EVER, WITHIN, 240, "7/10"),
        ("of: pieces, clamp: [100, 241], step: 1", "", 71, "3/5"), (PLAIN, ", neighbors: replace", 120, "3/5"),
        (PLAIN + WINDOWS, USERS, 120, "3/5"), ("of: amount, clamp: [1000000, 1000002]", "", 1, "3/5"),
    ],
)  # fmt: skip
def test_both_have_the_price_together_and_noise_for_half_the_range(
    tmp_path: Path, what: str, more: str, l1: int, share: str
) -> None:
    built = built_of(tmp_path, what, more)
    both, protection = mechanism_of(built), built.spec.protection
    sums, counts = (
        differential_privacy(each.guarantee.measure).epsilon for each in (both.sums, both.counts)
    )
    assert both.sums.rows.l1 == l1
    assert (sums + counts, sums) == (protection.share, Fraction(share) * protection.share)
    found = built.chosen[0].derivation.guarantee
    assert found.neighbors is built.spec.relation
    assert differential_privacy(found.measure).epsilon == 1


def test_only_a_known_amount_counts_and_the_middle_is_taken_from_each(tmp_path: Path) -> None:
    """Through the real router: null is in neither half, and what the clamp cuts is at its end."""
    built = built_of(tmp_path, f"{FINE}, by: country")
    assert built.layout.keys("average") == (
        "sum/DE", "sum/FR", "sum/other", "count/DE", "count/FR", "count/other",
    )  # fmt: skip
    amounts = [("DE", 115.0), ("DE", 115.01), ("FR", None), ("FR", 1e308), ("ES", -1e308)]
    found = rows_of(built, *({"country": c, "amount": a} for c, a in amounts))
    assert found.tolist() == [1, 12_500, -12_500, 2, 1, 1]
    whole = rows_of(built_of(tmp_path, "of: pieces, clamp: [0, 9]"), {"pieces": 7}, {"pieces": 0})
    assert whole.tolist() == [7 - 4 + 0 - 4, 2]


def test_a_condition_excludes_from_both(tmp_path: Path) -> None:
    built = built_of(tmp_path, f"{PLAIN}, where: [{{field: country, equals: DE}}]")
    found = rows_of(built, {"country": "FR", "amount": 200}, {"country": "DE", "amount": 200})
    assert found.tolist() == [80, 1]


@pytest.mark.parametrize("what", [PLAIN, f"{FINE}, by: country", f"{FINE}, by: tags{WINDOWS}"])
@pytest.mark.parametrize("more", ["", WITHIN])
def test_no_record_changes_a_row_by_more_than_the_noise_is_for(
    tmp_path: Path, what: str, more: str
) -> None:
    """Through the real router; the extremes of both halves are reached."""
    built = built_of(tmp_path, what, more)
    relation, both = built.spec.relation, mechanism_of(built)
    contents: list[dict[str, Any]] = [
        {"amount": value, "country": country, "tags": tags}
        for value in VALUES
        for country, tags in (("DE", ["new", "gift"]), ("FR", ["gift", "other"]), ("DE", ["other"]))
    ]
    rows, without = [rows_of(built, one) for one in contents], rows_of(built)
    pairs = [(row, without) for row in rows]
    if relation is REPLACE:
        pairs += [(left, right) for left in rows for right in rows]
    accepting, largest, half = both.rows.relation(relation), [0, 0], both.sums.width
    for left, right in pairs:
        assert accepting.accept(left, right) is not None
        changed = np.abs(left - right)
        largest = [
            max(largest[0], int(changed[:half].sum())),
            max(largest[1], int(changed[half:].sum())),
        ]
    assert largest == [both.sums.rows.l1, relation.l0(half, both.ones)]
    assert accepting.accept(without, without + 2 * both.sums.rows.l1) is None


def test_rows_without_the_middle_are_no_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin that forgets it: an amount of 240 is more than the noise for 120 is for."""
    built = built_of(tmp_path)
    accepting = mechanism_of(built).rows.relation(ADD)
    for forgotten in (False, True):
        if forgotten:
            monkeypatch.setattr(Centred, "of", lambda self, numbers: self.whole.of(numbers))
        row = rows_of(built, {"amount": 240})
        assert (accepting.accept(row, np.zeros_like(row)) is None) == forgotten


def test_releases_have_a_value_and_its_ends(tmp_path: Path) -> None:
    """Without noise: two records of 113.50 together 3.00 below the middle twice."""
    first, second, silent = (
        bodies(built_of(tmp_path, FINE), rows)[-1]
        for rows in ([[-300, 2]], [[-300, 20_000], [100, 0]], [[0, 0]])
    )
    assert b'"value":113.5000,"low":-10.0000,"high":240.0000,"confidence":0.95' in first
    told = read(second)
    assert b'"value":114.9999,"low":' in second
    assert -10 < float(told.low) < 115 < float(told.high) < 120  # type: ignore[arg-type]
    assert b'"value":null,"low":-10.0000,"high":240.0000,' in silent
    shown = PublicRelease.of(second)
    assert (shown.value, shown.low, shown.high, shown.band) == (
        told.value,
        told.low,
        told.high,
        None,
    )


def test_noise_is_cut_to_the_clamp(tmp_path: Path) -> None:
    """Sums beyond what so few can have, and counts below 0."""
    built = built_of(tmp_path, f"of: pieces, clamp: [-4, 9], by: country{WINDOWS}")
    (series,) = built.run_config(0).series
    tell = series.views[0].tell
    assert tell is not None
    found = tell(series.keys, np.array([70, -70, 3, 5, 5, -2]), 0, None)
    assert [str(value) for value in found["values"].values()] == ["9.00", "-4.00", "None"]
    assert [str(end) for end in found["lows"]][2] == "-4.00"
    assert [str(end) for end in found["highs"]][2] == "9.00"


def test_a_grouped_mean_has_values_by_key_in_every_window(tmp_path: Path) -> None:
    built = built_of(tmp_path, f"of: pieces, clamp: [-20, 60], step: 20, by: country{EVER}")
    *_, last = bodies(built, [[3, 0, 1, 3, 0, 1], [-1, 2, 0, 1, 1, 0], [0, 0, -2, 0, 0, 1]])
    told = json.loads(last)["windows"]
    assert {name: part["values"] for name, part in told.items()} == {
        "tick": {"DE": None, "FR": None, "other": -20},
        "3h": {"DE": 30, "FR": 60, "other": 10},
        "ever": {"DE": 30, "FR": 60, "other": 10},
    }
    assert all(set(part) == {"values", "lows", "highs"} for part in told.values())
    read(last)


def test_the_ends_are_where_sums_and_counts_begin_to_speak_against_a_mean(tmp_path: Path) -> None:
    """By the law of both noises at 0.95; no mean is farther from the middle than 120."""
    built = built_of(tmp_path)
    both, sums, counts = mechanism_of(built), -3_000, 5_000
    (body,) = bodies(built, [[sums, counts]])
    told = json.loads(body)
    assert told["value"] == 119.4
    parts: tuple[Any, Any] = (both.sums, both.counts)
    laws = [NoiseLaw(tuple(each.noise_terms(1))) for each in parts]
    widths = contrast_widths(laws[0], laws[1], 1 - 0.95, Fraction(120))
    for name, side in (("low", -1), ("high", 1)):
        end = Fraction(str(told[name])) - 120
        inside, outside = (end + step * Fraction(side, 100) for step in (-1, 1))
        assert abs(sums - inside * counts) <= widths.at(inside)
        assert abs(sums - outside * counts) > widths.at(outside)


def test_a_plan_says_what_the_error_depends_on(tmp_path: Path) -> None:
    (shown,) = plan_json(built_of(tmp_path, PLAIN + EVER))["series"]
    assert [each["window"] for each in shown["windows"]] == ["tick", "3h", "ever"]
    assert shown["why"].startswith(
        "sums of what amounts have beyond 120, with 3/5 of the epsilon, over counts with the rest; at tick 7 its ends "
        "are within about tick: sqrt("
    )
    assert shown["why"].endswith(
        "where it is r, of n records; errors are those at r = 120 and n = 1,000"
    )
    sums = SumForest(1, Fraction(2, 5), ADD, (1, 3), FLAT, -120, 120).view_band(0, 1, 0.95)
    counts = WindowForest(1, Fraction(4, 15), ADD, (1, 3), FLAT).view_band(0, 1, 0.95)
    assert f"tick: sqrt({sums}^2 + ({counts} (r - 120))^2) / (n - {counts})" in shown["why"]
    found = shown["windows"][0]["predicted_error"][-1]["error"]
    assert found == pytest.approx(sums / 1_000, rel=0.02)


def test_exact_means_are_numbers_too(tmp_path: Path) -> None:
    built = built_of(tmp_path, f"{FINE}, by: country")
    spec = built.chosen[0].spec
    assert spec.exact(np.array([1, 0, -100, 1, 0, 2]), built.layout.keys("average")) == {
        "DE": 115.01, "FR": None, "other": 114.5,
    }  # fmt: skip
    assert built_of(tmp_path).chosen[0].spec.exact(np.array([-3, 2]), ("",)) == 118.5
    assert spec.described()["about"] == "mean of amount, each from -10 to 240, by country so far"
    assert spec.described()["parameters"] == {
        "of": "amount", "clamp": "-10 to 240", "step": "0.01", "digits": 4,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("", FINE), (WITHIN, f"{FINE}, by: tags"), (", neighbors: replace", PLAIN + WINDOWS),
        (WITHIN, PLAIN), (USERS, f"of: amount, clamp: [-4, 5]{EVER}"), (USERS, f"{PLAIN}, by: country"),
    ],
)  # fmt: skip
def test_the_audit_plays_amounts_and_counts(tmp_path: Path, more: str, what: str) -> None:
    """Every game is one of neighbours, or it would be halted; a right claim is refuted with probability 1e-7."""
    found = attack(file(tmp_path, what, more), runs=300, ticks=2, confidence=0.9999999)
    assert found.refuted == []


@pytest.mark.parametrize("twin", ["right", "sums at the scale of counts", "bare counts"])
def test_the_audit_refutes_twins(twin: str) -> None:
    """What is bare is told apart at once; the sum moves by 120 scales: missed with probability below 1e-9."""
    kind = ScaleOfCounts if twin.startswith("sums") else SumForest
    both = BareCounts if twin == "bare counts" else SumsAndCounts
    sums = kind(1, Fraction(3, 5), REPLACE, (1,), FLAT, -120, 120)
    mechanism = both(sums, WindowForest(1, Fraction(2, 5), REPLACE, (1,), FLAT))
    found = audit_mechanism(mechanism, fresh_noise, runs=400, ticks=1, failure=1e-6)
    assert found.violated == (twin != "right")


def test_the_whole_epsilon_for_both_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The derivation adds both: a file that grants the price of one refuses to start."""
    right = MeanSeries._both

    def greedy(self: MeanSeries, half: Setting, sums: Fraction, counts: Fraction) -> SumsAndCounts:
        return right(self, half, sums + counts, sums + counts)

    monkeypatch.setattr(MeanSeries, "_both", greedy)
    path = file(tmp_path)
    path.write_text(path.read_text().replace("epsilon: 20", "epsilon: 1"))
    with pytest.raises(BudgetRefused, match="asks for epsilon 2; of 1"):
        build(load(path))


def test_sums_and_counts_of_other_events_are_refused() -> None:
    sums = SumCounter(1, Fraction(1), ADD, 8, -1, 1)
    for counts, why in (
        (Counter(2, Fraction(1), ADD, 8), "width"), (Counter(1, Fraction(1), REPLACE, 8), "neighbors"),
        (Counter(1, Fraction(1), ADD, 8, 2), "ones"), (Counter(1, Fraction(1), ADD, 9), "horizon"),
        (WindowForest(1, Fraction(1), ADD, (1,), FLAT), "windows"),
    ):  # fmt: skip
        with pytest.raises(NotDerivable, match=f"differ in {why}"):
            SumsAndCounts(sums, counts)


async def test_a_live_mean_counts_from_its_first_tick_on() -> None:
    world, start = World(noise=zero), 4
    source = Stopping(start - 1, refunds())
    engine = world.engine(source)
    run = asyncio.create_task(engine.run())
    await world.until(start - 1)
    asked = {
        "name": "far",
        "statistic": "mean",
        "of": "amount",
        "clamp": ["-4", "3"],
        "epsilon": "1/3",
        "by": "country",
    }
    assert (await create_series(engine, json.dumps(asked).encode())).start == start
    source.go(HORIZON)
    await run
    told = [each for each in map(json.loads, world.bodies) if each["series"] == "far"]
    assert [each["tick"] for each in told] == list(range(start, HORIZON))
    for each in told:
        ticks = range(start, each["tick"] + 1)
        weights = sum(tick + 1 for tick in ticks)
        right = sum((tick + 1) * min(max(tick - 5, -4), 3) for tick in ticks) / weights
        assert each["values"]["DE"] == pytest.approx(right, abs=0.01)
        assert each["values"]["FR"] == -2
        assert each["values"]["other"] is None


def test_a_mean_runs_through_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums below 0 stop nothing, with users."""
    amounts = [-3.5, 7.0, None]
    records = [{"time": T, "country": "DE", "amount": one, "pieces": 1} for one in amounts]
    (tmp_path / "shop.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path / "home"))
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    key.chmod(0o600)
    pipeline = Pipeline.load(file(tmp_path, f"{FINE}, by: country{EVER}", USERS), key_file=key)
    told: list[PublicRelease] = []
    pipeline.run(told.append)
    assert [one.tick for one in told] == list(range(8))


def test_the_page_shows_a_pipeline_that_builds(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "mean.md").read_text()
    path = tmp_path / "orders.yaml"
    path.write_text(page.split("```yaml\n")[1].split("```")[0])
    assert {type(each.mechanism) for each in build(load(path)).chosen} == {SumsAndCounts}


def test_the_middle_is_whole_in_units() -> None:
    centred = Centred(Amount("amount", Fraction(-1), Fraction(2), Fraction(1, 100)))
    assert (centred.middle, centred.units, centred.centre) == (50, (-150, 150), Fraction(1, 2))
    odd = Centred(Amount("amount", Fraction(-2), Fraction(1)))
    assert (odd.middle, odd.units) == (-1, (-1, 2))
