"""The certified instances against independent numbers: closed forms, enumeration, a second composition and verifier.

The known-broken twins of the rules are in tests/unit/cli/test_audit_rules.py, where the command refuses them.
"""

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from oracles.universal import Part as Odds
from oracles.universal import composed_delta

from stream_dp.accounting.derive import RULES, derive
from stream_dp.accounting.filters.gaussian import GaussianFilter
from stream_dp.accounting.rules.best_fixed import optimal
from stream_dp.accounting.rules.first_pair import first_pair
from stream_dp.accounting.rules.fixed import concurrent
from stream_dp.accounting.rules.local import local
from stream_dp.accounting.rules.rule import Rule
from stream_dp.accounting.rules.sparse_pure import sparse_pure
from stream_dp.accounting.situations import Filtered, Fixed
from stream_dp.audit.counterexamples.naive_books import books, first_sentence
from stream_dp.audit.enumeration import Enumerated, Lawful
from stream_dp.audit.exact_checks import (
    alive,
    composites,
    fixed_parts,
    grouped,
    parallel,
    protocols,
)
from stream_dp.audit.exact_checks.instance import (
    Instance,
    OneBitDiffers,
    Part,
    composed,
    irr,
    known,
    logarithm,
    rr,
    sent,
)
from stream_dp.audit.exact_checks.table import GAPS, INSTANCES, NO_INSTANCE, RuleFinding, findings
from stream_dp.audit.exact_checks.verdict import (
    Comparison,
    Verdict,
    compare,
    ratio,
    worst_comparison,
)
from stream_dp.audit.exact_delta import exact_delta, worst_ratio
from stream_dp.audit.exact_renyi import exact_moment
from stream_dp.audit.exact_sparse_vector import BelowThreshold
from stream_dp.audit.finite import (
    BIT_PAIRS,
    DifferAtMost,
    FiniteComposition,
    FirstPair,
    SparsePairs,
)
from stream_dp.audit.randomized_response import ASK, RandomizedResponse
from stream_dp.audit.relations.compositions import fixed_mechanisms
from stream_dp.audit.relations.local_messages import LocalMessages
from stream_dp.audit.relations.pair_conditions import TouchedWithin
from stream_dp.core.composition import Ask, Create
from stream_dp.core.guarantee import (
    ZCDP,
    ApproxDP,
    GaussianDP,
    PureDP,
    RenyiCurve,
    RenyiDP,
    differential_privacy,
)
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.local_protocol import LocalProtocol

ONE, TWO, THREE = Fraction(1), Fraction(2), Fraction(3)
TENTH, ZERO = Fraction(1, 10), Fraction(0)
RATIOS = [ONE, Fraction(3, 2), TWO, THREE, Fraction(7)]


# --- the table ----------------------------------------------------------------------------------


def test_every_rule_is_listed_one_way_or_the_other(certified: tuple[RuleFinding, ...]) -> None:
    rules = [rule for kind in RULES.values() for rule in kind]
    listed = {finding.rule: finding for finding in certified}
    assert len({rule.name for rule in rules}) == len(rules)
    for rule in rules:
        finding = listed[rule.name]
        assert finding.source == rule.source
        assert (finding.compared is not None) == (finding.why == "")
        assert (rule.name in INSTANCES) == (finding.compared is not None)
    assert set(INSTANCES) <= {rule.name for rule in rules}  # no certificate of a rule that is gone
    assert set(GAPS) == set(listed) - {rule.name for rule in rules}


def test_no_rule_is_exceeded_and_the_tight_ones_are_met(certified: tuple[RuleFinding, ...]) -> None:
    """Equality where RR, IRR or the like attain the rule; below it for zCDP, GDP, and what pays for adaptivity."""
    played = [(f.rule, f.words, f.compared.verdict) for f in certified if f.compared is not None]
    assert len(played) >= 30
    for rule, words, verdict in played:
        loose = {
            name
            for name in ("zCDP", "GDP", "Gaussian", "approximate", "graphs")
            if name in rule + words
        }
        cut = "MultiSparseVector" in words
        expected = Verdict.CUT if cut else Verdict.WITHIN if loose else Verdict.EQUAL
        assert verdict is expected, (rule, words)


def test_a_rule_without_an_instance_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    stranger: Rule[Any] = replace(concurrent, name="a stranger")
    for kind in RULES:
        monkeypatch.setitem(RULES, kind, (stranger,))
    found = [finding for finding in findings() if finding.rule == "a stranger"]
    assert len(found) == len(RULES)
    assert all(f.why == NO_INSTANCE and f.compared is None and not f.violated for f in found)


