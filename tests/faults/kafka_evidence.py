"""What a run over Kafka has left behind, read with plain consumers: committed and aborted records.

Rules: nothing of the engine is imported here. `public_log` reads uncommitted, so it sees what every reader
could have seen, and says which of it was committed.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from faults.evidence import Event, Evidence, EvidenceError, Public, event, opened, with_archived
from faults.kafka_transactions import decided

MARK = "stream-dp-tick"


@asynccontextmanager
async def consumer(bootstrap: str, isolation: str) -> AsyncIterator[Any]:
    made = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level=isolation,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
    )
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def records(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Any]:
    """All records of a topic that such a reader sees, partition by partition; none where it is missing.

    What was committed before is among them, also where a run was killed as soon as that was answered.
    """
    await decided(bootstrap)
    found: list[Any] = []
    async with consumer(bootstrap, isolation) as reader:
        for number in await _partitions(bootstrap, topic):
            at = TopicPartition(topic, number)
            reader.assign([at])
            reader.seek(at, 0)
            end = (await reader.end_offsets([at]))[at]
            async with asyncio.timeout(60):
                while await reader.position(at) < end:
                    found += (await reader.getmany(timeout_ms=50)).get(at, [])
    return found


async def _partitions(bootstrap: str, topic: str) -> list[int]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        described = await admin.describe_topics()
    finally:
        await admin.close()
    found = [one["partitions"] for one in described if one["topic"] == topic]
    return sorted(one["partition"] for partitions in found for one in partitions)


async def public_log(bootstrap: str, topic: str) -> list[Public]:
    """Every record that was ever readable in the public topic, in the order of the log."""
    everything = await records(bootstrap, topic, "read_uncommitted")
    committed = {one.offset for one in await records(bootstrap, topic)}
    return [
        Public(one.value, one.offset in committed, one.key, one.timestamp) for one in everything
    ]


async def journal_blobs(bootstrap: str, topic: str) -> list[bytes]:
    return [blob for _, blob in await journal_rows(bootstrap, topic)]


async def journal_rows(bootstrap: str, topic: str) -> list[tuple[int, bytes]]:
    """The numbers of the sealed commits, and the commits put together from their parts."""
    blobs: list[tuple[int, bytes]] = []
    parts: list[bytes] = []
    for record in await records(bootstrap, topic):
        headers = {name: int(v) for name, v in record.headers if name != "checkpoints"}
        number = blobs[-1][0] + 1 if blobs else headers["sequence"]
        if (headers["sequence"], headers["part"]) != (number, len(parts)):
            raise EvidenceError("the journal's parts are not numbered without a gap")
        parts.append(record.value)
        if len(parts) == headers["parts"]:
            blobs.append((number, b"".join(parts)))
            parts = []
    if parts:
        raise EvidenceError("the journal ends inside a commit")
    return blobs


async def source_events(bootstrap: str, topic: str, origin: int, step: int) -> list[Event]:
    return [
        event(json.loads(record.value), origin, step)
        for record in await records(bootstrap, topic)
        if MARK not in dict(record.headers)
    ]


async def over_kafka(
    bootstrap: str, pipeline: str, key: bytes, folder: Path | None = None
) -> Evidence:
    """What a run with the Kafka journal has left; `folder` has what was pruned."""
    public = await public_log(bootstrap, f"{pipeline}.releases")
    rows = await journal_rows(bootstrap, f"{pipeline}.private.journal")
    blobs = [blob for _, blob in rows] if folder is None else with_archived(folder, rows)
    return Evidence(opened(blobs, key, pipeline), public)
