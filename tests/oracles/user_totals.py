"""How much users add to a sum under a total: one record after another, with dicts, in plain Python.

The rules: of a user's records those count that the cap of events lets through (`user_caps`), at their own ticks. Tick
by tick, and in it key by key, a user who has added S of a total of C in the open window adds min(C, S + v) - S, where v
is the sum of that user's amounts there. Of amounts of both signs nothing is told before a window's last tick; there,
key by key, of a user's sum v of the window counts what is left of C: v between -left and left. Of a total that series
share a record has, in the order of its partition, what those before it have left, whichever series see it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from oracles.user_caps import Caps, Event, Log, Mark, Verdict, count, window_of


def counting(logs: Mapping[int, Log], cap: int, window: int | None) -> list[Event]:
    """The records that are not late and within their users' caps."""
    kept: list[Event] = []
    for log in logs.values():
        passed, used = -1, Counter[tuple[int, str]]()
        for item in log:
            if isinstance(item, Mark):
                passed = max(passed, item.tick)
                continue
            place = window_of(item.tick, window), item.user
            if item.tick > passed and used[place] < cap:
                used[place] += 1
                kept.append(item)
    return kept


def totals(
    events: Sequence[Event],
    amount: Callable[[Event], int],
    total: int,
    window: int | None,
    ticks: int,
    keys: Sequence[str] | None = None,
) -> list[tuple[int, ...]]:
    """The rows by tick: one entry, or one for each of `keys`."""
    added = Counter[tuple[int, str]]()
    rows = []
    for tick in range(ticks):
        row = []
        for key in [None] if keys is None else keys:
            asked = Counter[str]()
            for event in events:
                if event.tick == tick and key in (None, event.key):
                    asked[event.user] += amount(event)
            entry = 0
            for user, units in asked.items():
                place = window_of(tick, window), user
                more = min(total, added[place] + units) - added[place]
                added[place] += more
                entry += more
            row.append(entry)
        rows.append(tuple(row))
    return rows


def net_totals(
    events: Sequence[Event],
    amount: Callable[[Event], int],
    total: int,
    window: int,
    ticks: int,
    keys: Sequence[str] | None = None,
) -> list[tuple[int, ...]]:
    """The rows by tick, of amounts of both signs: one entry, or one for each of `keys`."""
    rows = []
    for tick in range(ticks):
        row = [0] * (1 if keys is None else len(keys))
        here = [event for event in events if event.tick // window == tick // window]
        for user in {event.user for event in here} if (tick + 1) % window == 0 else ():
            left = total
            for at, key in enumerate([None] if keys is None else keys):
                own = sum(amount(e) for e in here if e.user == user and key in (None, e.key))
                counts = max(-left, min(left, own))
                left -= abs(counts)
                row[at] += counts
        rows.append(tuple(row))
    return rows


class Added(NamedTuple):
    """A record that counts, what it adds within a total that series share, and whether it would add more."""

    event: Event
    units: int
    cut: bool


def shared(
    logs: Mapping[int, Log], amount: Callable[[Event], int], total: int, caps: Caps
) -> list[Added]:
    """What records add, one after another in their partition's order: those alone that all caps have room for."""
    used = Counter[tuple[int, str]]()
    found: list[Added] = []
    for log in logs.values():
        passed, verdict = -1, Verdict()
        for item in log:
            if isinstance(item, Mark):
                passed = max(passed, item.tick)
                continue
            if item.tick <= passed or not count(verdict, item, caps):
                continue
            place, asked = (window_of(item.tick, caps.window), item.user), amount(item)
            units = min(total, used[place] + asked) - used[place]
            used[place] += units
            found.append(Added(item, units, units < asked))
    return found
