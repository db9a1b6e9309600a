"""Broken verification functions of compositions: each differs from its definition on a short sequence."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pytest
from unit.verify.relations.relation_cases import APPROX, CASES, PURE, TOLD, AtMost
from unit.verify.relations.symbols import (
    compare,
)
from unit.verify.relations.toys import (
    ONE,
    QUARTER,
    QUERIES,
    TWO,
    is_rr,
    near,
    told,
)

from stream_dp.core.composition import Ask, Create, Halt
from stream_dp.core.guarantee import GaussianDP
from stream_dp.core.relation import All, Claim, Relation
from stream_dp.verify.exact_checks.protocols import LocalMessages, SparseDataSets
from stream_dp.verify.relations import pair_conditions as f
from stream_dp.verify.relations.creation import claim_of, epsilon, privacy_function
from stream_dp.verify.relations.pair_conditions import (
    CreatedFirst,
    CreatedThroughFilter,
    CreatedWithin,
    DeltaBudget,
    LiveMechanism,
    OnlyKind,
    PairCondition,
    Suitable,
    TouchedWithin,
)


class AnyIndex(Suitable):
    """Without (i): the left index decides."""

    __slots__ = ()

    def accept(self, left: Any, right: Any) -> Any:
        """Forget the right index."""
        if isinstance(left, Ask) and isinstance(right, Ask):
            right = Ask(left.index, right.message)
        return Suitable.accept(self, left, right)


class LeftCreates(Suitable):
    """Without (i): the left creation query decides."""

    __slots__ = ()

    def accept(self, left: Any, right: Any) -> Any:
        """Forget the right one."""
        both = isinstance(left, Create) and isinstance(right, Create)
        return Suitable.accept(self, left, left if both else right)


class NotYet(Suitable):
    """Without (ii): a message to no mechanism passes."""

    __slots__ = ()

    def _ask(self, index: int, left: Any, right: Any) -> Any:
        return self if index >= len(self.created) else Suitable._ask(self, index, left, right)


class FromTheEnd(Suitable):
    """Without (ii): Python's negative indices."""

    __slots__ = ()

    def _live(self, index: Any) -> Any:
        return self.created[index % len(self.created)] if len(self.created) else None


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


class Undead(Suitable):
    """A halted mechanism still answers."""

    __slots__ = ()

    def accept(self, left: Any, right: Any) -> Any:
        """A halt changes nothing."""
        after = Suitable.accept(self, left, right)
        return self if after is not None and isinstance(left, Halt) else after


def keeping(kind: type[Suitable]) -> Suitable:
    """The twin with the truth; every step of it makes plain `Suitable`s, so it is wrapped to stay what it is."""

    @dataclass(frozen=True)
    class Kept:
        inner: Any

        first_pair_consistent = False

        def accept(self, left: Any, right: Any) -> Any:
            after = self.inner.accept(left, right)
            return None if after is None else Kept(kind(after.truth, after.created))

    return Kept(kind(told))  # type: ignore[return-value]


class SetOf(set[Any]):
    """A sub-multiset checked as a subset."""

    def get(self, item: Any, _otherwise: int) -> int:
        """One, for ever."""
        return int(item in self)

    def set(self, _item: Any, _number: int) -> "SetOf":
        """Nothing is used up."""
        return self


def set_of(items: list[Any]) -> Any:
    """In place of a multiset."""
    return SetOf(items)


class Messages(TouchedWithin):
    """Counts the messages that differ, not the mechanisms that get them."""

    __slots__ = ()

    def query(self, left: Ask, right: Ask) -> Any:
        """Never mark a mechanism as touched."""
        after = TouchedWithin.query(self, left, right)
        return None if after is None else replace(after, untouched=self.untouched)


class Everything(TouchedWithin):
    """Counts every mechanism that is asked, also for identical queries."""

    __slots__ = ()

    def query(self, left: Ask, right: Ask) -> Any:
        """As if the queries differed."""
        return TouchedWithin.query(self, left, Ask(left.index, object()))  # type: ignore[arg-type]


class Shallow(TouchedWithin):
    """Different messages to a mechanism inside a composition do not touch the composition."""

    __slots__ = ()

    def query(self, left: Ask, right: Ask) -> Any:
        """Messages that are themselves addressed say nothing."""
        return self if isinstance(left.message, Ask) else TouchedWithin.query(self, left, right)


@dataclass(frozen=True)
class TouchedDeltas(PairCondition):
    """The delta budget over the touched mechanisms only."""

    budget: Fraction
    deltas: tuple[Fraction, ...] = ()

    def creation(self, query: Create) -> Any:
        """Remember it."""
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
        """Always the first."""
        return None if DeltaBudget.creation(DeltaBudget(self.budget), query) is None else self


class SumOfDeltas(DeltaBudget):
    """Deltas added up."""

    __slots__ = ()

    def creation(self, query: Create) -> Any:
        """Subtract."""
        claim: Any = claim_of(query)
        after = replace(self, budget=self.budget - claim.measure.delta)
        return after if after.budget >= 0 else None


class Refunding(DeltaBudget):
    """A halt gives back."""

    __slots__ = ()

    def accept(self, left: Any, right: Any) -> Any:
        """Start over at a halt."""
        if isinstance(left, Halt):
            return Refunding(self.budget)
        after = DeltaBudget.accept(self, left, right)
        return None if after is None else Refunding(after.budget, after.unfailed)


class AsPrinted(CreatedFirst):
    """Def 4.9 to the letter: says nothing of creations after the k-th message."""

    __slots__ = ()

    def accept(self, left: Any, right: Any) -> Any:
        """Anything, once they are created."""
        done = self.count == len(self.queries)
        return self if done else CreatedFirst.accept(self, left, right)


