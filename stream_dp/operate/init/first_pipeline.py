"""Reads a sample and writes a first pipeline file: the work of `stream-dp init`.

Rules: the sample (a file's first records, or a topic's last) stays on the operator's machine; statements about it
are NOT PRIVATE, for the operator's own terminal. A column name that few records have may be a value itself, so it
is not proposed, only counted. An existing file is never overwritten.
"""

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from stream_dp.errors import UsageError, WorldError
from stream_dp.files.plain_rows import json_object, lines_of, nameable, plain_rows
from stream_dp.files.records import column_names, opened_data
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.sample import sample_topic
from stream_dp.kafka.client.topics import STAMPED, administering, config
from stream_dp.operate.init.column import Column
from stream_dp.operate.init.draft import Draft, lower_name, yaml_key
from stream_dp.operate.run.awaited_brokers import brokers_there
from stream_dp.operate.run.settings import settings_at, settled

SAMPLE = 1000
_ONE_IN = 10
"""A name that fewer than one in this many records have is left out."""
_NOTHING = (
    "there is no record to look at (a row as long as the first line, or a JSON object): a few are enough, made-up "
    "ones too"
)
LOCAL = "127.0.0.1:9092"


@dataclass(frozen=True, slots=True, repr=False)
class SampleColumns:
    """The columns of `records` records; without `bad` records, `rare` names and `unnamed` columns.

    `cells`: the values are a CSV's cells, all texts. `stamped`: the brokers stamp records on arrival; None without
    a topic.
    """

    columns: Sequence[Column]
    records: int
    bad: int
    rare: int = 0
    unnamed: int = 0
    cells: bool = False
    stamped: bool | None = None


@dataclass(frozen=True, slots=True)
class SampleWanted:
    """The options of `init`: a sample (CSV, JSON lines, or the topic), and the pipeline's topic."""

    csv: Path | None
    jsonl: Path | None
    topic: str
    bootstrap: str
    out: Path | None
    name: str

    @property
    def file(self) -> Path | None:
        """The file of the sample."""
        return self.csv or self.jsonl

    @property
    def called(self) -> str:
        """The pipeline's name: the given one, or one made from the name of the topic or of the file."""
        after = self.topic or ("" if self.file is None else self.file.name.partition(".")[0])
        return self.name or lower_name(after) or "pipeline"


@dataclass(frozen=True, slots=True, repr=False)
class Drafted:
    """The path of the new file, its draft, and the sample (NOT PRIVATE)."""

    path: Path
    draft: Draft
    sample: SampleColumns

    @property
    def live(self) -> bool:
        """Whether the pipeline reads a topic by the brokers' stamps."""
        return self.draft.timed is None


async def draft_pipeline(wanted: SampleWanted, tell: Callable[[str], None]) -> Drafted:
    """Read the sample and write the pipeline file.

    Raises:
        UsageError: there is no sample, or more than one; or the pipeline file exists already.
        WorldError: the sample cannot be read, or the file cannot be written.
    """
    if (wanted.csv is not None) + (wanted.jsonl is not None) > 1 or not (
        wanted.file or wanted.topic
    ):
        raise UsageError("name a sample: --csv FILE, --jsonl FILE, or --topic T with --bootstrap B")
    path = wanted.out or Path(f"{wanted.called}.yaml")
    if path.exists():
        raise UsageError(f"{path}: is there already and stays; name another file with --out")
    settings = await _settings(wanted, tell)
    if settings is not None:
        sample = await topic_columns(settings, wanted.topic)
    else:
        file, cells = settled(wanted.file, Path), wanted.csv is not None
        sample = await asyncio.to_thread(file_columns, file, cells=cells)
    draft = _draft(wanted, path, sample, settings)
    try:
        with path.open("x", encoding="utf-8") as written:
            written.write(draft.text())
    except OSError as error:
        raise WorldError(f"{path}: cannot be written: {error.strerror}") from None
    return Drafted(path, draft, sample)


async def _settings(wanted: SampleWanted, tell: Callable[[str], None]) -> KafkaSettings | None:
    """Return how to reach the brokers if the topic itself is the sample, after waiting until they answer."""
    if wanted.file is not None:
        return None
    settings = settings_at(wanted.bootstrap, None)
    await brokers_there(settings, tell)
    return settings


def _draft(
    wanted: SampleWanted, path: Path, sample: SampleColumns, settings: KafkaSettings | None
) -> Draft:
    fields = {each.name: each.proposal(cells=sample.cells) for each in sample.columns}
    if not any(each.type for each in fields.values()):
        raise UsageError("none of its columns can be a field: nothing was written")
    times = [name for name, each in fields.items() if each.type == "time"]
    if wanted.file is not None and not wanted.topic and times:
        source = ["kind: file", f"path: {yaml_key(os.path.relpath(wanted.file, path.parent))}"]
        return Draft(wanted.called, source, fields, times[0])
    address = wanted.bootstrap if settings is None else settings.bootstrap
    source = [
        "kind: kafka",
        f"topic: {wanted.topic or wanted.called}",
        f"bootstrap: {json.dumps(address or LOCAL)}   # a login, TLS: docs/kafka.md",
    ]
    return Draft(wanted.called, source, {n: each.stamped() for n, each in fields.items()})


def file_columns(path: Path, *, cells: bool) -> SampleColumns:
    """Read the first records of a CSV (`cells`) or of JSON lines and return their columns.

    Raises:
        UsageError, WorldError: the file cannot be read, or its name does not end like such a file's.
    """
    endings = (".csv",) if cells else (".jsonl",)
    if not path.name.removesuffix(".gz").endswith(endings):
        raise UsageError(f"{path}: the name must end in {endings[0]} or {endings[0]}.gz")
    with opened_data(path) as (file, _):
        rows = [row.value for row in islice(plain_rows(lines_of(file), cells=cells), SAMPLE)]
    names = column_names(path) if cells else []
    found = _columns(rows, nameable(names))
    return replace(found, cells=cells, unnamed=len(names) - len(nameable(names)))


async def topic_columns(settings: KafkaSettings, topic: str) -> SampleColumns:
    """Read the last records of a topic and return their columns.

    Raises:
        WorldError: the topic does not exist, the brokers do not answer, or access is denied.
    """
    found = await sample_topic(settings, topic, SAMPLE, marks=False)
    payloads = [value for each in found.batches for value in each.records.values if value]
    async with administering(settings, f"topic {topic}") as admin:
        said = await config(admin, topic)
    stamped = all(said.get(key) == value for key, value in STAMPED.items())
    return replace(_columns(map(json_object, payloads), ()), stamped=stamped)


def _columns(rows: Iterable[Mapping[str, Any] | None], names: Sequence[str]) -> SampleColumns:
    """Return the columns of rows, in the order of `names`, then of appearance; raise UsageError without rows."""
    found = list(rows)
    records = [row for row in found if row is not None]
    columns = {name: Column(name, len(records)) for name in names}
    for row in records:
        for name, value in row.items():
            columns.setdefault(name, Column(name, len(records))).values.append(value)
    if not records:
        raise UsageError(_NOTHING)
    frequent = [
        each for each in columns.values() if names or len(each.values) * _ONE_IN >= len(records)
    ]
    rare = len(columns) - len(frequent)
    return SampleColumns(frequent, len(records), len(found) - len(records), rare)
