"""The statistic `gauge`: refusals with their place, what one record changes, exactly, and twins that forget it.

Independent of the code: the row that a record should make is written down by hand here; neighbouring streams are
enumerated, and what tells them apart is found from the real noise (`oracles.tree_privacy`).
"""

import itertools
import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles.tree_privacy import least_shift
from scipy.stats import binom

from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Batch
from stream_dp.journal.release import read
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.mechanisms.linear.sum_counter import SumCounter, SumCounterState
from stream_dp.operate.audit.attack import attack
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.router import OpenRouter, Router
from stream_dp.pipeline.yaml import load, load_series
from stream_dp.testing.noise import ScriptedNoise, SeededNoise, ZeroNoise

FILE = """\
version: 1
name: shop
source: {{kind: file, path: shop.jsonl}}
schema:
  time: {{type: time}}
  door: {{type: category, domain: [north, south]}}
  kind: {{type: category, domain: [enter, leave, look], nullable: true}}
  step: {{type: integer}}
  on: {{type: boolean}}
  word: {{type: text}}
  user: {{type: text}}
privacy: {{epsilon: 20{more}}}
clock: {{kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: 4}}
series:
  - {{name: present, statistic: gauge, {what}, epsilon: 1}}
"""
DOORS = "of: kind, plus: enter, minus: [leave]"
WITHIN = ", neighbors: replace, moves: within_tick"
USERS = ", unit: user, user: user, max_events: 3, per: 2h"
T = "2026-01-01T00:30:00Z"
KINDS = ("enter", "leave", "look", None)
SIGNS = {"enter": 1, "leave": -1, "look": 0, None: 0}


def file(folder: Path, what: str = DOORS, more: str = "") -> Path:
    """A pipeline file with one gauge."""
    path = folder / "shop.yaml"
    path.write_text(FILE.format(what=what, more=more))
    return path


def built_of(folder: Path, what: str = DOORS, more: str = "") -> Built:
    """The pipeline with its mechanism."""
    return build(load(file(folder, what, more)))


def mechanism_of(built: Built) -> SumCounter:
    """The mechanism of the gauge."""
    found = built.chosen[0].mechanism
    assert isinstance(found, SumCounter)
    return found


def rows_of(built: Built, records: Sequence[dict[str, Any]]) -> IntArray:
    """The row of the tick in which all of them lie, shape (width,), by the real router."""
    router = Router(built.spec, built.spec.clock.start or 0)
    plain = {
        "time": T,
        "door": "north",
        "kind": None,
        "step": 0,
        "on": False,
        "word": "",
        "user": "u",
    }
    payloads = [json.dumps(plain | one).encode() for one in records]
    routed = router.route(Batch(0, payloads, range(len(payloads)), len(payloads), None))
    found: IntArray = routed.rows.get(0, np.zeros(router.width, np.int64))
    return found


@pytest.mark.parametrize(
    ("what", "field", "signs"),
    [
        (DOORS, "kind", SIGNS),
        ("of: step, plus: [1, 2], minus: -1", "step", {1: 1, 2: 1, -1: -1, 0: 0, 3: 0}),
        ("of: on, plus: true, minus: false", "on", {True: 1, False: -1}),
        ("of: word, plus: [in, back], minus: out", "word", {"in": 1, "back": 1, "out": -1, "": 0}),
    ],
)
def test_each_record_counts_up_down_or_not(
    tmp_path: Path, what: str, field: str, signs: dict[Any, int]
) -> None:
    built = built_of(tmp_path, what)
    for value, sign in signs.items():
        assert rows_of(built, [{field: value}]).tolist() == [sign]
    values = list(signs) * 5
    assert rows_of(built, [{field: v} for v in values]).tolist() == [5 * sum(signs.values())]


def test_by_door_and_where_go_together_and_no_other_series_changes(tmp_path: Path) -> None:
    more = (
        "  - {name: all, statistic: count, epsilon: 1}\n"
        "  - {name: late, statistic: gauge, of: kind, plus: leave, minus: enter, epsilon: 1,\n"
        "     where: [{field: step, at_least: 5}]}\n"
    )
    path = file(tmp_path, f"{DOORS}, by: door")
    path.write_text(path.read_text() + more)
    built = build(load(path))
    records: list[dict[str, Any]] = [
        {"kind": kind, "door": door, "step": step}
        for kind, door, step in itertools.product(KINDS, ("north", "south", "roof"), (0, 5))
        for _ in range(1 + (kind == "enter") + (door == "south"))
    ]
    expected = [
        sum(SIGNS[one["kind"]] for one in records if one["door"] == door)
        for door in ("north", "south", "roof")
    ]
    late = -sum(SIGNS[one["kind"]] for one in records if one["step"] >= 5)
    assert rows_of(built, records).tolist() == [*expected, len(records), late]


