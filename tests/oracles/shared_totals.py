"""What one user loses to series that come and go, where some share a total: every stream of a user, in plain integers.

A series answers by randomized response for each step that it meets, so what it loses is what its steps add up to: a
count loses a k-th of its price for each event of its kinds while it runs, a sum a C-th for each unit. Units are decided
record by record, before any series looks at a kind: of an amount v counts what is left of C. Series with a total of
their own (`own`) decide that by themselves, of the records that they see. A record may have two amounts, each with a
total of its own, and a mean takes half of its price for the units of records that fit wholly into what is left, half
for their number. Prices are numbers that twice k and C divide.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple


class Running(NamedTuple):
    """A series that sees records of these kinds at the ticks from `start` up to, and not including, `end`."""

    what: str  # count, shared, own or mean
    kinds: str
    price: int
    start: int
    end: int
    of: int = 0  # which of a record's amounts


class Record(NamedTuple):
    tick: int
    kind: str
    amounts: tuple[int, ...]


def streams(
    ticks: int, kinds: str, largest: int, most: int, amounts: int = 1
) -> Iterator[tuple[Record, ...]]:
    """Every stream of at most so many records of one user, in the order in which they come."""
    each = product(range(largest + 1), repeat=amounts)
    records = [Record(*one) for one in product(range(ticks), kinds, each)]
    for number in range(most + 1):
        yield from product(records, repeat=number)


def increments(stream: Sequence[Record], total: int, of: int = 0) -> list[int]:
    added, units = 0, []
    for record in stream:
        after = min(total, added + record.amounts[of])
        units.append(after - added)
        added = after
    return units


def loss(series: Running, stream: Sequence[Record], cap: int, total: int) -> int:
    """What a series loses to a user who has these records in one window, of which no cap refuses one."""
    seen = [r.kind in series.kinds and series.start <= r.tick < series.end for r in stream]
    if series.what == "count":
        return sum(seen) * series.price // cap
    if series.what == "own":
        own = [record for record, here in zip(stream, seen, strict=True) if here]
        return sum(increments(own, total, series.of)) * series.price // total
    units = increments(stream, total, series.of)
    if series.what == "mean":
        fits = [u == r.amounts[series.of] for u, r in zip(units, stream, strict=True)]
        here = [fit and sees for fit, sees in zip(fits, seen, strict=True)]
        added = sum(u for u, counts in zip(units, here, strict=True) if counts)
        return added * series.price // (2 * total) + sum(here) * series.price // (2 * cap)
    return sum(u for u, here in zip(units, seen, strict=True) if here) * series.price // total


def worst(
    every: Sequence[Running], ticks: int, kinds: str, largest: int, cap: int, total: int
) -> int:
    """The most that all of them together lose, over every stream of one user in a window of so many ticks."""
    amounts = 1 + max(series.of for series in every)
    return max(
        sum(loss(series, stream, cap, total) for series in every)
        for stream in streams(ticks, kinds, largest, cap, amounts)
    )
