"""The plan's derivation tree against numbers written by hand: every node's rule, source, guarantee and conditions."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from stream_dp.accounting.conversions import zcdp_epsilon
from stream_dp.accounting.filters.filter import Filter
from stream_dp.accounting.filters.linear import BasicFilter, PureFilter
from stream_dp.accounting.filters.optimal import OptimalFilter
from stream_dp.accounting.filters.squares import GaussianFilter, TightApproximateFilter, ZCDPFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Alive
from stream_dp.core.box import EVERYTHING, Box
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ZCDP, ApproxDP, Guarantee, Measure, PureDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import BudgetRefused, NotDerivable
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.tree import TreeNoise
from stream_dp.pipeline.budget import charged, charged_parts
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.derivations import Part, dp_at, fixed_blocks, of_boxes, whole
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.spec import PipelineSpec

Data = dict[str, Any]
Node = tuple[int, str, str, float, list[str]]  # depth, rule, source, epsilon, conditions
ROOT = Path(__file__).parents[3]

FILTER = ("filter composition", "[HSV] Thm 12.4")
ADMITTED = ["proven for concurrent continual mechanisms", "admitted", "same neighbours"]
CONCURRENT = ("concurrent composition", "[HSV] Thm 4.10")
SPARSE = ("sparse parallel composition", "[HSV] Cor 5.5")
COMPOSITE = ("composite mechanism", "[HSV] Thm 6.1, Cor 6.6")
PROVEN = "proven mechanism"
TREE = (PROVEN, "k-ary tree, l1 sensitivity = height (arXiv 2408.07021), decoded by least squares")
HANDED_OVER = (
    PROVEN,
    "one tree after the other, each update in one ([HSV] Cor 5.5, k = 1), decoded by least squares",
)
SVT = (PROVEN, "[HSV] Lemma 7.4 with one-sided geometric noise (arXiv 2407.20068)")
FIXED = ["fixed", "pure", "same neighbours", "delta"]
COUNTER = ["noise", "discrete answers"]
WATCHER = ["quantity", "query noise", "threshold noise", "discrete answers"]
ALERT = ["constant shift", "discrete answers"]
PROPERTIES = ["one composition", "destination and response", "f to f'"]


def touched(k: int) -> list[str]:
    return ["pure", f"{k}-sparse", "same neighbours"]


def flat(node: Data, depth: int = 0) -> list[Node]:
    """Every node, from the top; nothing but pure DP under the one relation, all conditions hold."""
    assert node["guarantee"]["delta"] == 0
    assert all(c["holds"] is True for c in node["conditions"])
    names = [c["name"] for c in node["conditions"]]
    deeper = [line for premise in node["premises"] for line in flat(premise, depth + 1)]
    return [(depth, node["rule"], node["source"], node["guarantee"]["epsilon"], names), *deeper]


def test_three_series_under_replace(data: Data) -> None:
    """One-hot rows under replace: an event leaves one bin and enters another, L0 = 2 (1 where there is one bin).

    departures       1 bin,  0.2 / 1 each, 1 touched: 1 x 0.2  = 0.2
    by_destination   3 bins, 1.0 / 2 each, 2 touched: 2 x 0.5  = 1.0   (ATL, BOS, other)
    late_departures  4 keys, 0.3 / 2 each, 2 touched: 2 x 0.15 = 0.3   (AA, NO, UA, other)
    all at once                                       0.2 + 1.0 + 0.3 = 1.5
    """
    privacy = data["privacy"] | {"neighbors": "replace", "moves": "within_tick"}
    shown = plan_json(build(PipelineSpec.model_validate(data | {"privacy": privacy})))
    top = shown["promise"]["derivation"]
    assert (top["rule"], top["source"], top["guarantee"]["epsilon"]) == (*FILTER, 2)
    assert [c["name"] for c in top["conditions"]] == ADMITTED
    tree = shown["derivation"]
    assert (
        top["premises"] == tree["premises"]
    )  # one by one, as one of them does not see every record
    assert flat(tree) == [
        (0, *CONCURRENT, 1.5, FIXED),
        (1, *SPARSE, 0.2, touched(1)),
        (2, *TREE, 0.2, COUNTER),
        (1, *SPARSE, 1, touched(2)),
        (2, *TREE, 0.5, COUNTER),
        (1, *SPARSE, 0.3, touched(2)),
        (2, *SVT, 0.15, ALERT),
    ]
    # 100 ticks have a tree of 2 levels; an event is in one node per level: 2 / scale = 0.5, so the scale is 4
    assert tree["premises"][1]["premises"][0]["conditions"][0]["why"] == (
        "height / scale = 2 / 4, at most 0.5"
    )
    assert tree["guarantee"]["neighbors"] == "replace"
    assert (shown["epsilon"], shown["delta"]) == (1.5, 0)
    assert (shown["promise"]["epsilon"], shown["promise"]["filter"]) == (2, "pure")


MOVED = (
    "replacement in any tick",
    "two steps of Dwork, Roth 2014, Thm 2.2; zCDP: Bun, Steinke 2016, Prop. 1.9; GDP: Dong, Roth, Su 2022, Thm 2.14",
)
STEPS = ["one removed, one added", "one premise", "measure", "delta below 1"]


def test_three_series_under_replace_where_the_time_is_content(data: Data) -> None:
    """One event removed and one added, each in a tick of its own and at half the price: twice the half of add_remove.

    departures       1 bin,  0.1  each, 1 touched: 2 x 0.1  = 0.2
    by_destination   3 bins, 0.5  each, 1 touched: 2 x 0.5  = 1.0
    late_departures  4 keys, 0.15 each, 1 touched: 2 x 0.15 = 0.3
    ann's ledger                                   2 x 0.15 = 0.3
    """
    privacy = data["privacy"] | {
        "neighbors": "replace",
        "analysts": [{"name": "ann", "epsilon": "0.3"}],
    }
    shown = plan_json(build(PipelineSpec.model_validate(data | {"privacy": privacy})))
    assert flat(shown["promise"]["derivation"]) == [
        (0, *FILTER, 2, ADMITTED),
        (1, *MOVED, 0.3, STEPS),
        (2, "filter inside a filter", "[HSV] Thm 12.4", 0.15, ["paid in full"]),
        (1, *MOVED, 0.2, STEPS),
        (2, *SPARSE, 0.1, touched(1)),
        (3, *TREE, 0.1, COUNTER),
        (1, *MOVED, 1, STEPS),
        (2, *SPARSE, 0.5, touched(1)),
        (3, *TREE, 0.5, COUNTER),
        (1, *MOVED, 0.3, STEPS),
        (2, *SPARSE, 0.15, touched(1)),
        (3, *SVT, 0.15, ALERT),
    ]  # fmt: skip
    top = shown["promise"]["derivation"]
    assert top["guarantee"]["neighbors"] == shown["neighbors"] == "replace_any_tick"


def test_series_that_see_every_record_add_up_over_ticks(data: Data) -> None:
    privacy = data["privacy"] | {"neighbors": "replace"}
    series = [{k: v for k, v in entry.items() if k != "where"} for entry in data["series"]]
    changed = data | {"privacy": privacy, "series": series}
    changed["privacy"]["analysts"] = [{"name": "ann", "epsilon": "0.3"}]
    (over_ticks,) = plan_json(build(PipelineSpec.model_validate(changed)))["promise"]["derivation"][
        "premises"
    ]
    names = ["pure", "times", "event level", "same neighbours"]
    assert flat(over_ticks)[0] == (
        0, "parallel composition over ticks", "[HSV] Cor 5.5, 5.7", 1.8, names,
    )  # fmt: skip
    assert over_ticks["conditions"][2]["why"] == (
        "a replaced event is in two ticks, and each costs half"
    )


def test_the_other_rules_are_shown_with_their_price_or_what_they_lack(data: Data) -> None:
    """Pure 0.2, 1 and 0.3 are rho = sum of e tanh(e/2) = 0.0199336 + 0.4621172 + 0.0446655 = 0.5267163."""
    top = plan_json(build(PipelineSpec.model_validate(data)))["derivation"]
    others = {other["source"]: other for other in top["alternatives"]}
    rho = others["[HSV] Cor 13.4 at every order"]["guarantee"]
    assert (rho["measure"], round(rho["rho"], 6)) == ("zCDP", 0.526716)
    optimal = others["[HSV] Thm 4.10 with Kairouz-Oh-Viswanath, Murtagh-Vadhan"]
    assert "nothing is below the sum" in optimal["refused"]
    column = {other["source"]: other for other in top["premises"][1]["alternatives"]}
    assert column["[HSV] Thm 5.4"]["guarantee"]["epsilon"] == 1  # the same at delta' = 0
    assert "[HSV] Thm 5.2 shows that the rule then fails" in column["[HSV] Thm 5.14"]["refused"]


def test_a_year(year: PipelineSpec) -> None:
    """Under add_remove an event touches one column, one key, one live instance: L0 = 1.

    departures           0.2
    by_destination       sparse vectors 0.3 + counters 0.7 = 1.0
    busiest_destination  instances 0.1 + counter 0.4 = 0.5
    late_departures      0.3
    all at once          0.2 + 1.0 + 0.5 + 0.3 = 2.0
    """
    tree = plan_json(build(year))["derivation"]

    def hss(whole: float, instances: float, counter: float) -> list[Node]:
        return [
            (1, *COMPOSITE, whole, PROPERTIES),
            (2, *CONCURRENT, whole, FIXED),
            (3, *SPARSE, instances, touched(1)),
            (4, *SVT, instances, WATCHER),
            (3, *SPARSE, counter, touched(1)),
            (4, *HANDED_OVER, counter, COUNTER),
        ]

    assert flat(tree) == [
        (0, *CONCURRENT, 2, FIXED),
        (1, *SPARSE, 0.2, touched(1)),
        (2, *TREE, 0.2, COUNTER),
        (1, *COMPOSITE, 1, PROPERTIES),
        (2, *CONCURRENT, 1, FIXED),
        (3, *SPARSE, 0.3, touched(1)),
        (4, *SVT, 0.3, ALERT),
        (3, *SPARSE, 0.7, touched(1)),
        (4, *HANDED_OVER, 0.7, COUNTER),
        *hss(0.5, 0.1, 0.4),
        (1, *SPARSE, 0.3, touched(1)),
        (2, *SVT, 0.3, ALERT),
    ]
    # 8760 hours fit a tree of 4 levels: 4 / scale = 0.2, so the scale is 20
    assert tree["premises"][0]["premises"][0]["conditions"][0]["why"] == (
        "height / scale = 4 / 20, at most 0.2"
    )


def whys(node: Data) -> list[str]:
    deeper = [why for premise in node["premises"] for why in whys(premise)]
    return [c["why"] for c in node["conditions"]] + deeper


def test_a_proof_obligation_names_a_suite_that_is_there(year: PipelineSpec) -> None:
    tree = plan_json(build(year))["derivation"]
    named = {why.rpartition("checked by ")[2] for why in whys(tree) if "checked by " in why}
    exact = "tests/unit/verify/exact/test_exact_mechanisms.py"
    per_bin = "tests/statistical/test_privacy_per_bin.py"
    assert named == {"tests/conformance", exact, per_bin}
    assert (ROOT / per_bin).exists()
    assert "RearmedAlerts" in (ROOT / exact).read_text()
    cases = (ROOT / "tests/conformance/test_conformance_mechanisms.py").read_text()
    assert all(case in cases for case in ("composite(None", "composite(MAXIMUM", "per_bin(ADD"))


def test_noise_that_does_not_pay_for_the_claim_is_refused(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half the scale at the same epsilon: the condition is computed from what will be drawn."""
    right = Counter.tree.func  # type: ignore[attr-defined]

    def halved(self: Counter) -> TreeNoise:
        tree: TreeNoise = right(self)
        return TreeNoise(tree.shape, tree.scale / 2, tree.width)

    monkeypatch.setattr(Counter, "tree", property(halved))
    with pytest.raises(NotDerivable, match=r"noise: height / scale = 2 / 5, at most 0.2"):
        build(PipelineSpec.model_validate(data))