def test_the_gap_of_the_gdp_filter_is_one() -> None:
    """As the list says: derive refuses its parts. Once it takes them, there must be an instance."""
    part = rr(THREE).claiming(fixed_parts.gaussian_claim(THREE)).leaf
    with pytest.raises(NotDerivable, match="finite communication"):
        derive((part,), Filtered("asked for", GaussianFilter.of(THREE)))
    assert any("GDP filter" in name for name in GAPS)


def test_an_order_that_is_not_whole_has_no_moment_to_be_compared_with() -> None:
    """Cut down to 2 it would pass where 5/2 is exceeded: the divergence grows with the order."""
    (instance,) = fixed_parts.summed_renyi()
    with pytest.raises(ValueError, match="whole orders"):
        compare(RenyiDP(Fraction(5, 2), THREE), instance)


def test_of_several_figures_the_violated_one_is_shown() -> None:
    """Nothing booked is no division by zero, and a small one within rounding does not hide a large one above."""
    small = Comparison(
        "epsilon", "order 2", Fraction(1, 10**40), Fraction(1, 10**30), Verdict.EQUAL
    )
    large = Comparison("epsilon", "order 3", ONE, TWO, Verdict.VIOLATED)
    assert worst_comparison([small, large]) is large
    nothing = Comparison("epsilon", "order 2", ZERO, ONE, Verdict.VIOLATED)
    assert worst_comparison([nothing, small]) is nothing
    (instance,) = fixed_parts.summed_zcdp()
    assert compare(ZCDP(ZERO), instance).verdict is Verdict.VIOLATED


# --- parts --------------------------------------------------------------------------------------

PARTS = [
    rr(THREE), rr(TWO, TENTH), irr(THREE), irr(THREE, TENTH), parallel.late(THREE, TENTH), parallel.leaky(TENTH),
    rr(THREE).claiming(fixed_parts.renyi_claim(THREE)), rr(THREE).claiming(fixed_parts.gaussian_claim(THREE)),
    irr(THREE).claiming(fixed_parts.gaussian_claim(THREE)), protocols.vertex(2),
]  # fmt: skip


@pytest.mark.parametrize("part", PARTS, ids=lambda p: f"{p.name}-{type(p.measure).__name__}")
def test_the_claim_of_a_part_is_true_alone(part: Part) -> None:
    """In the other representation of who may send what, and met exactly by RR, IRR and the like."""
    pairs: Any = {
        "RR": FirstPair(BIT_PAIRS),
        "IRR": FirstPair(BIT_PAIRS, (ASK,)),
        "vertex": FirstPair(part.queries[:-1], part.queries[-1][:1]),
    }.get(part.name, DifferAtMost((0, 1), ((0, 1), (1, 0))))
    alone = Instance("alone", (part.leaf,), Fixed("alone"), part.machine, pairs, 4)
    compared = compare(part.measure, alone)
    loose = isinstance(part.measure, GaussianDP) or part.name == "vertex"
    assert compared.verdict is (Verdict.WITHIN if loose else Verdict.EQUAL)


def test_a_gaussian_claim_touches_rr_where_its_polygon_bends() -> None:
    """At p = 1/4 the trade-off of RR(ln 3) and of the claim agree; a hundredth less would be above it."""
    measure = fixed_parts.gaussian_claim(THREE)
    pairs = FirstPair(BIT_PAIRS)
    alone = Instance("alone", (), Fixed("alone"), RandomizedResponse(THREE), pairs, 2)
    less = GaussianDP(measure.mu - Fraction(7, 10))
    assert compare(measure, alone).verdict is Verdict.WITHIN
    assert compare(less, alone).verdict is Verdict.VIOLATED


# --- the product's composition and verifier, against the oracle's own --------------------------------


@pytest.mark.parametrize("target", RATIOS)
@pytest.mark.parametrize(("created", "k"), [(2, 1), (3, 1), (3, 2)])
def test_k_sparse_by_the_core_is_k_sparse_by_the_oracle(
    created: int, k: int, target: Fraction
) -> None:
    """`ConcurrentComposition` behind `Verifier(k_sparse)` against `FiniteComposition` with `SparsePairs`, and KOV."""
    ours = parallel.pure_responses(created, k, ZERO)
    theirs = FiniteComposition((RandomizedResponse(THREE),))
    pairs = SparsePairs((FirstPair(BIT_PAIRS),), (created,), k)
    exact = exact_delta(ours.machine, ours.pairs, target, ours.rounds)
    assert exact == exact_delta(theirs, pairs, target, 2 * created)
    assert exact == composed_delta([(THREE, ZERO)] * k, target)


