"""`method: gaussian` and `counter: gaussian`: where `auto` takes them, their price under each filter, refusals."""

import json
import math
from fractions import Fraction
from math import isqrt
from typing import Any

import pytest
from live_acts import create_series, preview_series
from pydantic import ValidationError
from unit.live.live_series_steps import question, running
from unit.live.live_series_worlds import PIPELINE, World

from stream_dp.accounting.amounts import UNITS, budget_units, exact
from stream_dp.accounting.conversions import zcdp_budget
from stream_dp.accounting.gaussian_curve import gaussian_budget, gaussian_to_approx
from stream_dp.accounting.ledger import truncated_odometer_at as bound_at
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ZCDP, ApproxDP, GaussianDP, PureDP
from stream_dp.engine.engine import Engine
from stream_dp.errors import BudgetRefused, NotDerivable, UsageError
from stream_dp.mechanisms.hss.hss import HSS, GaussianHSS
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.pairs import GaussianAndEver, WindowsAndEver
from stream_dp.mechanisms.linear.window_forest import GaussianForest, WindowForest
from stream_dp.mechanisms.papers import GaussianPaperHSS
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.statistics.parts.choose_hss import pure_part

Data = dict[str, Any]
DELTA = Fraction(1, 10**6)
ZCDP_FILTER = {"epsilon": "1", "delta": "1e-6", "filter": "zcdp"}
RHO = exact(budget_units(zcdp_budget(ApproxDP(Fraction(1), DELTA))))
BY = {"by": "destination", "counter": "gaussian", "method": "hss"}
COUNT, TREE = {"statistic": "count", "method": "gaussian"}, {"statistic": "count"}
HISTOGRAM = {"statistic": "histogram", **BY}
MAXIMUM = {"statistic": "maximum", **BY}
HSS_SERIES: dict[str, Data] = {
    "histogram": HISTOGRAM,
    "maximum": MAXIMUM,
    "largest": {"statistic": "largest", "rank": 2, **BY},
    "columns above": {
        "statistic": "columns_above",
        "level": 500,
        "by": "destination",
        "counter": "gaussian",
    },
}
NAMED = "the name is released too, at no further cost, and the error also holds for the count of that name"
GUESSED = "the predicted errors are for 100 events (by default, one a tick: declare expected_events"
WITHIN = {"neighbors": "replace", "moves": "within_tick"}


def made(data: Data, privacy: Data, *series: Data) -> Built:
    named = [{"name": f"s{n}", "epsilon": "1", **one} for n, one in enumerate(series)]
    whole = {"unit": "event", "neighbors": "add_remove", **privacy}
    return build(PipelineSpec.model_validate(data | {"privacy": whole, "series": named}))


def leaves(node: Derivation) -> list[Derivation]:
    return [leaf for p in node.premises for leaf in leaves(p)] or [node]


def test_one_count_may_have_all_of_a_zcdp_filter(data: Data) -> None:
    built = made(data, ZCDP_FILTER, COUNT)
    (chosen,) = built.chosen
    assert isinstance(chosen.mechanism, GaussianCounter)
    assert chosen.derivation.guarantee.measure == ZCDP(RHO)
    assert built.ledger.left < 10**12  # of 10^24: a rho is charged in units of 10^-12
    assert plan_json(built)["epsilon"] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("name", HSS_SERIES)
def test_one_hss_has_all_of_a_zcdp_filter(data: Data, name: str) -> None:
    """Sparse vectors are pure, the counter zCDP; the sum is the rho of (1, 1e-6), to a unit of the ledger."""
    built = made(data, ZCDP_FILTER, HSS_SERIES[name])
    (chosen,) = built.chosen
    mechanism, found = chosen.mechanism, chosen.derivation.guarantee
    assert isinstance(mechanism, GaussianHSS)
    assert isinstance(found.measure, ZCDP)
    assert RHO - Fraction(1, UNITS) <= found.measure.rho <= RHO
    assert not found.finite
    assert built.ledger.left < 10**12
    vector, counter = leaves(chosen.derivation)
    assert vector.guarantee.measure == PureDP(mechanism.threshold_epsilon + mechanism.query_epsilon)
    assert counter.guarantee.measure == ZCDP(mechanism.rho)
    shape = "; zipf / even by default: declare expected_shape" if name == "histogram" else ""
    named = f"; {NAMED}" if name == "maximum" else ""
    assert chosen.choice.why == f"method: hss, counter: gaussian; {GUESSED}{shape}){named}"