def test_analysts_are_paid_what_their_ledgers_promise(data: Data) -> None:
    """1/3 is a ledger of 0.333333333333, rounded down: two of them and 0.333333333334 more fill a budget of 1."""
    privacy = {
        "epsilon": "1",
        "analysts": [{"name": "ann", "epsilon": "1/3"}, {"name": "ben", "epsilon": "1/3"}],
    }
    series = [{"name": "orders", "statistic": "count", "epsilon": "0.333333333334"}]
    built = build(PipelineSpec.model_validate(data | {"privacy": privacy, "series": series}))
    assert built.ledger.left == 0
    assert plan_json(built)["promise"]["derivation"]["guarantee"]["epsilon"] == 1


@pytest.mark.parametrize("name", ["tight_approximate", "zcdp", "renyi", "gdp"])
def test_the_root_states_what_the_file_promises(data: Data, name: str) -> None:
    privacy = {"epsilon": "2", "delta": "1e-6", "filter": name}
    privacy |= {"order": "24"} if name == "renyi" else {}
    series = [{"name": "orders", "statistic": "count", "epsilon": "0.05"}]
    found = build(
        PipelineSpec.model_validate(data | {"privacy": privacy, "series": series})
    ).promise
    assert found.guarantee.measure == ApproxDP(Fraction(2), Fraction(1, 10**6))
    assert all(condition.holds for condition in found.conditions)


