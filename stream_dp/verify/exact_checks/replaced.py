"""A replacement that may move to another tick: an event gone at one and come at another, against one mechanism."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

from stream_dp.accounting.rules.leaf import leaf
from stream_dp.accounting.situations import Moved
from stream_dp.core.guarantee import Guarantee
from stream_dp.verify.exact.exact_sparse_vector import RearmedAlerts
from stream_dp.verify.exact.finite import FiniteMachine, OnceEach, Pairs
from stream_dp.verify.exact_checks.alive import bits
from stream_dp.verify.exact_checks.composites import ADDED, SMALL
from stream_dp.verify.exact_checks.instance import ADD, Instance, private

HALF, TWO, THREE, EIGHT = Fraction(1, 2), Fraction(2), Fraction(3), Fraction(8)
LEVEL = 2


def _instance(
    words: str, odds: Fraction, machine: FiniteMachine[Any, Any], pairs: Pairs, ticks: int
) -> Instance:
    claimed = leaf("one event", Guarantee(private(odds), ADD), "verify.exact_checks")
    return Instance(f"{words}; an event moves", (claimed,), Moved("moved"), machine, pairs, ticks)


def moved_bit() -> Instance:
    """A noisy bit at every tick."""
    return _instance(
        "bits of ln 3", THREE, bits(THREE).machine, OnceEach((0,), ((0, 1), (1, 0))), 3
    )


def moved_alert() -> Instance:
    """One key, re-armed: the event leaves one instance and comes to the next."""
    rows = (((0,), LEVEL), ((1,), LEVEL))
    gone, come = (rows[1], rows[0]), (rows[0], rows[1])
    pairs = OnceEach((*rows, ((2,), LEVEL)), (gone, come))
    return _instance("re-armed alerts of ln 2", TWO, RearmedAlerts(HALF, HALF), pairs, 3)


def moved_hss() -> Instance:
    """Two columns, three ticks: far more than ln 8, which it costs within a tick, and less than all the rule allows."""
    pairs = OnceEach(((0, 0), (0, 2), (2, 0)), (ADDED[0], ADDED[0][::-1]))
    machine = replace(SMALL, high=6)
    return _instance("HSS of ln 8, 2 columns, between its intervals", EIGHT, machine, pairs, 3)


def moved_events() -> tuple[Instance, ...]:
    """Return the instances of the rule."""
    return moved_bit(), moved_alert(), moved_hss()