@pytest.mark.parametrize(("by", "more", "l1"), [
    ("", "", 1), (", by: door", "", 1), ("", WITHIN, 2), (", by: door", WITHIN, 2), ("", ", neighbors: replace", 1),
])  # fmt: skip
def test_no_record_changes_a_row_by_more_than_the_noise_is_for(
    tmp_path: Path, by: str, more: str, l1: int
) -> None:
    """Every content against none, and under replace against every other: the largest difference is met, not passed."""
    built = built_of(tmp_path, DOORS + by, more)
    relation, mechanism = built.spec.relation, mechanism_of(built)
    others: list[dict[str, Any]] = [{"kind": "leave"}, {"kind": "enter", "door": "south"}]
    contents = [{"kind": kind, "door": door} for kind in KINDS for door in ("north", "south")]
    rows = [rows_of(built, [*others, one]) for one in contents]
    without = rows_of(built, others)
    pairs = [(row, without) for row in rows]
    if relation is Neighbors.REPLACE:
        pairs += list(itertools.product(rows, rows))
    for left, right in pairs:
        assert mechanism.rows.relation(relation).accept(left, right) is not None
        assert mechanism.rows.relation(relation).accept(right, left) is not None
    assert max(int(np.abs(left - right).sum()) for left, right in pairs) == mechanism.l1 == l1
    assert built.chosen[0].derivation.guarantee.neighbors is relation


class FlooredWithin(SumCounter):
    """Never counts below 0: what an event adds may be lost at the floor later, in a tick of its own."""

    def step(
        self, state: SumCounterState, message: Message, noise: Noise
    ) -> tuple[SumCounterState, IntArray | None]:
        """Clip the exact total, which is no post-processing."""
        after, answer = super().step(state, message, noise)
        return SumCounterState(np.maximum(after.total, 0), after.noise), answer


class AddedForReplaced(SumCounter):
    """The noise of add_remove under replace, where a record that came may have gone instead."""

    @property
    def l1(self) -> int:
        """Too little."""
        return self.weight


TICKS, EPSILON, BIG = 4, Fraction(4, 5), 1 << 20


def answers(mechanism: SumCounter, noise: Any, rows: Sequence[int]) -> IntArray:
    """The answers after each row, shape (ticks,)."""
    state, found = mechanism.init(noise), []
    for row in rows:
        state, _ = mechanism.step(state, Update(np.array([row])), noise)
        _, answer = mechanism.step(state, Query(), noise)
        assert answer is not None
        found.append(int(answer[0]))
    return np.array(found)


def law(mechanism: SumCounter) -> tuple[Any, Any]:
    """The real map from noises to answers, and one over each noise's scale."""
    called, empty = ScriptedNoise([0] * 20_000), [0] * TICKS
    answers(mechanism, called, empty)
    scales = [call.scale for call in called.calls for _ in range(call.size)]
    scripts = [[BIG * (at == one) for one in range(len(scales))] for at in range(len(scales))]
    matrix = np.array([answers(mechanism, ScriptedNoise(each), empty) / BIG for each in scripts]).T
    used = np.abs(matrix).max(axis=0) > 1e-4
    return matrix[:, used], np.array([float(1 / scale) for scale in scales])[used]


def worst(mechanism: SumCounter) -> float:
    """The largest loss over every stream of four records' signs, and every change of one of them."""
    matrix, weights = law(mechanism)
    changes = {(a, 0) for a in (-1, 1)}
    if mechanism.neighbors is Neighbors.REPLACE:
        changes |= set(itertools.permutations((-1, 0, 1), 2))
    shifts = set()
    for rows in itertools.product((-1, 0, 1), repeat=TICKS):
        for tick, (left, right) in itertools.product(range(TICKS), changes):
            pair = [[*rows[:tick], rows[tick] + one, *rows[tick + 1 :]] for one in (left, right)]
            one, other = (answers(mechanism, ZeroNoise(), each) for each in pair)
            shifts.add(tuple(one - other))
    found = [least_shift(matrix, np.array(s), weights, integer=False) for s in shifts if any(s)]
    return max(float(weights @ np.abs(each)) for each in found)


@pytest.mark.parametrize("relation", [Neighbors.ADD_REMOVE, Neighbors.REPLACE])
def test_every_pair_of_small_streams_loses_the_claim_at_most(relation: Neighbors) -> None:
    mechanism = SumCounter(1, EPSILON, relation, TICKS, -1, 1)
    assert worst(mechanism) == pytest.approx(float(EPSILON), abs=2e-3)


@pytest.mark.parametrize(("twin", "relation", "least"), [
    (FlooredWithin, Neighbors.ADD_REMOVE, 1.3), (AddedForReplaced, Neighbors.REPLACE, 1.9),
])  # fmt: skip
def test_a_twin_loses_more(twin: type[SumCounter], relation: Neighbors, least: float) -> None:
    assert worst(twin(1, EPSILON, relation, TICKS, -1, 1)) > least * float(EPSILON)


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