@pytest.mark.parametrize("created", [1, 2, 3])
def test_the_delta_budget_by_the_core_is_the_formula_of_the_proof(created: int) -> None:
    """1 - (1 - delta)(1 - delta'): delta of the touched RR(ln 3), delta' over every creation."""
    late = parallel.delta_budget(parallel.late(THREE, TENTH), created, "late")
    leaky = parallel.delta_budget(parallel.leaky(TENTH), created, "leaky")
    every = 1 - (1 - TENTH) ** created
    for target in RATIOS[::2]:
        touched = max(ZERO, (THREE - target) / (1 + THREE))
        exact = exact_delta(late.machine, late.pairs, target, late.rounds)
        assert exact == 1 - (1 - touched) * (1 - every)
        assert exact_delta(leaky.machine, leaky.pairs, target, leaky.rounds) == every


@pytest.mark.parametrize(
    ("broken", "verdict"),
    [(lambda self, *_: self, Verdict.VIOLATED), (lambda *_: None, Verdict.WITHIN)],
    ids=["counts nothing", "lets nothing through"],
)
def test_a_broken_condition_of_the_core_shows(
    monkeypatch: pytest.MonkeyPatch, broken: Any, verdict: Verdict
) -> None:
    """It is the core's own Def 5.1 that is played: with any number touched the rule is exceeded, with none not met."""
    monkeypatch.setattr(TouchedWithin, "query", broken)
    instance = parallel.pure_responses(2, 1, ZERO)
    rule: Rule[Any] = sparse_pure
    booked = rule(instance.premises, instance.situation).guarantee.measure
    assert compare(booked, instance).verdict is verdict


def test_responses_of_epsilon_zero_come_to_the_enumeration() -> None:
    instance = parallel.responses(3)
    for target in RATIOS[:3]:
        exact = exact_delta(instance.machine, instance.pairs, target, instance.rounds)
        assert exact == composed_delta([(ONE, TENTH)] * 3, target) == 1 - (1 - TENTH) ** 3


def test_the_verifier_stops_what_the_relation_forbids() -> None:
    """As many moves as the definitions allow: a second touched part, a third creation and early queries are none."""
    one = parallel.pure_responses(2, 1, ZERO).pairs
    create = rr(THREE).create
    moves = dict(one.moves())
    assert list(moves) == [(create, create)]
    both = dict(moves[create, create].moves())[create, create]
    assert len(list(both.moves())) == 2 * len(BIT_PAIRS)
    bits: Any = BIT_PAIRS[1]
    touched = dict(both.moves())[Ask(0, bits[0]), Ask(0, bits[1])]
    assert sorted(str(pair) for pair, _ in touched.moves()) == sorted(
        str((Ask(1, left), Ask(1, right))) for left, right in ((0, 0), (1, 1))  # type: ignore[arg-type]
    )  # fmt: skip


FIXED: list[tuple[Instance, list[Odds]]] = [
    (fixed_parts.summed()[0], [(THREE, ZERO), (TWO, ZERO)]),
    (fixed_parts.summed()[1], [(THREE, TENTH)] * 2),
    (fixed_parts.best()[0], [(THREE, TENTH), (TWO, ZERO)]),
    (fixed_parts.best()[1], [(THREE, ZERO), (THREE, ZERO), (TWO, ZERO)]),
]


@pytest.mark.parametrize(("instance", "parts"), FIXED)
def test_fixed_parts_meet_the_enumeration(instance: Instance, parts: list[Odds]) -> None:
    exact = exact_delta(instance.machine, instance.pairs, TWO, instance.rounds)
    assert exact == composed_delta(parts, TWO)


def test_orders_and_odds_of_the_rest_by_hand() -> None:
    """3^2 (1/4) + ... : the moment of RR(ln 3) at order 2 is 7/3; the ticks lose 3 x 2; HSS 2 x 2 x 2."""
    for instance, moment in (
        (fixed_parts.summed_renyi()[0], Fraction(7, 3) ** 2),
        (parallel.first_pair_renyi()[0], Fraction(7, 3)),
    ):
        assert exact_moment(instance.machine, instance.pairs, 2, instance.rounds) == moment
    for instance, odds in (
        (alive.lives(), 6),
        (alive.coming_and_going(), 6),
        (composites.hss()[0], 8),
        (protocols.triangle(), 4),
    ):
        assert worst_ratio(instance.machine, instance.pairs, instance.rounds) == odds


