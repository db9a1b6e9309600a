"""The verification functions of compositions against their definitions, on all short sequences."""

import pytest
from unit.verify.relations.relation_cases import CASES
from unit.verify.relations.symbols import (
    compare,
    create,
)
from unit.verify.relations.toys import (
    ONE,
)

from stream_dp.core.composition import ConcurrentComposition, Create
from stream_dp.core.guarantee import PureDP
from stream_dp.core.relation import Claim, Identical


@pytest.mark.parametrize("name", CASES)
def test_a_relation_is_its_definition_at_every_prefix(name: str) -> None:
    """All sequences; and both sides of every accepted pair are admissible."""
    case = CASES[name]
    found = compare(case.relation, case.predicate, case.alphabet, case.depth)
    assert found.disagreement is None
    assert found.inadmissible == []
    assert min(found.accepted, found.refused) > 10


UNJUDGED = Create(ConcurrentComposition(), Claim(PureDP(ONE), Identical()))


def test_a_composition_inside_is_judged_by_its_own_claim() -> None:
    """The twin: a box whose verification function is that of identical messages refuses what INNER accepts."""
    case = CASES["nested"]
    twin = [(create("box", UNJUDGED),) * 2, *case.alphabet[1:]]
    assert compare(case.relation, case.predicate, twin, 3, sides=False).disagreement
