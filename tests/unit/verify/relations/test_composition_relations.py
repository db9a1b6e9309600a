"""The verification functions of compositions against their definitions, on all short sequences; broken twins."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.verify.relations.relation_cases import APPROX, CASES, PURE, TOLD
from unit.verify.relations.symbols import compare, create
from unit.verify.relations.toys import ONE, QUERIES, is_rr, near, toy, truthful

from stream_dp.core.composition import Ask, ConcurrentComposition, Create
from stream_dp.core.guarantee import ApproxDP, GaussianDP, PureDP
from stream_dp.core.relation import All, Claim, Identical, Relation
from stream_dp.verify.exact_checks.protocols import LocalMessages, SparseDataSets
from stream_dp.verify.relations import pair_conditions as f
from stream_dp.verify.relations.creation import claim_of, epsilon, privacy_function
from stream_dp.verify.relations.pair_conditions import (
    CreatedWithin,
    DeltaBudget,
    LiveMechanism,
    OnlyKind,
    PairCondition,
    Suitable,
    TouchedWithin,
)


@pytest.mark.parametrize("name", CASES)
def test_a_relation_is_its_definition_at_every_prefix(name: str) -> None:
    """All sequences; and both sides of every accepted pair are admissible."""
    case = CASES[name]
    result = compare(case.relation, case.predicate, case.alphabet, case.depth)
    assert result.disagreement is None
    assert result.inadmissible == []
    assert min(result.accepted, result.refused) > 10


UNJUDGED = Create(ConcurrentComposition(), Claim(PureDP(ONE), Identical()))


def test_a_composition_inside_is_judged_by_its_own_claim() -> None:
    """The twin: a box whose verification function is that of identical messages refuses what INNER accepts."""
    case = CASES["nested"]
    twin = [(create("box", UNJUDGED),) * 2, *case.alphabet[1:]]
    assert compare(case.relation, case.predicate, twin, 3, sides=False).disagreement


# --- broken twins --------------------------------------------------------------------------------


class AnyIndex(Suitable):
    """Without (i): the left index decides."""

    __slots__ = ()

    def accept(self, left: Any, right: Any) -> Any:
        if isinstance(left, Ask) and isinstance(right, Ask):
            right = Ask(left.index, right.message)
        return Suitable.accept(self, left, right)


class NotYet(Suitable):
    """Without (ii): a message to no mechanism passes."""

    __slots__ = ()

    def _ask(self, index: int, left: Any, right: Any) -> Any:
        return self if index >= len(self.created) else Suitable._ask(self, index, left, right)


class AnyQuery(Suitable):
    """Without (iii)."""

    __slots__ = ()

    def _ask(self, index: int, left: Any, right: Any) -> Any:
        child = self._live(index)
        after = child.relation.accept(left, right) if child else None
        if child is None or after is None:
            return None
        return AnyQuery(self.truth, self.created.set(index, LiveMechanism(child.mechanism, after)))


class Credulous(Suitable):
    """Without (iv)."""

    __slots__ = ()

    def _create(self, query: Create) -> Any:
        claim = claim_of(query)
        assert claim is not None
        child = LiveMechanism(query.mechanism, claim.relation)
        return Credulous(self.truth, self.created.append(child))


class Forgetful(Suitable):
    """Without (v): each pair is judged as the mechanism's first."""

    __slots__ = ()

    def _ask(self, index: int, left: Any, right: Any) -> Any:
        return None if Suitable._ask(self, index, left, right) is None else self


def keeping(kind: type[Suitable]) -> Suitable:
    """The twin with the truth; every step of it makes plain `Suitable`s, so it is wrapped to stay what it is."""

    @dataclass(frozen=True)
    class Kept:
        inner: Any

        first_pair_consistent = False

        def accept(self, left: Any, right: Any) -> Any:
            after = self.inner.accept(left, right)
            return None if after is None else Kept(kind(after.truth, after.created))

    return Kept(kind(truthful))  # type: ignore[return-value]


class SetOf(set[Any]):
    """A sub-multiset checked as a subset."""

    def get(self, item: Any, _otherwise: int) -> int:
        return int(item in self)

    def set(self, _item: Any, _number: int) -> "SetOf":
        return self


def set_of(items: list[Any]) -> Any:
    return SetOf(items)


class Messages(TouchedWithin):
    """Counts the messages that differ, not the mechanisms that get them."""

    __slots__ = ()

    def query(self, left: Ask, right: Ask) -> Any:
        after = TouchedWithin.query(self, left, right)
        return None if after is None else replace(after, untouched=self.untouched)


@dataclass(frozen=True)
class TouchedDeltas(PairCondition):
    """The delta budget over the touched mechanisms only."""

    budget: Fraction
    deltas: tuple[Fraction, ...] = ()

    def creation(self, query: Create) -> Any:
        claim: Any = claim_of(query)
        return replace(self, deltas=(*self.deltas, claim.measure.delta))

    def query(self, left: Ask, right: Ask) -> Any:
        """Of a single touched mechanism at a time."""
        same = left.message is right.message
        return self if same or self.deltas[left.index] <= self.budget else None


class LargestDelta(DeltaBudget):
    """The largest delta instead of all of them."""

    __slots__ = ()

    def creation(self, query: Create) -> Any:
        return None if DeltaBudget.creation(DeltaBudget(self.budget), query) is None else self


