"""Every statistic is asked the same, by the table of `statistic_cases`; twins with too little noise are refuted.

Rows come from the real router; the audit plays the claim of each file, under each privacy of its case.
"""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.mechanisms.broken_means import BareCounts, ScaleOfCounts
from unit.statistics.statistic_cases import (
    CASES,
    EVENT,
    HORIZON,
    PER,
    WITHIN,
    StatisticCase,
    bodies,
    built_of,
    rows_of,
    series_of,
    shop,
)

from stream_dp.core.guarantee import PureDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import ArrivalLaw, TotalLaw
from stream_dp.core.row_relations import Arrivals
from stream_dp.errors import BudgetRefused, NotDerivable, UsageError
from stream_dp.journal.release import read
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter, CutOffCounter
from stream_dp.mechanisms.linear.counter import Counter, SumCounter
from stream_dp.mechanisms.linear.noisy_forest import FLAT
from stream_dp.mechanisms.linear.pairs import SumsAndCounts
from stream_dp.mechanisms.linear.window_forest import SumForest, WindowForest
from stream_dp.operate.audit.attack import attack, fresh_noise
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.yaml import load, load_series
from stream_dp.statistics import STATISTICS
from stream_dp.statistics.mean import MeanSeries
from stream_dp.statistics.parts import windows
from stream_dp.statistics.parts.choice import Setting, steady
from stream_dp.statistics.parts.windows import window_choice
from stream_dp.statistics.sum import SumSeries
from stream_dp.verify.lower_bound import audit_mechanism

ALL = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
TRIED = pytest.mark.parametrize(
    ("case", "privacy"),
    [
        pytest.param(case, privacy, id=f"{name}{privacy}")
        for name, case in CASES.items()
        for privacy in case.moved
    ],
)


def built_case(folder: Path, case: StatisticCase, privacy: str | None = None) -> Built:
    found = next(iter(case.moved)) if privacy is None else privacy
    return built_of(folder, case.entry, privacy=found)


def test_every_statistic_has_a_case() -> None:
    words = {kind.model_fields["statistic"].default for kind in STATISTICS}
    assert {case.statistic for case in CASES.values()} == words - {"ratio"}


def moved(mechanism: Any) -> tuple[int, ...]:
    """What one step of the mechanism's relation moves in each half of its rows."""
    return tuple(
        half.changes if isinstance(half, ArrivalLaw | TotalLaw) else half.l1
        for half in mechanism.rows.halves
    )


@TRIED
def test_the_noise_is_for_what_one_step_moves_and_the_price_is_the_whole(
    tmp_path: Path, case: StatisticCase, privacy: str
) -> None:
    built = built_case(tmp_path, case, privacy)
    (chosen,), price = built.chosen, Fraction(case.epsilon)
    mechanism: Any = chosen.mechanism
    assert (type(mechanism), moved(mechanism)) == (case.mechanism, case.moved[privacy])
    own, whole, protection = mechanism.guarantee, chosen.derivation.guarantee, built.spec.protection
    assert (whole.measure, whole.protected) == (PureDP(price), protection.protected)
    assert own.measure.epsilon == price * (1 if own.users else protection.share)
    assert built.ledger.spent == price * 10**12


NUMBERS = (
    (None, 0),
    (0, 1),
    (-5, -9),
    (2.5, 3),
    (0.005, 100),
    (239.995, 2),
    (1e308, 5),
    (-1e308, 9),
)
PLACES: tuple[tuple[str, list[str], str | None], ...] = (
    ("DE", ["new", "gift"], "enter"), ("FR", ["gift", "?"], "leave"), ("DE", ["?"], "look"), ("ES", [], None),
    ("DE", [], "leave"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "privacy"),
    [
        (name, privacy)
        for name, case in CASES.items()
        for privacy in (EVENT, WITHIN)
        if privacy in case.moved and case.statistic not in ("distinct", "cut_off")
    ],
)
def test_no_record_changes_a_row_by_more_than_the_noise_is_for(
    tmp_path: Path, name: str, privacy: str
) -> None:
    """Beside others, with awkward values; the most is reached. Identifiers: `test_distinct_rows`, `cut_off_rows`."""
    built = built_case(tmp_path, CASES[name], privacy)
    mechanism: Any = built.chosen[0].mechanism
    others = ({"amount": 33.3, "pieces": 2}, {"amount": -2, "country": "FR", "tags": ["gift"]})
    contents = [
        {"amount": a, "pieces": p, "country": country, "tags": tags, "kind": kind}
        for (a, p), (country, tags, kind) in product(NUMBERS, PLACES)
    ]
    rows, without = [rows_of(built, *others, one) for one in contents], rows_of(built, *others)
    pairs = [*product(rows, [without]), *product([without], rows)]
    if privacy == WITHIN:
        pairs += product(rows, rows)
    accepting, halves = mechanism.rows.relation(built.spec.relation), len(mechanism.rows.halves)
    largest = np.zeros(halves, np.int64)
    for left, right in pairs:
        assert accepting.accept(left, right) is not None
        largest = np.maximum(largest, np.abs(left - right).reshape(halves, -1).sum(axis=1))
    assert tuple(largest) == CASES[name].moved[privacy]


