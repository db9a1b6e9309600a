"""Rules and derivations: the derived guarantee is the claimed one, and a rule refuses where it is no theorem."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.accounting.derive import derive as tightest
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Composite, Fixed, Parallel, Touched
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ApproxDP, Guarantee, PureDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.hss.sparse_vector import MAXIMUM, SparseVector
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter
from stream_dp.mechanisms.serving import derived
from stream_dp.mechanisms.watches.kinds import Alerts
from stream_dp.pipeline.derivations import fixed_blocks

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
EPSILON = Fraction(7, 9)


def pure(epsilon: Fraction, relation: Neighbors = ADD) -> Derivation:
    return leaf("leaf", Guarantee(PureDP(epsilon), relation), "proof")


APPROXIMATE = leaf("gauss", Guarantee(ApproxDP(EPSILON, Fraction(1, 100)), ADD), "proof")


def mechanisms(width: int, relation: Neighbors) -> list[Any]:
    """One of each, all at EPSILON."""
    shares = (EPSILON / 2, EPSILON / 3, EPSILON / 6)
    return [
        Counter(width, EPSILON, relation, 100),
        HybridCounter(width, EPSILON, relation),
        SparseVector(width, EPSILON / 4, EPSILON * 3 / 4, relation, (0,) * width),
        Alerts(width, EPSILON, relation, 10),
        HSS(width, None, *shares, relation, 100),
        HSS(width, MAXIMUM, *shares, relation, None),
    ]


@pytest.mark.parametrize("relation", [Neighbors.ADD_REMOVE, Neighbors.REPLACE])
@pytest.mark.parametrize("width", [1, 2, 17])
@pytest.mark.parametrize("which", range(6))
def test_what_is_derived_is_what_is_claimed(which: int, width: int, relation: Neighbors) -> None:
    mechanism = mechanisms(width, relation)[which]
    result = derived(mechanism, "series")
    assert result.subject == "series"
    assert result.guarantee == mechanism.guarantee == Guarantee(PureDP(EPSILON), relation)
    assert all(c.holds and c.why for node in nodes(result) for c in node.conditions)
    assert all(node.source for node in nodes(result))


def nodes(derivation: Derivation) -> list[Derivation]:
    return [derivation, *(n for premise in derivation.premises for n in nodes(premise))]


@dataclass(frozen=True)
class Boasts(Counter):
    """A counter that claims less than its noise gives."""

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(PureDP(self.epsilon / 2), self.neighbors)

    def derivation(self) -> Derivation:
        """The counter's, stated again: its code is the counter's."""
        return Counter.derivation(self)


def test_a_claim_that_does_not_follow_is_refused() -> None:
    with pytest.raises(NotDerivable, match="differs from what the mechanism claims"):
        derived(Boasts(1, EPSILON, ADD, 10), "series")
    with pytest.raises(NotDerivable, match="no derivation is known for a str"):
        derived("counter", "series")  # type: ignore[arg-type]


def sparse(k: int, relation: Neighbors = ADD) -> Parallel:
    """One kind, created without end, k of which an event touches."""
    return Parallel("p", Touched(k, relation, "why"))


def test_parallel_takes_pure_copies_and_at_least_one() -> None:
    assert tightest((pure(EPSILON),), sparse(3)).guarantee.measure == PureDP(3 * EPSILON)
    with pytest.raises(NotDerivable, match=r"Thm 5\.2 forbids delta"):
        tightest((APPROXIMATE,), sparse(1))
    for k in (0, -1):
        with pytest.raises(NotDerivable, match=rf"{k}-sparse: k must be at least 1 \(why\)"):
            tightest((pure(EPSILON),), sparse(k))
    with pytest.raises(NotDerivable, match="counted for replace, but the parts protect under add"):
        tightest((pure(EPSILON),), sparse(1, REPLACE))


def test_concurrent_composition_adds_up_pure_parts_of_one_relation() -> None:
    result = tightest((pure(EPSILON), pure(Fraction(1, 3))), Fixed("c"))
    assert result.guarantee == Guarantee(PureDP(EPSILON + Fraction(1, 3)), ADD)
    with pytest.raises(
        NotDerivable, match=r"the parts' deltas add up to 0.01, and a delta of 0 is granted"
    ):
        tightest((pure(EPSILON), APPROXIMATE), Fixed("c"))
    with pytest.raises(
        NotDerivable, match="same neighbours: all parts protect under add_remove and"
    ):
        tightest((pure(EPSILON), pure(EPSILON, REPLACE)), Fixed("c"))
    with pytest.raises(NotDerivable, match="nothing to compose"):
        tightest((), Fixed("c"))


def test_a_composite_has_the_guarantee_of_its_parts() -> None:
    result = tightest(
        (pure(EPSILON),), Composite("whole", "destination", "relation", "tests/suite")
    )
    assert result.guarantee == pure(EPSILON).guarantee
    assert [c.why for c in result.conditions[1:]] == [
        "destination; checked by tests/suite", "relation; checked by tests/suite"
    ]  # fmt: skip
    with pytest.raises(NotDerivable, match="destination and response: why; no test suite is named"):
        tightest((pure(EPSILON),), Composite("whole", "why", "why", ""))
    with pytest.raises(NotDerivable, match="f to f': no reason given"):
        tightest((pure(EPSILON),), Composite("whole", "why", "", "tests/suite"))


def test_the_frozen_block_is_the_sum_of_its_series() -> None:
    parts = tuple(derived(m, str(i)) for i, m in enumerate(mechanisms(3, REPLACE)))
    block = fixed_blocks("flights", parts)[0]
    assert block.guarantee.measure == PureDP(6 * EPSILON)
    assert [p.subject for p in block.premises] == list("012345")
    spared = fixed_blocks("flights", parts, Fraction(1, 100))[0].guarantee.measure
    assert isinstance(spared, ApproxDP)
    assert spared.epsilon < 6 * EPSILON
    assert spared.delta == Fraction(1, 100)


def test_a_derivation_cannot_be_bent_afterwards() -> None:
    result = tightest((pure(EPSILON),), sparse(2))
    broken = replace(result.conditions[0], holds=False)
    with pytest.raises(NotDerivable):
        replace(result, conditions=(broken,))
