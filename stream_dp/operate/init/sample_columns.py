"""The columns of a sample: of a file's first records, or of a topic's last. NOT PRIVATE.

Rules: a name that few records have may be a value itself, so it is left out of what is proposed, and told.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from stream_dp.errors import UsageError
from stream_dp.files.plain_rows import json_object, lines_of, nameable, plain_rows
from stream_dp.files.records import column_names, opened_data
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.sample import sample_topic
from stream_dp.kafka.client.topics import STAMPED, administering, config
from stream_dp.operate.init.column import Column

SAMPLE = 1000
_ONE_IN = 10
"""A name that is not in one of so many records is left out."""
_NOTHING = (
    "there is no record to look at (a row as long as the first line, or a JSON object): a few are enough, made-up "
    "ones too"
)


@dataclass(frozen=True, slots=True, repr=False)
class SampleColumns:
    """The columns of so many `records`; `bad` were none, `rare` names and `unnamed` columns are left out.

    `cells`: they are a CSV's, all texts. `stamped`: brokers stamp what comes on arrival; None where no topic is.
    """

    columns: Sequence[Column]
    records: int
    bad: int
    rare: int = 0
    unnamed: int = 0
    cells: bool = False
    stamped: bool | None = None


def file_columns(path: Path, *, cells: bool) -> SampleColumns:
    """Look at the first records of a CSV (`cells`) or of JSON lines.

    Raises:
        UsageError, WorldError: it cannot be read, or its name does not end as that of such a file.
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
    """Look at the last records of a topic.

    Raises:
        WorldError: no such topic, no answer, or access denied.
    """
    found = await sample_topic(settings, topic, SAMPLE, marks=False)
    payloads = [value for each in found.batches for value in each.records.values if value]
    async with administering(settings, f"topic {topic}") as admin:
        said = await config(admin, topic)
    stamped = all(said.get(key) == value for key, value in STAMPED.items())
    return replace(_columns(map(json_object, payloads), ()), stamped=stamped)


def _columns(rows: Iterable[Mapping[str, Any] | None], names: Sequence[str]) -> SampleColumns:
    """The columns of rows, in the order of `names`, then as they come; a UsageError where there are none."""
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