def shown(part: dict[str, Any], *, named: bool) -> Any:
    """What a release, or a window of one, shows, without bands, ends and ties."""
    match part:
        case {"windows": windows}:
            return {name: shown(each, named=named) for name, each in windows.items()}
        case {"ranks": ranks}:
            return [(rank["name"], rank["value"]) for rank in ranks]
        case {"quantiles": quantiles}:
            return {at: each["value"] for at, each in quantiles.items()}
        case {"values": told} | {"fired": told}:
            return told
    return (part.get("name"), part["value"]) if named else part["value"]


@ALL
def test_releases_without_noise_are_those_of_the_rows(tmp_path: Path, case: StatisticCase) -> None:
    released = bodies(series_of(built_case(tmp_path, case)), case.rows)
    named = case.statistic == "maximum"
    assert [shown(json.loads(body), named=named) for body in released] == list(case.shown)
    assert {read(body).confidence for body in released} == {0.95}


@ALL
def test_plan_and_readers_are_told_what_it_is(tmp_path: Path, case: StatisticCase) -> None:
    built = built_case(tmp_path, case)
    (planned,), spec = plan_json(built)["series"], built.chosen[0].spec
    assert case.why in planned["why"]
    assert planned["epsilon"] == float(case.epsilon)
    told = json.loads(json.dumps(spec.described()))
    assert (told["about"], told["error_unit"]) == (case.about, case.error_unit)
    assert told.get("nonnegative", False) == case.nonnegative
    assert case.parameters.items() <= told["parameters"].items()
    assert told.get("windows", []) == [each["window"] for each in planned.get("windows", [])]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.predicted])
def test_a_predicted_error_is_the_band_in_the_unit_of_readers(tmp_path: Path, name: str) -> None:
    built = built_case(tmp_path, CASES[name])
    (planned,), series = plan_json(built)["series"], series_of(built)
    parts = [(planned, series.band)] if not series.views else []
    parts += zip(planned.get("windows", []), [view.band for view in series.views], strict=True)
    for part, band in parts:
        *_, last = part["predicted_error"]
        wanted = band(HORIZON - 1, None) * float(series.unit)
        assert last["error"] == pytest.approx(wanted, rel=0.01, abs=1)
        assert last["error"] > 0


@ALL
def test_exact_values_are_in_the_unit_of_readers(tmp_path: Path, case: StatisticCase) -> None:
    built = built_case(tmp_path, case)
    (chosen,) = built.chosen
    totals, told = case.exact or ([0] * chosen.mechanism.width, None)
    if case.exact or chosen.spec.views:
        assert chosen.spec.exact(np.array(totals), built.layout.keys("it")) == told


@ALL
def test_a_live_definition_means_what_it_says(tmp_path: Path, case: StatisticCase) -> None:
    spec = built_case(tmp_path, case).spec
    planner = LiveSeriesPlanner(spec, OpenRouter(spec, spec.clock.start or 0))
    asked = case.entry.replace("name: it", "name: new").encode()
    if not case.live:
        with pytest.raises(UsageError, match=r"from the first tick on"):
            planner.propose(asked, 1)
        return
    planned = planner.propose(asked, 1)
    assert load_series(planned.definition, spec) == planned.series
    assert planned.series.described()["about"] == case.about


ATTACKED = {"sum", "mean", "gauge", "distinct", "cut_off"}
"""Amounts and identifiers: what neighbours do to their rows is the statistic's own, and no plain count."""


@pytest.mark.parametrize(
    ("name", "privacy"),
    [
        pytest.param(name, privacy, marks=[pytest.mark.full] * bool(at))
        for name, case in CASES.items()
        if case.statistic in ATTACKED
        for at, privacy in enumerate(case.moved)
    ],
)
def test_the_audit_plays_it(tmp_path: Path, name: str, privacy: str) -> None:
    """Every game is one of neighbours, or it would be halted; a right claim is refuted with probability 1e-7."""
    path = shop(tmp_path, CASES[name].entry, privacy=privacy)
    assert attack(path, runs=300, ticks=2, confidence=0.9999999).refuted == []


def whole_epsilon_each(mechanism: Any) -> ArrivalCounter:
    """Half the noise that is due: one user is in both entries."""
    theirs = Arrivals(mechanism.users.window, mechanism.users)
    return ArrivalCounter(mechanism.epsilon, mechanism.neighbors, mechanism.horizon, theirs)


def plain(scale: int) -> property:
    """Noise for one unit."""
    return property(lambda _: Counter(1, Fraction(scale), Neighbors.ADD_REMOVE, HORIZON))


