"""`stream-dp init` and `schema`: a first pipeline file from a sample of records, and the JSON Schema of such files.

What `init` shows is NOT PRIVATE, so for the operator's own terminal.
"""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from stream_dp.cli.options import Bootstrap
from stream_dp.cli.printing import folding_table, wide_console
from stream_dp.cli.progress_line import progress
from stream_dp.core.wording import how_many
from stream_dp.operate.init import LOCAL, OPEN, Drafted, SampleWanted, draft_pipeline, schema_text

_MOST_SHOWN = 50
_FOR_CHECK = "only for `check`; records that count are sent after `run` has started"


def init(
    *,
    csv: Annotated[Path | None, Option(help="A CSV file with the sample, also as .gz.")] = None,
    jsonl: Annotated[
        Path | None, Option(help="A file of JSON lines with the sample, also as .gz.")
    ] = None,
    topic: Annotated[
        str,
        Option(
            help="The topic that the pipeline will read. Without a file, its records are the sample."
        ),
    ] = "",
    bootstrap: Bootstrap = "",
    out: Annotated[
        Path | None,
        Option(
            help="The file to write. Default: NAME.yaml. An existing file is never overwritten."
        ),
    ] = None,
    name: Annotated[
        str, Option(help="The pipeline's name. Default: the name of the topic or of the file.")
    ] = "",
    show_values: Annotated[
        bool, Option("--show-values", help="Print the texts of the sample. NOT PRIVATE.")
    ] = False,
) -> None:
    """Write a first pipeline file from a sample of your records. The file marks what you must declare.

    The sample is the first 1,000 records of a file, or the last 1,000 of a topic. The command proposes names and types
    of fields, and the unit. Declare domains and ranges yourself: a range taken from the data would reveal something
    about the data. No value of the sample is written to the file.
    """
    wanted = SampleWanted(csv, jsonl, topic, bootstrap, out, name)
    with progress("Looking at a sample of the records") as line:
        done = asyncio.run(draft_pipeline(wanted, line.say))
    _show(done, values=show_values)
    typer.echo("\n".join(_next(done, wanted)))


def _show(done: Drafted, *, values: bool) -> None:
    sample = done.sample
    table = folding_table(
        *("field", "type", "null", *(["values"] if values else []), "look at"),
        title=f"{done.path}: proposed from {how_many(sample.records, 'record')}, NOT PRIVATE",
    )
    for column in sample.columns:
        field = done.draft.told(column.name)
        shown = [_shown(column.texts) if "domain" in field.keys else ""] if values else []
        declare = ", ".join(key for key, value in field.keys.items() if value in OPEN)
        notes = (declare and f"declare: {declare}", field.note, field.why_not)
        nullable = "yes" if field.nullable else ""
        look = "; ".join(filter(None, notes))
        table.add_row(column.name, field.type or "-", nullable, *shown, look)
    console = wide_console()
    console.print(table, markup=False)
    for many, what, which in (
        (sample.bad, "record", "(no row, or no JSON object)"),
        (sample.rare, "name", "that few records have"),
        (sample.unnamed, "column", "without a name of its own"),
    ):
        if many:
            console.print(f"NOT PRIVATE: left out: {how_many(many, what)} {which}.", markup=False)
    if sample.stamped is False:
        console.print(
            "The brokers of this topic do not stamp records on arrival, which a wall clock needs: `stream-dp topic` "
            "makes one that does.",
            markup=False,
        )


def _shown(texts: list[str]) -> str:
    more = f", and {len(texts) - _MOST_SHOWN:,} more" if len(texts) > _MOST_SHOWN else ""
    return f"{', '.join(texts[:_MOST_SHOWN])}{more}"


def _next(done: Drafted, wanted: SampleWanted) -> list[str]:
    path, many = done.path, done.draft.open_places
    places = "the place" if many == 1 else f"the {how_many(many, 'place')}"
    says = "says" if many == 1 else "say"
    edit = f"declare what you know in {places} that {says} `declare this`" if many else "read it"
    lines = []
    if done.draft.live_for:
        lines.append(f"{done.draft.live_for}.")
    if user := done.draft.person:
        lines.append(
            f"The name of the field {user} sounds like people, so all records of one person are protected "
            f"together (`unit: user`). {path} says how to protect each record by itself."
        )
    lines += [f"{path}: written. Next, {edit}, then:", f"  stream-dp plan {path}"]
    lines += ["  stream-dp key && export STREAM_DP_KEY_FILE=$PWD/stream-dp.key"]
    if done.live and wanted.file is not None:
        if port := _local_port(wanted.bootstrap or LOCAL):
            lines += [f"  stream-dp broker --port {port} &   # or your own Kafka, named in {path}"]
        lines += [f"  stream-dp topic {wanted.topic or done.draft.name} --pipeline {path}"]
        lines += [f"  stream-dp send {wanted.file} --pipeline {path}   # {_FOR_CHECK}"]
    lines += [f"  stream-dp check {path}", f"  stream-dp run {path} --serve"]
    return lines


def _local_port(bootstrap: str) -> str:
    """Return the port for a local broker; empty if Kafka is on another machine."""
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    return port if host in ("127.0.0.1", "localhost", "[::1]") else ""


def schema() -> None:
    """Print the JSON Schema of a pipeline file. With it, an editor completes keys and marks mistakes.

    Keep it beside the file, and name it in the file's first line: # yaml-language-server: $schema=pipeline.schema.json
    """
    typer.echo(schema_text())
