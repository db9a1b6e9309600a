"""Identifiers at their first tick, by definition: for each window the set of those that were there before."""

from collections.abc import Collection, Sequence


def first_arrivals(ticks: Sequence[Collection[object]], window: int | None) -> tuple[int, ...]:
    """How many identifiers are there for the first time in their window, of each tick; None: one window for ever."""
    rows, seen = [], set[object]()
    for tick, there in enumerate(ticks):
        if window is not None and tick % window == 0:
            seen = set()
        rows.append(len(set(there) - seen))
        seen |= set(there)
    return tuple(rows)
