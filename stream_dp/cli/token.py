"""`stream-dp token`: make, list and revoke the tokens with which analysts ask.

Rules: a token is printed once, alone on standard output, so that it can go into a file; it is kept nowhere.
"""

import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from stream_dp.app.operator_key import sealer_for
from stream_dp.app.query_token import issued_for
from stream_dp.cli.options import KeyFile, PipelineFile
from stream_dp.cli.printing import wide_console
from stream_dp.errors import UsageError
from stream_dp.pipeline.yaml import load
from stream_dp.runtime.issued_tokens import LONGEST_DAYS, IssuedTokens


def token(
    pipeline: PipelineFile,
    *,
    analyst: Annotated[
        str, typer.Option(metavar="NAME", help="Make a token for this one of `privacy.analysts`.")
    ] = "",
    days: Annotated[
        int, typer.Option(min=1, max=LONGEST_DAYS, help="For how many days it is valid.")
    ] = 30,
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
    tokens, now = _tokens(pipeline, key_file), time.time_ns() // 1_000_000
    if listed:
        _show(tokens, now, as_json)
    elif revoke:
        taken = tokens.revoke(revoke, now)
        typer.echo(
            f"{taken.id}: revoked; {taken.analyst} can ask with it no more, wherever the engine reads {tokens.path}. "
            "What was created with it runs on; `stream-dp query halt` ends it"
        )
    else:
        made, text = tokens.make(analyst, days, now)
        typer.echo(text)
        typer.echo(
            f"stream-dp: token {made.id} of {made.analyst}, valid until {made.expires}. It is shown this once; hand it "
            f"over like a password. An engine accepts it while {tokens.path} names it",
            err=True,
        )


def _tokens(pipeline: Path, key_file: Path | None) -> IssuedTokens:
    spec = load(pipeline)
    return issued_for(spec, sealer_for(spec, key_file))


def _show(tokens: IssuedTokens, now: int, as_json: bool) -> None:
    every = tokens.all().values()
    if as_json:
        told = [
            {"id": one.id, "analyst": one.analyst, "made": one.made, "expires": one.expires, "state": one.state(now)}
            for one in every
        ]  # fmt: skip
        typer.echo(json.dumps({"tokens": told}))
        return
    table = Table("token", "analyst", "made", "expires", "state")
    for one in every:
        cells = (one.id, one.analyst, one.made, one.expires, one.state(now))
        table.add_row(*map(escape, cells))
    wide_console().print(table)