ONE, RHO, MILLIONTH = Fraction(1), Fraction(1, 200), Fraction(1, 10**6)


def series_of(name: str, measure: Measure) -> Derivation:
    return leaf(name, Guarantee(measure, Neighbors.ADD_REMOVE), "its proof")


ALARMS = series_of("alerts", PureDP(ONE))
NOISY = tuple(series_of(f"noisy{n}", ZCDP(RHO)) for n in (1, 2))
TOGETHER = zcdp_epsilon(ZCDP(2 * RHO), MILLIONTH)


def charges(filter_: Filter, *parts: Derivation, delta: Fraction = MILLIONTH) -> list[str]:
    ledger = Ledger.under(filter_, protected=ALARMS.guarantee.protected)
    seen = [(part, EVERYTHING) for part in parts]
    ledger = charged(ledger, *charged_parts(ledger, seen, fixed_blocks("shop", parts, delta)))
    return [entry.name for entry in ledger.entries]


def test_gaussian_series_are_summed_as_rho_and_stand_beside_pure_ones() -> None:
    best, *_ = fixed_blocks("shop", (ALARMS, *NOISY), MILLIONTH)
    assert best.guarantee.measure == ApproxDP(ONE + TOGETHER, MILLIONTH)
    all_in_one = zcdp_epsilon(ZCDP(2 * RHO + Fraction(4622, 10000)), MILLIONTH)
    assert best.guarantee.measure.epsilon < all_in_one / 2
    alone, *_ = fixed_blocks("shop", NOISY, MILLIONTH)
    assert alone.guarantee.measure == ApproxDP(TOGETHER, MILLIONTH)


