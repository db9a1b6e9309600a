"""Quantities: what each says of itself is what exhaustive search finds, and the sparse vector's scales follow from it.

The oracle knows sorted lists and sums only: it lists all rows that an event can set, all pairs of neighbouring sums on
a lattice, and takes the largest change. No statistics.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import TypeAlias

import numpy as np
import pytest
from oracles.svt import Decays, loss
from statistical.attack import Attack, Pair

from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import UsageError
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.hss.sparse_vector import (
    MAXIMUM,
    ColumnsAbove,
    Largest,
    Maximum,
    Quantity,
    SparseVector,
    Sum,
)

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
ONE, TWO = Fraction(1), Fraction(2)
Point: TypeAlias = tuple[int, ...]

OTHERWISE: dict[Quantity, Callable[[Sequence[int]], int]] = {
    MAXIMUM: max,
    Largest(1): max,
    Largest(2): lambda x: sorted(x)[-2],
    Largest(3): min,
    Sum(): sum,
    ColumnsAbove(1): lambda x: sum(v > 0 for v in x),
    ColumnsAbove(3): lambda x: len([v for v in x if v >= 3]),
}


def rows(width: int, ones: int) -> list[Point]:
    return [r for r in itertools.product((0, 1), repeat=width) if sum(r) <= ones]


def plus(a: Point, b: Point) -> Point:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def pairs(relation: Neighbors, width: int, ones: int) -> Iterator[tuple[Point, Point]]:
    """The contents of the event that differs, in both runs."""
    every = rows(width, ones)
    if relation is ADD:
        yield from ((row, every[0]) for row in every[1:])
        yield from ((every[0], row) for row in every[1:])
    else:
        yield from itertools.permutations(every, 2)


def changes(
    q: Callable[[Sequence[int]], int], relation: Neighbors, width: int, ones: int
) -> tuple[int, bool]:
    """The largest change of q over a lattice, and whether each event changes it in one direction at all places."""
    lattice = list(itertools.product(range(4), repeat=width))
    most, one_sided = 0, True
    for left, right in pairs(relation, width, ones):
        found = [q(plus(u, left)) - q(plus(u, right)) for u in lattice]
        most = max(most, *map(abs, found))
        one_sided &= min(found) >= 0 or max(found) <= 0
    return most, one_sided


@pytest.mark.parametrize("quantity", OTHERWISE)
@pytest.mark.parametrize("width", [1, 3])
def test_what_it_says_of_itself_is_what_there_is(quantity: Quantity, width: int) -> None:
    """Equal where a quantity can be attained on the lattice; never too small."""
    if isinstance(quantity, Largest) and quantity.rank > width:
        with pytest.raises(UsageError, match="rank: must lie from 1 to the number of columns"):
            quantity.checked(ADD, width, 1)
        return
    q = OTHERWISE[quantity]
    for point in itertools.product(range(4), repeat=width):
        assert quantity.of(np.array(point)) == q(point)
        higher = q(plus(point, (1,) * width))
        assert all(q(point) <= q(plus(point, row)) <= higher for row in rows(width, width))
        assert higher - q(point) <= quantity.lipschitz(width)
    for relation, ones in itertools.product((ADD, REPLACE), range(1, width + 2)):
        most, one_sided = changes(q, relation, width, ones)
        assert quantity.sensitivity(relation, width, ones) == most
        assert quantity.one_signed(relation, width) <= one_sided
        if width > 1 or relation is ADD:
            assert quantity.one_signed(relation, width) == one_sided


@pytest.mark.parametrize("quantity", OTHERWISE)
def test_noisy_columns_move_it_by_no_more_than_its_law(quantity: Quantity) -> None:
    """All noises from -2 to 2 on three columns: too high by one of `high` sums, too low by one of `low` of them."""
    law, q = quantity.error(3), OTHERWISE[quantity]
    for point in [(0, 0, 0), (3, 2, 2), (5, 1, 3), (2, 6, 6)]:
        order = sorted(range(3), key=lambda i: -point[i])
        for noise in itertools.product(range(-2, 3), repeat=3):
            moved = q(plus(point, noise)) - q(point)
            if law is None:
                near = quantity.spread(np.array(plus(point, noise)), max(map(abs, noise)))
                assert abs(moved) <= near
                continue
            sums = [sum(noise)] if law.added == 3 else list(noise)
            assert moved <= law.factor * max(sums)
            fixed = sums if law.low in (3, len(sums)) else [noise[i] for i in order[: law.low]]
            assert -moved <= law.factor * max(-v for v in fixed)


@pytest.mark.parametrize(
    ("quantity", "relation", "ones", "lift", "query"),
    [
        (MAXIMUM, ADD, 3, 1, 1), (MAXIMUM, REPLACE, 3, 1, 2), (Largest(2), REPLACE, 1, 1, 2),
        (Sum(), ADD, 2, 2, 2), (Sum(), REPLACE, 9, 3, 3), (ColumnsAbove(4), REPLACE, 2, 2, 4),
    ],
)  # fmt: skip
def test_scales_follow_from_the_quantity(
    quantity: Quantity, relation: Neighbors, ones: int, lift: int, query: int
) -> None:
    vector = SparseVector(3, ONE, TWO, relation, (0, 0, 0), quantity, ones)
    assert vector.lift_scale == lift
    assert vector.query_scale == Fraction(query, 2)
    assert quantity.words in str(vector.derivation())


def neighbours(relation: Neighbors, width: int, ones: int) -> Iterator[Pair]:
    """Two ticks; in one of them an event differs, as above."""
    bases = list(itertools.product(itertools.product((0, 1), repeat=width), repeat=2))
    for base in bases:
        for tick, (left, right) in itertools.product(range(2), pairs(relation, width, ones)):
            changed = [plus(base[tick], row) for row in (left, right)]
            a, b = ((*base[:tick], row, *base[tick + 1 :]) for row in changed)
            yield a, b


class ForgetsItsSensitivity(ColumnsAbove):
    """Broken: as if an event set one entry."""

    __slots__ = ()

    def sensitivity(self, relation: Neighbors, width: int, ones: int) -> int:
        return 1


class OneSignedAfterAll(Largest):
    """Broken: as if a replacement moved it in one direction."""

    __slots__ = ()

    def one_signed(self, relation: Neighbors, width: int) -> bool:
        return True


@pytest.mark.parametrize(
    ("quantity", "relation", "ones", "holds"),
    [
        (Largest(2), ADD, 2, True), (Largest(2), REPLACE, 1, True), (Sum(), ADD, 2, True),
        (Sum(), REPLACE, 2, True), (ColumnsAbove(2), ADD, 2, True),
        (ColumnsAbove(2), REPLACE, 1, True), (ForgetsItsSensitivity(2), ADD, 2, False),
    ],
)  # fmt: skip
def test_a_sparse_vector_keeps_its_claim_for_every_quantity(
    quantity: Quantity, relation: Neighbors, ones: int, holds: bool
) -> None:
    """All noise of the real code enumerated; all pairs of two ticks. Twins lose more than they claim for certain."""
    make = partial(SparseVector, 2, TWO, TWO, relation, (0, 0), quantity, ones)
    found = Attack(make, threshold=1, mass=1e-4).worst(neighbours(relation, 2, ones))
    assert (found.least > 4.1) == (not holds)
    assert found.most <= 4.02 or not holds
    if isinstance(quantity, Sum) and holds:
        assert found.most < 2.02  # a shift that never changes costs max(e1, e2), as a count's does


@pytest.mark.parametrize(("kind", "holds"), [(Largest, True), (OneSignedAfterAll, False)])
def test_the_cheap_scale_is_not_for_a_replacement(kind: type[Largest], holds: bool) -> None:
    """A replaced event raises the second largest for thirty ticks and lowers it at the crossing; by the oracle."""
    one = SparseVector(2, TWO, TWO, REPLACE, (0, 0), kind(2))
    noise = Decays.of(float(1 / one.lift_scale), float(1 / one.query_scale))
    q = OTHERWISE[Largest(2)]
    sums = [(3, 9)] * 30 + [(30, 9)]
    left, right = ([q(plus(u, event)) for u in sums] for event in ((1, 0), (0, 1)))
    assert (left[0] - right[0], left[-1] - right[-1]) == (1, -1)
    found = loss(left, right, [4] * 30 + [15], noise)
    assert (found <= 4) == holds
    assert (found > 4.5) == (not holds)


def test_what_does_not_fit_is_refused() -> None:
    for make in (
        partial(SparseVector, 2, ONE, ONE, ADD, (0, 0), Largest(3)),
        partial(HSS, 2, Largest(0), ONE, ONE, ONE, ADD, None),
        partial(HSS, 2, ColumnsAbove(0), ONE, ONE, ONE, ADD, None),
    ):
        with pytest.raises(UsageError, match=r"rank: must lie|level: must be at least 1"):
            make()


def test_a_sum_is_exact_beyond_64_bits() -> None:
    assert Sum().of(np.full(64, 1 << 60)) == 1 << 66
    assert Maximum().of(np.array([1 << 60, 0])) == 1 << 60
