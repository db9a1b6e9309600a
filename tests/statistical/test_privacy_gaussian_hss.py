"""HSS with a Gaussian counter: its lines are the naive oracle's, its noise is enough, its loss within its zCDP.

No statistics. (a) the real mechanism and `oracles.naive` give the same answers from the same noise values; (b) the
variance that is drawn is L0 |c|^2 / (2 rho), |c| by the dense definition. So its law is that of the finite machine,
which tests/unit/verify/exact/test_small_gaussian_hss.py plays against every adversary. Each broken twin fails one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracles import blt, naive
from oracles.paper_hss import alg4
from statistical import broken_privacy as broken
from statistical.recorded import Recorded

from stream_dp.core.guarantee import ZCDP
from stream_dp.core.mechanism import IntArray, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.hss.hss import GaussianHSS
from stream_dp.mechanisms.hss.sparse_vector import MAXIMUM, Largest, Quantity
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.papers import GaussianPaperHSS
from stream_dp.mechanisms.serving import derived
from stream_dp.testing.noise import ScriptedNoise

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
E1, E2, RHO = Fraction(2, 5), Fraction(1, 2), Fraction(1, 20)
TICKS = 60
SECOND = Largest(2)
WATCHED: dict[Quantity, Callable[[Sequence[int]], int]] = {
    MAXIMUM: max,
    SECOND: lambda h: sorted(h)[-2],
}


def answers(mechanism: Any, rows: IntArray, noise: Noise) -> list[tuple[list[int], int]]:
    """(answer, Thresh or nothing) of each tick."""
    state, found = mechanism.init(noise), []
    for row in rows:
        state, _ = mechanism.step(state, Update(row), noise)
        state, answer = mechanism.step(state, Query(), noise)
        found.append((answer.tolist(), getattr(state, "threshold", 0)))
    return found


def counted(counter: GaussianCounter, noise: Recorded) -> Callable[[int, int], int]:
    """The noise in column i's answer after the j-th update, by a counter without events and the same z."""
    script = ScriptedNoise(noise.of("gaussian", counter.lattice.variance))
    state, zeros = counter.init(script), np.zeros(counter.width, dtype=np.int64)
    found: list[Any] = []
    while script.used < len(script.values):
        state, _ = counter.step(state, Update(zeros), script)
        found.append(counter.step(state, Query(), script)[1])
    return lambda j, i: int(found[j - 1][i])


def stream(seed: int, width: int) -> IntArray:
    """Rows with quiet times and bursts."""
    return np.random.default_rng(seed).integers(0, 40, (TICKS, width)) * (seed % 3)


def hss(kind: type[GaussianHSS], quantity: Quantity | None, relation: Neighbors) -> GaussianHSS:
    """An HSS of two columns whose shares differ."""
    return kind(2, quantity, E1, E2, relation, TICKS, None, rho=RHO)


def is_the_naive_one(
    kind: type[GaussianHSS], quantity: Quantity | None, relation: Neighbors
) -> bool:
    for seed in range(6):
        noise, rows = Recorded(seed), stream(seed, 2)
        found = answers(hss(kind, quantity, relation), rows, noise)
        right = hss(GaussianHSS, quantity, relation)
        at = counted(GaussianCounter(2, RHO, relation, None), noise)
        taus = noise.of("geometric", 1 / E1)
        nus = noise.of("geometric", (1 if relation is ADD else 2) / E2)
        plain = [tuple(map(int, row)) for row in rows]

        def gamma(t: int, j: int, of: GaussianHSS = right) -> int:
            return of.gamma(t, j - 1)

        try:
            if quantity is None:
                ticks = naive.hss_histogram(plain, gamma, taus, nus, at)
                expected = [list(tick.released) for tick in ticks]
            else:
                q = WATCHED[quantity]
                ticks = naive.hss_relative(plain, q, gamma, taus, nus, at)
                expected = [[q(tick.released)] for tick in ticks]
        except IndexError:
            return False  # the oracle wants noise that was never drawn
        if [answer for answer, _ in found] != expected:
            return False
        assert seed % 3 == 0 or sum(tick.top for tick in ticks) > 3, "hardly an interval was closed"
    return True


class Aliased(broken.AliasedHistogram, GaussianHSS):
    """Broken: a crossing is decided, and shown, by the exact sums: they run on in the released histogram."""


class CountsAgain(broken.KeepsItsSum, GaussianHSS):
    """Broken: an event enters the Gaussian counter at each crossing."""


@pytest.mark.parametrize(
    ("quantity", "relation"), [(None, ADD), (None, REPLACE), (MAXIMUM, REPLACE), (SECOND, ADD)]
)
def test_it_is_the_naive_oracle(quantity: Quantity | None, relation: Neighbors) -> None:
    assert is_the_naive_one(GaussianHSS, quantity, relation)