def test_the_basic_filter_charges_one_and_approximate_ones_charge_less() -> None:
    subject = "shop: series of the first start"
    assert charges(BasicFilter.of(Fraction(3), MILLIONTH), ALARMS, *NOISY) == [subject]
    tight = TightApproximateFilter.of(Fraction(9), MILLIONTH, MILLIONTH)
    assert charges(tight, ALARMS, *NOISY) == ["alerts", "shop: those that are not pure"]
    assert charges(tight, *NOISY) == [subject]


def test_filters_of_rho_charge_each_and_others_refuse_by_name() -> None:
    assert charges(ZCDPFilter.of(ONE), ALARMS, *NOISY) == ["alerts", "noisy1", "noisy2"]
    assert charges(ZCDPFilter.of(ONE), ALARMS, *NOISY, delta=Fraction(0)) == [
        "alerts",
        "noisy1",
        "noisy2",
    ]
    for filter_ in (
        PureFilter.of(Fraction(9)),
        BasicFilter.of(Fraction(9), MILLIONTH),
        GaussianFilter.of(ONE),
    ):
        with pytest.raises(BudgetRefused, match="has no theorem for zCDP"):
            charges(filter_, ALARMS, *NOISY, delta=Fraction(0))


def test_the_promise_covers_what_has_a_delta_and_what_is_alive_at_one_tick() -> None:
    filter_ = BasicFilter.of(Fraction(3), MILLIONTH)
    block, *_ = fixed_blocks("shop", (ALARMS, *NOISY), MILLIONTH)
    later = [Part(series_of(f"later{n}", PureDP(Fraction(1, 2))), Alive(n, n)) for n in range(9)]
    found = whole(
        "shop", filter_, [Part(block, Alive(0, None)), *later], ApproxDP(Fraction(3), MILLIONTH)
    )
    assert dp_at(found, Fraction(0)) == ApproxDP(Fraction(3), MILLIONTH)
    assert found.premises == (block, *(part.derivation for part in later))
    together = [part._replace(alive=Alive(0, None)) for part in later]
    with pytest.raises(NotDerivable, match="exceed the filter's capacity"):
        whole(
            "shop",
            filter_,
            [Part(block, Alive(0, None)), *together],
            ApproxDP(Fraction(3), MILLIONTH),
        )


