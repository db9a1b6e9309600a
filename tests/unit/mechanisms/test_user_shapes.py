"""Gaussian noise for all events of a user together, where caps say how they may lie: exact on small shapes.

Independent of the code: every table of ticks and entries that the caps let a user fill is made by definition, and what
it does to the noise is found from the real one: the coefficients that correlate it, the shifts that the real counter
shows on a path, the Renyi moment of all released values, the nodes that the real forest fills. Twins lose more.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import pytest
from oracles.blt import coefficients
from unit.mechanisms.test_gaussian_counter import Coarse, laws

from stream_dp.core.guarantee import ZCDP
from stream_dp.core.mechanism import IntArray, Update
from stream_dp.core.neighbors import Neighbors, Users, UserShape
from stream_dp.errors import BrokenCondition, InvalidCost, NotDerivable
from stream_dp.mechanisms.linear.gaussian_counter import (
    Decays,
    GaussianCounter,
    LatticeNoise,
    decays_for,
)
from stream_dp.mechanisms.linear.noisy_forest import ForestShape
from stream_dp.mechanisms.linear.pairs import GaussianAndEver
from stream_dp.mechanisms.linear.window_forest import GaussianForest
from stream_dp.mechanisms.serving import derived
from stream_dp.testing.noise import ScriptedNoise, SeededNoise

ADD = Neighbors.ADD_REMOVE
TICKS = 4


class Caps(NamedTuple):
    """k events, a of a tick, b of an entry; rows have so many entries, of which an event sets one or more."""

    cap: int
    per_tick: int
    per_entry: int
    width: int = 1
    ones: int = 1

    @property
    def shape(self) -> UserShape:
        return UserShape(Users(self.cap), self.per_tick, self.per_entry)


SMALL = [
    Caps(4, 1, 4), Caps(3, 2, 3), Caps(4, 2, 4), Caps(4, 4, 4), Caps(4, 4, 2, 2), Caps(2, 2, 1, 2), Caps(4, 1, 2, 2),
    Caps(3, 2, 2, 2), Caps(2, 1, 2, 2, 2), Caps(3, 3, 3, 2, 2),
]  # fmt: skip
MET = {Caps(4, 1, 4), Caps(4, 4, 4), Caps(4, 2, 4), Caps(4, 4, 2, 2), Caps(3, 2, 3)}


@cache
def tables(caps: Caps, ticks: int = TICKS) -> list[IntArray]:
    """What a user's events may add to rows, by tick and entry."""
    entries = [np.isin(range(caps.width), some).astype(int) for some in events_of(caps)]
    kinds = [(tick, entry) for tick in range(ticks) for entry in range(len(entries))]
    found = {}
    for number in range(1, caps.cap + 1):
        for events in itertools.combinations_with_replacement(kinds, number):
            of_tick = [sum(tick == at for at, _ in events) for tick in range(ticks)]
            table = np.zeros((ticks, caps.width), np.int64)
            for tick, kind in events:
                table[tick] += entries[kind]
            if max(of_tick) <= caps.per_tick and table.sum(axis=0).max() <= caps.per_entry:
                found[table.tobytes()] = table
    return list(found.values())


def events_of(caps: Caps) -> Iterator[tuple[int, ...]]:
    for number in range(1, caps.ones + 1):
        yield from itertools.combinations(range(caps.width), number)


DECAYS = [decays_for(4), decays_for(64), decays_for(None), Decays((2, 1), (150, 11))]


def shifted(c: Sequence[float], table: IntArray) -> float:
    """The sum of squares of what these events do to z, whose shift by one of the first tick is c."""
    paths = [np.convolve(c, column)[: len(c)] for column in table.T]
    return float(sum((path**2).sum() for path in paths))


@pytest.mark.parametrize("caps", SMALL, ids=str)
@pytest.mark.parametrize("decays", DECAYS, ids=str)
def test_no_table_of_a_user_shifts_the_noise_by_more(caps: Caps, decays: Decays) -> None:
    """And some by as much: from the first tick on one after the other, in one entry or where entries are full."""
    for steps in (TICKS, 40):
        c = [float(part) for part in coefficients(decays, steps)]
        largest = max(shifted(c, table) for table in tables(caps))
        norm = float(decays.squared_norm(steps))
        bound = float(decays.of_users(steps, caps.shape)) * norm * min(caps.width, caps.ones)
        assert largest <= bound * (1 + 1e-12)
        assert caps.cap * norm <= bound <= caps.cap**2 * norm * min(caps.width, caps.ones)
        if caps in MET and (caps.per_tick == caps.cap or steps == 40):
            assert largest >= bound * 0.98


def test_a_shape_without_caps_pays_the_square_of_the_number_of_events() -> None:
    for steps in (1, 4, 1000):
        assert decays_for(64).of_users(steps, Caps(5, 5, 5).shape) == pytest.approx(25)
    assert float(decays_for(8760).of_users(8760, Caps(6, 6, 2).shape)) == pytest.approx(12)


