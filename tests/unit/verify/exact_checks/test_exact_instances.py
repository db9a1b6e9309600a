"""The certified instances against independent numbers: closed forms, enumeration, a second composition and verifier."""

import math
from fractions import Fraction
from typing import Any

import pytest
from oracles.compositions import FiniteComposition, SparsePairs
from oracles.universal import Part as Odds
from oracles.universal import composed_delta

from stream_dp.accounting.derive import RULES
from stream_dp.accounting.rules.parallel import sparse_pure
from stream_dp.accounting.rules.rule import Rule
from stream_dp.accounting.situations import Fixed
from stream_dp.core.guarantee import GaussianDP, PureDP, differential_privacy
from stream_dp.mechanisms.papers import LocalProtocol
from stream_dp.verify.exact.exact_delta import exact_delta, exact_moment, worst_ratio
from stream_dp.verify.exact.finite import (
    BIT_PAIRS,
    DifferAtMost,
    FirstPair,
)
from stream_dp.verify.exact.randomized_response import ASK, RandomizedResponse
from stream_dp.verify.exact_checks import alive, compositions, protocols
from stream_dp.verify.exact_checks.instance import Instance, Part, Verdict, compare, irr, rr
from stream_dp.verify.relations import TouchedWithin

ONE, TWO, THREE, TENTH, ZERO = Fraction(1), Fraction(2), Fraction(3), Fraction(1, 10), Fraction(0)

RATIOS = [ONE, Fraction(3, 2), TWO, THREE, Fraction(7)]


PARTS = [
    rr(THREE), rr(TWO, TENTH), irr(THREE), irr(THREE, TENTH),
    compositions.late(THREE, TENTH), compositions.leaky(TENTH),
    rr(THREE).claiming(compositions.renyi_claim(THREE)),
    rr(THREE).claiming(compositions.gaussian_claim(THREE)),
    irr(THREE).claiming(compositions.gaussian_claim(THREE)), protocols.vertex(2),
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


@pytest.mark.parametrize("target", RATIOS[::2])
@pytest.mark.parametrize(("created", "k"), [(2, 1), (3, 1), (3, 2)])
def test_k_sparse_by_the_core_is_k_sparse_by_the_oracle(
    created: int, k: int, target: Fraction
) -> None:
    """`ConcurrentComposition` behind `Verifier(k_sparse)` against `FiniteComposition` with `SparsePairs`, and KOV."""
    ours = compositions.pure_responses(created, k, ZERO)
    theirs = FiniteComposition((RandomizedResponse(THREE),))
    pairs = SparsePairs((FirstPair(BIT_PAIRS),), (created,), k)
    exact = exact_delta(ours.machine, ours.pairs, target, ours.rounds)
    assert exact == exact_delta(theirs, pairs, target, 2 * created)
    assert exact == composed_delta([(THREE, ZERO)] * k, target)


@pytest.mark.parametrize("created", [1, 3])
def test_the_delta_budget_by_the_core_is_the_formula_of_the_proof(created: int) -> None:
    """1 - (1 - delta)(1 - delta'): delta of the touched RR(ln 3), delta' over every creation."""
    late = compositions.delta_budget(compositions.late(THREE, TENTH), created, "late")
    leaky = compositions.delta_budget(compositions.leaky(TENTH), created, "leaky")
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
    instance = compositions.pure_responses(2, 1, ZERO)
    rule: Rule[Any] = sparse_pure
    booked = rule(instance.premises, instance.situation).guarantee.measure
    assert compare(booked, instance).verdict is verdict


FIXED: list[tuple[Instance, list[Odds]]] = [
    (compositions.summed()[0], [(THREE, ZERO), (TWO, ZERO)]),
    (compositions.summed()[1], [(THREE, TENTH)] * 2),
    (compositions.best()[0], [(THREE, TENTH), (TWO, ZERO)]),
    (compositions.best()[1], [(THREE, ZERO), (THREE, ZERO), (TWO, ZERO)]),
]


@pytest.mark.parametrize(("instance", "parts"), FIXED)
def test_fixed_parts_meet_the_enumeration(instance: Instance, parts: list[Odds]) -> None:
    exact = exact_delta(instance.machine, instance.pairs, TWO, instance.rounds)
    assert exact == composed_delta(parts, TWO)


def test_orders_and_odds_of_the_rest_by_hand() -> None:
    """3^2 (1/4) + ... : the moment of RR(ln 3) at order 2 is 7/3; the ticks lose 3 x 2; HSS 2 x 2 x 2."""
    for instance, moment in (
        (compositions.summed_renyi()[0], Fraction(7, 3) ** 2),
        (compositions.first_pair_renyi()[0], Fraction(7, 3)),
    ):
        assert exact_moment(instance.machine, instance.pairs, 2, instance.rounds) == moment
    for instance, odds in (
        (alive.lives(), 6),
        (alive.coming_and_going(), 6),
        (compositions.hss()[0], 8),
        (protocols.triangle(), 4),
    ):
        assert worst_ratio(instance.machine, instance.pairs, instance.rounds) == odds


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