# --- local protocols -----------------------------------------------------------------------------


def test_the_triangle_is_played_over_all_graphs_and_no_others() -> None:
    """8 graphs, 24 ordered pairs of neighbours, 8 equal ones; by the definition, not by `OneEdge`."""
    relation: Any = protocols.triangle().pairs
    menu, assigned = relation.menu, set()
    graphs = list(itertools.product((0, 1), repeat=3))

    def held(graph: tuple[int, ...], user: int) -> tuple[int, ...]:
        return tuple(
            there for there, e in zip(graph, ((0, 1), (0, 2), (1, 2)), strict=True) if user in e
        )

    users = LocalMessages.of(
        (protocols.vertex(2).create,) * 3, protocols.OneEdge.of(protocols.EDGES, 3), truth=known
    )
    for left, right in itertools.product(graphs, repeat=2):
        state: LocalMessages | None = users
        for _ in range(3):
            state = state and state.accept(menu[0][0], menu[0][1])
        for user in range(3):
            pair: Any = held(left, user), held(right, user)
            state = state and state.accept(Ask(user, pair[0]), Ask(user, pair[1]))
        if state:
            assigned.add((left, right))
    apart = {
        (a, b) for a in graphs for b in graphs if sum(x != y for x, y in zip(a, b, strict=True)) <= 1
    }  # fmt: skip
    assert assigned == apart
    assert len(apart) == 32


def test_a_vertex_in_closed_form_is_the_sparse_vector_of_the_product() -> None:
    """One coordinate asked twice: the chances of the real code lie within its cut of `BelowThreshold`."""
    protocol = protocols.edge_protocol()
    real = Enumerated(protocol.users[0], protocols.CUT_BASE, 8)
    decay = protocols.CUT_BASE
    exact, start = BelowThreshold(decay, decay), {((), ()): ONE}
    for edge in (0, 1):
        states: dict[Any, Fraction] = {}
        for state, p in real.initial().items():
            for (_, after), q in real.step(state, (edge,)).items():
                states[after] = states.get(after, ZERO) + p * q
        (closed,) = {after for (_, after) in exact.step(next(iter(start)), (edge,))}
        chances = {answer: p for (answer, _), p in exact.step(closed, ((0,), 1)).items()}
        for bit in (0, 1):
            by_code = sum(
                (p * q for s, p in states.items() for (a, _), q in real.step(s, 1).items() if a == (bit,)),
                ZERO,
            )  # fmt: skip
            assert by_code <= chances[bit] <= by_code + 3 * decay**9


def test_the_protocol_claims_what_the_rule_books() -> None:
    """`LocalProtocol` prices itself by Cor 5.5; in units of ln 8."""
    instance = protocols.real_code()
    machine: Any = instance.machine
    protocol: LocalProtocol = machine.mechanism
    assert protocol.guarantee.measure == PureDP(Fraction(4))
    rule: Rule[Any] = RULES[type(instance.situation)][0]
    booked = differential_privacy(rule(instance.premises, instance.situation).guarantee.measure)
    assert float(booked.epsilon) == pytest.approx(4 * math.log(8), abs=1e-12)
    assert booked.delta == 0


# --- verdicts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "instance", "half"),
    [
        (concurrent, fixed_parts.summed()[0], lambda m: PureDP(m.epsilon / 2)),
        (optimal, fixed_parts.best()[0], lambda m: ApproxDP(m.epsilon / 2, m.delta)),
        (optimal, fixed_parts.best()[0], lambda m: ApproxDP(m.epsilon, m.delta / 2)),
        (local, protocols.one_user(TENTH), lambda m: ApproxDP(m.epsilon / 2, m.delta)),
        (sparse_pure, parallel.pure_responses(2, 1, ZERO), lambda m: PureDP(m.epsilon * Fraction(99, 100))),
        (first_pair, parallel.first_pair()[0], lambda m: ApproxDP(m.epsilon, m.delta - Fraction(1, 10**8))),
        (concurrent, fixed_parts.summed()[0], lambda m: RenyiDP(TWO, m.epsilon / 2)),
        (concurrent, fixed_parts.summed()[0], lambda m: ZCDP(m.epsilon / 8)),
        (concurrent, fixed_parts.summed()[0], lambda m: GaussianDP(m.epsilon / 4)),
    ],
)  # fmt: skip
def test_less_than_exact_is_violated(rule: Rule[Any], instance: Instance, half: Any) -> None:
    booked = rule(instance.premises, instance.situation).guarantee.measure
    assert compare(booked, instance).verdict is Verdict.EQUAL
    assert compare(half(booked), instance).verdict is Verdict.VIOLATED


