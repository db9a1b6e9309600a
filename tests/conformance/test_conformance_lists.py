"""Mechanisms for events that set several entries: the same suite, neighbours of whole lists, and their bands."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.core.composition import ConcurrentComposition
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.hss.sparse_vector import SparseVector
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter
from stream_dp.mechanisms.watches.kinds import Alerts
from stream_dp.testing.conformance import Case, NotConforming, checks_of, neighbours_stay_neighbours

ADD, REPLACE, ONE = Neighbors.ADD_REMOVE, Neighbors.REPLACE, Fraction(1)
WIDTH, ONES = 4, 3


class ForgottenInside(HSS):
    """Broken: the counter inside is made for one entry an event."""

    @property
    def counter(self) -> Any:
        """One-hot rows only."""
        return HybridCounter(self.width, self.counter_epsilon, self.neighbors)


def hss(
    relation: Neighbors,
    composition: ConcurrentComposition | None = None,
    kind: type[HSS] = HSS,
) -> HSS:
    """HSS over rows of four entries, of which an event sets three."""
    made = composition or ConcurrentComposition()
    return kind(WIDTH, None, ONE, ONE, ONE, relation, 20, ones=ONES, composition=made)


def composite(relation: Neighbors, kind: type[HSS] = HSS) -> Case:
    """The case of an HSS."""
    return Case(
        name=f"HSS lists {relation}",
        make=lambda: hss(relation, kind=kind),
        composite=lambda composition: hss(relation, composition, kind),
        touches=((SparseVector, 1), (HybridCounter, 1)),
    )


def plain(make: Callable[[Neighbors], Any], relation: Neighbors) -> Case:
    """The case of a mechanism without parts."""
    made = make(relation)
    return Case(name=f"{type(made).__name__} lists {relation}", make=lambda: make(relation))


CASES = [
    case
    for relation in (ADD, REPLACE)
    for case in (
        plain(lambda r: Counter(WIDTH, ONE, r, 40, ONES), relation),
        plain(lambda r: HybridCounter(WIDTH, ONE, r, ONES), relation),
        plain(lambda r: Alerts(WIDTH, ONE, r, 90, ONES), relation),
        composite(relation),
    )
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_conforms_with_lists(case: Case) -> None:
    for check in checks_of(case):
        check(case)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_a_part_that_is_made_for_one_entry_is_caught(relation: Neighbors) -> None:
    with pytest.raises(NotConforming, match="not neighbours"):
        neighbours_stay_neighbours(composite(relation, ForgottenInside))


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_bands_are_those_of_a_column_at_its_share(relation: Neighbors) -> None:
    share = ONE / relation.l0(WIDTH, ONES)
    for updates in (1, 7, 39):
        for many, one in (
            (Counter(WIDTH, ONE, relation, 40, ONES), Counter(1, share, ADD, 40)),
            (HybridCounter(WIDTH, ONE, relation, ONES), HybridCounter(1, share, ADD)),
            (Alerts(WIDTH, ONE, relation, 90, ONES), Alerts(1, share, ADD, 90)),
        ):
            public: Any = one.public(updates, None)
            assert many.band(public, 0.95) == one.band(public, 0.95)