TWINS: dict[str, tuple[str, str, str, tuple[type, str, Any], int]] = {
    "sum": ("statistic: sum, of: amount, clamp: [0, 240]", "1", EVENT, (SumCounter, "counter", plain(1)), 400),
    "sum in windows": (
        "statistic: sum, of: amount, clamp: [0, 240], windows: [2h, 4h]", "1", EVENT,
        (SumForest, "scales", (Fraction(1),)), 400,
    ),
    "distinct": ("statistic: distinct, of: customer", "4", EVENT, (ArrivalCounter, "inner", plain(8)), 8000),
    "cut_off": (
        "statistic: cut_off, window: 4h", "2", PER, (CutOffCounter, "inner", property(whole_epsilon_each)), 4000,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_the_audit_refutes_noise_for_one_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is missed with probability below 1e-8; one that is right is refuted with 1e-6."""
    keys, epsilon, privacy, twin, runs = TWINS[name]
    entry = f"{{name: it, epsilon: {epsilon}, {keys}}}"
    mechanism: Any = built_of(tmp_path, entry, privacy=privacy).chosen[0].mechanism
    for broken in (False, True):
        if broken:
            monkeypatch.setattr(*twin)
        some = (
            runs if broken else max(100, runs // 8)
        )  # by fewer, a right one is refuted no more often
        found = audit_mechanism(replace(mechanism), fresh_noise, runs=some, ticks=1, failure=1e-6)
        assert found.violated == broken


@pytest.mark.parametrize("twin", ["right", "sums at the scale of counts", "bare counts"])
def test_the_audit_refutes_means_with_too_little_noise(twin: str) -> None:
    """What is bare is told apart at once; the sum moves by 120 scales: missed with probability below 1e-9."""
    kind = ScaleOfCounts if twin.startswith("sums") else SumForest
    both = BareCounts if twin == "bare counts" else SumsAndCounts
    sums = kind(1, Fraction(3, 5), Neighbors.REPLACE, (1,), FLAT, -120, 120)
    counts = WindowForest(1, Fraction(2, 5), Neighbors.REPLACE, (1,), FLAT)
    found = audit_mechanism(both(sums, counts), fresh_noise, runs=400, ticks=1, failure=1e-6)
    assert found.violated == (twin != "right")


def test_a_mechanism_for_counts_is_refused_for_amounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(series: SumSeries, setting: Setting) -> Any:
        counter = Counter(setting.width, series.epsilon, setting.neighbors, 8, setting.ones)
        return steady(counter, "weights forgotten", setting)

    amounts = "statistic: sum, of: amount, clamp: [0, 240]"
    monkeypatch.setattr(windows, "window_choice", lambda *given: window_choice(*given[:3]))
    with pytest.raises(
        NotDerivable, match=r"one event may add 240 units .* WindowForest is made for 1"
    ):
        built_of(tmp_path, f"{amounts}, windows: [2h]")
    monkeypatch.setattr(SumSeries, "choose", forgetful)
    with pytest.raises(
        NotDerivable, match=r"it: one event may add 240 units .* Counter is made for 1"
    ):
        built_of(tmp_path, amounts)


def test_the_whole_epsilon_for_both_parts_of_a_mean_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The derivation adds both: a file that grants the price of one refuses to start."""
    right = MeanSeries._both

    def greedy(self: MeanSeries, half: Setting, sums: Fraction, counts: Fraction) -> SumsAndCounts:
        return right(self, half, sums + counts, sums + counts)

    monkeypatch.setattr(MeanSeries, "_both", greedy)
    path = shop(tmp_path, "statistic: mean, of: amount, clamp: [0, 240]")
    path.write_text(path.read_text().replace("epsilon: 20", "epsilon: 1"))
    with pytest.raises(BudgetRefused, match="asks for epsilon 2; of 1"):
        build(load(path))


def test_without_windows_a_fingerprint_is_what_it_was(tmp_path: Path) -> None:
    for keys in ("statistic: count", "statistic: sum, of: pieces, clamp: [0, 9]"):
        alone, windowed = (load(shop(tmp_path, keys + more)) for more in ("", ", windows: [2h]"))
        assert alone.series[0].left_out >= {"window", "windows"}
        assert fingerprint(alone) != fingerprint(windowed)


@pytest.mark.parametrize(
    ("entry", "held"),
    [
        ("statistic: sum, of: amount, clamp: [0, 240], windows: [400001h]", "400,001 numbers.*shorter window"),
        ("statistic: histogram, by: country, windows: [200000h]", "600,000 numbers.*shorter window"),
        ("statistic: quantiles, of: pieces, clamp: [0, 600], buckets: 200, at: [0.5], windows: [100000h]",
         "100,000 ticks of"),
    ],
)  # fmt: skip
def test_a_window_that_no_state_may_hold_is_refused(tmp_path: Path, entry: str, held: str) -> None:
    with pytest.raises(NotDerivable, match=held):
        built_of(tmp_path, entry, horizon=500_000)


PAGES = {
    "sums": SumCounter,
    "mean": SumsAndCounts,
    "gauges": SumCounter,
    "distinct": ArrivalCounter,
}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_a_pipeline_that_builds(tmp_path: Path, page: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / f"{page}.md").read_text()
    path = tmp_path / "shown.yaml"
    path.write_text(text.split("```yaml\n")[1].split("```")[0])
    assert PAGES[page] in {type(each.mechanism) for each in build(load(path)).chosen}
