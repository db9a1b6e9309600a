"""`stream-dp token`: make, list and revoke the tokens with which analysts ask.

Rules: a token is printed once, alone on stdout, so that it can go into a file. It is not stored.
"""

import json
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from stream_dp.cli.options import KeyFile, PipelineFile
from stream_dp.cli.printing import wide_console
from stream_dp.errors import UsageError
from stream_dp.operate.keys import HandedToken, hand_out, handed_out, take_back

_COLUMNS = ("id", "analyst", "made", "expires", "state")


def token(
    pipeline: PipelineFile,
    *,
    analyst: Annotated[
        str, typer.Option(metavar="NAME", help="Make a token for this one of `privacy.analysts`.")
    ] = "",
    days: Annotated[int, typer.Option(help="For how many days it is valid.")] = 30,
    listed: Annotated[
        bool, typer.Option("--list", help="Show the tokens that were made, without their secrets.")
    ] = False,
    revoke: Annotated[str, typer.Option(metavar="ID", help="Take this token back.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="With --list: JSON.")] = False,
    key_file: KeyFile = None,
) -> None:
    """Make, list and revoke the tokens with which PIPELINE.yaml's analysts ask, on the page, over HTTP or by Kafka."""
    if (bool(analyst), listed, bool(revoke)).count(True) != 1:
        raise UsageError("name one of --analyst NAME, --list and --revoke ID")
    if listed:
        _show(handed_out(pipeline, key_file), as_json)
    elif revoke:
        one = take_back(pipeline, key_file, revoke)
        typer.echo(
            f"{one.id}: revoked; {one.analyst} can ask with it no more, wherever the engine reads {one.named_in}. "
            "What was created with it runs on; `stream-dp query halt` ends it"
        )
    else:
        one = hand_out(pipeline, key_file, analyst, days)
        typer.echo(one.secret)
        typer.echo(
            f"stream-dp: token {one.id} of {one.analyst}, valid until {one.expires}. It is shown this once; hand it "
            f"over like a password. An engine accepts it while {one.named_in} names it",
            err=True,
        )


def _show(tokens: list[HandedToken], as_json: bool) -> None:
    told = [{name: getattr(one, name) for name in _COLUMNS} for one in tokens]
    if as_json:
        typer.echo(json.dumps({"tokens": told}))
        return
    table = Table("token", *_COLUMNS[1:])
    for one in told:
        table.add_row(*map(escape, one.values()))
    wide_console().print(table)
