"""The statistic `sum`: what the file says of it, what one record changes, how its releases look, through an engine."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Batch
from stream_dp.errors import NotDerivable
from stream_dp.journal.release import read, told_number
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.sum_counter import SumCounter
from stream_dp.operate.audit.attack import attack, fresh_noise
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.router import OpenRouter, Router
from stream_dp.pipeline.yaml import load, load_series
from stream_dp.python.embedded import Pipeline
from stream_dp.python.tick_release import PublicRelease
from stream_dp.records.amount_units import Amount
from stream_dp.records.record_columns import Numbers
from stream_dp.statistics.parts.choice import Setting, steady
from stream_dp.statistics.sum import SumSeries
from stream_dp.testing.noise import ZeroNoise
from stream_dp.verify.games.lower_bound import audit_mechanism

FILE = """\
version: 1
name: shop
source: {{kind: file, path: shop.jsonl}}
schema:
  time: {{type: time}}
  country: {{type: category, domain: [DE, FR]}}
  tags: {{type: list, domain: [new, gift], most: 2}}
  amount: {{type: number, nullable: true}}
  pieces: {{type: integer}}
privacy: {{epsilon: 20{more}}}
clock: {{kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: 8}}
series:
  - {{name: volume, statistic: sum, {what}, epsilon: 1}}
