"""`derive`: the tightest rule is taken, the others stay with their price, a refusal names what each rule lacks."""

import dataclasses
import math
import random
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from oracles.compositions import closed_form

from stream_dp.accounting.derive import RULES, derive
from stream_dp.accounting.filters.linear import PureFilter
from stream_dp.accounting.filters.squares import GaussianFilter
from stream_dp.accounting.gaussian_curve import pure_to_gaussian
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.rules import gaussian as rule_file
from stream_dp.accounting.rules.parallel import sparse_pure
from stream_dp.accounting.rules.rule import at_delta, leaf, price
from stream_dp.accounting.rules.time import loads
from stream_dp.accounting.situations import (
    Alive,
    Composite,
    Filtered,
    Fixed,
    Group,
    Local,
    Moved,
    Parallel,
    Situation,
    Ticks,
    Touched,
)
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import (
    ZCDP,
    ApproxDP,
    GaussianDP,
    Guarantee,
    Measure,
    ProbabilisticDP,
    Protected,
    PureDP,
    RenyiCurve,
    RenyiDP,
)
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import BudgetRefused, NotDerivable

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
ONE, ZERO, TENTH, TWO = Fraction(1), Fraction(0), Fraction(1, 10), Fraction(2)
MILLIONTH = Fraction(1, 10**6)
STATIC = "a data set comes first"
ONCE = Touched(1, ADD, "why")


def part(measure: Measure, relation: Neighbors = ADD, *, finite: bool = False) -> Derivation:
    return leaf("part", Guarantee(measure, relation, finite=finite), "proof")


def pures(*epsilons: Fraction) -> tuple[Derivation, ...]:
    return tuple(part(PureDP(e)) for e in epsilons)


def refused(result: Derivation) -> dict[str, str]:
    """The rules that did not apply, and why."""
    return {a.rule: a.outcome for a in result.alternatives if isinstance(a.outcome, str)}


def test_the_tightest_is_taken_and_the_others_stay_with_their_price() -> None:
    """30 series at 0.1 and a delta of 10^-6: basic 3, optimal 2.35, zCDP in between (rho 0.15)."""
    result = derive(pures(*[TENTH] * 30), Fixed("block", MILLIONTH))
    prices = {result.rule: result.guarantee.measure} | {
        a.rule: a.outcome.measure for a in result.alternatives if isinstance(a.outcome, Guarantee)
    }
    at = [price(measure, MILLIONTH) for measure in prices.values()]
    assert [rule.split(" ")[0] for rule in prices] == ["optimal", "concurrent", "concurrent"]
    assert at[0] is not None
    rho = 30 * 0.1 * math.tanh(0.05)
    orders = [1 + math.exp(x / 1000) for x in range(-2000, 8000)]
    by_rho = min(
        a * rho + (math.log(10**6) + a * math.log1p(-1 / a) - math.log(a - 1)) / (a - 1)
        for a in orders
    )
    assert closed_form(0.1, 0, 30, float(at[0])) == pytest.approx(1e-6, rel=1e-6)
    assert [float(p) for p in at if p is not None] == pytest.approx([at[0], 3, by_rho], rel=1e-5)
    assert at[0] < by_rho < 3
    assert result.guarantee.measure == ApproxDP(at[0], MILLIONTH)
    assert result.conditions[-1].why == (
        "all 31 combinations of answers are listed; amounts are intervals, rounded outwards"
    )
    assert {
        "concurrent composition in Renyi DP",
        "concurrent composition in Gaussian DP",
        "concurrent composition in truncated zCDP",
    } == set(refused(result))
    assert len(result.alternatives) == len(RULES[Fixed]) - 1


def test_without_a_delta_the_sum_is_the_optimum_and_the_plan_says_so() -> None:
    result = derive(pures(ONE, TWO), Fixed("block"))
    assert result.guarantee.measure == PureDP(Fraction(3))
    assert result.rule == "concurrent composition"
    assert "nothing is below the sum" in refused(result)["optimal concurrent composition"]
    zcdp = next(a for a in result.alternatives if "zCDP" in a.rule)
    assert isinstance(zcdp.outcome, Guarantee)  # it holds, but states no epsilon without a delta


