"""Records from a file or standard input into a topic, unchanged (`stream-dp send`); new topics (`stream-dp topic`).

Rules: a file is read completely before anything is sent, so that bad lines are reported first; standard input is
sent as it arrives. Lines and counts are exact and NOT PRIVATE: they go to the operator's own terminal. The content
of a record is never shown.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from stream_dp.broker.topics import create_topic
from stream_dp.core.wording import Progress, how_many, unseen
from stream_dp.engine.ports import by_content
from stream_dp.errors import UsageError
from stream_dp.files.records import (
    PlainRow,
    lines_of,
    looks_like_json,
    opened_data,
    plain_reader,
    plain_rows,
)
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.feed import TryOutProducer
from stream_dp.kafka.client.topics import PLAIN, STAMPED, UNCOMPACTED
from stream_dp.operate.audit.journal_access import has_begun
from stream_dp.operate.run.settings import brokers_there, settings_at, settings_for, written_to
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_homes import placement_of
from stream_dp.pipeline.yaml import load
from stream_dp.records.cells import sent_with, value_alone
from stream_dp.records.endpoints import UTF_8, ReplayClock, encoding_name


async def make_topic(
    settings: KafkaSettings,
    name: str,
    partitions: int,
    *,
    stamped: bool,
    tell: Callable[[str], None] | None = None,
) -> bool:
    """Create a topic for the events of a pipeline; return False, and change nothing, if it exists already.

    With `stamped`, the brokers stamp records on arrival, which a wall clock needs. They store records uncompressed:
    they unpack each batch themselves, so readers can unpack every stored batch. With `tell`, wait for brokers that
    do not answer yet.
    """
    if tell is not None:
        await brokers_there(settings, tell)
    config = {**UNCOMPACTED, **PLAIN, **(STAMPED if stamped else {})}
    return await create_topic(settings.bootstrap, name, partitions, config, settings.client())


STDIN = "-"
_AT_ONCE = 1000
_UNSTAMPED = (
    "Warning: the brokers of topic {0} do not stamp records on arrival, which a wall clock needs (LogAppendTime); "
    "`stream-dp topic` makes topics that do"
)
_TOO_EARLY = (
    "Note: it seems that no run of {0} has begun. Records that arrive before the first run do not count; only "
    "`stream-dp check` reads them"
)


class SentRecords(NamedTuple):
    """Numbers of records sent and of lines left out. NOT PRIVATE."""

    sent: int
    skipped: int


async def send_file(
    file: str,
    topic: str,
    bootstrap: str,
    pipeline: Path | None,
    tell: Callable[[str], None],
    skip_bad: bool = False,
    encoding: str = UTF_8,
    progress: Progress = unseen,
) -> SentRecords:
    """Send the rows of `file` (`-`: standard input) into a topic in order, and wait until all are acknowledged.

    With a `pipeline` file, its source names topic and brokers, and its schema gives the types of a CSV's cells.
    `encoding` is that of a CSV. `skip_bad` leaves out incomplete rows and lines that are not JSON objects. `progress`
    receives the number of records sent. NOT PRIVATE.
    """
    topic, settings, spec = _where(topic, bootstrap, pipeline)
    encoding = known_encoding(encoding)
    if file != STDIN and not skip_bad:
        progress(f"Reading {file}")
        await asyncio.to_thread(_read_through, file, encoding)
    await brokers_there(settings, tell)
    place = by_content if spec is None else placement_of(spec)
    sent_as = value_alone if spec is None else sent_with(spec.fields)
    async with TryOutProducer(settings, topic, place, sent_as) as producer:
        if not producer.stamped:
            tell(_UNSTAMPED.format(topic))
        if spec is not None and not await has_begun(spec, settings):
            tell(_TOO_EARLY.format(spec.name))
        sent = skipped = 0
        with _rows(file, encoding) as (rows, cells):
            payload = plain_reader(None if spec is None else spec.fields, cells=cells)
            async for row in _read_ahead(rows, 1 if file == STDIN else _AT_ONCE):
                if row.value is not None:
                    await producer.send(payload(row.value))
                    sent += 1
                    progress(f"NOT PRIVATE: sending to {topic}", sent, 0, "record")
                elif skip_bad:
                    skipped += 1
                else:
                    await producer.acknowledged()
                    raise UsageError(
                        f"{_no_record(file, row.line)}; sent before it: {how_many(sent, 'record')}"
                    )
        await producer.acknowledged()
        return SentRecords(sent, skipped)


def known_encoding(written: str) -> str:
    """Return the encoding that the option `--encoding` names."""
    try:
        return encoding_name(written)
    except ValueError as error:
        raise UsageError(f"--encoding: {error}") from None


def _where(
    topic: str, bootstrap: str, pipeline: Path | None
) -> tuple[str, KafkaSettings, PipelineSpec | None]:
    """Return the topic, its brokers, and the pipeline whose schema gives the types of a CSV's cells, if any."""
    if pipeline is None:
        if not topic:
            raise UsageError("to which topic? Name it with --topic, or name a pipeline file")
        return topic, settings_at(bootstrap, None), None
    spec = load(pipeline)
    source = written_to(spec)
    if isinstance(spec.clock, ReplayClock):
        raise UsageError(
            f"{spec.name} has a replay clock, which needs tick marks: feed its topic with `stream-dp replay`"
        )
    return topic or source.topic, settings_for(source, bootstrap), spec


async def _read_ahead(rows: Iterator[PlainRow], at_once: int) -> AsyncIterator[PlainRow]:
    """Yield the rows, reading `at_once` at a time on a thread: acknowledgements arrive meanwhile."""
    while some := await asyncio.to_thread(lambda: list(islice(rows, at_once))):
        for row in some:
            yield row


@contextmanager
def _rows(file: str, encoding: str) -> Iterator[tuple[Iterator[PlainRow], bool]]:
    """Yield the rows of a file or of standard input, and whether they are cells of a CSV."""
    if file == STDIN:
        lines = lines_of(sys.stdin.buffer)
        first: list[bytes] = []
        for line in lines:
            first.append(line)
            if line.strip():
                break
        cells = not looks_like_json(b"".join(first))
        yield plain_rows(chain(first, lines), cells=cells, encoding=encoding), cells
        return
    with opened_data(Path(file)) as (opened, ending):
        if ending == ".parquet":
            raise UsageError(
                f"{file}: only CSV and JSON lines can be sent; `stream-dp replay` feeds Parquet"
            )
        cells = ending == ".csv"
        yield plain_rows(lines_of(opened), cells=cells, encoding=encoding), cells


def _read_through(file: str, encoding: str) -> None:
    """Read the whole file; raise UsageError if a line is not a record."""
    with _rows(file, encoding) as (rows, _):
        bad = next((row.line for row in rows if row.value is None), None)
    if bad is not None:
        raise UsageError(
            f"{_no_record(file, bad)}; nothing was sent. Correct the file, or add --skip-bad to "
            "leave such lines out"
        )


def _no_record(file: str, line: int) -> str:
    named = "standard input" if file == STDIN else file
    return f"{named}: line {line:,} is not a JSON object, or has another number of cells than the first line"