def test_the_papers_own_has_thirds_of_rho(data: Data) -> None:
    paper = MAXIMUM | {"method": "paper_hss"}
    built = made(data, ZCDP_FILTER | WITHIN, paper)
    (chosen,) = built.chosen
    mechanism, measure = chosen.mechanism, chosen.derivation.guarantee.measure
    assert isinstance(mechanism, GaussianPaperHSS)
    assert isinstance(measure, ZCDP)
    assert RHO - Fraction(2, UNITS) <= measure.rho <= RHO
    third = float(mechanism.epsilon / 3)
    assert third * math.tanh(third / 2) == pytest.approx(float(RHO / 3), rel=0.01)
    assert mechanism.rho == pytest.approx(RHO / 3, rel=0.02)
    with pytest.raises(UsageError, match="made for the relation ~_H"):
        made(data, ZCDP_FILTER, paper)


@pytest.mark.parametrize("both", [(COUNT, COUNT), (HISTOGRAM, MAXIMUM)], ids=["counts", "hss"])
def test_squares_add_up_and_the_filter_says_no(data: Data, both: tuple[Data, Data]) -> None:
    """Two series of 0.68 fit where one of 1 does: squares, not sums; two of 0.7 do not."""
    one, other = both
    assert (
        plan_json(made(data, ZCDP_FILTER, *(s | {"epsilon": "0.68"} for s in both)))["epsilon"] < 1
    )
    with pytest.raises(BudgetRefused, match="s1 asks for rho"):
        made(data, ZCDP_FILTER, one | {"epsilon": "0.7"}, other | {"epsilon": "0.7"})


@pytest.mark.parametrize("filter_", ["basic", "optimal"])
@pytest.mark.parametrize(
    "series", [COUNT, MAXIMUM, COUNT | {"windows": ["3h"]}], ids=["counts", "hss", "windows"]
)
def test_a_delta_of_its_own_is_charged_beside_the_epsilon(
    data: Data, filter_: str, series: Data
) -> None:
    """The series is (0.5, 1e-7)-DP, and two of them cost twice both; a delta on pure noise is refused."""
    own = series | {"epsilon": "0.5", "delta": "1e-7"}
    privacy = {"epsilon": "1", "delta": "2e-7", "filter": filter_}
    built = made(data, privacy, own, own)
    measure = built.chosen[0].derivation.guarantee.measure
    assert isinstance(measure, ApproxDP)
    assert measure.delta == Fraction(1, 10**7)
    assert 0.49 < measure.epsilon <= Fraction(1, 2) + Fraction(1, 10**9)
    assert built.ledger.used.delta == 2 * 10**5
    with pytest.raises(BudgetRefused):
        made(data, privacy | {"delta": "1e-7"}, own, own)
    with pytest.raises(ValidationError, match="costs no delta"):
        made(data, privacy, TREE | {"epsilon": "0.5", "delta": "1e-7"})
    with pytest.raises(ValidationError, match="charges no series a delta"):
        made(data, ZCDP_FILTER, own)


def test_a_gdp_filter_gets_less_noise_for_the_same_epsilon(data: Data) -> None:
    by_zcdp, by_gdp = (made(data, ZCDP_FILTER | {"filter": f}, COUNT) for f in ("zcdp", "gdp"))
    mu = gaussian_budget(ApproxDP(Fraction(1), DELTA))
    found = by_gdp.chosen[0].derivation.guarantee
    assert (found.measure, found.finite) == (GaussianDP(mu), True)
    assert by_gdp.chosen[0].choice.expected(99) < by_zcdp.chosen[0].choice.expected(99)


