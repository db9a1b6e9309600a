"""From what a mechanism is made for to those whom the pipeline protects: the right step, or none."""

from fractions import Fraction

import pytest

from stream_dp.accounting.rules.rule import leaf
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.errors import NotDerivable
from stream_dp.pipeline.derivations import Protection

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
THREE, DAILY = Users(3), Users(3, 24)


def step(neighbors: Neighbors, users: Users | None = None) -> Derivation:
    """Return a mechanism's own guarantee."""
    return leaf("it", Guarantee(PureDP(Fraction(1)), neighbors, users=users), "its proof")


@pytest.mark.parametrize(
    ("protection", "made_for", "factor"),
    [
        (Protection(ADD), step(ADD), 1),
        (Protection(Neighbors.REPLACE_ANY_TICK), step(ADD), 2),
        (Protection(ADD, THREE), step(ADD), 3),
        (Protection(ADD, THREE), step(ADD, THREE), 1),
    ],
)
def test_it_protects_those_of_the_pipeline_at_so_many_steps(
    protection: Protection, made_for: Derivation, factor: int
) -> None:
    found = protection.of("it", made_for).guarantee
    assert found.protected == protection.protected
    assert found.measure == PureDP(Fraction(factor))


@pytest.mark.parametrize(
    ("protection", "made_for"),
    [
        (Protection(ADD, THREE), step(ADD, DAILY)),
        (Protection(ADD, DAILY), step(ADD, Users(2, 24))),
        (Protection(ADD, THREE), step(REPLACE)),
        (Protection(ADD), step(REPLACE)),
    ],
)
def test_what_is_made_for_others_is_not_taken_for_them(
    protection: Protection, made_for: Derivation
) -> None:
    with pytest.raises(NotDerivable):
        assert protection.of("it", made_for).guarantee.protected == protection.protected
