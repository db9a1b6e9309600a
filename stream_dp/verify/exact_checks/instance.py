"""An instance: a composition small enough to be played against every adaptive adversary, and what is derived for it.

Rules: a part's claim is true of its machine (the tests check each, exactly). This file knows no composition rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from stream_dp.accounting.directed import Interval
from stream_dp.accounting.rules.leaf import leaf
from stream_dp.accounting.rules.rule import Premises
from stream_dp.accounting.situations import Situation
from stream_dp.core.composition import ConcurrentComposition, Create
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ApproxDP, Guarantee, Measure, PureDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import Claim, Relation
from stream_dp.verify.exact.enumeration import Enumerated, Lawful
from stream_dp.verify.exact.finite import BIT_PAIRS, FiniteMachine, Pairs
from stream_dp.verify.exact.randomized_response import (
    ASK,
    InteractiveRandomizedResponse,
    RandomizedResponse,
)
from stream_dp.verify.exact.verified import Verified, behind
from stream_dp.verify.relations.static import StaticDataSet, single_pair

ADD = Neighbors.ADD_REMOVE
ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class Instance:
    """`premises` in `situation` is what a rule books; `machine` with `pairs` and `rounds` messages is what is played.

    `words` says for people what it is. `cut`: the machine's noise is cut off, so the exact figure is an interval.
    """

    words: str
    premises: Premises
    situation: Situation
    machine: FiniteMachine[Any, Any]
    pairs: Pairs
    rounds: int
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A finite machine with a true claim: what a composition creates and what a derivation starts from.

    `queries` are the pairs that an adversary may want to send it.
    """

    name: str
    machine: FiniteMachine[Any, Any]
    measure: Measure
    relation: Relation
    queries: tuple[tuple[Any, Any], ...] = BIT_PAIRS

    @property
    def claim(self) -> Claim:
        """What is claimed of the part; its communication is finite."""
        return Claim(self.measure, self.relation, finite=True)

    @property
    def create(self) -> Create:
        """The part's creation query ([HSV] Def 4.1)."""
        machine: Any = Lawful(self.machine)
        return Create(machine, self.claim)

    @property
    def leaf(self) -> Derivation:
        """The part's claim, as a derivation starts from it."""
        return leaf(self.name, Guarantee(self.measure, ADD, finite=True), "verify.exact_checks")

    def claiming(self, measure: Measure) -> "Part":
        """Return this part with another true claim."""
        return replace(self, measure=measure)


def logarithm(odds: Fraction) -> Fraction:
    """ln(odds), rounded up; 0 for 1."""
    return Interval.of(odds).ln().upper if odds > 1 else ZERO


def private(odds: Fraction, delta: Fraction = ZERO) -> Measure:
    """(ln odds, delta)-DP."""
    return ApproxDP(logarithm(odds), delta) if delta else PureDP(logarithm(odds))


def related(left: object, right: object) -> bool:
    """Any two data sets: the bits 0 and 1."""
    return left in (0, 1) and right in (0, 1)


def rr(odds: Fraction, delta: Fraction = ZERO) -> Part:
    """RR_(ln odds, delta): one pair of bits, one answer."""
    return Part("RR", RandomizedResponse(odds, delta), private(odds, delta), single_pair(related))


def irr(odds: Fraction, delta: Fraction = ZERO) -> Part:
    """IRR_(ln odds, delta): a pair of bits first, then q*; its first pair decides."""
    machine = InteractiveRandomizedResponse(odds, delta)
    static = StaticDataSet(related)
    return Part("IRR", machine, private(odds, delta), static, (*BIT_PAIRS, (ASK, ASK)))


def composed() -> Enumerated:
    """The product's concurrent composition, all outcomes of each step enumerated."""
    return Enumerated(ConcurrentComposition())


def sent(relation: Relation, parts: Sequence[Part], indices: int) -> Verified:
    """What may be sent to a composition of these parts behind V[relation]; the first `indices` created are asked."""
    queries = dict.fromkeys(pair for part in parts for pair in part.queries)
    creations = dict.fromkeys(part.create for part in parts)
    return behind(relation, creations, queries, indices)


def known(create: Create) -> bool:
    """The truth of the parts' claims ([HSV] Def 4.5 iv): checked exactly by the tests, each alone."""
    return isinstance(create.mechanism, Lawful)


@dataclass(frozen=True, slots=True)
class OneBitDiffers:
    """Bits for as long as one likes; one pair of them may differ ([HSV] Def 3.3 for streams of bits)."""

    left: int = 1

    @property
    def first_pair_consistent(self) -> bool:
        """False: a later bit may be the one that differs."""
        return False

    def accept(self, left: Any, right: Any) -> "OneBitDiffers | None":
        """Take the next pair."""
        if not related(left, right) or left == right:
            return self if related(left, right) else None
        return OneBitDiffers(self.left - 1) if self.left else None
