"""Adapters for a specification: the one place where ports meet their implementations."""

import asyncio
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from stream_dp.broker.jars import state_dir
from stream_dp.engine.ports import (
    Answers,
    Clock,
    Journal,
    Ports,
    Positions,
    Questions,
    Sink,
    Source,
)
from stream_dp.engine.recovery import NoiseMaker
from stream_dp.engine.run_config import GROUP, FileChange
from stream_dp.files.files import FileSink, FileSource
from stream_dp.files.highwater import HighWater
from stream_dp.files.sqlite import SqliteAnswers, SqliteJournal, SqliteQuestions
from stream_dp.files.system_clock import SystemClock
from stream_dp.journal.keys import Sealer, WorkerKeys
from stream_dp.kafka.log.journal import KafkaJournal
from stream_dp.kafka.log.lease import Holder, KafkaLease, Presence
from stream_dp.kafka.log.public import KafkaAnswers, KafkaQuestions, KafkaSink
from stream_dp.kafka.source.source import KafkaSource
from stream_dp.noise import NoiseStream
from stream_dp.operate.run.deriving import beside
from stream_dp.operate.run.lane_processes import crew_of
from stream_dp.operate.run.settings import kafka_source, rows_of, settings_for, settled
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records.endpoints import (
    FileSourceSpec,
    KafkaJournalSpec,
    KafkaSourceSpec,
    ReplayClock,
    SourceSpec,
    SqliteJournalSpec,
)


def open_ports(
    spec: PipelineSpec,
    sealer: Sealer,
    accepted: str = "",
    holder: Holder | None = None,
    marks: Path | None = None,
) -> Ports:
    """Return the adapters of this specification; nothing is connected yet.

    `marks` is the folder of the high-water marks (default: in the state folder). `accepted` names a new guarantee
    for an empty journal on a source that was used before. `holder` is the same for all attempts of a run.
    """
    clock = SystemClock()
    source = OPENERS[type(spec.source)](spec, clock, sealer)
    lease = _lease(spec, holder)
    journal, sink, questions, answers = _durable(spec, lease)
    # a topic is identified by its cluster, a file by its place
    place = str(spec.source.path.resolve()) if isinstance(spec.source, FileSourceSpec) else ""
    marked = HighWater(
        journal, marks or state_dir() / "high-water", spec.name, source.name, accepted,
        lambda: journal.cluster if isinstance(journal, KafkaJournal) else "",
        place, "" if spec.public_data else sealer.key_ids,
    )  # fmt: skip
    return Ports(
        source, marked, sink, clock, sealer, questions=questions, answers=answers,
        crew=crew_of(spec, sealer), rows=rows_of(spec, sealer.worker_keys().rows, lease),
    )  # fmt: skip


def _kafka_source(spec: PipelineSpec, clock: Clock, sealer: Sealer) -> Source:
    return kafka_source(spec, clock, sealer.mark_key)


def file_source(spec: PipelineSpec, every: int | None = None) -> Source:
    """Return the source of a file, whose records come again after `every` ticks (None: never)."""
    source, ticking = settled(spec.source, FileSourceSpec), settled(spec.clock, ReplayClock)
    times = ticking.field, ticking.grid, spec.own_times
    return FileSource(source.path, spec.fields, *times, source.encoding, every)


OPENERS: Mapping[type[SourceSpec], Callable[[PipelineSpec, Clock, Sealer], Source]] = {
    KafkaSourceSpec: _kafka_source,
    FileSourceSpec: lambda spec, clock, sealer: file_source(spec),
}
"""Opens the source of each kind; its specification was checked."""


def known_ends(ports: Ports) -> Positions:
    """Return the ends of a source's partitions that it knows without a request; private. Empty if unknown."""
    if ports.crew is not None and ports.crew.ends:
        return ports.crew.ends
    return ports.source.known_ends() if isinstance(ports.source, KafkaSource) else {}


def _lease(spec: PipelineSpec, holder: Holder | None) -> KafkaLease | None:
    if isinstance(spec.journal, SqliteJournalSpec):
        return None
    return KafkaLease(settings_for(settled(spec.source, KafkaSourceSpec)), spec.name, holder)


def _durable(
    spec: PipelineSpec, lease: KafkaLease | None
) -> tuple[Journal, Sink, Questions, Answers]:
    """Return journal, sink, questions and answers: in topics, or in a file beside the journal."""
    if lease is None:
        file = settled(spec.journal, SqliteJournalSpec).path
        sink = FileSink(settled(spec.releases_path, Path))
        path = file.with_name(f"{file.name}.messages")
        return SqliteJournal(file), sink, SqliteQuestions(path), SqliteAnswers(path)
    source = settled(spec.source, KafkaSourceSpec)
    questions = KafkaQuestions(lease.settings, spec.name)
    return KafkaJournal(lease, source.topic), KafkaSink(lease), questions, KafkaAnswers(lease)


_WORKER = "from stream_dp.operate.run.worker import serve; serve()"


@asynccontextmanager
async def working(number: int, spec: PipelineSpec, keys: WorkerKeys) -> AsyncIterator[list[int]]:
    """Let so many processes of this machine work for a pipeline while the context is open; yield their ids."""
    task, processes = pickle.dumps((spec, keys)), list[Process]()
    try:
        for _ in range(number):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-c", _WORKER,
                stdin=PIPE, start_new_session=True, env=beside(os.environ),
            )  # fmt: skip
            processes.append(process)
            if process.stdin is not None:
                process.stdin.write(task)
                await process.stdin.drain()
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def presence_of(spec: PipelineSpec) -> Presence | None:
    """Return the presence group of this pipeline's engines, which standbys watch; None without a journal in Kafka."""
    if isinstance(spec.journal, KafkaJournalSpec) and isinstance(spec.source, KafkaSourceSpec):
        return Presence(settings_for(spec.source), spec.name)
    return None


@dataclass(frozen=True, slots=True)
class Setup:
    """The parts of a run; only the test kit changes them, and then `private` is False.

    `group` is about the largest number of ticks in one private commit when the engine is behind. `change` is that of
    the pipeline file, which a start applies.
    """

    make_noise: NoiseMaker = NoiseStream
    private: bool = True
    adapters: Callable[[PipelineSpec, Sealer, str, Holder], Ports] = open_ports
    group: int = GROUP
    change: FileChange | None = None


PRODUCT = Setup()
