"""A sample of a topic: its newest or its oldest records, read once, with no group and no commit.

Rules: the sample is limited in records and in bytes. Record batches that cannot be unpacked are part of it, as
refusals. An open transaction ends it, and aborted records are not part of it. Offsets are private.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from stream_dp.kafka.client.clients import KafkaSettings, connected, library, speaking
from stream_dp.kafka.client.topics import TopicEyes, no_such_topic
from stream_dp.kafka.source.batches import batches, consumer
from stream_dp.kafka.source.record_batches import Kind, RecordBatch, Unpacked
from stream_dp.kafka.source.unpacker import LIMIT_BYTES, Unpacker
from stream_dp.records.cells import Reading

MOST_BYTES = 64 * 2**20  # of a sample
_SLICE_MS = 100
_SILENCE_S = 3.0


class SampledBatch(NamedTuple):
    """The records of one record batch of a partition; `stamp` is its last one, in ms."""

    partition: int
    records: Unpacked
    stamp: int


class SampledTopic(NamedTuple):
    partitions: Sequence[int]
    batches: Sequence[SampledBatch]


async def sample_topic(
    settings: KafkaSettings,
    topic: str,
    most: int,
    *,
    marks: bool,
    newest: bool = True,
    limit: int = LIMIT_BYTES,
    read: Reading | None = None,
) -> SampledTopic:
    """Return the records at the `most` newest (or oldest) offsets of each partition; `marks`: look for tick marks.

    A record batch that would expand beyond `limit` bytes is refused; `read` makes JSON of records that are none. Raises
    `WorldError`.
    """
    eyes = TopicEyes(settings, topic)
    reader = consumer(settings, wait=True, fetch_wait_ms=_SLICE_MS)
    async with connected(settings, eyes, reader):
        with speaking(settings, f"topic {topic!r}"):
            look = await eyes.look()
            if look is None:
                raise no_such_topic(settings, topic)
            places = [library().TopicPartition(topic, number) for number in look.partitions]
            begins = await reader.beginning_offsets(places)
            ends = await reader.end_offsets(places)
            spans = {at: _span(begins[at], ends[at], most, newest=newest) for at in places}
            sampled = await _read(reader, spans, Unpacker(marks=marks, limit=limit, read=read))
            return SampledTopic(tuple(look.partitions), sampled)


def _span(begin: int, end: int, most: int, *, newest: bool) -> range:
    return range(max(begin, end - most), end) if newest else range(begin, min(end, begin + most))


async def _read(reader: Any, spans: dict[Any, range], unpacker: Unpacker) -> list[SampledBatch]:
    """Return the batches at these offsets; stop when nothing arrives for a while."""
    sampled: list[SampledBatch] = []
    left, size, heard = [at for at, span in spans.items() if span], 0, time.monotonic()
    reader.assign(left)
    for at in left:
        reader.seek(at, spans[at].start)
    while left and size < MOST_BYTES and time.monotonic() - heard < _SILENCE_S:
        for at, fetched in (await reader.getmany(*left, timeout_ms=_SLICE_MS)).items():
            for batch in batches(fetched):
                heard = time.monotonic() if batch.next > batch.base else heard
                if size < MOST_BYTES and batch.base < spans[at].stop:
                    inside = _inside(batch, spans[at], unpacker)
                    sampled.append(SampledBatch(at.partition, inside, batch.stamp))
                    size += sum(map(len, sampled[-1].records.values))
        left = [at for at in left if await reader.position(at) < spans[at].stop]
    return sampled


def _inside(batch: RecordBatch, span: range, unpacker: Unpacker) -> Unpacked:
    """Return the part of the batch from the start of the span on."""
    if batch.kind not in (Kind.DATA, Kind.FOREIGN):
        return Unpacked([], range(0), [], {})
    return unpacker.unpack(batch).behind(span.start)
