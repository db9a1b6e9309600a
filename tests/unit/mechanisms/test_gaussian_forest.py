"""A forest of windows with Gaussian noise, exactly: an event is a shift of one noise a level, and what that costs.

As in test_forest_exact, the event is played as a shift of the noises that the real code draws; its cost in zCDP is half
the sum of its squares over the variances. On small instances all paths of noise are enumerated besides, and the moments
that zCDP bounds are those of the real answers. Twins: every level at the whole rho, an event's other entries forgotten.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import pytest
from unit.mechanisms.shifted_noise import Drawn, Shifted
from unit.mechanisms.test_forest_exact import FOURS, PAIRS, SHAPES, THREE, nodes

from stream_dp.core.guarantee import ZCDP
from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.noisy_forest import FLAT, ForestShape
from stream_dp.mechanisms.linear.window_forest import GaussianForest
from stream_dp.mechanisms.linear.windows_and_ever import GaussianAndEver
from stream_dp.mechanisms.serving import derived
from stream_dp.testing.noise import ScriptedNoise, ZeroNoise

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
RHO, HALF = Fraction(1, 3), Fraction(1, 2)


class WholeRhoEach(GaussianForest):
    """A twin: every level has the whole rho; together they have more."""

    @cached_property
    def node_variances(self) -> tuple[Fraction, ...]:
        """Too little noise."""
        return (1 / (2 * self.rho),) * self.shape.height


class EntriesFree(GaussianForest):
    """A twin: one entry pays for all that an event touches."""

    @cached_property
    def node_variances(self) -> tuple[Fraction, ...]:
        """Too little noise where an event touches two."""
        return tuple(1 / (2 * share * self.rho) for share in self.shape.shares)


@dataclass(slots=True)
class ShiftedGaussian(Shifted):
    """Hands out Gaussian noise as `Shifted` does Laplace noise; a node's scale is its variance."""

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """The next nodes' noises."""
        return Shifted.laplace(self, variance, size)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """Nothing here has a use for it."""
        raise AssertionError("a Gaussian forest draws Gaussian noise only")


def drawn(shape: ForestShape, updates: int) -> Iterator[Drawn]:
    """All that is drawn: every node with its last tick, at the variance of its level's share of rho."""
    for node in nodes(shape, updates, Fraction(1)):
        yield Drawn(node.scale / (2 * RHO), node.first, node.last)


def check(
    made: type[GaussianForest], shape: ForestShape, windows: tuple[int, ...], updates: int
) -> ShiftedGaussian:
    """Column i has one event less than column 0, at tick i, and 1 more in the noises that hold it: answers agree."""
    noise = ShiftedGaussian(drawn(shape, updates), np.arange(1, updates + 1))
    forest = made(1 + updates, RHO, ADD, windows, shape)
    state = forest.init(noise)
    for tick in range(1, updates + 1):
        row = np.full(forest.width, 1 + tick % 3, dtype=np.int64)
        row[tick] -= 1
        state, _ = forest.step(state, Update(row), noise)
        _, answer = forest.step(state, Query(), ZeroNoise())
        assert answer is not None
        for found in answer.reshape(-1, forest.width):
            assert (found == found[0]).all(), f"answer {tick} tells who was there"
    return noise


@pytest.mark.parametrize(("shape", "windows"), SHAPES)
def test_an_event_is_a_shift_that_costs_rho(shape: ForestShape, windows: tuple[int, ...]) -> None:
    updates = 2 * max(windows) + shape.spans[-1] + 3
    noise = check(GaussianForest, shape, windows, updates)
    whole = updates // shape.spans[-1] * shape.spans[-1]
    assert {noise.cost(event) / 2 for event in range(1, whole + 1)} == {RHO}
    assert max(noise.cost(event) for event in range(1, updates + 1)) == 2 * RHO


def test_levels_at_the_whole_rho_are_caught_by_the_shift() -> None:
    with pytest.raises(AssertionError, match="another scale"):
        check(WholeRhoEach, PAIRS, (1, 5), 16)


@pytest.mark.parametrize(
    ("relation", "width", "ones", "l0"),
    [(ADD, 4, 1, 1), (ADD, 4, 3, 3), (REPLACE, 4, 1, 2), (REPLACE, 1, 1, 1), (REPLACE, 4, 3, 4)],
)
def test_variances_are_exactly_those_of_the_entries_touched(
    relation: Neighbors, width: int, ones: int, l0: int
) -> None:
    forest = GaussianForest(width, RHO, relation, (1, 6), THREE, ones)
    assert derived(forest, "it").guarantee.measure == ZCDP(RHO)
    noise = ScriptedNoise([0] * 1_000)
    state = forest.init(noise)
    for _ in range(12):
        state, _ = forest.step(state, Update(np.zeros(width, dtype=np.int64)), noise)
    assert {call.kind for call in noise.calls} == {"gaussian"}
    assert {call.scale for call in noise.calls} == {l0 / (2 * s * RHO) for s in THREE.shares}
    assert {call.size for call in noise.calls} == {width}


def answers(forest: GaussianForest, rows: list[IntArray], path: tuple[int, ...]) -> tuple[int, ...]:
    """All answers on a path of noise."""
    noise, found = ScriptedNoise(path), list[int]()
    state = forest.init(noise)
    for row in rows:
        state, _ = forest.step(state, Update(row), noise)
        found += forest.step(state, Query(), noise)[1].tolist()  # type: ignore[union-attr]
    return tuple(found)