def test_releases_are_signed_unless_a_floor_is_declared(tmp_path: Path) -> None:
    rows = [[2], [-5], [4]]
    assert [read(b).value for b in bodies(built_of(tmp_path), rows)] == [2, -3, 1]
    floored = built_of(tmp_path, f"{DOORS}, floor: 0")
    assert [read(b).value for b in bodies(floored, rows)] == [2, 0, 1]
    (told,) = bodies(built_of(tmp_path, f"{DOORS}, by: door"), [[-1, 3, 0]])
    assert b'"values":{"north":-1,"south":3,"other":0}' in told
    assert built_of(tmp_path).chosen[0].spec.exact(np.array([-2]), ("",)) == -2
    assert floored.chosen[0].spec.exact(np.array([-2]), ("",)) == 0
    assert mechanism_of(floored) == mechanism_of(built_of(tmp_path))


def test_windows_tell_how_many_more_came_than_went(tmp_path: Path) -> None:
    rows = [[2], [-5], [4], [-1]]
    for floor, expected in (("", (-1, 3, 0)), (", floor: 0", (0, 3, 0))):
        built = built_of(tmp_path, f"{DOORS}, windows: [2h, ever]{floor}")
        told = [json.loads(body)["windows"] for body in bodies(built, rows)]
        assert list(told[0]) == ["tick", "2h", "ever"]
        last = [told[-1][name]["value"] for name in told[-1]]
        assert last == list(expected)
        assert built.chosen[0].spec.exact(np.array([0]), ("",)) is None
        assert built.chosen[0].spec.about.endswith("per tick and over 2h, and so far")
    by_door = built_of(tmp_path, f"{DOORS}, by: door, window: 2h", WITHIN)
    assert by_door.chosen[0].choice.why.endswith("one event changes it by up to 2 in all")
    (first, *_) = bodies(by_door, [[-1, 3, 0]])
    assert json.loads(first)["windows"]["2h"]["values"] == {"north": -1, "south": 3, "other": 0}


def test_a_plan_says_what_it_is_and_its_error(tmp_path: Path) -> None:
    built = built_of(tmp_path, f"{DOORS}, floor: 0")
    (told,) = plan_json(built)["series"]
    assert told["why"] == "a gauge is a tree counter; one event changes it by up to 1 in all"
    assert told["predicted_error"][-1]["error"] == mechanism_of(built).band(4, 0.95)
    spec = built.chosen[0].spec
    assert spec.about == "enter less leave of kind, so far"
    assert spec.described()["parameters"] == {
        "of": "kind", "plus": "enter", "minus": "leave", "floor": 0,
    }  # fmt: skip


def test_its_band_covers(tmp_path: Path) -> None:
    """200 runs of the chosen mechanism at its last tick: fewer than 0.95 less a margin has probability below 1e-4."""
    mechanism = mechanism_of(built_of(tmp_path))
    band, rows = mechanism.band(4, 0.95), [1, -1, -1, 1]
    off = [abs(int(answers(mechanism, SeededNoise(run), rows)[-1])) for run in range(200)]
    inside = sum(each <= band for each in off)
    assert binom.cdf(inside, 200, 0.95) > 1e-4
    assert band <= 1.3 * np.quantile(off, 0.95) + 1
    assert binom.cdf(sum(each <= band // 3 for each in off), 200, 0.95) < 1e-4


def test_a_live_gauge_means_what_it_says(tmp_path: Path) -> None:
    spec = built_of(tmp_path).spec
    asked = {
        "name": "new",
        "statistic": "gauge",
        "of": "kind",
        "plus": "enter",
        "minus": ["leave"],
        "epsilon": "1",
    }
    planner = LiveSeriesPlanner(spec, OpenRouter(spec, spec.clock.start or 0))
    planned = planner.propose(json.dumps(asked).encode(), 1)
    assert load_series(planned.definition, spec) == planned.series


@pytest.mark.parametrize("more", ["", WITHIN, ", neighbors: replace", USERS])
@pytest.mark.parametrize("what", [DOORS, f"{DOORS}, by: door", f"{DOORS}, windows: [2h, ever]"])
def test_the_audit_plays_entering_and_leaving(tmp_path: Path, more: str, what: str) -> None:
    """A right claim is refuted with probability 1e-7."""
    found = attack(file(tmp_path, what, more), runs=300, ticks=2, confidence=0.9999999)
    assert found.refuted == []


def test_the_page_shows_a_pipeline_that_builds(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "gauges.md").read_text()
    path = tmp_path / "doors.yaml"
    path.write_text(page.split("```yaml\n")[1].split("```")[0])
    assert len(build(load(path)).chosen) == 3