def test_rhos_add_up_and_become_an_epsilon_at_a_delta() -> None:
    """rho 1/8 + 1/8 = 1/4 at 10^-6: 3.5337 (golden section over the orders of Prop. 12 in floats)."""
    parts = (part(ZCDP(ONE / 8)), part(GaussianDP(ONE / 2)))
    result = derive(parts, Fixed("both", MILLIONTH))
    assert (result.rule, result.premises[0].guarantee.measure) == ("zCDP at a delta", ZCDP(ONE / 4))
    measure = result.guarantee.measure
    assert isinstance(measure, ApproxDP)
    assert 3.4 < measure.epsilon < 3.6
    assert measure.delta == MILLIONTH
    with pytest.raises(NotDerivable, match="none is granted"):
        at_delta(part(ZCDP(ONE)), ZERO)
    assert derive(parts, Fixed("both")).guarantee.measure == ZCDP(ONE / 4)


def test_renyi_epsilons_add_up_at_each_shared_order() -> None:
    """[HSV] Cor 13.4."""
    low, high = RenyiDP(TWO, TENTH), RenyiDP(Fraction(8), ONE)
    curve = RenyiCurve((low, high))
    result = derive((part(curve), part(RenyiDP(Fraction(8), TWO))), Fixed("one order"))
    assert result.guarantee.measure == RenyiDP(Fraction(8), Fraction(3))
    both = derive((part(curve), part(curve)), Fixed("two orders")).guarantee.measure
    assert both == RenyiCurve((RenyiDP(TWO, TENTH * 2), RenyiDP(Fraction(8), TWO)))
    assert price(both, MILLIONTH) == min(price(p, MILLIONTH) or 0 for p in both.points)
    with pytest.raises(NotDerivable, match="no order is shared"):
        derive((part(low), part(high)), Fixed("none"))
    with pytest.raises(NotDerivable, match=r"a part with a delta \(DP\) has no Renyi order"):
        derive((part(low), part(ApproxDP(ONE, TENTH))), Fixed("none", ONE / 2))


def is_five(measure: Measure) -> bool:
    """GDP at mu = 5 = sqrt(3^2 + 4^2), rounded up."""
    return isinstance(measure, GaussianDP) and 0 <= measure.mu - 5 < Fraction(1, 10**50)


def test_gaussian_dp_needs_finite_communication() -> None:
    mus = GaussianDP(Fraction(3)), GaussianDP(Fraction(4))
    result = derive(tuple(part(m, finite=True) for m in mus), Fixed("g", MILLIONTH))
    assert result.guarantee.finite
    parts = (part(mus[0], finite=True), part(mus[1]))
    assert is_five(result.premises[0].guarantee.measure)
    by_rho = derive(parts, Fixed("g", MILLIONTH))
    assert by_rho.premises[0].guarantee.measure == ZCDP(Fraction(25, 2))
    assert not by_rho.guarantee.finite
    assert (
        "not stated by part" in refused(by_rho.premises[0])["concurrent composition in Gaussian DP"]
    )
    assert price(result.guarantee.measure, MILLIONTH) < price(by_rho.guarantee.measure, MILLIONTH)  # type: ignore[operator]


SPARSE_REFUSALS: list[tuple[Measure, str]] = [
    (ApproxDP(ONE, MILLIONTH), r"Thm 5.4: delta budget: a kind with delta > 0 is created without"),
    (ApproxDP(ONE, MILLIONTH), r"may still differ after the first pair, and \[HSV\] Thm 5.2 shows"),
    (ProbabilisticDP(ONE, MILLIONTH), r"\[HSV\] Thm 5.2 forbids delta > 0 here"),
    (RenyiDP(TWO, ONE), r"may still differ after the first pair, and \[HSV\] Thm 13.5 shows"),
    (ZCDP(ONE), r"may still differ after the first pair, and \[HSV\] Thm 13.5 shows"),
    (GaussianDP(ONE), r"finite communication: not stated by part"),
]