def moment(
    forest: GaussianForest, sides: tuple[list[IntArray], list[IntArray]], order: int, radius: int
) -> float:
    """sum P^order Q^(1-order) over all answers, by every path of noise within `radius`.

    Q has some more paths, so that each that answers as one of P's is among them.
    """
    silent = ScriptedNoise([0] * 100)
    state = forest.init(silent)
    for row in sides[0]:
        state, _ = forest.step(state, Update(row), silent)
    variances = [float(call.scale) for call in silent.calls for _ in range(call.size)]
    laws: tuple[dict[tuple[int, ...], float], ...] = ({}, {})
    for law, rows, reach in zip(laws, sides, (radius, radius + 2), strict=True):
        for path in itertools.product(range(-reach, reach + 1), repeat=len(variances)):
            mass = math.exp(-sum(z * z / (2 * v) for z, v in zip(path, variances, strict=True)))
            found = answers(forest, rows, path)
            law[found] = law.get(found, 0.0) + mass
    left, right = laws
    whole = sum(left.values())
    return sum(p**order / right[a] ** (order - 1) for a, p in left.items() if a in right) / whole


def sides(*ticks: int, width: int = 1, both: bool = False) -> tuple[list[IntArray], list[IntArray]]:
    """Two streams: the left has so many events in column 0 at each tick; the right none, or as many in column 1."""
    left = [np.array([n] + [0] * (width - 1), dtype=np.int64) for n in ticks]
    return left, [row[::-1].copy() if both else row * 0 for row in left]


@pytest.mark.parametrize("order", [2, 4])
@pytest.mark.parametrize("at", [(1, 0), (0, 1)])
def test_two_levels_meet_their_claim(order: int, at: tuple[int, int]) -> None:
    claim = Fraction(1, 2)
    forest = GaussianForest(1, claim, ADD, (1, 2), PAIRS)  # variances 2 and 2
    found = moment(forest, sides(*at), order, 8)
    assert 1 < found <= math.exp(order * (order - 1) * claim) * (1 + 1e-6)
    twin = WholeRhoEach(1, claim, ADD, (1, 2), PAIRS)
    assert moment(twin, sides(*at), order, 6) > math.exp(order * (order - 1) * claim)


@pytest.mark.parametrize("order", [2, 4])
def test_single_ticks_meet_their_claim_and_no_less_would_do(order: int) -> None:
    forest = GaussianForest(1, HALF, ADD, (1, 2), FLAT)
    allowed = math.exp(order * (order - 1) * HALF)
    assert moment(forest, sides(1, 0), order, 12) == pytest.approx(allowed, rel=1e-6)


def test_an_event_that_moves_costs_two_entries() -> None:
    allowed = math.exp(2 * HALF)
    rows = sides(1, width=2, both=True)
    forest = GaussianForest(2, HALF, REPLACE, (1,), FLAT)
    assert moment(forest, rows, 2, 12) == pytest.approx(allowed, rel=1e-6)
    assert moment(EntriesFree(2, HALF, REPLACE, (1,), FLAT), rows, 2, 9) > 2 * allowed


def test_the_events_of_a_user_cost_the_square_of_their_number() -> None:
    forest = GaussianForest(1, HALF / 4, ADD, (1, 2), FLAT)
    for ticks in ((2, 0), (1, 1)):
        assert moment(forest, sides(*ticks), 2, 18) <= math.exp(2 * HALF) * (1 + 1e-6)
    whole = GaussianForest(1, HALF, ADD, (1, 2), FLAT)
    assert moment(whole, sides(2, 0), 2, 12) > math.exp(2 * HALF)


def test_what_is_not_covered_is_refused() -> None:
    greedy = ForestShape((2,), (HALF, Fraction(2, 3)))
    with pytest.raises(NotDerivable):
        derived(GaussianForest(1, RHO, ADD, (1, 2), greedy), "it")
    for twin in (WholeRhoEach, EntriesFree):
        with pytest.raises(NotDerivable, match="not proven of a subclass"):
            derived(twin(2, RHO, REPLACE, (1, 2), PAIRS), "it")
    for rho in (Fraction(0), Fraction(1_001)):
        with pytest.raises(NotDerivable, match="rho"):
            GaussianForest(1, rho, ADD, (1, 2), PAIRS)
    with pytest.raises(NotDerivable, match="64 bits"):
        GaussianForest(1, Fraction(1, 10**25), ADD, (1, 100), FOURS)


def test_the_count_so_far_beside_it_adds_up_in_zcdp() -> None:
    forest = GaussianForest(3, RHO, ADD, (1, 6), FLAT)
    both = GaussianAndEver(forest, GaussianCounter(3, HALF, ADD, 50))
    assert derived(both, "it").guarantee.measure == ZCDP(RHO + HALF)
    with pytest.raises(NotDerivable, match="differ in width"):
        GaussianAndEver(forest, GaussianCounter(2, HALF, ADD, 50))
    with pytest.raises(NotDerivable, match="Gaussian DP"):
        GaussianAndEver(forest, GaussianCounter(3, HALF, ADD, 50, gdp=True))