def test_the_plan_under_a_gdp_filter_shows_what_is_charged(data: Data) -> None:
    """One series is what it claims, 0.95 and not 1.02 by way of zCDP; two are the root of the sum of their squares."""
    by_gdp = ZCDP_FILTER | {"filter": "gdp"}
    shown = plan_json(made(data, by_gdp, COUNT | {"epsilon": "0.95"}))
    assert shown["epsilon"] == pytest.approx(0.95, abs=1e-8)
    assert shown["derivation"]["rule"] == "concurrent composition in Gaussian DP"
    built = made(data, by_gdp, COUNT | {"epsilon": "0.6"}, COUNT | {"epsilon": "0.7"})
    charged = gaussian_to_approx(GaussianDP(exact(isqrt(built.ledger.spent))), DELTA).epsilon
    assert plan_json(built)["epsilon"] == pytest.approx(float(charged), abs=1e-8)


@pytest.mark.parametrize(
    ("privacy", "met"),
    [
        ({"filter": "zcdp"}, True),
        ({"filter": "renyi", "order": "24"}, True),
        ({"filter": "gdp"}, False),
        ({"filter": "tight_approximate", "first_block_delta": "1e-7"}, False),
        ({"filter": "basic", "first_block_delta": "1e-6"}, True),
    ],
)
def test_the_plan_is_never_above_what_is_charged(data: Data, privacy: Data, met: bool) -> None:
    """Two Gaussian series beside a pure one: the file's own guarantee against the odometer, which knows the charges.

    A filter's own theorem may promise less than what is known of parts that are fixed beforehand: then it is below.
    """
    priced = [COUNT | {"epsilon": "0.5"}, COUNT | {"epsilon": "0.4"}, TREE | {"epsilon": "0.3"}]
    built = made(data, ZCDP_FILTER | {"epsilon": "5"} | privacy, *priced)
    charged = bound_at(built.ledger.filter, built.ledger.used, DELTA).epsilon
    shown = plan_json(built)["epsilon"]
    assert shown <= charged + Fraction(1, 10**9)
    assert (shown == pytest.approx(float(charged), abs=1e-8)) == met


@pytest.mark.parametrize(
    ("filter_", "series"), [("zcdp", COUNT), ("gdp", COUNT), ("zcdp", HISTOGRAM)]
)
def test_a_replacement_in_any_tick_costs_two_steps(data: Data, filter_: str, series: Data) -> None:
    """Two steps of one event: mu doubles, rho is four times; so the mechanism gets half of mu, not half of epsilon."""
    budget = ZCDP_FILTER | {"filter": filter_}
    built, one = made(data, budget | {"neighbors": "replace"}, series), made(data, budget, series)
    mine, theirs = (each.chosen[0].mechanism.guarantee.measure for each in (built, one))
    if isinstance(mine, ZCDP) and isinstance(theirs, ZCDP):
        assert mine.rho == pytest.approx(theirs.rho / 4, rel=1e-9)
    else:
        assert isinstance(mine, GaussianDP)
        assert isinstance(theirs, GaussianDP)
        assert mine.mu == theirs.mu / 2
    assert built.ledger.left < 4 * 10**12


def test_under_a_renyi_filter_it_costs_rho_times_the_order(data: Data) -> None:
    renyi = ZCDP_FILTER | {"filter": "renyi", "order": "24"}
    built = made(data, renyi, COUNT | {"epsilon": "0.9"})
    rho = exact(budget_units(zcdp_budget(ApproxDP(Fraction(9, 10), DELTA))))
    assert built.chosen[0].derivation.guarantee.measure == ZCDP(rho)
    assert exact(built.ledger.spent) == pytest.approx(24 * rho, rel=1e-9)


def test_what_a_rho_buys_of_a_pure_epsilon_is_paid_for() -> None:
    for rho in (Fraction(1, 10**6), RHO, Fraction(3)):
        epsilon, paid = pure_part(rho)
        assert float(epsilon) * math.tanh(epsilon / 2) <= paid <= rho


def test_a_series_that_names_no_noise_is_what_it_always_was(data: Data) -> None:
    hss = {"statistic": "maximum", "by": "destination", "method": "hss"}
    plain = hss | {"name": "n", "epsilon": "0.1"}
    one, other = (
        PipelineSpec.model_validate(data | {"series": [s]})
        for s in (plain, plain | {"counter": "tree"})
    )
    assert fingerprint(one) == fingerprint(other)
    assert type(build(one).chosen[0].mechanism) is HSS
    before = fingerprint(PipelineSpec.model_validate(data))
    data["series"][0]["method"] = "auto"
    assert fingerprint(PipelineSpec.model_validate(data)) == before