def test_more_than_exact_is_within_and_a_broken_cut_is_seen() -> None:
    assert compare(PureDP(TWO), fixed_parts.summed()[0]).verdict is Verdict.WITHIN
    coordinates = protocols.coordinates()
    shown = compare(PureDP(Fraction(4)), coordinates)
    assert shown.verdict is Verdict.VIOLATED
    assert float(shown.exact) > 0.01


def test_a_loss_without_bound_is_violated() -> None:
    instance = parallel.touched_deltas()[1]
    assert math.isinf(float(compare(PureDP(THREE), instance).exact))
    assert compare(PureDP(THREE), instance).verdict is Verdict.VIOLATED


def test_a_violation_smaller_than_a_float_is_not_hidden_by_an_order_that_is_equal() -> None:
    instance = fixed_parts.summed()[0]
    exact = {
        order: logarithm(
            Fraction(exact_moment(instance.machine, instance.pairs, order, instance.rounds))
        )
        / (order - 1)
        for order in (2, 3)
    }
    hair = Fraction(1, 10**20)
    met = RenyiCurve(tuple(RenyiDP(Fraction(order), exact[order]) for order in (2, 3)))
    less = RenyiCurve((met.points[0], RenyiDP(THREE, exact[3] - hair)))
    assert compare(met, instance).verdict is Verdict.EQUAL
    assert compare(less, instance).verdict is Verdict.VIOLATED


def test_ratio_is_below_and_near() -> None:
    assert ratio(ZERO) == 1
    assert 0 <= math.e - ratio(ONE) < 1e-15


# --- naive books --------------------------------------------------------------------------------


def test_each_naive_book_is_exceeded_and_answered() -> None:
    rows = {book.source: book for book in books()}
    assert all(book.exact > book.promised for book in rows.values())
    assert rows["[HSV] Thm 5.2"].exact == 1 - (1 - TENTH) ** 3
    assert "0.878" in rows["[HSV] Thm 5.2"].adversary  # 1 - .9^20
    leak = 1 + (1 - Fraction(4, 5) ** 3) * ((Fraction(49) + Fraction(1, 7)) / 8 - 1)
    assert float(rows["[HSV] Thm 13.5"].exact) == pytest.approx(math.log(leak), abs=1e-12)
    assert rows["[WRRW] App. F"].exact == Fraction(231, 10_000)
    for source, says in (
        ("[HSV] Thm 5.2", "without bound"),
        ("[HSV] Thm 13.5", "Thm 13.5 breaks the rule"),
        ("[WRRW] App. F", "bounds no privacy loss ([WRRW] App. F)"),
        ("Kairouz, Oh, Viswanath", "epsilon 1.906"),  # 20 ln 1.1
    ):
        assert says in rows[source].ours
        assert not rows[source].ours.endswith(".")


def test_what_is_not_refused_is_no_refusal() -> None:
    with pytest.raises(RuntimeError, match="should have been refused"):
        first_sentence(lambda: None)


def test_the_group_instances_take_any_size() -> None:
    for size in (1, 3, 5):
        instance = grouped.one_interval(size)
        assert worst_ratio(instance.machine, instance.pairs, 1) == Fraction(11, 10) ** size


def test_one_bit_differs_only_once() -> None:
    relation = OneBitDiffers()
    once = relation.accept(0, 1)
    assert relation.accept(2, 2) is None
    assert once is not None
    assert once.accept(1, 1) is once
    assert once.accept(1, 0) is None
    assert not relation.first_pair_consistent


def test_a_part_is_played_by_its_laws() -> None:
    """One RR in the product's composition, by hand."""
    part = rr(THREE)
    machine = composed()
    pairs = sent(fixed_mechanisms((part.create,), truth=known), (part,), 1)
    assert isinstance(part.create, Create)
    assert isinstance(part.create.mechanism, Lawful)
    assert exact_delta(machine, pairs, ONE, 2) == Fraction(1, 2)
