"""The certified rules: each is listed and met, what is exceeded is seen, and naive books are exceeded and answered.

The known-broken twins of the rules are in tests/unit/cli/test_audit_rules.py, where the command refuses them.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.accounting.derive import RULES
from stream_dp.accounting.rules.fixed import concurrent, optimal
from stream_dp.accounting.rules.parallel import first_pair, local, sparse_pure
from stream_dp.accounting.rules.renyi import truncated
from stream_dp.accounting.rules.rule import Rule
from stream_dp.accounting.situations import Fixed
from stream_dp.core.guarantee import (
    ZCDP,
    ApproxDP,
    GaussianDP,
    PureDP,
    RenyiCurve,
    RenyiDP,
    TruncatedZCDP,
)
from stream_dp.verify.counterexamples import books
from stream_dp.verify.exact.exact_delta import exact_moment
from stream_dp.verify.exact.randomized_response import RareAnswer
from stream_dp.verify.exact_checks import compositions, protocols
from stream_dp.verify.exact_checks.instance import (
    Comparison,
    Instance,
    OneBitDiffers,
    Verdict,
    compare,
    logarithm,
    worst_comparison,
)
from stream_dp.verify.exact_checks.table import GAPS, INSTANCES, NO_INSTANCE, RuleFinding, findings

ONE, TWO, THREE, TENTH, ZERO = Fraction(1), Fraction(2), Fraction(3), Fraction(1, 10), Fraction(0)


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
    assert len(played) >= 60
    for rule, words, verdict in played:
        loose = {
            name
            for name in (
                "zCDP", "GDP", "Gaussian", "approximate", "graphs", "its intervals", "Alg. 4", "two in all",
                "optimal filter of (ln 3, 1/4)", "two steps",
            )
            if name in rule + words
        }  # fmt: skip
        cut = "MultiSparseVector" in words
        expected = Verdict.CUT if cut else Verdict.WITHIN if loose else Verdict.EQUAL
        assert verdict is expected, (rule, words)


def test_a_rule_without_an_instance_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    stranger: Rule[Any] = replace(concurrent, name="a stranger")
    for kind in RULES:
        monkeypatch.setitem(RULES, kind, (stranger,))
    result = [finding for finding in findings() if finding.rule == "a stranger"]
    assert len(result) == len(RULES)
    assert all(f.why == NO_INSTANCE and f.compared is None and not f.violated for f in result)


def test_the_truncated_claim_is_true_and_ends_where_it_says() -> None:
    """D_a / a grows up to 5/2, so its value there covers all orders below; at order 3 it does not (1e-9)."""
    rare = RareAnswer(Fraction(1, 10**4), Fraction(1, 100))
    claim = compositions.truncated_claim(rare, Fraction(5, 2))
    per_order = [rare.divergence(1 + n / 100) / (1 + n / 100) for n in range(1, 151)]
    assert per_order == sorted(per_order)
    assert per_order[-1] <= float(claim.rho)
    assert rare.divergence(3) > 3 * float(claim.rho)


def test_a_truncated_rule_that_keeps_the_largest_omega_is_caught() -> None:
    (instance,) = compositions.summed_truncated()
    assert isinstance(instance.situation, Fixed)
    booked = truncated(instance.premises, instance.situation).guarantee.measure
    assert isinstance(booked, TruncatedZCDP)
    assert compare(booked, instance).verdict is Verdict.WITHIN
    assert compare(replace(booked, omega=Fraction(6)), instance).verdict is Verdict.VIOLATED
    assert compare(replace(booked, rho=booked.rho / 4), instance).verdict is Verdict.VIOLATED


def test_an_order_that_is_not_whole_has_no_moment_to_be_compared_with() -> None:
    """Cut down to 2 it would pass where 5/2 is exceeded: the divergence grows with the order."""
    (instance,) = compositions.summed_renyi()
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
    (instance,) = compositions.summed_zcdp()
    assert compare(ZCDP(ZERO), instance).verdict is Verdict.VIOLATED


@pytest.mark.parametrize(
    ("rule", "instance", "half"),
    [
        (concurrent, compositions.summed()[0], lambda m: PureDP(m.epsilon / 2)),
        (optimal, compositions.best()[0], lambda m: ApproxDP(m.epsilon / 2, m.delta)),
        (optimal, compositions.best()[0], lambda m: ApproxDP(m.epsilon, m.delta / 2)),
        (local, protocols.one_user(TENTH), lambda m: ApproxDP(m.epsilon / 2, m.delta)),
        (sparse_pure, compositions.pure_responses(2, 1, ZERO), lambda m: PureDP(m.epsilon * Fraction(99, 100))),
        (first_pair, compositions.first_pair()[0], lambda m: ApproxDP(m.epsilon, m.delta - Fraction(1, 10**8))),
        (concurrent, compositions.summed()[0], lambda m: RenyiDP(TWO, m.epsilon / 2)),
        (concurrent, compositions.summed()[0], lambda m: ZCDP(m.epsilon / 8)),
        (concurrent, compositions.summed()[0], lambda m: GaussianDP(m.epsilon / 4)),
    ],
)  # fmt: skip
def test_less_than_exact_is_violated(rule: Rule[Any], instance: Instance, half: Any) -> None:
    booked = rule(instance.premises, instance.situation).guarantee.measure
    assert compare(booked, instance).verdict is Verdict.EQUAL
    assert compare(half(booked), instance).verdict is Verdict.VIOLATED


def test_more_than_exact_is_within_and_a_broken_cut_is_seen() -> None:
    assert compare(PureDP(TWO), compositions.summed()[0]).verdict is Verdict.WITHIN
    coordinates = protocols.coordinates()
    shown = compare(PureDP(Fraction(4)), coordinates)
    assert shown.verdict is Verdict.VIOLATED
    assert float(shown.exact) > 0.01


def test_a_loss_without_bound_is_violated() -> None:
    instance = compositions.touched_deltas()[1]
    assert math.isinf(float(compare(PureDP(THREE), instance).exact))
    assert compare(PureDP(THREE), instance).verdict is Verdict.VIOLATED


def test_a_violation_smaller_than_a_float_is_not_hidden_by_an_order_that_is_equal() -> None:
    instance = compositions.summed()[0]
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
        ("[HSV] Thm 13.5", "Thm 13.5 shows that the rule then fails"),
        ("[WRRW] App. F", "bounds no privacy loss ([WRRW] App. F)"),
        ("Kairouz, Oh, Viswanath", "epsilon 1.906"),  # 20 ln 1.1
    ):
        assert says in rows[source].ours
        assert not rows[source].ours.endswith(".")


def test_one_bit_differs_only_once() -> None:
    relation = OneBitDiffers()
    once = relation.accept(0, 1)
    assert relation.accept(2, 2) is None
    assert once is not None
    assert once.accept(1, 1) is once
    assert once.accept(1, 0) is None
    assert not relation.first_pair_consistent
