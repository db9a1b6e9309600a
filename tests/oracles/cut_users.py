"""Who was active and who was cut off by a cap: one record after another, with a dict, in plain Python.

The rules are those of `oracles.user_caps`; who has a record of a tick that is not late is active there, and cut off
there where the record is beyond the cap. A row counts each user once in a window, at the first tick.
"""

from collections import Counter
from collections.abc import Mapping

from oracles.first_arrivals import first_arrivals
from oracles.user_caps import Log, Mark, window_of


def cut_users(
    logs: Mapping[int, Log], cap: int, window: int | None, ticks: int
) -> list[tuple[int, int]]:
    """The rows (active, cut off) of so many ticks."""
    active: list[set[str]] = [set() for _ in range(ticks)]
    cut: list[set[str]] = [set() for _ in range(ticks)]
    used = Counter[tuple[int, str]]()
    for log in logs.values():
        passed = -1
        for item in log:
            if isinstance(item, Mark):
                passed = max(passed, item.tick)
            elif item.tick > passed:
                place = window_of(item.tick, window), item.user
                used[place] += 1
                active[item.tick].add(item.user)
                if used[place] > cap:
                    cut[item.tick].add(item.user)
    return list(zip(first_arrivals(active, window), first_arrivals(cut, window), strict=True))
