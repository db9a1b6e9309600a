"""Who was active and who was cut off by a cap: one record after another, with a dict, in plain Python.

The rules are those of `oracles.user_caps`; who has a record of a tick that is not late is active there, and cut off
there where the record is beyond the cap. A row counts each user once in a window, at the first tick.

Which cap it was: that of the window where as many records count there as it lets count; else each cap without room.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from oracles.first_arrivals import first_arrivals
from oracles.user_caps import Caps, Event, Log, Mark, window_of


def on_time(logs: Mapping[int, Log]) -> Iterator[Event]:
    """The events that come before the mark of their tick, partition by partition."""
    for log in logs.values():
        passed = -1
        for item in log:
            if isinstance(item, Mark):
                passed = max(passed, item.tick)
            elif item.tick > passed:
                yield item


def cut_users(
    logs: Mapping[int, Log], cap: int, window: int | None, ticks: int
) -> list[tuple[int, int]]:
    """The rows (active, cut off) of so many ticks."""
    active: list[set[str]] = [set() for _ in range(ticks)]
    cut: list[set[str]] = [set() for _ in range(ticks)]
    used = Counter[tuple[int, str]]()
    for item in on_time(logs):
        place = window_of(item.tick, window), item.user
        used[place] += 1
        active[item.tick].add(item.user)
        if used[place] > cap:
            cut[item.tick].add(item.user)
    return list(zip(first_arrivals(active, window), first_arrivals(cut, window), strict=True))


def cut_by_cap(logs: Mapping[int, Log], caps: Caps, ticks: int) -> dict[str, list[tuple[int, int]]]:
    """The rows (active, cut off by that cap) of so many ticks, by the cap's name."""
    names = ("max_events", "per_tick", "per_key", "keys")
    active: list[set[str]] = [set() for _ in range(ticks)]
    cut: dict[str, list[set[str]]] = {name: [set() for _ in range(ticks)] for name in names}
    counting: list[tuple[str, int, str]] = []
    for item in on_time(logs):
        active[item.tick].add(item.user)
        full = caps_without_room(caps, counting, item)
        if not full:
            counting.append(item)
        for name in full:
            cut[name][item.tick].add(item.user)
    return {
        name: list(
            zip(
                first_arrivals(active, caps.window),
                first_arrivals(cut[name], caps.window),
                strict=True,
            )
        )
        for name in names
    }


def caps_without_room(
    caps: Caps, counting: list[tuple[str, int, str]], event: tuple[str, int, str]
) -> list[str]:
    """The caps for which a record does not count, beside all that do; none where it counts."""
    user, tick, key = event
    place = window_of(tick, caps.window)
    own = [(t, k) for u, t, k in counting if u == user and window_of(t, caps.window) == place]
    if len(own) >= caps.cap:
        return ["max_events"]
    there, keys = [t for t, _ in own if t == tick], {k for _, k in own}
    full = {
        "per_tick": caps.per_tick is not None and len(there) >= caps.per_tick,
        "per_key": caps.per_key is not None and [k for _, k in own].count(key) >= caps.per_key,
        "keys": caps.keys is not None and key not in keys and len(keys) >= caps.keys,
    }
    return [name for name, none_left in full.items() if none_left]