def auto(data: Data, place: int, horizon: str, **privacy: str) -> Any:
    """The choice for a series of the small pipeline that says no method, under such a filter."""
    data["clock"]["horizon"] = horizon
    series = {k: v for k, v in data["series"][place].items() if k != "method"}
    whole = data | {"series": [series], "privacy": data["privacy"] | privacy}
    return build(PipelineSpec.model_validate(whole)).chosen[0].choice


@pytest.mark.parametrize(
    ("horizon", "kind", "why"),
    [
        ("65536", GaussianCounter, "method: auto, typical error (RMSE): gaussian "),
        ("7000", GaussianCounter, "gaussian is at most 5% worse and costs this filter about 1/"),
        ("1000", Counter, "gaussian costs this filter about 1/17 of what a pure series does"),
    ],
)
def test_where_squares_add_up_auto_weighs_gaussian_noise(
    data: Data, horizon: str, kind: type, why: str
) -> None:
    found = auto(data, 0, horizon, filter="zcdp", delta="1e-6")
    assert type(found.mechanism) is kind
    assert why in found.why


@pytest.mark.parametrize(
    "privacy",
    [
        {},
        {"filter": "basic", "delta": "1e-6", "first_block_delta": "1e-6"},
        {"filter": "tight_approximate", "epsilon": "9", "delta": "1e-6", "first_block_delta": "1e-7"},
    ],
    ids=["pure", "basic", "tight_approximate"],
)  # fmt: skip
def test_where_a_gaussian_series_is_charged_a_delta_auto_takes_none(
    data: Data, privacy: dict[str, str]
) -> None:
    for place in (0, 1):
        assert "gaussian" not in auto(data, place, "65536", **privacy).why


def test_a_histogram_weighs_all_forms(data: Data) -> None:
    found = auto(data, 1, "65536", filter="zcdp", delta="1e-6")
    for form in ("tree ", "hss bin by bin ", "hss joint ", "gaussian ", "hss gaussian "):
        assert form in found.why
    assert "hss gaussian" not in auto(data, 1, "65536", filter="gdp", delta="1e-6").why


def test_gaussian_dp_needs_a_horizon(data: Data) -> None:
    data["clock"] = {"kind": "wall", "step": "1h"}
    with pytest.raises(BudgetRefused, match="needs finite communication"):
        made(data, ZCDP_FILTER | {"filter": "gdp"}, COUNT)
    assert made(data, ZCDP_FILTER, COUNT).chosen[0].mechanism
    by_gdp = made(data, ZCDP_FILTER | {"filter": "gdp"}, TREE | {"epsilon": "0.1"})
    assert isinstance(by_gdp.chosen[0].mechanism, HybridCounter)


def windowed(data: Data, privacy: Data, **series: Any) -> Built:
    """A pipeline of minutes with one windowed series, by a list of up to five categories if it is a histogram."""
    data["clock"] |= {"step": "1m", "horizon": "40000"}
    data["schema"]["tags"] = {"type": "list", "domain": [f"a{n}" for n in range(20)], "most": "5"}
    return made(data, {"epsilon": "9", **privacy}, {"windows": ["1h", "24h"], **series})


MILLIONTH = {"delta": "1e-6", "filter": "zcdp"}
TAGS = {"statistic": "histogram", "by": "tags"}


def test_lists_have_gaussian_windows_under_zcdp_and_single_entries_have_not(data: Data) -> None:
    (lists,) = windowed(data, MILLIONTH, **TAGS).chosen
    assert isinstance(lists.mechanism, GaussianForest)
    assert "method: auto, typical error (RMSE) of tick / 1h / 24h: gaussian " in lists.choice.why
    (one,) = windowed(data, MILLIONTH, **TREE).chosen
    assert isinstance(one.mechanism, WindowForest)
    assert ", tree " in one.choice.why


