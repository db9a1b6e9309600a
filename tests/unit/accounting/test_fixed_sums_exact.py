"""Concurrent composition of fixed continual mechanisms in RDP, zCDP and GDP ([HSV] Cor 13.4, 14.7), exactly.

Random mechanisms of two rounds, every law depending on all that came before; one round of each may differ, chosen by
what all mechanisms have answered so far. Equality at a whole Renyi order: the moments of the parts multiply,
interleaved or not. GDP is covered at the epsilons tried. Twin: the dearer part alone.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import pytest
from oracles.divergences import gaussian_delta

from stream_dp.accounting.amounts import Interval
from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Fixed
from stream_dp.core.guarantee import ZCDP, GaussianDP, Guarantee, Measure, RenyiDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.verify.exact.exact_delta import exact_delta, exact_moment
from stream_dp.verify.exact.finite import DifferAtMost, FiniteComposition, Law, SparsePairs
from stream_dp.verify.exact_checks.instance import logarithm

ONE = Fraction(1)
BITS = DifferAtMost((0, 1), ((0, 1), (1, 0)))
ROUNDS = 2
UP = Fraction(1, 10**6)


@dataclass(frozen=True)
class TwoRounds:
    """Answers a bit twice; the chance of a 1 is drawn anew for every history of bits and answers."""

    seed: int

    def initial(self) -> Mapping[tuple[int, ...], Fraction]:
        """Nothing taken; a state is the history."""
        return {(): ONE}

    def step(self, state: tuple[int, ...], query: int) -> Law[tuple[int, ...]]:
        """Answer a bit, or nothing after the last."""
        if len(state) == 2 * ROUNDS:
            return {(None, state): ONE}
        history = (*state, query)
        chance = Fraction(random.Random(f"{self.seed} {history}").randint(5, 12), 17)
        return {(a, (*history, a)): p for a, p in ((1, chance), (0, 1 - chance))}


def fixed(claims: list[Measure]) -> Measure:
    """What the package derives, with finite communication."""
    add = Neighbors.ADD_REMOVE
    premises = tuple(leaf(str(c), Guarantee(c, add, finite=True), "exact") for c in claims)
    return derive(premises, Fixed("two")).guarantee.measure


def together(seeds: tuple[int, int]) -> tuple[FiniteComposition, SparsePairs]:
    """Both machines; in each one pair may differ."""
    return FiniteComposition(tuple(map(TwoRounds, seeds))), SparsePairs((BITS,) * 2, (1, 1), 2)


@pytest.mark.parametrize(("seeds", "order"), [((1, 2), 2), ((3, 4), 4)])
def test_renyi_sums_are_met_by_interleaved_mechanisms(seeds: tuple[int, int], order: int) -> None:
    alone = [Fraction(exact_moment(TwoRounds(s), BITS, order, ROUNDS)) for s in seeds]
    exact = Fraction(exact_moment(*together(seeds), order, 2 + 2 * ROUNDS))
    assert exact == alone[0] * alone[1]
    claims: list[Measure] = [RenyiDP(Fraction(order), logarithm(m) / (order - 1)) for m in alone]
    found = fixed(claims)
    assert isinstance(found, RenyiDP)
    assert exact <= Interval.of((order - 1) * found.epsilon).exp().upper <= exact * (1 + UP)
    assert exact > max(alone)  # the twin


@cache
def least_mu(seed: int) -> Fraction:
    """A mu that one machine has at all ratios on a fine grid, with room for what lies between them."""
    low, high = 0.0, 4.0
    grid = [Fraction(10 + i, 10) for i in range(51)]  # 6 > (12/5)^2: nothing is beyond
    exact = [float(exact_delta(TwoRounds(seed), BITS, ratio, ROUNDS)) for ratio in grid]
    for _ in range(30):
        middle = (low + high) / 2
        kept = (d <= gaussian_delta(middle, math.log(r)) for r, d in zip(grid, exact, strict=True))
        low, high = (low, middle) if all(kept) else (middle, high)
    return Fraction(high).limit_denominator(10**6) + Fraction(1, 100)


@pytest.mark.parametrize("ratio", [ONE, Fraction(2)])
def test_gaussian_roots_cover_interleaved_mechanisms(ratio: Fraction) -> None:
    """The twin is the larger mu alone."""
    seeds = (1, 2)
    mus = [least_mu(s) for s in seeds]
    assert fixed([GaussianDP(mu) for mu in mus]) == ZCDP((mus[0] ** 2 + mus[1] ** 2) / 2)
    root, largest = math.hypot(*map(float, mus)), float(max(mus))
    machine, pairs = together(seeds)
    exact = float(exact_delta(machine, pairs, ratio, 2 + 2 * ROUNDS))
    assert exact <= gaussian_delta(root, math.log(ratio))
    assert exact > gaussian_delta(largest, math.log(ratio))
