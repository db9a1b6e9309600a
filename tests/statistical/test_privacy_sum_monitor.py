"""Watches on sums: the exact law is the oracle's, the worst exact loss is the claim, and what is broken loses more.

No statistics; the adversary is that of `test_privacy_monitor`, and what differs is the amount of one event. An amount
of y units costs y times what a unit costs, whatever its sign, also in a window.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import pytest
from oracles.watches import Place, Watches
from statistical.test_privacy_monitor import (
    ADD,
    BASE,
    HALF,
    NEARLY_NOTHING,
    QUARTER,
    REPLACE,
    either_way,
    has_the_law,
    plain,
    price,
    row,
)

from stream_dp.mechanisms.watches.block import WatchTerms
from stream_dp.mechanisms.watches.kinds import SumMonitor
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_delta import Bracket, delta_bracket
from stream_dp.verify.exact.finite import DifferAtMost


@pytest.mark.parametrize(("one", "other"), [(0, 2), (0, -2), (-1, 1), (-1, 0)])
def test_an_amount_costs_as_many_units_as_it_changes(one: int, other: int) -> None:
    units, event = abs(one - other), either_way(row(one), row(other))
    asked = tuple(("ask", 0, threshold) for threshold in (-1, 1, 3))
    since = Watches((Place("since", 2),), HALF, QUARTER)
    assert price(since, ("tick", row(2), *asked), event, 4) == 2**units
    window = Watches((Place("window", 1, window=1),), QUARTER, QUARTER, wide=HALF)
    assert price(window, ("tick", row(1), *asked), event, 4) == 2 ** (2 * units)


RADIUS = 4  # two units more than it takes for one
SCRIPTS = [
    (row(-1, 2), "tick", row(2, -2), "tick", row(1, 0), "tick"),
    (row(2, 1), ("ask", 0, 1), row(0, -1), ("ask", 1, 0), "tick"),
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_real_watches_have_the_oracles_law(script: Sequence[Any]) -> None:
    watches = WatchTerms(2), WatchTerms(1, window=2, below=True)
    real = SumMonitor(2, Fraction(4), ADD, watches, -2, 2)
    assert [real.scale, real.window_scale] == [HALF, 1]
    oracle = Watches(
        (Place("since", 2), Place("under", 1, window=2)), BASE**2, BASE**2, None, 2, BASE
    )
    has_the_law(real, oracle, script)


Make = Callable[..., SumMonitor]


def delta(
    monitor: SumMonitor, units: int, rounds: int, queries: Sequence[Any], different: Any
) -> Bracket:
    """Between which bounds the least delta lies at a claim of so many units."""
    event = tuple((plain(a), plain(b)) for a, b in different)
    pairs = DifferAtMost(tuple(map(plain, queries)), event)
    return delta_bracket(Enumerated(monitor, BASE, RADIUS), pairs, BASE**-units, rounds)


def large(make: Make) -> Bracket:
    """An event of two units, since a crossing."""
    monitor = make(1, Fraction(2), ADD, (WatchTerms(2),), 0, 2)
    return delta(monitor, 2, 3, ("tick", ("ask", 0, 1)), either_way(row(0), row(2)))


def taken_off(make: Make) -> Bracket:
    """An event that takes two units off, where another adds one at most."""
    monitor = make(1, Fraction(2), ADD, (WatchTerms(1),), -2, 1)
    return delta(monitor, 2, 3, (row(2), "tick"), either_way(row(0), row(-2)))


def turned(make: Make) -> Bracket:
    """An event that is replaced by one of the other sign, in the same entry."""
    monitor = make(1, Fraction(2), REPLACE, (WatchTerms(1),), -1, 1)
    return delta(monitor, 2, 3, ("tick",), either_way(row(-1), row(1)))


def of_two(make: Make) -> Bracket:
    """An event that adds to two entries."""
    monitor = make(2, Fraction(2), ADD, (WatchTerms(1, 2),), 0, 1, 2)
    return delta(monitor, 2, 2, ("tick",), either_way(row(0, 0), row(1, 1)))


class ForgetsTheAmount(SumMonitor):
    """The noise of a count."""

    @property
    def changed(self) -> int:
        return self.l0


class ForgetsTheLowest(SumMonitor):
    """The noise of the largest amount, as if none were taken off."""

    @property
    def changed(self) -> int:
        return self.l0 * self.highest


class ForgetsTheOldContent(SumMonitor):
    """Under `replace` the noise of one content alone."""

    @property
    def changed(self) -> int:
        return self.l0 * self.weight


class ForgetsTheEntries(SumMonitor):
    """The noise of one entry, whatever an event sets."""

    @property
    def changed(self) -> int:
        return self.weight


@pytest.mark.parametrize(
    ("attack", "twin"),
    [
        (large, ForgetsTheAmount),
        (taken_off, ForgetsTheLowest),
        (turned, ForgetsTheOldContent),
        (of_two, ForgetsTheEntries),
    ],
)
def test_the_claim_is_met_and_what_is_broken_is_caught(
    attack: Callable[[Make], Bracket], twin: Make
) -> None:
    assert attack(SumMonitor).upper < NEARLY_NOTHING
    assert attack(twin).lower > 3 * NEARLY_NOTHING
