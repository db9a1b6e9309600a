"""Whose events count under a cap: one record after another, with a dict, in plain Python.

The rules: within each partition, in its order, a record of a tick that is over there (the partition's last mark is not
before it) is late. Of the others the first `cap` of each user in each public window of `window` ticks count (None: one
window for ever); with `per_tick` at most so many of that user in each tick, with `per_key` of each key in each window,
and with `keys` of so many different keys in each window. A record counts if all caps have room for it, and else it uses
none. A record in another partition than its user's is a dead letter. Nothing else plays a part.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias


class Event(NamedTuple):
    """A record: whose it is, its tick, and what it counts as."""

    user: str
    tick: int
    key: str


class Mark(NamedTuple):
    """The end of a tick in a partition."""

    tick: int


Log: TypeAlias = Sequence[Event | Mark]


@dataclass
class Verdict:
    """What counts: events by tick and key; and what was used of caps, by window and user, at each partition's marks."""

    rows: Counter[tuple[int, str]] = field(default_factory=Counter)
    used: Counter[tuple[int, str]] = field(default_factory=Counter)
    late: int = 0
    capped: int = 0
    dead: int = 0
    at: Counter[tuple[int, str]] = field(default_factory=Counter)
    by_key: Counter[tuple[int, str, str]] = field(default_factory=Counter)


class Caps(NamedTuple):
    cap: int
    window: int | None
    per_tick: int | None = None
    per_key: int | None = None
    keys: int | None = None


def window_of(tick: int, window: int | None) -> int:
    """The public window of a tick."""
    return 0 if window is None else tick // window


def judge(
    logs: Mapping[int, Log],
    cap: int,
    window: int | None,
    home: Callable[[str], int] | None = None,
    marks: Mapping[int, int] | None = None,
    per_tick: int | None = None,
    per_key: int | None = None,
    keys: int | None = None,
) -> Verdict:
    """Judge all records, or those of each partition up to its mark in `marks`."""
    found, caps = Verdict(), Caps(cap, window, per_tick, per_key, keys)
    for partition, log in logs.items():
        passed = -1
        stop = None if marks is None else marks[partition]
        for item in log:
            if stop is not None and passed >= stop:
                break
            if isinstance(item, Mark):
                passed = max(passed, item.tick)
            elif home is not None and home(item.user) != partition:
                found.dead += 1
            elif item.tick <= passed:
                found.late += 1
            else:
                count(found, item, caps)
    return found


def count(found: Verdict, event: Event, caps: Caps) -> bool:
    """Count an event if all caps have room for it; return whether they had."""
    place = window_of(event.tick, caps.window), event.user
    at, cell = (event.tick, event.user), (*place, event.key)
    used_keys = {key for *used, key in found.by_key if tuple(used) == place}
    room = (
        found.used[place] < caps.cap,
        caps.per_tick is None or found.at[at] < caps.per_tick,
        caps.per_key is None or found.by_key[cell] < caps.per_key,
        caps.keys is None or len(used_keys | {event.key}) <= caps.keys,
    )
    if not all(room):
        found.capped += 1
        return False
    found.used[place] += 1
    found.at[at] += 1
    found.by_key[cell] += 1
    found.rows[event.tick, event.key] += 1
    return True
