"""All memories of users together, at every cut by lot loaded as saved or replayed: rows of an uninterrupted run.

Guard, router and assembler run as in the engine. What no other test loads is here: identifiers and totals of both signs
by key, and users cut off by each cap and by a total.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from oracles.user_caps import Event, Log
from unit.pipeline.routing import user_worlds
from unit.pipeline.routing.user_worlds import PIPELINE, SEALER, cut, payload, some_log

from stream_dp.engine.memories import Memories, UserMemory
from stream_dp.engine.tick_assembler import TickAssembler
from stream_dp.journal.commit import Commit
from stream_dp.pipeline.router import OpenRouter, memories_of
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import guard_of

CAPS = {"max_events": "3", "per": "4s", "per_tick": "2", "key": "key", "per_key": "2", "keys": "2"}
PEOPLE = {"statistic": "distinct", "of": "customer", "by": "key", "epsilon": "1"}
SUM = {"statistic": "sum", "of": "amount", "by": "key", "every": "4s", "epsilon": "1"}
CUT = {"statistic": "cut_off", "window": "4s", "epsilon": "1"}
SERIES: list[dict[str, Any]] = [
    {"name": "net", **SUM, "clamp": ["-3", "2"], "user_total": "3"},
    {"name": "added", **SUM, "clamp": ["0", "2"], "user_total": "3"},
    {"name": "shared", **SUM, "clamp": ["0", "2"], "shared_total": "true"},
    {"name": "day", **PEOPLE, "every": "4s"},
    {"name": "ever", **PEOPLE},
    {"name": "across", **PEOPLE, "every": "3s", "running": "true"},
    {"name": "any", **CUT},
    *(
        {"name": cap, **CUT, "cap": cap}
        for cap in ("max_events", "per_tick", "per_key", "keys", "total")
    ),
]
TOTAL = {"of": "amount", "clamp": ["0", "2"], "at_most": "3"}
USERS = {"unit": "user", "user": "customer", "epsilon": "100", "total": TOTAL, **CAPS}
SPEC = PipelineSpec.model_validate(PIPELINE | {"privacy": USERS, "series": SERIES})
Rows = list[tuple[int, ...]]


def both_signs(event: Event) -> bytes:
    return payload(event).replace(b'"amount": 3', b'"amount": -5')


def held(memories: Sequence[UserMemory]) -> list[Any]:
    """What guards remember of events that count, whatever order it stands in."""
    saved = [memory.held() for memory in memories]
    return [
        {w: sorted(data[at : at + 20] for at in range(0, len(data), 20)) for w, data in one.items()}
        for one in saved
    ]


def rows_of(log: Log, lot: int, *, restarts: bool) -> Rows:
    random, key = Random(lot), SEALER.user_key()
    router, guard = OpenRouter(SPEC, 0, None, key), guard_of(SPEC, 0, key)
    guard.begin((0,))
    memories, guards = Memories(*memories_of(router.layout, SPEC)), Memories(*guard.memories)
    ticks, rows, commits = TickAssembler([0], router.width), Rows(), list[Commit]()
    for batch in cut({0: log}, random):
        admitted = guard.admit(router.decode(batch), ticks.passed(0))
        ticks.add(admitted, router.route(admitted))
        while closed := ticks.closed(random.randint(1, 3)):
            taken, used = guards.record(closed)
            counted, seen = memories.record(taken)
            rows += [tuple(one.row.tolist()) for one in counted]
            names = tuple(one.tick for one in closed)
            commits.append(Commit(len(commits), b"", ticks=names, parts=used | seen))
            if restarts:
                saved = guards.save() | memories.save()
                loaded, replayed = (guard_of(SPEC, 0, key).memories for _ in range(2))
                fresh = Memories(*memories_of(router.layout, SPEC))
                both = Memories(*loaded, *memories_of(router.layout, SPEC))
                every = Memories(*replayed, *memories_of(router.layout, SPEC))
                both.load(saved, commits[-1])
                for commit in commits:
                    every.replay(commit)
                assert held(loaded) == held(replayed)
                assert both.save().keys() == every.save().keys() == saved.keys()
                fresh.load(memories.save(), commits[-1])
                memories = fresh
    return rows


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_the_same_whatever_memories_are_made_of(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_worlds, "payload", both_signs)
    log = some_log(Random(seed), [f"user {number}" for number in range(3)], 250)
    whole = rows_of(log, seed, restarts=False)
    assert rows_of(log, seed + 7, restarts=True) == whole
    assert all(any(column) for column in list(zip(*whole, strict=True))[-12:])