"""
PLAIN = "of: amount, clamp: [0, 240]"
FINE = "of: amount, clamp: [-10, 240], step: 0.01"
WITHIN = ", neighbors: replace, moves: within_tick"
T = "2026-01-01T00:30:00Z"


def file(folder: Path, what: str = PLAIN, more: str = "") -> Path:
    """A pipeline file with one sum."""
    path = folder / "shop.yaml"
    path.write_text(FILE.format(what=what, more=more))
    return path


def built_of(folder: Path, what: str = PLAIN, more: str = "") -> Built:
    """The pipeline with its mechanism."""
    return build(load(file(folder, what, more)))


def mechanism_of(built: Built) -> SumCounter:
    """The mechanism of the sum."""
    found = built.chosen[0].mechanism
    assert isinstance(found, SumCounter)
    return found


@pytest.mark.parametrize(
    ("what", "more", "l1"),
    [
        (PLAIN, "", 240), (FINE, "", 24_000), (PLAIN, WITHIN, 240), (FINE, WITHIN, 25_000),
        (f"{PLAIN}, by: country", "", 240), (f"{PLAIN}, by: country", WITHIN, 480),
        (f"{PLAIN}, by: [tags, country]", "", 480), (f"{FINE}, by: tags", WITHIN, 72_000),
        ("of: pieces, clamp: [-5, 3]", "", 5), ("of: pieces, clamp: [100, 240], step: 20", WITHIN, 12),
        (PLAIN, ", neighbors: replace", 240),
    ],
)  # fmt: skip
def test_the_noise_is_for_what_one_event_changes(
    tmp_path: Path, what: str, more: str, l1: int
) -> None:
    built = built_of(tmp_path, what, more)
    mechanism = mechanism_of(built)
    share = 2 if built.spec.relation is Neighbors.REPLACE_ANY_TICK else 1
    assert mechanism.l1 == l1
    assert mechanism.counter.epsilon == Fraction(1, l1 * share)
    assert built.chosen[0].derivation.guarantee.neighbors is built.spec.relation


def rows_of(built: Built, *records: dict[str, Any]) -> IntArray:
    """The row of the tick in which all of them lie, shape (width,)."""
    router = Router(built.spec, built.spec.clock.start or 0)
    payloads = [
        json.dumps({"time": T, "country": "DE", "tags": [], "pieces": 0} | one) for one in records
    ]
    routed = router.route(
        Batch(0, [text.encode() for text in payloads], range(len(payloads)), len(payloads), None)
    )
    found: IntArray = routed.rows.get(0, np.zeros(router.width, np.int64))
    return found


VALUES: list[Any] = [
    None, 0, -0.0, 5, -5, 2.5, 0.005, 0.015, 0.025, 239.995, 240.004999, 1e308, -1e308, 5e-324, 10**30, "7", True,
]  # fmt: skip


@pytest.mark.parametrize(
    "what", [PLAIN, FINE, f"{FINE}, by: [tags, country]", f"{PLAIN}, by: country"]
)
@pytest.mark.parametrize("more", ["", WITHIN])
def test_no_record_changes_a_row_by_more_than_the_noise_is_for(
    tmp_path: Path, what: str, more: str
) -> None:
    """Through the real router, beside others and alone; the extremes are reached."""
    built = built_of(tmp_path, what, more)
    relation, mechanism = built.spec.relation, mechanism_of(built)
    others: list[dict[str, Any]] = [
        {"amount": 33.3},
        {"amount": -2, "country": "FR", "tags": ["gift"]},
    ]
    contents: list[dict[str, Any]] = [
        {"amount": value, "country": country, "tags": tags}
        for value in VALUES
        for country, tags in (("DE", ["new", "gift"]), ("FR", ["gift", "other"]))
    ]
    rows = [rows_of(built, *others, one) for one in contents]
    without = rows_of(built, *others)
    pairs = [(row, without) for row in rows]
    if relation is Neighbors.REPLACE:
        pairs += [(left, right) for left in rows for right in rows]
    largest = 0
    for left, right in pairs:
        assert mechanism.rows.relation(relation).accept(left, right) is not None
        largest = max(largest, int(np.abs(left - right).sum()))
    assert largest == mechanism.l1


def test_a_double_becomes_units_by_itself() -> None:
    """Each value alone, and in a batch at every place: the same units; beside a Fraction, at most half a step off."""
    amount = Amount("amount", Fraction(-10), Fraction(240), Fraction(1, 100))
    values = np.array([0.005, 0.015, 0.145, 1.005, 2.675, -0.125, 239.994, 1e300, -1e300, 7.0] * 37)
    together = amount.of(Numbers(values, None))
    for at, value in enumerate(values.tolist()):
        assert amount.of(Numbers(np.array([value]), None)).tolist() == [together[at]]
        exact = min(max(Fraction(value), amount.lowest), amount.highest) / amount.step
        assert abs(together[at] - exact) <= Fraction(1, 2) + Fraction(1, 10**9)
    assert together[:6].tolist() == [0, 2, 14, 100, 268, -12]
    assert amount.of(Numbers(values, np.zeros(len(values), np.bool_))).any() == np.False_


def bodies(built: Built, rows: list[list[int]]) -> list[bytes]:
    """The releases of a run without noise."""
    (series,) = built.run_config(0).series
    mechanism: Any = series.mechanism
    state, found = mechanism.init(ZeroNoise()), []
    for tick, row in enumerate(rows):
        state, _ = mechanism.step(state, Update(np.array(row)), ZeroNoise())
        _, answer = mechanism.step(state, Query(), ZeroNoise())
        found.append(series.body(TickGrid(0, 1000), tick, tick, state, answer))
    return found


def test_releases_are_numbers_on_the_grid_and_signed_where_the_clamp_is(tmp_path: Path) -> None:
    first, second = bodies(built_of(tmp_path, FINE), [[1250], [-2000]])
    assert b'"value":12.50,"band":' in first
    assert b'"value":-7.50,' in second
    assert read(second).value == -7.5
    told = PublicRelease.of(second)
    assert told.value == -7.5
    assert told.band == read(second).band
    (plain,) = bodies(built_of(tmp_path), [[7]])
    assert b'"value":7,"band":' in plain
    grouped = built_of(tmp_path, "of: pieces, clamp: [0, 60], step: 20, by: country")
    (by_key,) = bodies(grouped, [[3, 0, 2]])
    assert b'"values":{"DE":60,"FR":0,"other":40}' in by_key


def test_what_cannot_be_below_nothing_is_not(tmp_path: Path) -> None:
    (unsigned,) = bodies(built_of(tmp_path), [[-7]])
    assert b'"value":0,' in unsigned


def test_numbers_of_units_are_exact() -> None:
    assert str(told_number(10**17 + 1, Fraction(1, 10**6))) == "100000000000.000001"
    assert str(told_number(3, Fraction(1, 4))) == "0.75"
    assert told_number(-3, Fraction(20)) == -60
    with pytest.raises(ValueError, match="at most 6 places"):
        told_number(1, Fraction(1, 3))


def test_a_plan_says_the_error_in_the_fields_own_unit(tmp_path: Path) -> None:
    coarse, fine = built_of(tmp_path), built_of(tmp_path, "of: amount, clamp: [0, 240], step: 0.01")
    (one,), (other,) = (plan_json(built)["series"] for built in (coarse, fine))
    assert one["why"] == "a sum is a tree counter; one event changes it by up to 240 in all"
    for left, right in zip(one["predicted_error"], other["predicted_error"], strict=True):
        assert left["error"] == pytest.approx(right["error"], rel=0.01, abs=1)
    json.dumps(plan_json(fine))
    counted = Counter(1, Fraction(1, 240), Neighbors.ADD_REMOVE, 8).band(8, 0.95)
    assert one["predicted_error"][-1]["error"] == counted
    assert fine.chosen[0].spec.described()["parameters"] == {
        "of": "amount", "clamp": "0 to 240", "step": "0.01",
    }  # fmt: skip


def test_exact_sums_are_numbers_too(tmp_path: Path) -> None:
    plain, grouped = (built_of(tmp_path, FINE + by).chosen[0].spec for by in ("", ", by: country"))
    assert plain.exact(np.array([-750]), ("",)) == -7.5
    assert grouped.exact(np.array([1, 0, 200]), ("DE", "FR", "other")) == {
        "DE": 0.01, "FR": 0, "other": 2,
    }  # fmt: skip


def test_the_page_shows_a_pipeline_that_builds(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "sums.md").read_text()
    path = tmp_path / "orders.yaml"
    path.write_text(page.split("```yaml\n")[1].split("```")[0])
    assert [each.mechanism.rows.weight for each in build(load(path)).chosen] == [24_000, 240, 20]


def test_a_live_sum_means_what_it_says(tmp_path: Path) -> None:
    spec = built_of(tmp_path).spec
    asked = {
        "name": "new",
        "statistic": "sum",
        "of": "amount",
        "clamp": ["-1", "5/2"],
        "step": "1/100",
        "epsilon": "1",
    }
    planner = LiveSeriesPlanner(spec, OpenRouter(spec, spec.clock.start or 0))
    planned = planner.propose(json.dumps(asked).encode(), 1)
    assert load_series(planned.definition, spec) == planned.series
    assert planned.predicted()[1] < 100


def test_a_mechanism_for_counts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(series: SumSeries, setting: Setting) -> Any:
        counter = Counter(setting.width, series.epsilon, setting.neighbors, 8, setting.ones)
        return steady(counter, "weights forgotten", setting)

    monkeypatch.setattr(SumSeries, "choose", forgetful)
    with pytest.raises(
        NotDerivable, match=r"volume: one event may add 240 units .* Counter is made for 1"
    ):
        built_of(tmp_path)


USERS = ", unit: user, user: pieces, max_events: 3, per: 2h"


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("", FINE), (WITHIN, f"{FINE}, by: tags"), (", neighbors: replace", FINE),
        (USERS, "of: amount, clamp: [-4, 5]"), (USERS, f"{PLAIN}, by: country"),
    ],
)  # fmt: skip
def test_the_audit_plays_amounts_against_a_file(tmp_path: Path, more: str, what: str) -> None:
    """Every game is one of neighbours, or it would be halted; a right claim is refuted with probability 1e-7.

    Of a user all events are played, as many as the cap.
    """
    found = attack(file(tmp_path, what, more), runs=300, ticks=2, confidence=0.9999999)
    assert found.refuted == []


def test_the_audit_refutes_a_sum_whose_weight_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One event moves the sum by 240 scales: it is missed with probability below 1e-9."""
    mechanism = mechanism_of(built_of(tmp_path))
    plain = Counter(1, Fraction(1), Neighbors.ADD_REMOVE, 8)
    for twin in (False, True):
        if twin:
            monkeypatch.setattr(SumCounter, "counter", property(lambda self: plain))
        found = audit_mechanism(mechanism, fresh_noise, runs=400, ticks=1, failure=1e-6)
        assert found.violated == twin


@pytest.mark.parametrize(
    ("what", "amounts"),
    [
        (FINE, [-3.5, 7.0]),
        (f"{FINE}, by: country", [-3.5, -9.0]),
        ("of: amount, clamp: [0, 1000], step: 0.000001", [1000.0] * 1_101),
    ],
    ids=["below 0", "below 0 by key", "more units than there are events"],
)
def test_no_sum_decides_whether_the_engine_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, amounts: list[float]
) -> None:
    """The row of a tick may hold any sum: what cannot be a count stops nothing."""
    records = [{"time": T, "country": "DE", "amount": one, "pieces": 1} for one in amounts]
    (tmp_path / "shop.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path / "home"))
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    key.chmod(0o600)
    pipeline = Pipeline.load(file(tmp_path, what), key_file=key)
    told: list[PublicRelease] = []
    pipeline.run(told.append)
    assert [one.tick for one in told] == list(range(8))


def test_a_null_adds_nothing_where_every_amount_adds_something() -> None:
    amount = Amount("paid", Fraction(2), Fraction(5))
    known = np.array([False, True, True])
    assert amount.of(Numbers(np.array([0.0, 9.0, -9.0]), known)).tolist() == [0, 5, 2]