@pytest.mark.parametrize(("measure", "why"), SPARSE_REFUSALS, ids=str)
def test_parallel_parts_that_are_not_pure_are_refused(measure: Measure, why: str) -> None:
    with pytest.raises(NotDerivable, match=why):
        derive((part(measure),), Parallel("sparse", ONCE, delta=TENTH))


def test_first_pair_consistent_parts_of_any_measure() -> None:
    """[HSV] Thm 13.6, Cor 14.8 and zCDP order by order: k of them, however many are created."""
    twice = Touched(2, ADD, "two users")
    first: list[tuple[Measure, Measure]] = [
        (ZCDP(ONE), ZCDP(TWO)),
        (RenyiDP(TWO, ONE), RenyiDP(TWO, TWO)),
        (GaussianDP(ONE), ZCDP(ONE)),
    ]
    for measure, expected in first:
        result = derive((part(measure),), Parallel("first", twice, first_pair=STATIC))
        assert result.guarantee.measure == expected
    mus = tuple(part(GaussianDP(Fraction(n)), finite=True) for n in (3, 4, 1))
    result = derive(mus, Parallel("g", twice, (1, 1, None), TENTH, STATIC))
    assert not result.guarantee.finite  # a kind is created without bound
    counted = derive(mus, Parallel("g", twice, (1, 1, 9), TENTH, STATIC))
    assert counted.guarantee.finite
    assert is_five(result.premises[0].guarantee.measure)


def test_a_delta_counts_for_every_creation_and_side_conditions_are_counted() -> None:
    kinds = (part(ApproxDP(ONE, TENTH)), part(PureDP(TWO)))
    within = 1 - Fraction(9, 10) ** 3
    result = derive(kinds, Parallel("kinds", ONCE, (3, None), within))
    assert result.guarantee.measure == ApproxDP(TWO, within)
    with pytest.raises(NotDerivable, match=r"add up to 0\.271, and a delta of 0\.2 is granted"):
        derive(kinds, Parallel("kinds", ONCE, (3, None), Fraction(1, 5)))
    for creations, why in (
        ((3,), r"2 kinds, but 1 creation count"),
        ((3, 0), "less than once"),
    ):
        with pytest.raises(NotDerivable, match=why):
            derive(kinds, Parallel("kinds", ONCE, creations, within))
    grouped = derive(pures(ONE), Group("user", 3))
    with pytest.raises(NotDerivable, match="counted for one event, but the parts protect groups"):
        derive((grouped,), Parallel("kinds", ONCE))


def test_shards() -> None:
    """DESIGN.md 8: pure k = 1, or 2 where a replacement may move; a delta adds up over all shards."""

    def measure(m: Measure, relation: Neighbors, *, moves: bool, number: int = 8) -> Measure:
        touched = Touched.shards(relation, number, moves=moves)
        return derive((part(m, relation),), Parallel("s", touched, (number,))).guarantee.measure

    assert measure(PureDP(ONE), ADD, moves=True) == PureDP(ONE)
    assert measure(PureDP(ONE), REPLACE, moves=False) == PureDP(ONE)
    assert measure(PureDP(ONE), REPLACE, moves=True) == PureDP(TWO)
    assert measure(PureDP(ONE), REPLACE, moves=True, number=1) == PureDP(ONE)
    with pytest.raises(NotDerivable, match="is granted"):
        measure(ApproxDP(ONE, TENTH), ADD, moves=False)
    with pytest.raises(NotDerivable, match=r"Thm 13\.5"):
        measure(ZCDP(ONE), ADD, moves=False)
    every = 1 - Fraction(9, 10) ** 8  # [HSV] Thm 5.4: over all eight, though an event is in one
    granted = Parallel("s", Touched.shards(ADD, 8, moves=False), (8,), every)
    result = derive((part(ApproxDP(ONE, TENTH)),), granted)
    assert result.guarantee.measure == ApproxDP(ONE, every)


