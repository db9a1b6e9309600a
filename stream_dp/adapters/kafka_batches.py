"""A consumer that hands out whole record batches instead of records.

The client library makes an object of each record, and unpacks and decodes everything before anybody can refuse it. A
consumer made here keeps the library's connections, leaders, retries and positions, and gives `RecordBatch`es. How: the
library's fetcher makes its iterator of records through two names in its module; both are replaced by classes that do
as before, but for consumers that carry our sign in the place of a deserializer. Rules: nothing is raised inside of that
iterator, or good batches of the same fetch would be lost; other consumers in the process are left as they are. The
library's version is pinned; where its inside is not what this file expects, `fitting` says so and consumers give
batches made of the records that the library has unpacked.
"""

import inspect
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from stream_dp.adapters.kafka_client import KafkaSettings, library
from stream_dp.adapters.record_batches import (
    HEADER,
    Kind,
    RecordBatch,
    Unpacked,
    record_batches,
)
from stream_dp.adapters.tick_marks import claimed

_ARGUMENTS = (
    "self", "tp", "records", "aborted_transactions", "fetch_offset",
    "key_deserializer", "value_deserializer", "check_crcs", "isolation_level",
)  # fmt: skip
_COMMITTED = 1
_APPENDED = 1


def whole_batches(payload: bytes) -> bytes:
    """The sign that a consumer wants batches; never called."""
    return payload


def consumer(settings: KafkaSettings, *, wait: bool, fetch_wait_ms: int) -> Any:
    """A consumer, not yet started, for partitions assigned by hand; `wait`: behind open transactions it waits."""
    options: dict[str, Any] = {**settings.client(), "enable_auto_commit": False}
    options |= {"auto_offset_reset": "none", "fetch_max_wait_ms": fetch_wait_ms}
    if not fitting():
        return library().AIOKafkaConsumer(isolation_level="read_committed", **options)
    _install()
    return library().AIOKafkaConsumer(
        isolation_level="read_committed" if wait else "read_uncommitted",
        value_deserializer=whole_batches,
        **options,
    )


def fitting() -> bool:
    """Whether the library's inside is what this file expects."""
    fetcher = library(".consumer.fetcher")
    made = getattr(fetcher, "PartitionRecords", None)
    if isinstance(made, _Chosen):
        return True
    records = getattr(fetcher, "MemoryRecords", None)
    header = getattr(library(".record.default_records"), "DefaultRecordBase", None)
    try:
        return (
            tuple(inspect.signature(made.__init__).parameters) == _ARGUMENTS  # type: ignore[misc]
            and header.HEADER_STRUCT.size == HEADER.size  # type: ignore[union-attr]
            and records is library(".record.memory_records").MemoryRecords
            and not _kept(records)(b"").has_next()
        )
    except (AttributeError, TypeError, ValueError):
        return False


def batches(fetched: Sequence[Any]) -> Sequence[RecordBatch]:
    """What a consumer of ours gave for one partition, as batches."""
    if not fetched or isinstance(fetched[0], RecordBatch):
        return fetched
    runs = groupby(fetched, key=lambda one: (one.timestamp, one.timestamp_type))
    return [_of_records(list(run)) for _, run in runs]


def _of_records(run: list[Any]) -> RecordBatch:
    """Records that the library has unpacked, all of one stamp."""
    marks = {
        at: mark
        for at, one in enumerate(run)
        if one.headers and (mark := claimed(one.headers, one.value)) is not None
    }
    content = Unpacked([one.value or b"" for one in run], [one.offset for one in run], [], marks)
    first, last = run[0], run[-1]
    return RecordBatch(
        Kind.DATA, first.offset, last.offset + 1, first.timestamp,
        first.timestamp_type == _APPENDED, 0, None, len(run), content,
    )  # fmt: skip


def _install() -> None:
    fetcher = library(".consumer.fetcher")
    if not isinstance(fetcher.PartitionRecords, _Chosen):
        fetcher.PartitionRecords = _Chosen(fetcher.PartitionRecords)
        fetcher.MemoryRecords = _kept(fetcher.MemoryRecords)


def _kept(memory_records: Any) -> Any:
    """The library's class, which also keeps the bytes that it was made of."""

    class KeptRecords(memory_records):  # type: ignore[misc]
        def __init__(self, fetched: bytes) -> None:
            super().__init__(fetched)
            self.fetched = fetched

    return KeptRecords


class _Chosen:
    """Makes the library's iterator, or ours for a consumer with our sign."""

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs

    def __call__(self, *arguments: Any) -> Any:
        _, records, aborted, offset, _, value, _, level = arguments
        if value is not whole_batches:
            return self._theirs(*arguments)
        return _Batches(records.fetched, offset, aborted if level == _COMMITTED else None)


class _Batches:
    """An iterator of batches, and where the next fetch begins.

    With `aborted`, the list of aborted transactions that goes with a fetch of committed records, transactions are
    decided: their batches count where they lie, or are left out.
    """

    def __init__(
        self, fetched: bytes, offset: int, aborted: Sequence[tuple[int, int]] | None
    ) -> None:
        self.next_fetch_offset = offset
        found = _read(fetched, offset)
        self._found = found if aborted is None else _decided(found, aborted)

    def __iter__(self) -> "_Batches":
        return self

    def __next__(self) -> RecordBatch:
        batch = next(self._found)
        self.next_fetch_offset = batch.next
        return batch


def _read(fetched: bytes, offset: int) -> Iterator[RecordBatch]:
    """The batches; the last one is damaged if the bytes are."""
    try:
        for batch in record_batches(fetched, offset):
            yield batch
            offset = batch.next
    except ValueError:
        yield RecordBatch(Kind.DAMAGED, offset, offset, 0, False, 0, None, 0, b"")


def _decided(
    found: Iterator[RecordBatch], aborted: Sequence[tuple[int, int]]
) -> Iterator[RecordBatch]:
    """The batches of committed transactions and of none, and what ends transactions."""
    waiting = sorted(aborted, key=lambda one: one[1])
    never: set[int | None] = set()
    for batch in found:
        while waiting and waiting[0][1] <= batch.base:
            never.add(waiting.pop(0)[0])
        if batch.kind is Kind.ABORT:
            never.discard(batch.producer)
        yield batch._replace(
            kind=Kind.OTHER if batch.kind is Kind.DATA and batch.producer in never else batch.kind,
            producer=None,
        )
