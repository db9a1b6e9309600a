"""`stream-dp audit --trace`: a journal's trace against the concurrent composition. Reads with the operator's key."""

import asyncio
import json
from pathlib import Path

import typer

from stream_dp.cli.progress_line import progress
from stream_dp.core.how_many import how_many
from stream_dp.operate.audit.trace_check import TraceReport, check_trace


def audit_trace(
    pipeline: Path | None, trace: Path, key_file: Path | None, copy: Path | None, *, as_json: bool
) -> None:
    """Copy the journal, if there is to be a copy, compare, and print how much was compared.

    Raises:
        UsageError: no pipeline, journal or key.
        FailClosed: the journal is damaged, or its trace is not that of the composition.
    """
    with progress(f"Reading {trace}") as line:
        found = asyncio.run(check_trace(pipeline, trace, key_file, copy, line))
    if as_json:
        typer.echo(json.dumps(found.json()))
    else:
        _print(found)


def _print(found: TraceReport) -> None:
    counts, made = found.counts, ""
    played = ", ".join(
        (how_many(counts.creations, "creation"), how_many(counts.asks, "ask"), how_many(counts.halts, "halt"))
    )  # fmt: skip
    compared = f"{how_many(found.releases, 'release')} and {how_many(found.answers, 'answer')}"
    if found.made:
        made = f"  of these {found.made:,} made of the other releases' bytes alone, without key or seed\n"
    typer.echo(
        f"{found.pipeline}: the trace of its journal, played through the concurrent composition ([HSV] Def 4.1) with "
        "the recorded seeds:\n"
        f"  {played} in {how_many(found.ticks, 'tick')}\n"
        f"  {compared} to queries compared: equal, byte for byte\n"
        f"{made}"
        f"  {how_many(found.snapshots, 'snapshot')} compared: equal"
    )
    if found.ticks:
        users = found.users
        unit, one, two = (
            ("one event", "one event more", "two")
            if users is None
            else (f"{users}", "all events of one user more", "one beyond that")
        )
        apart = (
            f"it refuses it with {two}, in two ticks"
            if found.apart
            else f"one tick is too few to show that it refuses {two}"
        )
        typer.echo(
            f"The verifier of the claimed relation ({found.relation}, {unit}, all series at once) accepts the trace "
            f"beside itself with {one}; {apart}."
        )
    typer.echo(
        "Rows and seeds are NOT PRIVATE and were read with the operator's key; nothing of them is shown here, and the "
        "numbers above follow from ticks and series."
    )