def test_groups_of_every_measure() -> None:
    known: list[tuple[Measure, Measure]] = [
        (PureDP(ONE), PureDP(Fraction(3))),
        (ZCDP(ONE), ZCDP(Fraction(9))),
        (GaussianDP(ONE), GaussianDP(Fraction(3))),
        (ApproxDP(ZERO, TENTH), ApproxDP(ZERO, 3 * TENTH)),
    ]
    for measure, expected in known:
        assert derive((part(measure),), Group("user", 3)).guarantee == Guarantee(expected, ADD, 3)
    refusals: list[tuple[Measure, int, str]] = [
        (RenyiDP(TWO, ONE), 3, "no group rule is known for RDP"),
        (PureDP(ONE), 0, "group size"),
        (ApproxDP(ONE, TENTH), 9, "delta below 1"),
        (ApproxDP(ONE, TENTH), 10**9, "delta below 1"),
    ]
    for measure, k, why in refusals:
        with pytest.raises(NotDerivable, match=why):
            derive((part(measure),), Group("user", k))


@pytest.mark.parametrize("seed", range(4))
def test_the_load_is_the_largest_sum_alive_at_a_tick(seed: int) -> None:
    """Against a sum per tick; parts without an end are alive at every later one."""
    rng, horizon = random.Random(seed), 12
    times, epsilons = [], []
    for _ in range(rng.randrange(1, 9)):
        first = rng.randrange(horizon)
        times.append(Alive(first, rng.choice([None, rng.randrange(first, horizon)])))
        epsilons.append(Fraction(rng.randrange(1, 9), 7))
    every = [
        sum(
            (e for t, e in zip(times, epsilons, strict=True)
             if t.first <= tick and (t.last is None or tick <= t.last)),
            ZERO,
        )
        for tick in range(horizon + 1)
    ]  # fmt: skip
    result = derive(pures(*epsilons), Ticks("time", tuple(times)))
    assert result.guarantee.measure == PureDP(max(every))
    steps = dict(loads(times, epsilons))
    assert all(steps[tick] == every[tick] for tick in steps if tick <= horizon)


TICKS_REFUSED: list[tuple[tuple[Derivation, ...], tuple[Alive, ...], str]] = [
    ((part(ApproxDP(ONE, TENTH)),), (Alive(0, 1),), "its delta counts at every tick"),
    ((part(ZCDP(ONE)),), (Alive(0, 1),), "not pure DP"),
    (pures(ONE), (), r"0 times for 1 part"),
    (pures(ONE), (Alive(2, 1),), "ends before it begins"),
    ((derive(pures(ONE), Group("user", 2)),), (Alive(0, 1),), "a user has events in many ticks"),
]


@pytest.mark.parametrize(("premises", "alive", "why"), TICKS_REFUSED)
def test_time_frees_pure_event_level_budget_only(
    premises: tuple[Derivation, ...], alive: tuple[Alive, ...], why: str
) -> None:
    with pytest.raises(NotDerivable, match=why):
        derive(premises, Ticks("time", alive))


def test_parameters_must_have_been_fixed_before() -> None:
    fixed = (PureDP(ONE), PureDP(TWO))
    assert derive(pures(TWO), Fixed("some", parameters=fixed)).guarantee.measure == PureDP(
        Fraction(3)
    )
    for created in (pures(Fraction(3)), pures(ONE, ONE)):
        with pytest.raises(NotDerivable, match=r"fixed: 1 of the parts have parameters"):
            derive(created, Fixed("some", parameters=fixed))


NOTHING: list[Any] = [Fixed("x"), Parallel("x", ONCE), Ticks("x", ()), Group("x", 1)]


@pytest.mark.parametrize("situation", NOTHING, ids=lambda s: type(s).__name__)
def test_nothing_to_compose(situation: Situation) -> None:
    with pytest.raises(NotDerivable, match="nothing to compose"):
        derive((), situation)


# --- what a filter admitted ([HSV] Thm 12.4) ------------------------------------------------------


def measured(*measures: Measure) -> tuple[Derivation, ...]:
    return tuple(part(measure) for measure in measures)


