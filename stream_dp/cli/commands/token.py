"""`stream-dp token`: make, list and revoke the tokens with which analysts ask and readers read.

Rules: a token is printed once, alone on stdout, so that it can go into a file. It is not stored.
"""

import json
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from typer import Option

from stream_dp.cli.options import KeyFile, PipelineFile
from stream_dp.cli.printing import wide_console
from stream_dp.errors import UsageError
from stream_dp.operate.keys import (
    HandedToken,
    hand_out,
    hand_out_reading,
    handed_out,
    take_back,
)

_COLUMNS = ("id", "analyst", "reader", "made", "expires", "state")


def token(
    pipeline: PipelineFile,
    *,
    analyst: Annotated[
        str, Option(metavar="NAME", help="Make a token for this analyst of `privacy.analysts`.")
    ] = "",
    reader: Annotated[
        str,
        Option(
            metavar="NAME",
            help="Make a token that may read a page closed to the public, but never ask questions.",
        ),
    ] = "",
    days: Annotated[int, Option(help="Number of days for which the token is valid.")] = 30,
    listed: Annotated[
        bool, Option("--list", help="Show the tokens that were made, without their secrets.")
    ] = False,
    revoke: Annotated[str, Option(metavar="ID", help="Take this token back.")] = "",
    as_json: Annotated[bool, Option("--json", help="With --list: JSON.")] = False,
    key_file: KeyFile = None,
) -> None:
    """Make, list and revoke tokens: PIPELINE.yaml's analysts ask with theirs, on the page, over HTTP or by Kafka;
    readers read where the operator closed reading (`--access`).
    """
    if (bool(analyst), bool(reader), listed, bool(revoke)).count(True) != 1:
        raise UsageError("name one of --analyst NAME, --reader NAME, --list and --revoke ID")
    if listed:
        _show(handed_out(pipeline, key_file), as_json)
    elif revoke:
        gone = take_back(pipeline, key_file, revoke)
        typer.echo(
            f"{gone.id}: revoked; {gone.reader} can no longer read with it, wherever page or engine read "
            f"{gone.named_in}"
            if gone.reader
            else f"{gone.id}: revoked; {gone.analyst} can no longer ask with it, wherever the engine reads "
            f"{gone.named_in}. Series that were created with it continue; `stream-dp query halt` ends them"
        )
    else:
        making = hand_out_reading if reader else hand_out
        made = making(pipeline, key_file, reader or analyst, days)
        typer.echo(made.secret)
        typer.echo(
            f"stream-dp: token {made.id} of {reader or analyst}, valid until {made.expires}. The token is shown "
            f"only now; hand it over like a password. An engine accepts the token while {made.named_in} lists it",
            err=True,
        )


def _show(tokens: list[HandedToken], as_json: bool) -> None:
    rows = [{name: getattr(token, name) for name in _COLUMNS} for token in tokens]
    if as_json:
        typer.echo(json.dumps({"tokens": rows}))
        return
    table = Table("token", *_COLUMNS[1:])
    for row in rows:
        table.add_row(*map(escape, row.values()))
    wide_console().print(table)
