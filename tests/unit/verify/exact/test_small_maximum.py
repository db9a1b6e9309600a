"""A small HSS of the maximum with the name of the leader in its answers: exact, and the real code under all its noise.

The name is read off the counter's whole answer h, which is paid for, so the claim holds with it; here it is played
against every adaptive adversary. Twins: names from h plus what is pending, and names of the exact maximum.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from oracles.turns import Turns
from statistical.attack import Attack
from unit.verify.one_node_hss import RealSmallHSS

from stream_dp.core.mechanism import IntArray, Message, Noise
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.sealed import inside_of
from stream_dp.mechanisms.hss.hss import COUNTER, HSSState
from stream_dp.mechanisms.hss.quantities import MAXIMUM
from stream_dp.statistics.maximum import MaximumSeries
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_delta import Bracket, delta_bracket, exact_delta, worst_ratio
from stream_dp.verify.exact.exact_sparse_vector import Row, SmallHSS, all_below
from stream_dp.verify.exact.finite import DifferAtMost


def either(*pairs: tuple[Row, Row]) -> DifferAtMost:
    """One of these pairs or its mirror image, once, among equal rows."""
    return DifferAtMost(((0, 0), (0, 1)), (*pairs, *((b, a) for a, b in pairs)))


ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
HALF, BASE = Fraction(1, 2), Fraction(1, 64)
ADDED = either(((0, 0), (1, 0)), ((0, 1), (1, 1)), ((1, 0), (2, 0)))
MOVED = either(((1, 1), (0, 2)), ((1, 0), (0, 1)))
CLAIM, CLAIM_MOVED = (
    8,
    32,
)  # all decays 1/2: e1 = e2 = e_c = ln 2; with s = 2 and L0 = 2, e2 = e_c = 2 ln 2
NAMES, NOBODY = ("AA", "other"), -1


@dataclass(frozen=True, slots=True)
class Point:
    """The state: pending sums, all that the counter has answered, and the margins of the failed comparisons."""

    counts: Row
    raw: Row
    margins: tuple[int, ...]

    @property
    def h(self) -> Row:
        """What is released of it."""
        return tuple(max(0, v) for v in self.raw)


def named(h: Row) -> Row:
    """The largest entry and the first place that has it; nobody's where it is 0."""
    return max(h), h.index(max(h)) if max(h) > 0 else NOBODY


class SmallMaximum(SmallHSS):
    """The form that watches max(h + c) against max(h) + gamma, and answers each tick with value and name."""

    __slots__ = ()

    def initial(self) -> Mapping[Any, Fraction]:
        """Nothing counted."""
        zeros = (0,) * self.width
        return {Point(zeros, zeros, ()): Fraction(1)}

    def step(self, state: Any, query: Row) -> dict[Any, Fraction]:
        """Add the row, compare, and count the interval where the comparison says so."""
        counts = tuple(c + x for c, x in zip(state.counts, query, strict=True))
        assert max(counts) <= self.high
        now = max(a + b for a, b in zip(state.h, counts, strict=True))
        margins = (*state.margins, self.gamma + max(state.h) + 1 - now)
        below = all_below(margins, self.tau, self.nu) / all_below(state.margins, self.tau, self.nu)
        quiet = Point(counts, state.raw, margins)
        law = {(self.shown(quiet), quiet): below}
        for values in itertools.product(*(self.released(c).items() for c in counts)):
            raw = tuple(a + v for a, (v, _) in zip(state.raw, values, strict=True))
            after = Point((0,) * self.width, raw, ())
            law[self.shown(after), after] = math.prod((p for _, p in values), start=1 - below)
        return law

    def shown(self, state: Point) -> Row:
        """What is published."""
        return named(state.h)


class WithAllOfH(SmallMaximum):
    """All that is paid for: the name, the whole vector that it is read off, and whether the interval is open."""

    __slots__ = ()

    def shown(self, state: Point) -> Row:
        """More than is published."""
        return *named(state.h), *state.raw, int(bool(state.margins))


class NamedByPending(SmallMaximum):
    """Broken: the value of h, the name of the largest of h + c."""

    __slots__ = ()

    def shown(self, state: Point) -> Row:
        """A name that the open interval decides."""
        both = tuple(a + b for a, b in zip(state.h, state.counts, strict=True))
        return max(state.h), named(both)[1]


def small(kind: type[SmallMaximum]) -> SmallMaximum:
    """All three noises of ln 2 (under `replace`: e2 and e_c are 2 ln 2 of them)."""
    return kind(2, HALF, HALF, HALF, gamma=0, low=0, high=3)


def test_with_its_name_the_maximum_keeps_the_claim() -> None:
    assert worst_ratio(small(SmallMaximum), ADDED, 2) == 4 < CLAIM
    assert 4 < worst_ratio(small(SmallMaximum), MOVED, 2) < CLAIM_MOVED


def test_all_of_h_beside_the_name_meets_the_claim_and_no_more() -> None:
    """So the whole vector is paid for; and the name adds nothing to it."""
    assert worst_ratio(small(WithAllOfH), ADDED, 2) == CLAIM
    assert CLAIM <= worst_ratio(small(WithAllOfH), MOVED, 2) <= CLAIM_MOVED


def test_a_name_by_what_is_pending_is_caught_in_the_machine() -> None:
    assert worst_ratio(small(NamedByPending), ADDED, 2) == math.inf
    assert exact_delta(small(NamedByPending), ADDED, Fraction(CLAIM), 2) > 0


# --- the code that runs in production -----------------------------------------------------------