def test_the_count_so_far_beside_gaussian_windows_has_its_share_of_rho(data: Data) -> None:
    """Of a list too: the forest and the counter are for as many entries, or they are refused together."""
    for series in (COUNT, TAGS | {"method": "gaussian"}):
        (chosen,) = windowed(data, MILLIONTH, **series, windows=["1h", "ever"]).chosen
        both = chosen.mechanism
        assert isinstance(both, GaussianAndEver)
        assert both.ever.rho * 2 == both.forest.rho
        assert both.forest.ones == both.ever.ones == (1 if series is COUNT else 5)
        assert (
            "; the count so far gets 1/3 of the rho; with method: correlated, the bands would be"
            in chosen.choice.why
        )
    (auto_,) = windowed(data, MILLIONTH, **TREE, windows=["1h", "ever"]).chosen
    assert isinstance(auto_.mechanism, WindowsAndEver)


@pytest.mark.parametrize("order", [{}, {"filter": "renyi", "order": "24"}], ids=["zcdp", "renyi"])
def test_named_windows_are_charged_the_rho_of_a_count(data: Data, order: Data) -> None:
    forest, whole = (windowed(data, MILLIONTH | order, **COUNT, **w) for w in ({}, {"windows": ()}))
    mine, theirs = forest.chosen[0].mechanism, whole.chosen[0].mechanism
    assert isinstance(mine, GaussianForest)
    assert isinstance(theirs, GaussianCounter)
    assert mine.rho == theirs.rho
    assert forest.ledger.spent == whole.ledger.spent


def test_without_a_delta_or_under_gdp_gaussian_windows_are_refused(data: Data) -> None:
    gdp = {"delta": "1e-6", "filter": "gdp"}
    with pytest.raises(NotDerivable, match="use filter zcdp"):
        windowed(data, gdp, **COUNT)
    assert isinstance(windowed(data, gdp, **TAGS).chosen[0].mechanism, WindowForest)


LIVE_HSS = {"statistic": "histogram", "method": "hss", "counter": "gaussian", "by": "country"}
LIVE_WINDOWS = {"statistic": "count", "method": "correlated", "windows": ["2h", "ever"]}
ORDERS = [{"name": "orders", "epsilon": "1", **COUNT}]


@pytest.mark.parametrize(
    ("privacy", "asked", "said"),
    [
        ({}, {"method": "gaussian"}, "filter pure grants none"),
        ({}, LIVE_HSS, "counter gaussian needs a delta"),
        ({"delta": "1e-6", "filter": "gdp"}, LIVE_HSS, "no finite communication"),
        ({"delta": "1e-6", "filter": "basic", "first_block_delta": "1e-7"}, LIVE_HSS, "give the series one, such as"),
    ],
)  # fmt: skip
async def test_a_live_one_under_another_filter_is_refused_and_nothing_changes(
    privacy: Data, asked: Data, said: str
) -> None:
    changed: Data = {"privacy": {"epsilon": "2", **privacy}, "series": ORDERS} if privacy else {}
    world = World(PIPELINE | changed)

    async def ask(engine: Engine, _source: object) -> None:
        before = (len(world.drawn), len(world.store.commits), engine.admission.subledgers.main)
        for call in (create_series, preview_series):
            with pytest.raises((UsageError, BudgetRefused), match=said):
                await call(engine, question(epsilon="0.1", **asked))
        after = (len(world.drawn), len(world.store.commits), engine.admission.subledgers.main)
        assert before == after

    await running(world, 2, ask)


@pytest.mark.parametrize("asked", [LIVE_HSS, LIVE_WINDOWS], ids=["hss", "correlated"])
async def test_a_live_one_under_a_zcdp_filter_is_charged_its_rho_and_goes_on_after_a_stop(
    asked: Data,
) -> None:
    privacy = {"epsilon": "2", "delta": "1e-6", "filter": "zcdp"}
    world = World(PIPELINE | {"privacy": privacy, "series": ORDERS})

    async def ask(engine: Engine, _source: object) -> None:
        before = engine.admission.subledgers.main
        await create_series(engine, question(epsilon="1", **asked))
        spent = engine.admission.subledgers.main.used.amount - before.used.amount
        assert spent / 10**24 == pytest.approx(float(RHO), rel=1e-9)

    await running(world, 2, ask)
    shown = map(json.loads, world.bodies)
    seen = [release["tick"] for release in shown if release["series"] == "large"]
    assert seen == list(range(seen[0], 12))
    bodies = list(world.bodies)

    async def nothing(_engine: Engine, _source: object) -> None: ...

    await running(world, 2, nothing)
    assert world.bodies == bodies
