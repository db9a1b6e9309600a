"""Finite communication ([HSV] Def 14.4): which rules keep it, who needs it, and mu of pure parts beside Gaussian ones.

Kept where finitely many parts have it; never by an adaptive filter or a composite, whose creations or messages have no
bound of their own. Twins: a rule that always keeps it lets endless noise into the GDP filter, and one that takes a pure
part's epsilon for its mu is exceeded by randomized response.
"""

import dataclasses
from fractions import Fraction

import pytest

from stream_dp.accounting.derive import RULES, derive
from stream_dp.accounting.filters.squares import GaussianFilter
from stream_dp.accounting.gaussian_curve import gaussian_delta, pure_to_gaussian
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.rules import gaussian as rule_file
from stream_dp.accounting.rules.parallel import sparse_pure
from stream_dp.accounting.rules.rule import leaf
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
from stream_dp.core.guarantee import GaussianDP, Guarantee, Measure, Protected, PureDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import BudgetRefused, NotDerivable

ONE = Fraction(1)
ADD = Neighbors.ADD_REMOVE
ONCE = Touched(1, ADD, "one event")
STATIC = "a data set comes first"
FILTER = GaussianFilter.of(5 * ONE)


def part(measure: Measure, *, finite: bool) -> Derivation:
    """A leaf."""
    return leaf("part", Guarantee(measure, ADD, finite=finite), "its proof")


SITUATIONS: list[tuple[Situation, bool]] = [
    (Fixed("fixed"), True),
    (Parallel("counted", ONCE, (7,)), True),
    (Parallel("endless", ONCE), False),
    (Parallel("static", ONCE, (7,), first_pair=STATIC), True),
    (Local("users", 9, ONCE, STATIC), True),
    (Group("user", 3), True),
    (Moved("moved"), True),
    (Ticks("ticks", (Alive(0, None),)), True),
    (Composite("composite", "destination", "relation", "a test"), False),
    (Filtered("filtered", FILTER), False),
]


@pytest.mark.parametrize(
    ("situation", "kept"), SITUATIONS, ids=lambda it: getattr(it, "subject", it)
)
def test_rules_keep_it_where_their_theorem_does(situation: Situation, kept: bool) -> None:
    for finite in (True, False):
        found = derive((part(PureDP(ONE), finite=finite),), situation)
        assert found.guarantee.finite is (kept and finite)


def test_one_endless_part_is_enough_to_lose_it() -> None:
    parts = part(PureDP(ONE), finite=True), part(PureDP(ONE), finite=False)
    assert not derive(parts, Fixed("both")).guarantee.finite


def test_gaussian_parts_reach_the_filter_only_with_it() -> None:
    ledger = Ledger.under(FILTER, protected=Protected(ADD))
    for finite in (True, False):
        entry = ledger.price(part(GaussianDP(ONE), finite=finite))
        if finite:
            assert ledger.charge(entry).used.amount == 10**24
            continue
        before = ledger.used
        for attempt in (ledger.charge, ledger.preview):
            with pytest.raises(
                BudgetRefused, match=r"clamp the answers to a finite set and declare a horizon"
            ):
                attempt(entry)
        assert ledger.used == before
        with pytest.raises(NotDerivable, match="finite communication"):
            derive((part(GaussianDP(ONE), finite=False),), Filtered("asked", FILTER))


def test_pure_parts_need_none_and_add_their_own_mu() -> None:
    parts = part(GaussianDP(ONE), finite=True), part(PureDP(ONE), finite=False)
    (rule,) = [rule for rule in RULES[Fixed] if "Gaussian" in rule.name]
    found = rule(parts, Fixed("both")).guarantee
    mu = pure_to_gaussian(PureDP(ONE)).mu
    assert found.measure == rule_file._root([ONE, mu])
    assert not found.finite


def test_epsilon_for_mu_is_caught() -> None:
    """RR_1 has delta (e - 1) / (e + 1) at epsilon 0, more than 1-GDP allows and no more than its mu does."""
    total_variation = Fraction(46211, 100000)
    assert gaussian_delta(GaussianDP(ONE), Fraction(0)) < total_variation
    assert gaussian_delta(pure_to_gaussian(PureDP(ONE)), Fraction(0)) > total_variation


def test_a_rule_that_always_keeps_it_is_caught() -> None:
    twin = dataclasses.replace(sparse_pure, finite=lambda *_: True)
    endless = Parallel("endless", ONCE)
    premises = (part(PureDP(ONE), finite=False),)
    assert twin(premises, endless).guarantee.finite
    assert not sparse_pure(premises, endless).guarantee.finite
