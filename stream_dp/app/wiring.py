"""Adapters for a specification: the one place where ports meet their implementations."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from stream_dp.adapters.files import FileSink, FileSource
from stream_dp.adapters.highwater import HighWater
from stream_dp.adapters.kafka_client import KafkaSettings
from stream_dp.adapters.kafka_journal import KafkaJournal
from stream_dp.adapters.kafka_lease import KafkaLease
from stream_dp.adapters.kafka_sink import KafkaSink
from stream_dp.adapters.kafka_source import KafkaSource, ReplayTicks, StampTicks
from stream_dp.adapters.records import FieldType
from stream_dp.adapters.sqlite import SqliteJournal, read_sealed
from stream_dp.adapters.system_clock import SystemClock
from stream_dp.broker.places import state_dir
from stream_dp.errors import StreamDPError, UnknownFormat, UsageError
from stream_dp.pipeline import spec as pipeline
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.spec import PipelineSpec, ReplayClock, WallClock
from stream_dp.runtime.commit import decode
from stream_dp.runtime.header_check import require_same
from stream_dp.runtime.keys import Sealer, make_key, read_key
from stream_dp.runtime.ports import Journal, Ports, Sink, Source, closing

KEY_VARIABLE = "STREAM_DP_KEY_FILE"


def sealer_for(spec: PipelineSpec, key_file: Path | None) -> Sealer:
    """The operator's key: flag, then STREAM_DP_KEY_FILE; a public source may have one made for it.

    Raises:
        UsageError: no key, or one that others can read.
    """
    named = key_file or (Path(os.environ[KEY_VARIABLE]) if os.environ.get(KEY_VARIABLE) else None)
    if named is not None:
        return Sealer(read_key(named), spec.name)
    if not spec.public_data:
        raise UsageError(
            "the journal needs an operator key: make one with `umask 077; head -c 32 /dev/urandom > stream-dp.key` "
            f"and name it with --key-file or {KEY_VARIABLE}"
        )
    made = state_dir() / "keys" / f"{spec.name}.key"
    return Sealer(read_key(made) if made.exists() else make_key(made), spec.name)


def settings_for(source: pipeline.KafkaSource) -> KafkaSettings:
    """How to reach the source's brokers."""
    security = source.security
    if security is None:
        return KafkaSettings(source.bootstrap)
    return KafkaSettings(
        source.bootstrap,
        security_protocol=security.protocol,
        sasl_mechanism=security.mechanism or "PLAIN",
        sasl_username=security.username,
        sasl_password_file=security.password_file,
        ssl_cafile=security.ca_file,
    )


def fields_of(spec: PipelineSpec) -> dict[str, FieldType]:
    """The declared fields and their types, as the file readers want them."""
    return {name: FieldType(field.type) for name, field in spec.fields.items()}


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
    if isinstance(source, pipeline.KafkaSource):
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
    if isinstance(spec.journal, pipeline.SqliteJournal):
        if spec.releases is None:
            raise UsageError("releases.path: where should releases go?")
        return SqliteJournal(spec.journal.path), FileSink(spec.releases.path)
    if shard is None or not isinstance(spec.source, pipeline.KafkaSource):
        raise UsageError("journal.kind: a kafka journal needs a kafka source")
    return KafkaJournal(shard, spec.source.topic), KafkaSink(shard)


async def sealed_commits(spec: PipelineSpec, most: int = -1) -> AsyncIterator[bytes]:
    """The first `most` sealed commits (all: -1) of the specification's journal, read only.

    Raises:
        UsageError: there is no journal yet.
    """
    if isinstance(spec.journal, pipeline.SqliteJournal):
        for sealed in await asyncio.to_thread(read_sealed, spec.journal.path, most):
            yield sealed
        return
    if not isinstance(spec.source, pipeline.KafkaSource):
        raise UsageError("journal.kind: a kafka journal needs a kafka source")
    journal = KafkaJournal(KafkaLease(settings_for(spec.source), spec.name), spec.source.topic)
    if not await journal.exists():
        raise UsageError(
            f"{spec.name} has no journal at {spec.source.bootstrap}: it begins with the first run of its pipeline"
        )
    async with closing(journal.read()) as commits:
        async for sealed in commits:
            yield sealed
            most -= 1
            if most == 0:
                return


async def require_own(built: Built, sealer: Sealer, *, private: bool) -> None:
    """Refuse before the lease is taken, so that a mistake does not stop an engine that runs well.

    What cannot be read here is left to the engine, which looks again.

    Raises:
        FailClosed: the journal belongs to something else, was written with another key, or in a form that this version
            does not read.
    """
    try:
        async with closing(sealed_commits(built.spec, 1)) as found:
            first = [sealed async for sealed in found]
    except UnknownFormat:
        raise
    except StreamDPError:
        return
    for sealed in first:
        first_commit = f"commit 0 of the journal of {built.spec.name}"
        header = decode(sealer.open(0, sealed), first_commit).header
        if header is not None:
            mine = {"fingerprint": built.fingerprint, "parts": built.parts, "private": private}
            require_same(header, msgspec.structs.replace(header, **mine))