class RefundingFilter(CreatedThroughFilter):
    """A halt gives everything back."""

    __slots__ = ()

    def accept(self, left: Any, right: Any) -> Any:
        """A new filter at a halt."""
        if isinstance(left, Halt):
            return RefundingFilter(AtMost(Fraction(3), QUARTER))
        after = CreatedThroughFilter.accept(self, left, right)
        return None if after is None else RefundingFilter(after.filter)


def any_order(claim: Claim) -> Any:
    """Epsilon of RDP at whatever order."""
    return getattr(claim.measure, "epsilon", None)


def also_infinite(claim: Claim) -> Any:
    """A privacy function, finite communication or not."""
    return privacy_function(replace(claim, finite=True))


def anything(pairs_of: Suitable = TOLD) -> All:
    """Suitable and nothing else."""
    return All((pairs_of,))


YES = Suitable(lambda _: True)
BUDGET = Fraction(7, 16)
SPARSE = TouchedWithin.of([ONE], epsilon)
USERS = (QUERIES["user"],) * 2
COINS = (QUERIES["coins"],)


TWINS: dict[str, tuple[str, Relation]] = {
    "without (i), indices": ("suitable (4.5)", keeping(AnyIndex)),
    "without (i), creations": ("suitable (4.5)", keeping(LeftCreates)),
    "without (ii)": ("suitable (4.5)", keeping(NotYet)),
    "without (ii), from the end": ("suitable (4.5)", keeping(FromTheEnd)),
    "without (iii)": ("suitable (4.5)", keeping(AnyQuery)),
    "without (iv)": ("suitable (4.5)", keeping(Credulous)),
    "without (v)": ("suitable (4.5)", keeping(Forgetful)),
    "undead": ("suitable (4.5)", keeping(Undead)),
    "4.9 as printed": (
        "fixed mechanisms (4.9)",
        All((AsPrinted((QUERIES["a"], QUERIES["b"])), Suitable())),
    ),
    "4.9 in any order": ("fixed mechanisms (4.9)", f.fixed_parameters([PURE, APPROX])),
    "subset": (
        "fixed parameters (4.11)",
        All((TOLD, CreatedWithin(set_of([PURE, APPROX])))),
    ),
    "epsilons only": (
        "fixed parameters (4.11)",
        All((TOLD, CreatedWithin.of([ONE, ONE], epsilon))),
    ),
    "touched instead of created": ("fixed parameters (4.11)", f.k_sparse([PURE, APPROX])),
    "created instead of touched": ("k-sparse (5.1)", f.fixed_parameters([PURE], truth=told)),
    "messages": ("k-sparse (5.1)", All((TOLD, Messages.of([PURE])))),
    "all that are asked": ("k-sparse (5.1)", All((TOLD, Everything.of([PURE])))),
    "k-sparse subset": ("k-sparse (5.1)", All((TOLD, TouchedWithin(set_of([PURE]))))),
    "k alone": ("2-sparse (5.1)", All((TOLD, TouchedWithin.of([ONE, ONE], epsilon)))),
    "no budget": ("delta budget (5.3)", f.k_sparse([ONE], epsilon)),
    "touched deltas": ("delta budget (5.3)", All((TOLD, SPARSE, TouchedDeltas(BUDGET)))),
    "largest delta": ("delta budget (5.3)", All((TOLD, SPARSE, LargestDelta(BUDGET)))),
    "sum of deltas": ("delta budget (5.3)", All((TOLD, SPARSE, SumOfDeltas(BUDGET)))),
    "refund": ("delta budget (5.3)", All((TOLD, SPARSE, Refunding(BUDGET)))),
    "any mechanism": ("RR only (5.8)", All((TOLD, DeltaBudget(BUDGET)))),
    "RR without budget": ("RR only (5.8)", All((TOLD, OnlyKind(is_rr)))),
    "any epsilon": (
        "RR only (5.8)",
        f.randomized_response_only(lambda q: is_rr(q) or q is QUERIES["rr1"], BUDGET, told),
    ),
    "not first-pair consistent": ("first pair (5.13)", f.k_sparse([APPROX], truth=told)),
    "refunding filter": (
        "filter (12.2)",
        All((TOLD, RefundingFilter(AtMost(Fraction(3), QUARTER)))),
    ),
    "no filter": ("filter (12.2)", anything()),
    "any order": ("k-sparse, RDP (13)", f.k_sparse([ONE], any_order, told)),
    "any order, fixed": ("fixed parameters, RDP (13)", f.fixed_parameters([ONE, TWO], any_order, told)),
    "infinite communication": (
        "k-sparse, f-DP (14)",
        f.k_sparse([GaussianDP(ONE)], also_infinite, told),
    ),
    "each user alone": ("local protocol (8.5)", LocalMessages.of(USERS, SparseDataSets(2, near), COINS, told)),
    "data sets unjudged": (
        "local protocol (8.5)",
        LocalMessages.of(USERS, SparseDataSets(9, lambda *_: True), COINS, told),
    ),
    "no order": ("local protocol (8.5)", anything(YES)),
    "no sparsity": ("nested", All((YES,))),
    "a touch inside is none": ("nested", All((YES, Shallow.of([PURE])))),
}  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_broken_twins_are_caught(name: str) -> None:
    of, twin = TWINS[name]
    case = CASES[of]
    assert compare(twin, case.predicate, case.alphabet, case.depth, sides=False).disagreement


def test_twins_of_suitability_differ_by_their_fault_alone() -> None:
    case = CASES["suitable (4.5)"]
    found = compare(keeping(Suitable), case.predicate, case.alphabet, case.depth, sides=False)
    assert found.disagreement is None