def path(counter: GaussianCounter, table: IntArray, seed: int) -> int:
    """The sum of squares of the shifts of z on a path of the real counter: see `test_gaussian_counter.shifts`."""
    lattice, rng = counter.lattice, np.random.default_rng(seed)
    squares, state = 0, counter.init(ScriptedNoise([]))
    left, right = lattice.init(), lattice.init()
    for row in [*table, *np.zeros((12, counter.width), np.int64)]:
        z = rng.integers(-(1 << lattice.bits), 1 << lattice.bits, counter.width)
        state, _ = counter.step(state, Update(row), ScriptedNoise(z.tolist()))
        left = lattice.advance(left, ScriptedNoise(z.tolist()))
        assert np.array_equal(left.noise, state.noise.noise)
        wanted = left.noise + (state.total << lattice.bits)
        silent = lattice.advance(right, ScriptedNoise([0] * counter.width))
        other = wanted - silent.noise
        right = lattice.advance(right, ScriptedNoise(other.tolist()))
        squares += sum(int(shift) ** 2 for shift in (other - z).tolist())
    return squares


@pytest.mark.parametrize("caps", SMALL, ids=str)
@pytest.mark.parametrize("horizon", [16, None])
def test_the_noise_that_is_drawn_pays_for_every_user(caps: Caps, horizon: int | None) -> None:
    """On paths of the real counter: their squares are at most 2 rho of the variance, and near it where caps are met."""
    rho = Fraction(1, 40)
    counter = GaussianCounter(caps.width, rho, ADD, horizon, caps.ones, shape=caps.shape)
    every = tables(caps)
    some = every[:: len(every) // 40 + 1] + every[-30:]
    worst = max(path(counter, table, seed) for seed, table in enumerate(some))
    most = 2 * rho * counter.lattice.variance
    assert worst <= most
    assert worst >= most * Fraction(9, 10) or caps not in MET or horizon is None
    claim = derived(counter, "counts").guarantee
    assert (claim.measure, claim.users, claim.fresh) == (ZCDP(rho), Users(caps.cap), True)


class CoarseUsers(Coarse):
    """A coarse lattice, for the users of its shape."""

    @cached_property
    def lattice(self) -> LatticeNoise:
        decays = Decays((2, 1), (150, 11))
        unit = 2 * self.rho / (self.rows.l0 * self._events(decays))
        return LatticeNoise.calibrated(decays, self.steps, unit, self.width, self.bits)


def moment(counter: GaussianCounter, table: IntArray, order: int) -> float:
    """sum P^order Q^(1-order) over all released values, with the user and without."""
    p, q = laws(counter, table.tolist(), np.zeros_like(table).tolist())
    return sum(p[a] ** order / q[a] ** (order - 1) for a in p if a in q)


@pytest.mark.parametrize("order", [2, 4])
@pytest.mark.parametrize(("caps", "ticks"), [
    (Caps(2, 1, 2), 2), (Caps(3, 2, 3), 1), (Caps(2, 2, 1, 2), 1),
])  # fmt: skip
def test_every_user_loses_the_claim_at_most(caps: Caps, ticks: int, order: int) -> None:
    """All noise paths; and a twin that counts the user's events as if each were alone loses more."""
    rho = Fraction(2)
    counter = CoarseUsers(caps.width, rho, ADD, ticks, caps.ones, shape=caps.shape)
    losses = [moment(counter, table, order) for table in tables(caps, ticks)]
    allowed = math.exp(order * (order - 1) * rho) * (1 + 1e-6)
    assert 1 < max(losses) <= allowed
    each = CoarseUsers(caps.width, rho, ADD, ticks, caps.ones, shape=UserShape(Users(1), 1, 1))
    if order == 2:
        assert max(moment(each, table, order) for table in tables(caps, ticks)) > allowed


# --- windows -----------------------------------------------------------------------------------------

FOREST = ForestShape((2, 2), (Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)))


def nodes(forest: GaussianForest, table: IntArray) -> float:
    """The sum over all nodes of the squares of what a user adds over twice the variance, by the real forest's nodes."""
    padded = np.concatenate([table, np.zeros((-len(table) % 4, table.shape[1]), np.int64)])
    paid = 0.0
    for span, variance in zip(forest.shape.spans, forest.node_variances, strict=True):
        sums = padded.reshape(-1, span, table.shape[1]).sum(axis=1)
        paid += float((sums**2).sum()) / (2 * float(variance))
    return paid


def forest_of(caps: Caps, rho: Fraction = Fraction(1, 8)) -> GaussianForest:
    return GaussianForest(caps.width, rho, ADD, (1, 4), FOREST, caps.ones, caps.shape)


@pytest.mark.parametrize("caps", SMALL, ids=str)
def test_no_table_of_a_user_costs_a_forest_more(caps: Caps) -> None:
    forest = forest_of(caps)
    worst = max(nodes(forest, table) for table in tables(caps))
    assert worst <= float(forest.rho) * (1 + 1e-12)
    assert worst >= float(forest.rho) * (0.999 if caps.width == 1 else 0.55)
    claim = derived(forest, "windows").guarantee
    assert (claim.measure, claim.users) == (ZCDP(forest.rho), Users(caps.cap))


