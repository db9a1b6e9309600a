"""`method: correlated` and `nested`: their price, their refusals, and what `plan` says of them; of quantiles too."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from pydantic import ValidationError
from unit.statistics.test_gaussian_series import DELTA, RHO, ZCDP_FILTER, made

from stream_dp.accounting.amounts import budget_units, exact
from stream_dp.accounting.conversions import zcdp_budget
from stream_dp.accounting.gaussian_curve import gaussian_budget
from stream_dp.core.guarantee import ZCDP, ApproxDP, GaussianDP, PureDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.serial import mechanism_fingerprint
from stream_dp.engine.series import Meaning
from stream_dp.errors import BudgetRefused, NotDerivable
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.joint_windows import (
    CorrelatedWindows,
    NestedWindows,
    best_decays,
    best_nested,
    usual_nested,
)
from stream_dp.mechanisms.linear.noisy_forest import FLAT
from stream_dp.mechanisms.linear.pairs import GaussianAndEver, WindowsAndEver
from stream_dp.mechanisms.linear.window_forest import GaussianForest, WindowForest
from stream_dp.mechanisms.quantiles.bucket_windows import RankWindow, best_rank_levels
from stream_dp.pipeline.builder import chosen_for
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.report import plan_json
from stream_dp.python.budget import Budget
from stream_dp.statistics.parts.choice import Setting
from stream_dp.statistics.parts.windowed import choose_windows

Data = dict[str, Any]
CORRELATED: Data = {"statistic": "count", "method": "correlated", "windows": ["24h", "ever"]}


def alone(data: Data, privacy: Any = ZCDP_FILTER, **series: Any) -> Any:
    (chosen,) = made(data, privacy, CORRELATED | series).chosen
    return chosen


def test_it_has_all_of_a_zcdp_filter_and_buffers_for_its_windows(data: Data) -> None:
    chosen = alone(data)
    mechanism = chosen.mechanism
    assert isinstance(mechanism, CorrelatedWindows)
    assert (mechanism.windows, mechanism.ever) == ((1, 24), True)
    assert mechanism.counter.decays == best_decays((1, 24), True, 100)
    assert chosen.derivation.guarantee.measure == ZCDP(RHO)
    buffers = len(mechanism.counter.decays.halvings)
    assert chosen.choice.why == (
        f"method: correlated, the same noise for tick / 24h / ever, correlated by {buffers} buffers"
    )
    windows = plan_json(made(data, ZCDP_FILTER, CORRELATED))["series"][0]["windows"]
    for place, of in enumerate(windows):
        assert of["window"] == ("tick", "24h", "ever")[place]
        for told in of["predicted_error"]:
            assert told["error"] == mechanism.view_band(place, told["tick"] + 1, 0.95)


def test_without_ever_or_a_horizon_it_is_made_for_its_windows(data: Data) -> None:
    assert not alone(data, windows=["24h"]).mechanism.ever
    data["clock"] = {"kind": "wall", "step": "1h"}
    mechanism = alone(data).mechanism
    assert mechanism.counter.horizon is None
    assert mechanism.counter.decays == best_decays((1, 24), True, None)


def test_a_filter_that_adds_up_gaussian_dp_has_it_where_there_is_a_horizon(data: Data) -> None:
    gdp = ZCDP_FILTER | {"filter": "gdp"}
    chosen = alone(data, gdp)
    whole = gaussian_budget(ApproxDP(Fraction(1), DELTA))
    assert isinstance(chosen.derivation.guarantee.measure, GaussianDP)
    assert chosen.derivation.guarantee.measure.mu == pytest.approx(float(whole), rel=1e-6)
    assert chosen.choice.windows["24h"](90) < alone(data).choice.windows["24h"](90)
    data["clock"] = {"kind": "wall", "step": "1h"}
    with pytest.raises(BudgetRefused, match="needs finite communication"):
        made(data, gdp, CORRELATED)


def test_a_list_pays_for_its_entries_and_a_replacement_in_any_tick_for_two(data: Data) -> None:
    data["schema"]["tags"] = {"type": "list", "domain": [f"a{n}" for n in range(20)], "most": "5"}
    lists = alone(data, statistic="histogram", by="tags").mechanism
    assert (lists.ones, lists.rows.l0) == (5, 5)
    moves = alone(data, ZCDP_FILTER | {"neighbors": "replace"}).mechanism
    assert moves.counter.rho == RHO / 4


def test_users_pay_for_the_square_of_their_events(data: Data) -> None:
    """The worst placement of k events of a user is one tick, which the cap allows."""
    data["schema"]["who"] = {"type": "text"}
    users = {"unit": "user", "user": "who", "max_events": "3", "per": "100h"}
    mechanism = alone(data, ZCDP_FILTER | users).mechanism
    assert mechanism.counter.rho == pytest.approx(RHO / 9, rel=1e-9)


@pytest.mark.parametrize("filter_", ["optimal", "basic", "tight_approximate"])
def test_where_a_filter_charges_deltas_it_has_its_own(data: Data, filter_: str) -> None:
    privacy = {"epsilon": "2", "delta": "1e-6", "filter": filter_}
    if filter_ == "tight_approximate":
        privacy["own_delta"] = "1e-7"
    chosen = alone(data, privacy, delta="1e-9", epsilon="0.2")
    assert isinstance(chosen.mechanism, CorrelatedWindows)


def test_noise_beyond_64_bits_is_refused_and_not_told_beside_a_forest() -> None:
    setting = Setting(1, Neighbors.ADD_REMOVE, 100, 0.95, DELTA, by_rho=True, step=3_600_000)
    least, setting = Fraction(1, 10**9), replace(setting, steps=10**5)
    with pytest.raises(NotDerivable, match="more noise than 64 bits hold"):
        choose_windows(setting, least, ("24h",), "correlated").expected(9)
    assert "correlated" not in choose_windows(setting, least, ("24h",), "gaussian").why


# the pure one

NESTED: Data = {"statistic": "count", "method": "nested", "windows": ["24h", "ever"]}


def test_a_nested_one_costs_its_epsilon_and_needs_no_delta(data: Data) -> None:
    (chosen,) = made(data, {"epsilon": "2"}, NESTED).chosen
    mechanism = chosen.mechanism
    assert isinstance(mechanism, NestedWindows)
    assert (mechanism.windows, mechanism.ever) == ((1, 24), True)
    assert chosen.derivation.guarantee.measure == PureDP(Fraction(1))
    assert mechanism.counter.shape == usual_nested((1, 24), True, 100, 4_000)
    assert chosen.choice.why.startswith(
        "method: nested, the same noise for tick / 24h / ever, with these parts of its "
    )
    data["clock"] = {"kind": "wall", "step": "1h"}
    endless: Any = made(data, {"epsilon": "2"}, NESTED).chosen[0].mechanism
    assert endless.counter.shape == usual_nested((1, 24), True, 10_000, 4_000)


AIMS = {"tick": "2", "24h": "10", "7d": "14", "ever": "20"}


@pytest.mark.parametrize("statistic", ["count", "histogram", "top"])
def test_a_nested_one_is_made_for_its_aims(data: Data, statistic: str) -> None:
    """And `plan` says its errors; without aims a file has the fingerprint that it had."""
    keys = {"count": {}, "histogram": {"by": "destination"}, "top": {"by": "destination", "k": "1"}}
    series = NESTED | keys[statistic] | {"statistic": statistic, "windows": ["24h", "7d", "ever"]}
    data["clock"]["horizon"] = "8760"
    plain, aimed = (
        made(data, {"epsilon": "2"}, series | more)
        for more in ({"name": "it"}, {"name": "it", "aims": AIMS})
    )
    mechanisms: Any = [each.chosen[0].mechanism for each in (plain, aimed)]
    asked = (1, 24, 168), True, 8_760, 4_000
    assert [each.counter.shape for each in mechanisms] == [
        usual_nested(*asked),
        best_nested(*asked, (2.0, 10.0, 14.0, 20.0)),
    ]
    said = "; typical errors (RMSE) 2.13 / 8.92 / 14 / 21.2, in proportion to the aims"
    assert said in aimed.chosen[0].choice.why
    assert "aims" not in plain.chosen[0].choice.why
    same = made(data, {"epsilon": "2"}, series | {"name": "it", "aims": AIMS | {"ever": "20.0"}})
    assert fingerprint(plain.spec) != fingerprint(aimed.spec) == fingerprint(same.spec)


def test_nested_windows_of_before_aims_have_the_fingerprints_they_had(data: Data) -> None:
    """Of the file and of each mechanism, as they were computed before the key came; by the rule of then."""
    data["clock"]["horizon"] = "8760"
    series = NESTED | {"windows": ["24h", "7d", "ever"]}
    built = made(data, {"epsilon": "2"}, series)
    (one,) = built.spec.series
    then = chosen_for(built.spec, one, slice(0, 1), meaning=Meaning.SUM_OF_ERRORS)
    assert (built.parts["series"], mechanism_fingerprint(then.mechanism)[:16]) == (
        "a66698a709a4",
        "80022a612ffd85af",
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"aims": {"tick": "1"}, "method": "tree"}, "aims are for method: nested"),
        ({"aims": {"7d": "1"}}, "is no view of this series: name tick, 24h, ever"),
        ({"aims": {"tick": "0"}}, "must be greater than 0"),
        ({"aims": {}}, "at least 1"),
    ],
)
def test_aims_that_mean_nothing_are_refused(data: Data, more: Data, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        made(data, {"epsilon": "2"}, NESTED | more)


def test_of_many_keys_a_nested_one_has_shorter_spans(data: Data) -> None:
    setting = Setting(2_000, Neighbors.ADD_REMOVE, 8_760, 0.95, step=3_600_000)
    chosen: Any = choose_windows(setting, Fraction(1), ("24h", "ever"), "nested").mechanism
    assert 1 < chosen.counter.span <= 400_000 // 2_000 - 24


def test_a_nested_one_without_windows_is_refused(data: Data) -> None:
    with pytest.raises(ValidationError, match="name windows, or method tree for the count so far"):
        made(data, {"epsilon": "2"}, NESTED | {"windows": ()})


# of quantiles

RANKS: Data = {
    "statistic": "quantiles",
    "of": "amount",
    "clamp": ["0", "400"],
    "buckets": "100",
    "at": ["0.25", "0.5", "0.75"],
    "windows": ["24h"],
    "epsilon": "0.3",
}


def ranks(data: Data, privacy: Any = ZCDP_FILTER, **own: Any) -> Any:
    data["schema"]["amount"] = {"type": "number"}
    keys = {key: value for key, value in (RANKS | own).items() if value is not None}
    (chosen,) = made(data, privacy, keys).chosen
    return chosen


def test_quantiles_of_one_window_have_gaussian_noise_for_ranks(data: Data) -> None:
    chosen = ranks(data, method="correlated")
    counts = chosen.mechanism.tree.counts
    assert isinstance(counts, RankWindow)
    rho = exact(budget_units(zcdp_budget(ApproxDP(Fraction(3, 10), DELTA))))
    assert chosen.derivation.guarantee.measure == ZCDP(rho)
    assert (counts.window, counts.width, chosen.mechanism.width) == (24, 102, 103)
    assert counts.levels == best_rank_levels(102, chosen.mechanism.at)
    assert chosen.choice.windows["24h"](90) == 189
    assert chosen.choice.why == (
        "method: correlated, Gaussian noise for ranks, correlated over values and ticks; errors are in ranks, "
        "that is, in events"
    )


def test_a_hop_of_quantiles_is_a_tick_of_their_noise(data: Data) -> None:
    chosen = ranks(data, method="correlated", hop="6h")
    assert chosen.mechanism.tree.counts.window == 4
    assert chosen.choice.windows["24h"](90) < 150
    assert "; counts are released at the end of each 6h; " in chosen.choice.why


def test_quantiles_of_users_and_of_replacements_pay_as_counts_do(data: Data) -> None:
    rho = ranks(data, method="correlated").mechanism.tree.counts.rho
    data["schema"]["who"] = {"type": "text"}
    users = {"unit": "user", "user": "who", "max_events": "3", "per": "100h"}
    for more, factor in ((users, 9), ({"neighbors": "replace"}, 4)):
        chosen = ranks(data, ZCDP_FILTER | more, method="correlated")
        assert chosen.mechanism.tree.counts.rho == pytest.approx(rho / factor, rel=1e-8)
    within = {"neighbors": "replace", "moves": "within_tick"}
    moved = ranks(data, ZCDP_FILTER | within, method="correlated").mechanism.tree.counts
    assert (moved.neighbors, moved.rho) == (Neighbors.REPLACE, rho)


@pytest.mark.parametrize(
    "own", [{"windows": ["24h", "ever"]}, {"windows": None}, {"windows": None, "every": ["24h"]}]
)
def test_other_than_one_window_of_quantiles_is_refused(data: Data, own: Data) -> None:
    with pytest.raises(ValidationError, match="correlated is the noise of one window that slides"):
        ranks(data, method="correlated", **own)


def test_without_a_delta_or_under_gdp_there_is_none_and_plan_says_where_it_is_better(
    data: Data,
) -> None:
    with pytest.raises(ValidationError, match="method correlated needs a delta"):
        ranks(data, {"epsilon": "2"}, method="correlated")
    with pytest.raises(NotDerivable, match="which filter gdp cannot add up: use filter zcdp"):
        ranks(data, ZCDP_FILTER | {"filter": "gdp"}, method="correlated")
    wide = ZCDP_FILTER | {"epsilon": "9"}
    said = "with method: correlated, the band would be 189 instead of 341"
    assert said in ranks(data, wide, method="apart").choice.why
    for privacy, more in (({"epsilon": "2"}, {}), (wide, {"windows": ["24h", "48h"]})):
        assert "correlated" not in ranks(data, privacy, method="apart", **more).choice.why


# what files meant before


def test_files_of_before_keep_their_mechanism_and_hear_what_correlated_noise_has(
    data: Data,
) -> None:
    data["clock"]["horizon"] = "8760"
    windows: Data = {"windows": ["24h", "7d", "ever"]}
    named = alone(data, method="gaussian", **windows)
    assert isinstance(named.mechanism, GaussianAndEver)
    said = "; with method: correlated, the bands would be 12 / 26 / 35 / 45 instead of 12 / 32 / 53 / 70"
    assert named.choice.why.endswith(said)
    correlated = [band(8_759) for band in alone(data, **windows).choice.windows.values()]
    assert correlated == [12, 26, 35, 45]
    auto = alone(data, ZCDP_FILTER | {"epsilon": "9"}, method="auto", **windows)
    assert isinstance(
        auto.mechanism, GaussianForest | WindowForest | GaussianAndEver | WindowsAndEver
    )
    assert fingerprint(made(data, ZCDP_FILTER, CORRELATED).spec) != fingerprint(
        made(data, ZCDP_FILTER, CORRELATED | {"method": "gaussian"}).spec
    )


def test_where_it_is_no_better_or_no_delta_is_granted_nothing_is_said(data: Data) -> None:
    assert "correlated" not in alone(data, {"epsilon": "2"}, method="auto").choice.why
    assert "correlated" not in alone(data, {"epsilon": "2"}, method="tree").choice.why
    tick = alone(data, method="gaussian", windows=["1h"])
    assert "correlated" not in tick.choice.why


def test_a_pure_forest_names_a_nested_one_where_that_is_narrower(data: Data) -> None:
    """Also where the filter adds up Gaussian DP, of which a forest has none."""
    data["clock"]["horizon"] = "8760"
    windows: Data = {"windows": ["24h", "7d", "ever"]}
    tree = alone(data, {"epsilon": "2"}, method="tree", **windows)
    assert "; with method: nested, the bands would be " in tree.choice.why
    auto = alone(data, ZCDP_FILTER | {"filter": "gdp", "epsilon": "20"}, method="auto", **windows)
    assert isinstance(auto.mechanism, WindowsAndEver)
    assert "; with method: correlated, the bands would be " in auto.choice.why


def test_counters_of_before_have_the_fingerprints_they_had() -> None:
    """A counter's decays came later, and nothing of it changes where it has its own."""
    counter = GaussianCounter(2, Fraction(1, 50), Neighbors.ADD_REMOVE, 100)
    forest = GaussianForest(2, counter.rho, Neighbors.ADD_REMOVE, (1, 4), FLAT)
    assert mechanism_fingerprint(counter)[:16] == "9132c5d82902a58c"
    assert mechanism_fingerprint(GaussianAndEver(forest, counter))[:16] == "3142d0b8b24791f8"
    other = replace(counter, decays=best_decays((1, 4), True, 100))
    assert mechanism_fingerprint(other) != mechanism_fingerprint(counter)


# in Python


def test_in_python_it_is_a_method_of_counters_and_histograms() -> None:
    budget = Budget(epsilon=2, filter="zcdp", delta="1e-6")
    counted = budget.counter(epsilon=1, windows=[4, "ever"], horizon=20, method="correlated")
    for _ in range(3):
        counted.add()
    assert set(counted.release().windows) == {1, 4, "ever"}
    top = budget.top(epsilon=1, keys=["a", "b"], k=1, windows=[4], horizon=20, method="correlated")
    top.add("a")
    assert set(top.release().windows) == {1, 4}
