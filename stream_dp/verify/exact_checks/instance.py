"""An instance: a composition small enough to play against every adaptive adversary, with the derivation for it.

Rules: a part's claim holds for its machine (the tests check every claim exactly). This file knows no composition
rule.
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
    """A rule derives from `premises` in `situation`; the game plays `machine` with `pairs` for `rounds` messages.

    `words` describe the instance for people. `cut`: the machine's noise is cut off, so the exact figure is an
    interval.
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
    """A finite machine with a true claim: a composition creates it, and a derivation starts from it.

    `queries` are the pairs that an adversary may want to send it.
    """

    name: str
    machine: FiniteMachine[Any, Any]
    measure: Measure
    relation: Relation
    queries: tuple[tuple[Any, Any], ...] = BIT_PAIRS

    @property
    def claim(self) -> Claim:
        """The claim of the part; its communication is finite."""
        return Claim(self.measure, self.relation, finite=True)

    @property
    def create(self) -> Create:
        """The part's creation query ([HSV] Def 4.1)."""
        machine: Any = Lawful(self.machine)
        return Create(machine, self.claim)

    @property
    def leaf(self) -> Derivation:
        """The leaf of a derivation that states the part's claim."""
        return leaf(self.name, Guarantee(self.measure, ADD, finite=True), "verify.exact_checks")

    def claiming(self, measure: Measure) -> "Part":
        """Return this part with another true claim."""
        return replace(self, measure=measure)


def logarithm(odds: Fraction) -> Fraction:
    """Return ln(odds), rounded up; 0 for odds of 1."""
    return Interval.of(odds).ln().upper if odds > 1 else ZERO


def private(odds: Fraction, delta: Fraction = ZERO) -> Measure:
    """Return (ln odds, delta)-DP."""
    return ApproxDP(logarithm(odds), delta) if delta else PureDP(logarithm(odds))


def related(left: object, right: object) -> bool:
    """Say that any two data sets are related: the bits 0 and 1."""
    return left in (0, 1) and right in (0, 1)


def rr(odds: Fraction, delta: Fraction = ZERO) -> Part:
    """Return RR_(ln odds, delta): one pair of bits, one answer."""
    return Part("RR", RandomizedResponse(odds, delta), private(odds, delta), single_pair(related))


def irr(odds: Fraction, delta: Fraction = ZERO) -> Part:
    """Return IRR_(ln odds, delta): a pair of bits first, then q*; the first pair decides all."""
    machine = InteractiveRandomizedResponse(odds, delta)
    static = StaticDataSet(related)
    return Part("IRR", machine, private(odds, delta), static, (*BIT_PAIRS, (ASK, ASK)))


def composed() -> Enumerated:
    """Return the product's concurrent composition with all outcomes of each step enumerated."""
    return Enumerated(ConcurrentComposition())


def sent(relation: Relation, parts: Sequence[Part], indices: int) -> Verified:
    """Return the moves against a composition behind V[relation]; queries go to the first `indices` parts."""
    queries = dict.fromkeys(pair for part in parts for pair in part.queries)
    creations = dict.fromkeys(part.create for part in parts)
    return behind(relation, creations, queries, indices)


def known(create: Create) -> bool:
    """Say that the parts' claims are true ([HSV] Def 4.5 iv); the tests check every claim exactly, by itself."""
    return isinstance(create.mechanism, Lawful)


@dataclass(frozen=True, slots=True)
class OneBitDiffers:
    """Any number of pairs of bits, of which one may differ ([HSV] Def 3.3 for streams of bits)."""

    left: int = 1

    @property
    def first_pair_consistent(self) -> bool:
        """False: a later pair of bits may be the one that differs."""
        return False

    def accept(self, left: Any, right: Any) -> "OneBitDiffers | None":
        """Return the relation after the next pair of messages; None where it refuses the pair."""
        if not related(left, right) or left == right:
            return self if related(left, right) else None
        return OneBitDiffers(self.left - 1) if self.left else None