class OfTicks(GaussianForest):
    """Forgets that a node of several ticks holds what each of them may have."""

    @cached_property
    def squares(self) -> tuple[int, ...]:
        assert self.of_users is not None
        return (self.of_users.squares(1, self.rows.l0),) * self.shape.height


class Linear(GaussianForest):
    """Takes a user's events for as many users."""

    @cached_property
    def squares(self) -> tuple[int, ...]:
        assert self.of_users is not None
        return (self.of_users.users.cap * self.rows.l0,) * self.shape.height


@pytest.mark.parametrize("twin", [OfTicks, Linear])
def test_twins_of_forests_lose_more(twin: type[GaussianForest]) -> None:
    caps = Caps(4, 1, 4)
    right = forest_of(caps)
    wrong = twin(1, right.rho, ADD, (1, 4), FOREST, 1, caps.shape)
    assert max(nodes(wrong, table) for table in tables(caps)) > 1.4 * float(right.rho)
    with pytest.raises(NotDerivable):
        derived(wrong, "windows")


def test_a_shape_that_is_wider_than_said_loses_more() -> None:
    """Caps of a tick, or of an entry, that no guard enforces: all events of a user that count in one."""
    for said, real in ((Caps(4, 1, 4), Caps(4, 4, 4)), (Caps(4, 4, 1, 2), Caps(4, 4, 4, 2))):
        forest = forest_of(said)
        assert max(nodes(forest, table) for table in tables(real)) > 1.9 * float(forest.rho)
        counter = GaussianCounter(said.width, Fraction(1, 40), ADD, 16, shape=said.shape)
        worst = max(path(counter, table, 1) for table in tables(real)[-60:])
        assert worst > 2 * counter.rho * counter.lattice.variance


def test_a_users_window_fills_nodes_across_ticks_and_never_more_than_its_cap() -> None:
    shape = UserShape(Users(20, 24), 1, 20)
    assert [shape.squares(span) for span in (1, 6, 24, 168)] == [20, 36 * 3 + 4, 400, 400]
    assert UserShape(Users(6), 6, 2).squares(24) == 12
    assert UserShape(Users(6), 1, 2).squares(1, entries=3) == 18


def test_windows_and_so_far_are_for_the_same_users() -> None:
    caps = Caps(4, 1, 4)
    forest = forest_of(caps)
    ever = GaussianCounter(1, Fraction(1, 8), ADD, 64, shape=caps.shape)
    both = GaussianAndEver(forest, ever)
    claim = derived(both, "both").guarantee
    assert claim == both.guarantee
    assert (claim.measure, claim.users) == (ZCDP(Fraction(1, 4)), Users(4))
    for other in (None, UserShape(Users(4), 2, 4)):
        with pytest.raises(NotDerivable, match="the same number of events"):
            GaussianAndEver(forest, replace(ever, shape=other))


def test_what_is_no_shape_is_refused_and_noise_too_small_not_derived() -> None:
    for per_tick, per_entry in ((0, 1), (1, 0), (5, 1), (1, 5), (1.0, 1)):
        with pytest.raises(InvalidCost, match="of a user that count in one"):
            UserShape(Users(4), per_tick, per_entry)  # type: ignore[arg-type]
    shape = Caps(4, 1, 4).shape
    for wrong in ({"gdp": True}, {"neighbors": Neighbors.REPLACE}):
        made: dict[str, Any] = {"neighbors": ADD, "shape": shape} | wrong
        with pytest.raises(NotDerivable, match="for users"):
            GaussianCounter(1, Fraction(1), horizon=4, **made)
    with pytest.raises(NotDerivable, match="for users"):
        GaussianForest(1, Fraction(1), Neighbors.REPLACE, (1, 4), FOREST, 1, shape)
    counter = GaussianCounter(2, Fraction(1, 50), ADD, 100, shape=shape)
    less = counter.lattice.variance * Fraction(999, 1000)
    counter.__dict__["lattice"] = replace(counter.lattice, variance=less)
    with pytest.raises(BrokenCondition, match="noise"):
        counter.derivation()


def test_answers_are_those_of_the_counter_with_so_much_noise() -> None:
    """The events play no other part: the same lattice noise at another variance."""
    shape = Caps(4, 1, 4).shape
    made = GaussianCounter(1, Fraction(1, 8), ADD, 64, shape=shape)
    plain = GaussianCounter(1, Fraction(1, 8), ADD, 64)
    factor = (made.lattice.deviation(9) / plain.lattice.deviation(9)) ** 2
    assert factor == pytest.approx(float(plain.lattice.decays.of_users(64, shape)), rel=1e-6)
    state, other = made.init(SeededNoise(1)), plain.init(SeededNoise(1))
    assert type(state) is type(other)
