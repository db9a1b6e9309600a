"""Adapters for a specification: the one place where ports meet their implementations."""

from pathlib import Path

from stream_dp.adapters.files import FileSink, FileSource
from stream_dp.adapters.highwater import HighWater
from stream_dp.adapters.kafka_journal import KafkaJournal
from stream_dp.adapters.kafka_lease import KafkaLease
from stream_dp.adapters.kafka_sink import KafkaSink
from stream_dp.adapters.kafka_source import KafkaSource, ReplayTicks, StampTicks
from stream_dp.adapters.sqlite import SqliteJournal
from stream_dp.adapters.system_clock import SystemClock
from stream_dp.app.settings import fields_of, settings_for
from stream_dp.broker.places import state_dir
from stream_dp.errors import UsageError
from stream_dp.pipeline import endpoints
from stream_dp.pipeline.spec import PipelineSpec, ReplayClock, WallClock
from stream_dp.runtime.keys import Sealer
from stream_dp.runtime.ports import Journal, Ports, Sink, Source


def open_ports(
    spec: PipelineSpec, sealer: Sealer, accepted: str = "", marks: Path | None = None
) -> Ports:
    """The adapters this specification names; nothing is connected yet.

    `marks` is the folder of the high-water marks (default: in the state folder); `accepted` names a new
    guarantee for an empty journal on a source that was seen before.
    """
    clock = SystemClock()
    source, shard = _source(spec, clock)
    journal, sink = _durable(spec, shard)
    folder = marks or state_dir() / "high-water"
    marked = HighWater(journal, folder, spec.name, source.name, accepted)
    return Ports(source, marked, sink, clock, sealer)


def _source(spec: PipelineSpec, clock: SystemClock) -> tuple[Source, KafkaLease | None]:
    source, ticking = spec.source, spec.clock
    if isinstance(source, endpoints.KafkaSourceSpec):
        settings = settings_for(source)
        ticks = (
            StampTicks(ticking.step, ticking.delay // 2)
            if isinstance(ticking, WallClock)
            else ReplayTicks()
        )
        shard = KafkaLease(settings, spec.name)
        return KafkaSource(settings, source.topic, clock, ticks), shard
    if not isinstance(ticking, ReplayClock):
        raise UsageError("clock.kind: a file has no append stamps: use replay")
    file = FileSource(source.path, fields_of(spec), ticking.field, ticking.grid)
    return file, None


def _durable(spec: PipelineSpec, shard: KafkaLease | None) -> tuple[Journal, Sink]:
    if isinstance(spec.journal, endpoints.SqliteJournalSpec):
        if spec.releases is None:
            raise UsageError("releases.path: where should releases go?")
        return SqliteJournal(spec.journal.path), FileSink(spec.releases.path)
    if shard is None or not isinstance(spec.source, endpoints.KafkaSourceSpec):
        raise UsageError("journal.kind: a kafka journal needs a kafka source")
    return KafkaJournal(shard, spec.source.topic), KafkaSink(shard)
