"""The statistic `cut_off`: refusals with their place, its price, words and releases, and a share whose ends cover."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Users
from stream_dp.core.row_relations import Arrivals
from stream_dp.core.time import TickGrid
from stream_dp.errors import UsageError
from stream_dp.journal.release import Shape, read
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.mechanisms import serving
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter, CutOffCounter
from stream_dp.mechanisms.noise_law import NoiseLaw, contrast_widths
from stream_dp.operate.audit.attack import attack, fresh_noise
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.promise import caveats
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.yaml import load
from stream_dp.testing.noise import SeededNoise, ZeroNoise
from stream_dp.verify.games.lower_bound import audit_mechanism

FILE = """\
version: 1
name: shop
source: {{kind: file, path: shop.jsonl}}
schema:
  time: {{type: time}}
  customer: {{type: text}}
  page: {{type: category, domain: [home, cart]}}
privacy: {{epsilon: 20{more}}}
clock: {{kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: 8}}
series:
  - {{name: capped, statistic: cut_off{what}, epsilon: 1}}
"""
PER, OVERALL = (
    f", unit: user, user: customer, {cap}" for cap in ("max_events: 20, per: 4h", "overall: 20")
)
EACH = [(", window: 4h", PER), ("", OVERALL)]
Rows = list[tuple[int, int]]


def file(folder: Path, what: str, more: str) -> Path:
    """A pipeline file with one series."""
    path = folder / "shop.yaml"
    path.write_text(FILE.format(what=what, more=more))
    return path


def built_of(folder: Path, what: str = ", window: 4h", more: str = PER) -> Built:
    """The pipeline with its mechanism."""
    return build(load(file(folder, what, more)))


@pytest.mark.parametrize(("what", "more"), EACH)
def test_each_count_has_half_the_epsilon_whatever_the_cap(
    tmp_path: Path, what: str, more: str
) -> None:
    built = built_of(tmp_path, what, more)
    (chosen,) = built.chosen
    users = Users(20, 4 if more == PER else None)
    assert isinstance(chosen.mechanism, CutOffCounter)
    assert chosen.mechanism.inner.inner.epsilon == Fraction(1, 2)
    assert chosen.mechanism.rows.changes == 2
    found = chosen.derivation.guarantee
    assert (found.measure.epsilon, found.users) == (1, users)  # type: ignore[union-attr]


def test_a_plan_says_of_whom_a_share_is_told(tmp_path: Path) -> None:
    built = built_of(tmp_path)
    (told,) = plan_json(built)["series"]
    assert told["why"] == (
        "two tree counters of first ticks, at half the epsilon each: of the users active in each 4h, the share who had "
        "more than 20 events; theirs beyond are not counted. Half-widths are those of either number of users"
    )
    mechanism: Any = built.chosen[0].mechanism
    assert told["predicted_error"][-1]["error"] == mechanism.inner.band(4, 0.95)
    assert any(
        note.startswith(
            "capped remembers every different user until its window of 4h is over: at most 128 bytes of memory each, "
            "and 40 bytes in the private commit of the tick where it counts, 32 more in an earlier one for each tick"
        )
        for note in caveats(built)
    )
    spec = built.chosen[0].spec
    assert spec.described()["windows"] == ["4h", "4h before"]
    assert spec.described()["parameters"] == {
        "within": "0 to 1", "told": "since a window began",
    }  # fmt: skip
    assert spec.about == (
        "the share of the users active in each 4h who had events beyond their cap, which are not counted"
    )
    (ever,) = plan_json(built_of(tmp_path, "", OVERALL))["series"]
    assert "of the users active ever, the share who had more than 20 events" in ever["why"]


def bodies(built: Built, rows: Rows, noise: Any) -> list[bytes]:
    """The releases of a run."""
    (series,) = built.run_config(0).series
    mechanism: Any = series.mechanism
    state, found = mechanism.init(noise), []
    for tick, row in enumerate(rows):
        state, _ = mechanism.step(state, Update(np.array(row)), noise)
        _, answer = mechanism.step(state, Query(), noise)
        body = series.body(TickGrid(0, 1000), tick, tick, state, answer)
        assert len(body) <= series.most_bytes
        found.append(body)
    return found


def test_releases_tell_the_share_since_the_window_began_and_of_the_one_before(
    tmp_path: Path,
) -> None:
    rows: Rows = [(400, 0), (100, 50), (300, 150), (0, 0), (1000, 10)]
    built = built_of(tmp_path)
    told = [json.loads(body)["windows"] for body in bodies(built, rows, ZeroNoise())]
    assert built.chosen[0].spec.form is Shape.WINDOWS
    assert [each["4h"]["value"] for each in told] == [0, 0.1, 0.25, 0.25, 0.01]
    assert [each["4h before"]["value"] for each in told] == [None, None, None, None, 0.25]
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
    ever = bodies(built_of(tmp_path, "", OVERALL), rows, ZeroNoise())
    assert [read(body).value for body in ever] == [0, 0.1, 0.25, 0.25, 0.1167]
    assert all(read(body).low <= read(body).value <= read(body).high for body in ever)  # type: ignore[operator]


def misses(built: Built, rows: Rows) -> tuple[list[int], list[int]]:
    """How often of 200 runs a share's ends miss the true one, and the active users their band, at each tick."""
    shares, counts = [0] * len(rows), [0] * len(rows)
    mechanism: Any = built.chosen[0].mechanism
    size = mechanism.users.window or len(rows)
    true = [np.sum(rows[t - t % size : t + 1], axis=0).tolist() for t in range(len(rows))]
    for run in range(200):
        for tick, body in enumerate(bodies(built, rows, SeededNoise(run))):
            told = json.loads(body)
            part = told["windows"]["4h"] if "windows" in told else told
            share = true[tick][1] / true[tick][0]
            shares[tick] += not (part["low"] <= share <= part["high"])
        noise, state = SeededNoise(run), mechanism.init(SeededNoise(run + 1000))
        for tick, row in enumerate(rows):
            state, _ = mechanism.step(state, Update(np.array(row)), noise)
            answer: IntArray = mechanism.step(state, Query(), noise)[1][:2]
            band = mechanism.band(mechanism.public(tick + 1, None), 0.95)
            counts[tick] += bool(np.abs(answer - true[tick])[0] > band)
    return shares, counts


