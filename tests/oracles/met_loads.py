"""What the events of one unit pay, by the definition: every record of a small schema, at every tick, or every pair.

A pair is a replacement within a tick, the two ticks of a replacement, or two events of a user: `pairs` says which.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, product
from math import prod
from typing import Any

from oracles.optimal_filter import chain, least_delta, root
from stream_dp.core.box import Box, Side

VALUES: dict[str, list[Any]] = {"kind": [None, "x", "y", "z"], "size": [None, 0, 1, 2]}
POINTS = [dict(zip(VALUES, values, strict=True)) for values in product(*VALUES.values())]
EVENT, IN_TICK, ANY_TICKS = "an event", "a replacement in a tick", "two events at any ticks"
NONE, HALF, ONE = Fraction(0), Fraction(1, 2), Fraction(1)


@dataclass(frozen=True)
class Booked:
    """A mechanism that sees the records of `box` from tick `start` to before tick `end`.

    `met`: whether only an event that it sees pays its amount, and its delta; any event from `start` on pays the rest.
    """

    amount: int
    delta: int
    box: Box
    met: tuple[bool, bool]
    start: int
    end: int


def _holds(value: Any, side: Side) -> bool:
    if value is None or isinstance(side, frozenset):
        return value is not None and value in side
    low, high = side
    return (low is None or low <= value) and (high is None or value <= high)


@cache
def _points(box: Box) -> list[bool]:
    return [all(_holds(point[name], side) for name, side in box.sides) for point in POINTS]


def _units(
    history: Sequence[Booked], pairs: str, ticks: range
) -> Iterator[tuple[tuple[int, ...], dict[int, Fraction]]]:
    """Yield the ticks of a unit's steps, and at which share of its cost they meet each mechanism."""
    events = set()
    for tick in ticks:
        live = [n for n, booked in enumerate(history) if booked.start <= tick < booked.end]
        for point in range(len(POINTS)):
            events.add((tick, frozenset(n for n in live if _points(history[n].box)[point])))
    if pairs == EVENT:
        yield from (((tick,), dict.fromkeys(met, ONE)) for tick, met in events)
        return
    for (tick, first), (other, second) in combinations_with_replacement(events, 2):
        if pairs == ANY_TICKS:
            shares = {n: ONE if n in first and n in second else HALF for n in first | second}
            yield (tick, other), shares
        elif tick == other:
            yield (tick,), dict.fromkeys(first | second, ONE)


Bill = tuple[tuple[int, Fraction, int], ...]  # (amount, the share of it that is paid, delta)


@cache
def _bills(history: tuple[Booked, ...], pairs: str, ticks: range) -> set[Bill]:
    bills = set()
    for at, met in _units(history, pairs, ticks):
        lines = []
        for number, booked in enumerate(history):
            created = Fraction(sum(tick >= booked.start for tick in at), len(at))
            amount, delta = (met.get(number, NONE) if only else created for only in booked.met)
            lines.append((booked.amount, amount, booked.delta if delta else 0))
        bills.add(tuple(line for line in lines if line[1] or line[2]))
    return bills


def most(history: tuple[Booked, ...], pairs: str, ticks: range) -> tuple[int, int]:
    """Return the largest sum of amounts, rounded up, and the largest sum of deltas."""
    bills = _bills(history, pairs, ticks)
    halves = (sum(amount * int(2 * share) for amount, share, _ in bill) for bill in bills)
    deltas = (sum(delta for *_, delta in bill) for bill in bills)
    return -(-max(halves, default=0) // 2), max(deltas, default=0)


def composed(
    history: tuple[Booked, ...],
    pairs: str,
    ticks: range,
    ratios: dict[int, Fraction],
    step: Fraction,
) -> Fraction:
    """Return the largest delta of the optimal composition at e^epsilon = step, or at step^2 where a unit has two steps.

    `ratios`: e to the power of every amount. Deltas count units of 10^-12. Of two steps the worst is the same twice.
    """
    steps, worst = 2 if pairs == ANY_TICKS else 1, NONE
    for bill in _bills(history, pairs, ticks):
        if steps == 1 or all(share == 1 for _, share, _ in bill):
            parts = sorted(root(ratios[amount], steps) for amount, share, _ in bill if share)
            safe = prod((1 - Fraction(delta, 10**12) for *_, delta in bill), start=ONE)
            joint = 1 - (1 - least_delta(tuple(parts), step)) * safe
            worst = max(worst, chain(step, joint, steps)[1])
    return worst
