"""A pipeline that counts different identifiers, in memory: logs cut into batches anywhere, with and without an engine.

Rows are judged by definition: of the records that are not late, each identifier at the first tick of its window.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from commit_parts import part_of
from oracles.first_arrivals import first_arrivals
from oracles.user_caps import Event, Log
from unit.pipeline.routing.user_worlds import HORIZON, PIPELINE, SEALER, UserWorld, cut

from stream_dp.core.mechanism import IntArray
from stream_dp.engine.memories import Memory, SeenMemory
from stream_dp.engine.tick_assembler import TickAssembler
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import guard_of

WINDOW = 4
EVENTS = {"unit": "event", "epsilon": "100"}
SERIES = [
    {"name": "ever", "statistic": "distinct", "of": "customer", "epsilon": "2"},
    {"name": "each", "statistic": "distinct", "of": "customer", "every": ["4s"], "running": True, "epsilon": "2"},
    {
        "name": "some", "statistic": "distinct", "of": "customer", "every": "1s", "running": True, "epsilon": "2",
        "where": [{"field": "key", "one_of": ["a", "b"]}],
    },
    {"name": "all", "statistic": "count", "epsilon": "2"},
]  # fmt: skip
KEPT = (None, None, ("a", "b"))
WINDOWS = (None, WINDOW, 1)


def specification(**changes: Any) -> PipelineSpec:
    return PipelineSpec.model_validate(PIPELINE | {"privacy": EVENTS, "series": SERIES} | changes)


def counted(logs: Mapping[int, Log]) -> list[list[Event]]:
    """The records of each tick that are not late in their partition."""
    found: list[list[Event]] = [[] for _ in range(HORIZON)]
    for log in logs.values():
        passed = -1
        for item in log:
            if not isinstance(item, Event):
                passed = max(passed, item.tick)
            elif item.tick > passed:
                found[item.tick].append(item)
    return found


def expected(logs: Mapping[int, Log]) -> list[tuple[int, ...]]:
    ticks = counted(logs)
    columns = [
        first_arrivals(
            [[e.user for e in t if kept is None or e.key in kept] for t in ticks], window
        )
        for kept, window in zip(KEPT, WINDOWS, strict=True)
    ]
    return list(zip(*columns, map(len, ticks), strict=True))


def rows_of(spec: PipelineSpec, logs: Mapping[int, Log], random: Random) -> IntArray:
    """The rows of the real path, without an engine; shape (ticks, width). Batches and closings are by lot."""
    router = OpenRouter(spec, 0, None, SEALER.user_key())
    guard = guard_of(spec, 0, SEALER.user_key())
    guard.begin(sorted(logs))
    seen = SeenMemory(router.layout.windows(spec))
    ticks = TickAssembler(sorted(logs), router.width)
    found: list[IntArray] = []
    for batch in cut(logs, random):
        admitted = guard.admit(batch, ticks.passed(batch.partition))
        ticks.add(admitted, router.route(admitted))
        while closed := ticks.closed(random.randint(1, 3)):
            found += [one.row for one in seen.record(closed)[0]]
    return np.array(found)


@dataclass
class SeenWorld(UserWorld):
    """What outlives an engine that remembers identifiers; `seen` is the last one's memory."""

    make_guard: Any = guard_of
    make_seen: Any = SeenMemory
    seen: SeenMemory | None = None

    def memories(self) -> list[Memory]:
        self.seen = self.make_seen(self.built.layout.windows(self.built.spec))
        return [self.seen]

    def recorded(self) -> list[tuple[int, ...]]:
        return [tuple(row) for commit in self.commits() for row in commit.rows]


def remembered(commits: Sequence[Any], column: int) -> dict[int, Counter[bytes]]:
    """All that these commits record of a column, by window and hash."""
    found: dict[int, Counter[bytes]] = {}
    for commit in commits:
        for window, data in part_of(commit, "arrived").get(column, {}).items():
            found.setdefault(window, Counter()).update(
                data[at : at + 16] for at in range(0, len(data), 20)
            )
    return found