@dataclass(frozen=True)
class Named:
    """`mechanism` as its releases show it, by the statistic's own words."""

    mechanism: Any

    def init(self, noise: Noise) -> HSSState:
        """That of the mechanism."""
        state: HSSState = self.mechanism.init(noise)
        return state

    def step(self, state: Any, message: Message, noise: Noise) -> tuple[Any, IntArray | None]:
        """An update, or value and place of what is told."""
        after, answer = self.mechanism.step(state, message, noise)
        if answer is None:
            return after, None
        told = self.told(after, answer)
        name = NAMES.index(told["name"]) if "name" in told else NOBODY
        return after, np.array([told["value"], name], dtype=np.int64)

    def told(self, state: Any, answer: IntArray) -> Mapping[str, Any]:
        """What the statistic tells."""
        series = MaximumSeries(name="a", epsilon="1", by="airline")
        return series.teller(self.mechanism, None, 0.5)(NAMES, answer, 0, state)


class NamedByPendingToo(Named):
    """Broken: the name of the largest of h plus what is pending."""

    def told(self, state: Any, answer: IntArray) -> Mapping[str, Any]:
        """The value of h."""
        return super().told(replace(state, released=state.released + state.pending), answer)


class NamedByExactCounts(Named):
    """Broken: the name of the exact maximum."""

    def told(self, state: Any, answer: IntArray) -> Mapping[str, Any]:
        """Only the value is noisy."""
        counted = inside_of(state.parts.live[COUNTER].state).total
        return super().told(replace(state, released=counted + state.pending), answer)


COMES = (((0, 0), (1, 0)), ((1, 0), (0, 0)), ((0, 1), (1, 1)), ((1, 1), (0, 1)))
MORE = Turns(((0, 3), (0, 0)), COMES)
SWAPS = (((1, 0), (0, 1)), ((0, 1), (1, 0)), ((1, 3), (0, 4)), ((0, 4), (1, 3)))


def bracket(named: Named, pairs: Turns, units: int, ticks: int = 2, radius: int = 1) -> Bracket:
    """The bracket at a claim of `units` of epsilon, one unit being ln 64."""
    return delta_bracket(Enumerated(named, BASE, radius), pairs, BASE**-units, 2 * ticks)


def test_the_real_code_with_its_name_keeps_the_claim() -> None:
    """Under add_remove e1 = e2 = e_c = 1; under replace e2 and e_c are 2."""
    real = RealSmallHSS(2, MAXIMUM, Fraction(1), Fraction(1), Fraction(1), ADD, 10)
    assert bracket(Named(real), MORE, 3).upper < Fraction(1, 5)
    moved = RealSmallHSS(2, MAXIMUM, Fraction(1), Fraction(2), Fraction(2), REPLACE, 10)
    assert bracket(Named(moved), Turns(MORE.rows, SWAPS), 5).upper < Fraction(1, 5)


@pytest.mark.parametrize("twin", [NamedByPendingToo, NamedByExactCounts])
def test_a_name_by_private_counts_is_caught_in_the_real_code(twin: type[Named]) -> None:
    real = RealSmallHSS(2, MAXIMUM, Fraction(1), Fraction(1), Fraction(1), ADD, 10)
    assert bracket(twin(real), Turns((), COMES[:2]), 3, ticks=1, radius=3).lower > HALF


@pytest.mark.parametrize(
    ("relation", "rows"),
    [
        (ADD, ((1, 2),)),
        (REPLACE, ((2, 2),)),
        (ADD, ((3, 1), (0, 3))),
    ],
)
def test_the_real_code_has_the_law_of_the_machine(
    relation: Neighbors, rows: tuple[Row, ...]
) -> None:
    """Value and name at each tick, all noise enumerated; names by what is pending have another law."""
    s, l0 = (1 if relation is ADD else 2), relation.l0(2)

    def law(kind: Callable[[Any], Named]) -> Any:
        shares = Fraction(4), Fraction(4) * s, Fraction(4) * l0
        real = RealSmallHSS(2, MAXIMUM, *shares, relation, 10)
        make: Any = partial(kind, real)
        return Attack(make, mass=2e-2 if len(rows) > 1 else 1e-3).law(rows)

    decays = (Fraction(math.exp(-4)),) * 3
    right = chances(SmallMaximum(2, *decays, gamma=1, low=-4, high=7), rows)
    other = chances(SmallMaximum(2, *decays, gamma=2, low=-4, high=7), rows)
    real = law(Named)
    assert agrees(real, right)
    assert not agrees(real, other)
    if len(rows) > 1:
        assert not agrees(law(NamedByPendingToo), right)


def chances(machine: SmallMaximum, rows: tuple[Row, ...]) -> dict[Any, float]:
    """The chance of each transcript: nothing at an update, value and name at a query."""
    paths: list[tuple[Any, tuple[Any, ...], Fraction]]
    paths = [(state, (), p) for state, p in machine.initial().items()]
    for row in rows:
        paths = [
            (after, (*seen, None, shown), p * q)
            for state, seen, p in paths
            for (shown, after), q in machine.step(state, row).items()
        ]
    found: dict[Any, float] = {}
    for _, seen, p in paths:
        found[seen] = found.get(seen, 0.0) + float(p)
    return found


def agrees(real: Any, right: Mapping[Any, float]) -> bool:
    """Whether the dozen likeliest transcripts of the machine have chances inside the real bounds."""
    for transcript in sorted(right, key=lambda t: -right[t])[:12]:
        low, high = real.bounds(transcript)
        if not low - 1e-9 <= right[transcript] <= high + 1e-9:
            return False
    return True
