"""Engines as processes on a topic with append stamps, what their journals hold, and what the log says of it."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from faults.cases import make_key
from faults.evidence import opened
from faults.kafka_evidence import journal_blobs
from kafka.hostile_records import category
from kafka.kafka_worlds import CLOCKS
from kafka.raw_wire import Wire
from oracles.kafka_log import Grid, Said, said
from oracles.log_frames import Frame, frames

from stream_dp.engine.engine import Engine
from stream_dp.engine.ports import Clock, Ports, Sink
from stream_dp.files.memory import MemoryJournal, MemoryStore
from stream_dp.files.system_clock import SystemClock
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.source.source import KafkaSource, StampTicks
from stream_dp.operate.run.lane_processes import crew_of
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.testing.noise import ZeroNoise

KEY = bytes(32)
KINDS = ("red", "green", "blue")
COLUMNS = (*KINDS, "other")
_LONGEST_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class LivePipeline:
    """A pipeline that counts all records of a topic and those of each kind, in a folder of its own."""

    name: str
    topic: str
    bootstrap: str
    folder: Path
    grid: Grid
    keep: str = ""
    processes: int = 1
    lanes: int = 0

    def written(self) -> "LivePipeline":
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "pipeline.yaml").write_text(json.dumps(self.document()))
        if not (self.folder / "operator.key").exists():
            make_key(self.folder)
        return self

    def document(self) -> dict[str, Any]:
        start = datetime.fromtimestamp(self.grid.origin / 1000, UTC)
        return {
            "version": 1,
            "name": self.name,
            "source": {
                "kind": "kafka",
                "topic": self.topic,
                "bootstrap": self.bootstrap,
                **(
                    {"workers": {"lanes": self.lanes}}
                    if self.lanes
                    else {"processes": self.processes}
                ),
            },
            "schema": {"kind": {"type": "category", "domain": list(KINDS)}},
            "privacy": {"epsilon": "100" if self.lanes else "2"},
            **({"journal": {"kind": "kafka", "keep": self.keep}} if self.keep else {}),
            "clock": {
                "kind": "wall",
                "step": f"{self.grid.step}ms",
                "delay": f"{self.grid.delay}ms",
                "horizon": str(self.grid.horizon),
                "start": start.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            },
            "series": [
                {"name": "all", "statistic": "count", "epsilon": "1"},
                {
                    "name": "by_kind",
                    "statistic": "histogram",
                    "by": "kind",
                    "method": "tree",
                    "epsilon": "1",
                },
            ],
        }

    def start(self, *options: str) -> "subprocess.Popen[str]":
        """Run it with the test kit and no noise."""
        own = {
            "STREAM_DP_HOME": str(self.folder / "state"),
            "STREAM_DP_KEY_FILE": str(self.folder / "operator.key"),
            "PYTHONUNBUFFERED": "1",
        }
        command = [sys.executable, "-m", "stream_dp.testing", "run", "--zero-noise", *options]
        return subprocess.Popen(
            [*command, str(self.folder / "pipeline.yaml")],
            env={**os.environ, **own},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    async def journal(self) -> "Journalled":
        blobs = await journal_blobs(self.bootstrap, f"{self.name}.private.journal")
        key = (self.folder / "operator.key").read_bytes()
        return Journalled.of(opened(blobs, key, self.name))


def engine_in_memory(
    pipeline: LivePipeline,
    store: MemoryStore,
    sink: Sink,
    clock: Clock | None = None,
    clock_topic: str = CLOCKS,
) -> Engine:
    clock, grid = clock or SystemClock(), pipeline.grid
    ticks = StampTicks(grid.step, grid.delay // 2, clock_topic)
    source = KafkaSource(KafkaSettings(pipeline.bootstrap), pipeline.topic, clock, ticks)
    sealer = Sealer(KEY, pipeline.name)
    built = build(PipelineSpec.model_validate(pipeline.document()))
    config = built.run_config(0)
    crew = crew_of(built.spec, sealer)
    ports = Ports(source, MemoryJournal(store), sink, clock, sealer, crew=crew)
    return Engine(config, OpenRouter(built.spec, config.origin), ports, lambda *_: ZeroNoise())


@dataclass(slots=True)
class Journalled:
    """Rows by tick, each the counts of all and of `COLUMNS`; late ones; dead letters by partition, and places known."""

    rows: dict[int, tuple[int, ...]] = field(default_factory=dict)
    late: int = 0
    dead: Counter[int] = field(default_factory=Counter)
    places: set[tuple[int, int]] = field(default_factory=set)

    @classmethod
    def of(cls, commits: Iterable[dict[str, Any]]) -> "Journalled":
        made = cls()
        for commit in commits:
            made.rows.update(
                (tick, tuple(row))
                for tick, row in zip(commit["ticks"], commit["rows"], strict=True)
            )
            made.late += commit["late"]
            for _, partition, _, _, records, ranges in commit["dead_letters"]:
                made.dead[partition] += records
                for first, last in ranges:
                    made.places.update((partition, place) for place in range(first, last + 1))
        return made


def differences(log: Said, journal: Journalled, grid: Grid) -> Iterator[str]:
    """In what a journal differs from what the log says, tick by tick."""
    for tick in range(grid.horizon):
        counted = log.tick(tick)
        row = [counted.total(), *(counted[kind] for kind in KINDS)]
        expected = (*row, counted.total() - sum(row[1:]))
        found = journal.rows.get(tick)
        if found != expected:
            yield f"tick {tick}: {found} in the journal, {expected} in the log"
    if journal.late != log.late:
        yield f"late: {journal.late} in the journal, {log.late} in the log"
    dead: Counter[int] = Counter()
    places: set[tuple[int, int]] = set()
    for one in log.dead:
        dead[one.partition] += one.records
        places.update((one.partition, offset) for offset in range(one.first, one.last + 1))
    if journal.dead != dead:
        yield f"dead letters: {dict(journal.dead)} in the journal, {dict(dead)} in the log"
    if journal.places - places:
        yield f"dead letters at other places: {sorted(journal.places - places)[:5]}"


def log_of(bootstrap: str, topic: str) -> dict[int, list[Frame]]:
    """All batches of all partitions of a topic, read uncommitted over a plain socket."""
    with Wire(bootstrap.partition(",")[0]) as asking:
        leaders = asking.leaders(topic)
    return {number: list(_partition(address, topic, number)) for number, address in leaders.items()}


def _partition(address: str, topic: str, number: int) -> Iterator[Frame]:
    with Wire(address) as wire:
        offset = 0
        while True:
            data, end = wire.fetch(topic, number, offset)
            for frame in frames(data):
                yield frame
                offset = frame.last + 1
            if offset >= end:
                return


def says(bootstrap: str, topic: str, grid: Grid) -> Said:
    return said(log_of(bootstrap, topic), grid, _judge)


@lru_cache(maxsize=2**12)
def _remembered(value: bytes) -> str | None:
    return category(value)


def _judge(value: bytes | None) -> str | None:
    short = value is not None and len(value) <= _LONGEST_REMEMBERED
    return _remembered(value) if short and value is not None else category(value)