def any_order(claim: Claim) -> Any:
    """Epsilon of RDP at whatever order."""
    return getattr(claim.measure, "epsilon", None)


def also_infinite(claim: Claim) -> Any:
    """A privacy function, finite communication or not."""
    return privacy_function(replace(claim, finite=True))


def anything(pairs_of: Suitable = TOLD) -> All:
    return All((pairs_of,))


YES = Suitable(lambda _: True)
BUDGET = Fraction(7, 16)
SPARSE = TouchedWithin.of([ONE], epsilon)
USERS = (QUERIES["user"],) * 2
COINS = (QUERIES["coins"],)


TWINS: dict[str, tuple[str, Relation]] = {
    "without (i), indices": ("suitable (4.5)", keeping(AnyIndex)),
    "without (ii)": ("suitable (4.5)", keeping(NotYet)),
    "without (iii)": ("suitable (4.5)", keeping(AnyQuery)),
    "without (iv)": ("suitable (4.5)", keeping(Credulous)),
    "without (v)": ("suitable (4.5)", keeping(Forgetful)),
    "4.9 in any order": ("fixed mechanisms (4.9)", f.fixed_parameters([PURE, APPROX])),
    "subset": (
        "fixed parameters (4.11)",
        All((TOLD, CreatedWithin(set_of([PURE, APPROX])))),
    ),
    "touched instead of created": ("fixed parameters (4.11)", f.k_sparse([PURE, APPROX])),
    "created instead of touched": ("k-sparse (5.1)", f.fixed_parameters([PURE], truth=truthful)),
    "messages": ("k-sparse (5.1)", All((TOLD, Messages.of([PURE])))),
    "k-sparse subset": ("k-sparse (5.1)", All((TOLD, TouchedWithin(set_of([PURE]))))),
    "k alone": ("2-sparse (5.1)", All((TOLD, TouchedWithin.of([ONE, ONE], epsilon)))),
    "no budget": ("delta budget (5.3)", f.k_sparse([ONE], epsilon)),
    "touched deltas": ("delta budget (5.3)", All((TOLD, SPARSE, TouchedDeltas(BUDGET)))),
    "largest delta": ("delta budget (5.3)", All((TOLD, SPARSE, LargestDelta(BUDGET)))),
    "any mechanism": ("RR only (5.8)", All((TOLD, DeltaBudget(BUDGET)))),
    "RR without budget": ("RR only (5.8)", All((TOLD, OnlyKind(is_rr)))),
    "any epsilon": (
        "RR only (5.8)",
        f.randomized_response_only(lambda q: is_rr(q) or q is QUERIES["rr1"], BUDGET, truthful),
    ),
    "not first-pair consistent": ("first pair (5.13)", f.k_sparse([APPROX], truth=truthful)),
    "no filter": ("filter (12.2)", anything()),
    "any order": ("k-sparse, RDP (13)", f.k_sparse([ONE], any_order, truthful)),
    "infinite communication": (
        "k-sparse, f-DP (14)",
        f.k_sparse([GaussianDP(ONE)], also_infinite, truthful),
    ),
    "each user alone": ("local protocol (8.5)", LocalMessages(USERS, SparseDataSets(2, near), COINS, TOLD)),
    "data sets unjudged": (
        "local protocol (8.5)",
        LocalMessages(USERS, SparseDataSets(9, lambda *_: True), COINS, TOLD),
    ),
    "no order": ("local protocol (8.5)", anything(YES)),
    "no sparsity": ("nested", All((YES,))),
}  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_broken_twins_are_caught(name: str) -> None:
    of, twin = TWINS[name]
    case = CASES[of]
    assert compare(twin, case.predicate, case.alphabet, case.depth, sides=False).disagreement


def test_twins_of_suitability_differ_by_their_fault_alone() -> None:
    case = CASES["suitable (4.5)"]
    result = compare(keeping(Suitable), case.predicate, case.alphabet, case.depth, sides=False)
    assert result.disagreement is None


# --- what keeps their cost constant ---------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(0, 4), max_size=8))
def test_a_multiset_gives_each_item_as_often_as_it_has_it(of: list[int], items: list[int]) -> None:
    left: CreatedWithin | None = CreatedWithin.of(map(Fraction, of), epsilon)
    for item in items:
        left = left.creation(toy("m", PureDP(Fraction(item)))) if left else None
    assert (left is not None) == all(items.count(i) <= of.count(i) for i in items)


def test_the_product_of_deltas_stays_short_and_never_admits_more() -> None:
    """Against the exact product, over 1,500 creations: whatever is admitted is within the budget, and the rest is
    refused where exact arithmetic does, for the budgets lie 2^-900 beside the exact values."""
    delta = Fraction(1, 10**6 + 3)
    create = toy("m", ApproxDP(Fraction(1), delta))
    exact = 1 - (1 - delta) ** 1_500
    hair = Fraction(1, 2**900)
    for budget, admitted in ((exact + hair, True), (exact - hair, False)):
        budgeted: DeltaBudget | None = DeltaBudget(budget)
        for _ in range(1_500):
            assert budgeted is not None
            assert budgeted.unfailed.denominator.bit_length() <= 1025
            budgeted = budgeted.creation(create)
        assert (budgeted is not None) == admitted
    assert DeltaBudget(Fraction(0), Fraction(1)).creation(
        toy("p", ApproxDP(Fraction(1), Fraction(0)))
    )