EAST, WEST, BOTH = (Box((("region", frozenset(it)),)) for it in ("e", "w", "ew"))
Seen = list[tuple[Derivation, Box]]


def in_boxes(epsilon: Fraction, *boxes: Box) -> Seen:
    return [(series_of(f"s{n}", PureDP(epsilon)), box) for n, box in enumerate(boxes)]


def start(filter_: Filter, seen: Seen, delta: Fraction = Fraction(0)) -> tuple[Ledger, ApproxDP]:
    blocks = fixed_blocks("shop", tuple(part for part, _ in seen), delta)
    ledger = Ledger.under(filter_, protected=ALARMS.guarantee.protected)
    block, charges = charged_parts(ledger, seen, blocks)
    parts = [Part(part, Alive(0, None), box) for part, box in charges]
    cost = dp_at(of_boxes("shop", filter_, block, parts), MILLIONTH)
    return charged(ledger, block, charges), cost


def test_series_whose_boxes_do_not_meet_cost_an_event_only_one_of_them() -> None:
    """The entry is the sum, whatever the series see: a journal's first charge is the price of its file."""
    for filter_ in (PureFilter.of(2 * ONE), BasicFilter.of(2 * ONE, MILLIONTH)):
        for boxes, met in (
            ((EAST, WEST), 1), ((EAST, BOTH), 2), ((EAST, WEST, BOTH), 2), ((EAST, WEST, EVERYTHING), 2),
        ):  # fmt: skip
            ledger, cost = start(filter_, in_boxes(ONE, *boxes))
            assert ledger.spent == met * 10**12
            assert [entry.epsilon for entry in ledger.entries] == [len(boxes) * 10**12]
            assert cost.epsilon == met
    with pytest.raises(BudgetRefused, match="first start asks for epsilon 3"):
        start(PureFilter.of(2 * ONE), in_boxes(ONE, EAST, EAST, BOTH))


def test_a_block_with_a_granted_delta_takes_no_account_of_boxes() -> None:
    ledger, cost = start(
        BasicFilter.of(2 * ONE, MILLIONTH), in_boxes(Fraction(1, 20), *[EAST, WEST] * 20), MILLIONTH
    )
    assert 1.298 < ledger.spent / 10**12 < 1.299
    assert ledger.used.delta == 10**6
    assert cost.delta == MILLIONTH


def test_filters_that_charge_less_for_many_take_the_boxes_of_the_series() -> None:
    """Forty of 0.05 reach 1.2985, and ten of them 0.4992 in each of four boxes."""
    optimal = OptimalFilter.of(2 * ONE, MILLIONTH)
    quarters = [Box((("region", frozenset(it)),)) for it in "news"]
    for boxes, met in (([EVERYTHING] * 40, 1.2985), (quarters * 10, 0.4992)):
        ledger, cost = start(optimal, in_boxes(Fraction(1, 20), *boxes), MILLIONTH)
        assert ledger.spent / 10**12 == pytest.approx(met, abs=1e-4)
        assert float(cost.epsilon) == pytest.approx(met, abs=1e-4)
    pair = in_boxes(ONE, EAST, WEST)
    ledger, _ = start(ZCDPFilter.of(ONE), pair)
    assert ledger.used == ledger.filter.cost(ledger.price(*pair[0]))
