"""A pipeline that protects users, in memory: logs of events and marks, cut into batches anywhere; crashing engines."""

import json
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from commit_parts import part_of
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC
from oracles.user_caps import Event, Log, Mark
from unit.journal.runtime_worlds import CrashingJournal, CrashingSink, Fuse

from stream_dp.engine.engine import Engine
from stream_dp.engine.memories import Memory
from stream_dp.engine.messages.answering import Requests
from stream_dp.engine.ports import Batch, Ports, Source
from stream_dp.files.memory import MemorySource, MemoryStore
from stream_dp.journal.commit import Commit, decode
from stream_dp.journal.keys import Sealer
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.noise import NoiseStream
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import UserGuard
from stream_dp.testing.manual_clock import ManualClock

HORIZON, CAP, WINDOW = 24, 3, 4
KEYS = ("a", "b", "c", "other")
SEALER = Sealer(bytes(range(32)), "people")
PIPELINE: dict[str, Any] = {
    "version": "1",
    "name": "people",
    "source": {"kind": "file", "path": "unused.jsonl"},
    "schema": {
        "time": {"type": "time", "format": "epoch_ms"},
        "customer": {"type": "text"},
        "key": {"type": "category", "domain": list(KEYS[:-1])},
        "amount": {"type": "integer", "nullable": "true"},
    },
    "privacy": {"unit": "user", "user": "customer", "max_events": str(CAP), "per": "4s", "epsilon": "100"},
    "clock": {
        "kind": "replay", "field": "time", "start": "1970-01-01T00:00:00Z", "step": "1s", "horizon": str(HORIZON),
    },
    "series": [
        {"name": "all", "statistic": "count", "epsilon": "2"},
        {"name": "by_key", "statistic": "histogram", "by": "key", "method": "tree", "epsilon": "2"},
    ],
}  # fmt: skip
FOR_EVER = {"unit": "user", "user": "customer", "overall": str(CAP), "epsilon": "100"}
KEYED = {"kind": "kafka", "topic": "t", "bootstrap": "a:1", "keyed_by": "customer"}


def specification(**changes: Any) -> PipelineSpec:
    return PipelineSpec.model_validate(PIPELINE | changes)


def payload(event: Event) -> bytes:
    """The record of an event; its amount is the place of its key, and its pieces are those that come behind it."""
    record = {"time": 1000 * event.tick, "customer": event.user, "key": event.key}
    amount = KEYS.index(event.key)
    return json.dumps(record | {"amount": amount, "pieces": len(KEYS) - 1 - amount}).encode()


def some_log(random: Random, users: Sequence[str], events: int = 160) -> list[Event | Mark]:
    """Events of the ticks around the time, late ones too, under marks that may skip ahead; few users have many."""
    marks = sorted({random.randrange(HORIZON) for _ in range(HORIZON)} | {HORIZON - 1})
    log: list[Event | Mark] = []
    for mark in marks:
        for _ in range(random.randint(0, 2 * events // len(marks))):
            user = users[min(random.randrange(len(users)), random.randrange(len(users)))]
            tick = min(HORIZON - 1, max(0, mark + random.randint(-3, 6)))
            log.append(Event(user, tick, random.choice(KEYS)))
        log.append(Mark(mark))
    return log


def less_window(log: Log, user: str, size: int, number: int) -> list[Event | Mark]:
    """The log without the events of a user in one window of so many ticks."""
    return [
        item
        for item in log
        if isinstance(item, Mark) or item.user != user or item.tick // size != number
    ]


def cut(logs: Mapping[int, Log], random: Random) -> list[Batch]:
    """The batches of these logs, which end anywhere and at each mark; partitions take turns by lot."""
    left = {partition: _batches(partition, log, random) for partition, log in logs.items()}
    found: list[Batch] = []
    while left:
        partition = random.choice(sorted(left))
        try:
            found.append(next(left[partition]))
        except StopIteration:
            del left[partition]
    return found


def _batches(partition: int, log: Log, random: Random) -> Iterator[Batch]:
    values: list[bytes] = []
    first = 0
    for position, item in enumerate(log):
        mark = item.tick if isinstance(item, Mark) else None
        if isinstance(item, Event):
            values.append(payload(item))
        if mark is not None or random.random() < 0.1:
            labels = range(first, first + len(values))
            yield Batch(partition, values, labels, position + 1, mark=mark)
            values, first = [], position + 1


def hashed(user: str) -> bytes:
    """The user's hash, by another library's code."""
    made = CMAC(AES(SEALER.user_key()))
    made.update(user.encode())
    return made.finalize()


def entries(data: bytes) -> dict[bytes, int]:
    """What a commit's bytes for a window say, by hash; each user stands there once, in order."""
    found = [struct.unpack_from("<16sI", data, at) for at in range(0, len(data), 20)]
    assert len(dict(found)) == len(found)
    assert found == sorted(found, key=lambda one: struct.unpack("<QQ", one[0]))
    return dict(found)


def users_of(commits: Sequence[Commit]) -> dict[int, Counter[bytes]]:
    """All that these commits record, by window and hash."""
    found: dict[int, Counter[bytes]] = {}
    for commit in commits:
        for window, data in part_of(commit, "users").items():
            found.setdefault(window, Counter()).update(entries(data))
    return found


@dataclass
class UserWorld:
    logs: Mapping[int, Log]
    spec: PipelineSpec = field(default_factory=specification)
    store: MemoryStore = field(default_factory=MemoryStore)
    bodies: list[bytes] = field(default_factory=list)
    group: int = 1
    make_guard: Callable[[PipelineSpec, int, bytes], Any] = UserGuard
    guard: Any = field(init=False)
    built: Built = field(init=False)

    def __post_init__(self) -> None:
        self.built = build(self.spec)

    def engine(
        self, random: Random, fuse: Fuse | None = None, source: Source | None = None
    ) -> Engine:
        """A new engine over what is kept; it reads the logs in batches of its own."""
        built, fuse = self.built, fuse or Fuse()
        plan = replace(built.run_config(0), group=self.group)
        router = OpenRouter(built.spec, plan.origin, None, SEALER.user_key())
        ports = Ports(
            source or MemorySource(cut(self.logs, random), partitions=self.logs),
            CrashingJournal(self.store, fuse), CrashingSink(self.bodies, fuse), ManualClock(10**12), SEALER,
        )  # fmt: skip
        self.guard = self.make_guard(built.spec, plan.origin, SEALER.user_key())
        return Engine(
            plan, router, ports, NoiseStream,
            requests=Requests(LiveSeriesPlanner(built.spec, router), built.subledgers()), guard=self.guard,
            memories=self.memories(),
        )  # fmt: skip

    def memories(self) -> list[Memory]:
        """Those of a new engine, beside that of its guard."""
        return []

    def commits(self) -> list[Commit]:
        return [decode(SEALER.open(n, each)) for n, each in enumerate(self.store.commits)]

    def rows(self) -> Counter[tuple[int, str]]:
        found: Counter[tuple[int, str]] = Counter()
        for commit in self.commits():
            for tick, row in zip(commit.ticks, commit.rows, strict=True):
                assert row[0] == sum(row[1:5])
                found.update({(tick, k): n for k, n in zip(KEYS, row[1:5], strict=True) if n})
        return found