@pytest.mark.parametrize(("what", "more"), EACH)
def test_the_ends_of_the_share_hold_as_often_as_is_said(
    tmp_path: Path, what: str, more: str
) -> None:
    """200 runs at each tick: too many outside has probability below 1e-4, and they are not too few either."""
    rows: Rows = [(60, 5), (20, 10), (10, 2), (30, 9), (50, 1), (9, 3), (8, 1), (20, 7)]
    shares, counts = misses(built_of(tmp_path, what, more), rows)
    for outside in (*shares, *counts):
        assert binom.sf(outside - 1, 200, 0.05) > 1e-4
    assert all(sum(each) > 200 * len(rows) * 0.01 for each in (shares, counts)), (shares, counts)


@pytest.mark.parametrize(("what", "more"), EACH)
def test_a_quarter_of_the_widths_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, more: str
) -> None:
    """The ends no longer hold, by the same seeds."""
    quarter = Fraction(1, 4)
    monkeypatch.setattr(
        serving,
        "contrast_widths",
        lambda *those: contrast_widths(*those).scaled(quarter, quarter),
    )
    rows: Rows = [(60, 30), (20, 10), (10, 5), (30, 15)]
    shares, _ = misses(built_of(tmp_path, what, more), rows)
    assert binom.sf(shares[-1] - 1, 200, 0.05) < 1e-4


@pytest.mark.parametrize(("what", "more"), EACH)
def test_the_audit_plays_it(tmp_path: Path, what: str, more: str) -> None:
    """Every game is one of neighbours, or it would be halted; a right claim is refuted with probability 1e-7."""
    found = attack(file(tmp_path, what, more), runs=300, ticks=2, confidence=0.9999999)
    assert found.refuted == []


def whole_epsilon_each(mechanism: Any) -> ArrivalCounter:
    """Half the noise that is due: one user is in both entries."""
    theirs = Arrivals(mechanism.users.window, mechanism.users)
    return ArrivalCounter(mechanism.epsilon, mechanism.neighbors, mechanism.horizon, theirs)


def test_the_audit_refutes_noise_for_one_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At epsilon 2 a user moves two units of scale 1/2; of 4,000 plays 2.73 to 2.89 was proven in five runs."""
    path = file(tmp_path, ", window: 4h", PER)
    path.write_text(path.read_text().replace("epsilon: 1}", "epsilon: 2}"))
    spec = load(path)
    for twin in (False, True):
        mechanism: Any = build(spec).chosen[0].mechanism
        if twin:
            monkeypatch.setattr(CutOffCounter, "inner", property(whole_epsilon_each))
        found = audit_mechanism(mechanism, fresh_noise, runs=4000, ticks=1, failure=1e-6)
        assert found.violated == twin


def test_it_is_no_live_series(tmp_path: Path) -> None:
    spec = built_of(tmp_path).spec
    asked = {"name": "new", "statistic": "cut_off", "window": "4h", "epsilon": "1"}
    planner = LiveSeriesPlanner(spec, OpenRouter(spec, spec.clock.start or 0))
    with pytest.raises(UsageError, match="remembers who was there from the first tick on"):
        planner.propose(json.dumps(asked).encode(), 1)


def test_the_page_shows_an_entry_that_builds(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "people.md").read_text()
    (entry,) = (
        line.strip()[2:]
        for line in page.splitlines()
        if "statistic: cut_off" in line and "- {" in line
    )
    text = (
        FILE.format(what="", more=PER)
        .replace("per: 4h", "per: 1d")
        .replace("horizon: 8}", "horizon: 48}")
    )
    path = tmp_path / "people.yaml"
    path.write_text("\n".join([*text.splitlines()[:-1], f"  - {entry}"]))
    assert isinstance(build(load(path)).chosen[0].mechanism, CutOffCounter)