@pytest.mark.parametrize("twin", [Aliased, CountsAgain])
@pytest.mark.parametrize("quantity", [None, MAXIMUM])
def test_other_dataflow_is_caught(twin: type[GaussianHSS], quantity: Quantity | None) -> None:
    assert not is_the_naive_one(twin, quantity, ADD)


def test_the_papers_own_is_alg_4_with_gaussian_counters() -> None:
    epsilon, width = Fraction(12), 3
    for seed in (1, 2, 4):
        mechanism = GaussianPaperHSS(width, MAXIMUM, epsilon, None, Fraction(1, 2), rho=Fraction(2))
        noise, rows = Recorded(seed), stream(seed, width)
        found = [(answer[0], after) for answer, after in answers(mechanism, rows, noise)]
        tau, nu, check = (noise.of("laplace", s / epsilon) for s in (6, 12, 3))
        counter = GaussianCounter(width, Fraction(2), REPLACE, None, ones=width)
        plain = [tuple(map(int, row)) for row in rows]
        at = counted(counter, noise)
        assert found == alg4(plain, max, mechanism.gamma, mechanism.xi, tau, nu, check, at)
        assert len(check) > 3


# --- (b) the noise that is asked for ------------------------------------------------------------


def drawn(mechanism: GaussianHSS | GaussianPaperHSS, rho: Fraction) -> float:
    """Variance that is drawn, in counts, over L0 |c|^2 / (2 rho), |c| over 300 updates by the definition."""
    noise = Recorded(1)
    answers(mechanism, stream(1, mechanism.width) * 50, noise)
    (variance,) = noise.scales("gaussian")
    counter = mechanism.counter
    assert isinstance(counter, GaussianCounter)
    norm = blt.squares(blt.coefficients(counter.lattice.decays, 300))
    l0 = mechanism.neighbors.l0(mechanism.width, mechanism.ones)
    return float(variance / 4**counter.lattice.bits / (l0 * norm / (2 * rho)))


class OneByOne(GaussianHSS):
    """Broken: its columns are calibrated one by one, each for all of rho."""

    @property
    def counter(self) -> Any:
        right = GaussianCounter(self.width, self.rho, self.neighbors, None, self.ones)
        alone = GaussianCounter(1, self.rho, ADD, None).lattice
        right.__dict__["lattice"] = replace(alone, width=self.width)
        return right


class HalfOfIt(GaussianHSS):
    """Broken: half the variance."""

    @property
    def counter(self) -> Any:
        return GaussianCounter(self.width, 2 * self.rho, self.neighbors, None, self.ones)


@pytest.mark.parametrize(("relation", "ones"), [(ADD, 1), (REPLACE, 2)])
def test_all_columns_are_paid_for_together(relation: Neighbors, ones: int) -> None:
    """At least what 300 updates need, at most what 2^40 do: those of a lattice for any number of updates."""

    def share(kind: type[GaussianHSS]) -> float:
        return drawn(kind(4, None, E1, E2, relation, TICKS, None, ones, rho=RHO), RHO)

    assert 1 < share(GaussianHSS) < 2
    assert share(HalfOfIt) < 1
    assert share(OneByOne) == pytest.approx(share(GaussianHSS) / relation.l0(4, ones), rel=1e-2)


def test_the_papers_counters_are_paid_for_together_too() -> None:
    mechanism = GaussianPaperHSS(4, MAXIMUM, Fraction(12), None, rho=RHO)
    assert 1 < drawn(mechanism, RHO) < 2
    assert mechanism.neighbors.l0(4, mechanism.ones) == 4


def test_what_is_claimed_is_derived() -> None:
    """e tanh(e/2) for the sparse vectors and rho for the counter; Alg. 4 has two pure thirds."""

    def pure(e: Fraction) -> float:
        return float(e) * math.tanh(e / 2)

    for relation, ones in ((ADD, 1), (REPLACE, 1), (ADD, 3)):
        made = GaussianHSS(5, None, E1, E2, relation, None, None, ones, rho=RHO)
        found = derived(made, "here").guarantee
        assert isinstance(found.measure, ZCDP)
        assert float(found.measure.rho) == pytest.approx(pure(E1 + E2) + float(RHO), rel=1e-12)
        assert not found.finite
    paper = derived(GaussianPaperHSS(5, MAXIMUM, Fraction(3), 100, rho=RHO), "here")
    assert isinstance(paper.guarantee.measure, ZCDP)
    rho = 2 * pure(Fraction(1)) + float(RHO)
    assert float(paper.guarantee.measure.rho) == pytest.approx(rho, rel=1e-12)
    assert all(part in str(paper) for part in ("noisy checks", "5 Gaussian counters"))
