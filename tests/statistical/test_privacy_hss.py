"""HSS: with recorded noise it is the naive oracle, and at the scales it asks for the oracle's loss is its claim.

No statistics. The check has two halves: (a) the real mechanism and `oracles.naive` give the same answers from
the same noise values, so its law is the oracle's; (b) the exact worst loss of `oracles.hss`, with the noise scales
the mechanism really asked for, is at most the claim. Each broken twin fails one of the halves.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracles import hss as oracle
from oracles import naive
from statistical import broken_privacy as broken
from statistical.recorded import Recorded

from stream_dp.core.guarantee import differential_privacy
from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.hss.sparse_vector import MAXIMUM, ColumnsAbove, Largest, Quantity, Sum
from stream_dp.mechanisms.linear.counter import HandOverCounter
from stream_dp.testing.noise import ScriptedNoise

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
RELATIONS = {ADD: oracle.Relation.ADD_REMOVE, REPLACE: oracle.Relation.REPLACE}
LEVEL = 700
WATCHED: dict[Quantity, Callable[[Sequence[int]], int]] = {
    MAXIMUM: max,
    Largest(2): lambda h: sorted(h)[-2],
    Sum(): sum,
}
QUANTITIES = [None, MAXIMUM, Largest(2), Sum(), ColumnsAbove(LEVEL)]
E1, E2, EC = Fraction(2, 5), Fraction(1, 2), Fraction(3, 5)


def made(
    kind: type[HSS],
    quantity: Quantity | None,
    relation: Neighbors,
    kappa: Fraction = Fraction(1, 20),
) -> HSS:
    """An HSS of two columns whose three shares differ."""
    return kind(2, quantity, E1, E2, EC, relation, 60, kappa)


def run(mechanism: HSS, rows: IntArray, noise: Recorded) -> list[list[int]]:
    state, found = mechanism.init(noise), []
    for row in rows:
        state, _ = mechanism.step(state, Update(row), noise)
        state, answer = mechanism.step(state, Query(), noise)
        assert answer is not None
        found.append(answer.tolist())
    return found


def expected(mechanism: HSS, rows: IntArray, noise: Recorded) -> list[list[int]]:
    """What the naive oracle answers from the same noise values."""
    right = made(HSS, mechanism.quantity, mechanism.neighbors)
    laplaces = [value for kind, _, values in noise.taken if kind == "laplace" for value in values]
    counter: Any = right.counter
    script = ScriptedNoise(laplaces)
    state = counter.init(script)
    counter_noise: list[list[int]] = []
    while len(counter_noise) < len(rows) and script.used <= len(laplaces):
        try:
            state, _ = counter.step(state, Update(np.zeros(2, dtype=np.int64)), script)
        except IndexError:
            break  # that many intervals were never closed
        _, answer = counter.step(state, Query(), script)
        assert answer is not None
        counter_noise.append(answer.tolist())
    taus, nus = (noise.of("geometric", s) for s in (1 / E1, right.instance().query_scale))

    def gamma(tick: int, interval: int) -> int:
        return right.gamma(tick, interval - 1)

    def at(interval: int, column: int) -> int:
        return int(counter_noise[interval - 1][column])

    plain = [tuple(map(int, row)) for row in rows]
    if isinstance(mechanism.quantity, ColumnsAbove | None):
        ticks = naive.hss_histogram(plain, gamma, taus, nus, at)
        if mechanism.quantity is None:
            return [list(t.released) for t in ticks]
        return [[sum(v >= LEVEL for v in t.released)] for t in ticks]
    q = WATCHED[mechanism.quantity]
    return [[q(t.released)] for t in naive.hss_relative(plain, q, gamma, taus, nus, at)]


def agrees(kind: type[HSS], quantity: Quantity | None, relation: Neighbors) -> bool:
    for seed in range(12):
        rows = np.random.default_rng(seed).integers(0, 30, (60, 2)) * (seed % 3)
        noise = Recorded(seed)
        mechanism = made(kind, quantity, relation)
        found = run(mechanism, rows, noise)
        try:
            if found != expected(mechanism, rows, noise):
                return False
        except IndexError:
            return False  # the oracle wants noise that the mechanism never drew
    return True


def loss(kind: type[HSS], relation: Neighbors) -> tuple[float, float]:
    """Half (b): (worst exact loss, claim) of three ticks, at the scales asked for."""
    noise = Recorded(1)
    mechanism = made(kind, None, relation, Fraction(1, 10_000))
    run(mechanism, np.full((40, 2), 50), noise)
    lift, query = mechanism.instance().lift_scale, mechanism.instance().query_scale
    assert noise.scales("geometric") == {lift, query}
    counter = mechanism.counter
    assert isinstance(counter, HandOverCounter)
    widest = max(call.scale for call in noise.calls if call.kind == "laplace")
    small = oracle.Hss(
        e1=float(1 / lift),
        e2=float(1 / query),
        e_c=float(counter.tree(0).shape.height / widest),
        s=1,
        l0=1,
        gamma=lambda t, j: mechanism.gamma(t, j - 1) + 1,
    )
    claim = float(differential_privacy(mechanism.guarantee.measure).epsilon)
    return oracle.worst_loss(small, RELATIONS[relation], 3).loss, claim


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_hss_is_the_naive_oracle(quantity: Quantity | None, relation: Neighbors) -> None:
    assert agrees(HSS, quantity, relation)


@pytest.mark.parametrize("twin", [broken.AliasedHistogram, broken.KeepsItsSum])
@pytest.mark.parametrize("quantity", [None, MAXIMUM])
def test_other_dataflow_is_caught(twin: type[HSS], quantity: Quantity | None) -> None:
    assert not agrees(twin, quantity, ADD)


@pytest.mark.parametrize("relation", [ADD, pytest.param(REPLACE, marks=pytest.mark.full)])
def test_hss_loses_no_more_than_it_claims(relation: Neighbors) -> None:
    worst, claim = loss(HSS, relation)
    assert 0.9 * claim < worst <= claim + 1e-12
    if relation is ADD:
        assert worst == pytest.approx(claim, abs=1e-12)


@pytest.mark.parametrize(
    "twin", [broken.CheapHSS, pytest.param(broken.L0FreeHSS, marks=pytest.mark.full)]
)
def test_too_little_noise_under_replace_is_caught(twin: type[HSS]) -> None:
    worst, claim = loss(twin, REPLACE)
    assert worst > 1.1 * claim