def test_what_was_admitted_has_the_promise() -> None:
    result = derive(
        measured(PureDP(ONE), PureDP(ONE / 3)), Filtered("asked", PureFilter.of(2 * ONE))
    )
    assert result.guarantee.measure == PureDP(2 * ONE)  # of the budget, whatever was asked
    assert "[HSV] Thm 12.4 over basic composition" in result.conditions[0].why


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(
        NotDerivable, match=r"admitted: the parts \(2\) together exceed the filter's capacity"
    ):
        derive(measured(PureDP(ONE), PureDP(ONE)), Filtered("asked", PureFilter.of(ONE * 3 / 2)))
    with pytest.raises(NotDerivable, match="no theorem for zCDP"):
        derive(measured(ZCDP(ONE)), Filtered("asked", PureFilter.of(ONE)))
    with pytest.raises(NotDerivable, match="finite communication"):
        derive(measured(GaussianDP(ONE / 2)), Filtered("asked", GaussianFilter.of(ONE)))


@dataclass(frozen=True)
class Sequential(PureFilter):
    """A filter that is proven for one mechanism after the other only."""

    @property
    def name(self) -> str:
        """Its name in the table."""
        return "approximate zCDP"


def test_a_filter_that_is_not_proven_is_refused() -> None:
    with pytest.raises(
        NotDerivable, match="proven for concurrent continual mechanisms: the approx"
    ):
        derive(measured(PureDP(ONE)), Filtered("asked", Sequential(10**13)))


# --- finite communication ([HSV] Def 14.4): which rules keep it, and who needs it -----------------


GDP_FILTER = GaussianFilter.of(5 * ONE)


KEEPING: list[tuple[Situation, bool]] = [
    (Fixed("fixed"), True),
    (Parallel("counted", ONCE, (7,)), True),
    (Parallel("endless", ONCE), False),
    (Parallel("static", ONCE, (7,), first_pair=STATIC), True),
    (Local("users", 9, ONCE, STATIC), True),
    (Group("user", 3), True),
    (Moved("moved"), True),
    (Ticks("ticks", (Alive(0, None),)), True),
    (Composite("composite", "destination", "relation", "a test"), False),
    (Filtered("filtered", GDP_FILTER), False),
]


@pytest.mark.parametrize(("situation", "kept"), KEEPING, ids=lambda it: getattr(it, "subject", it))
def test_rules_keep_it_where_their_theorem_does(situation: Situation, kept: bool) -> None:
    for finite in (True, False):
        result = derive((part(PureDP(ONE), finite=finite),), situation)
        assert result.guarantee.finite is (kept and finite)


def test_one_endless_part_is_enough_to_lose_it() -> None:
    parts = part(PureDP(ONE), finite=True), part(PureDP(ONE), finite=False)
    assert not derive(parts, Fixed("both")).guarantee.finite


def test_gaussian_parts_reach_the_filter_only_with_it() -> None:
    ledger = Ledger.under(GDP_FILTER, protected=Protected(ADD))
    for finite in (True, False):
        entry = ledger.price(part(GaussianDP(ONE), finite=finite))
        if finite:
            assert ledger.charge(entry).used.amount == 10**24
            continue
        before = ledger.used
        for attempt in (ledger.charge, ledger.preview):
            with pytest.raises(
                BudgetRefused, match=r"Clamp the answers to a finite set and declare a horizon"
            ):
                attempt(entry)
        assert ledger.used == before
        with pytest.raises(NotDerivable, match="finite communication"):
            derive((part(GaussianDP(ONE), finite=False),), Filtered("asked", GDP_FILTER))


def test_pure_parts_need_none_and_add_their_own_mu() -> None:
    parts = part(GaussianDP(ONE), finite=True), part(PureDP(ONE), finite=False)
    (rule,) = [rule for rule in RULES[Fixed] if "Gaussian" in rule.name]
    result = rule(parts, Fixed("both")).guarantee
    mu = pure_to_gaussian(PureDP(ONE)).mu
    assert result.measure == rule_file._root([ONE, mu])
    assert not result.finite


def test_a_rule_that_always_keeps_it_is_caught() -> None:
    twin = dataclasses.replace(sparse_pure, finite=lambda *_: True)
    endless = Parallel("endless", ONCE)
    premises = (part(PureDP(ONE), finite=False),)
    assert twin(premises, endless).guarantee.finite
    assert not sparse_pure(premises, endless).guarantee.finite
