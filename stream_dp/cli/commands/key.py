"""`stream-dp key` and `token`: the operator's key, and the tokens with which analysts ask and readers read.

Rules: a key is a file of 32 random bytes that nobody else can read. A token is printed once, alone on stdout, so that
it can go into a file, and is not stored.
"""

import asyncio
import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from typer import Argument, Option

from stream_dp.cli.main import WholeHelpGroup
from stream_dp.cli.options import KeyFile, PipelineFile
from stream_dp.cli.printing import wide_console
from stream_dp.errors import UsageError
from stream_dp.operate.doctor import opens
from stream_dp.operate.keys import (
    COMMAND_VARIABLE,
    KEY_VARIABLE,
    HandedToken,
    hand_out,
    hand_out_reading,
    handed_out,
    key_at,
    rotate_key,
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
            help="Make a token that can read a page that is closed to the public, but cannot ask for anything.",
        ),
    ] = "",
    days: Annotated[int, Option(help="Number of days for which the token is valid.")] = 30,
    listed: Annotated[
        bool, Option("--list", help="List the tokens, without their secrets.")
    ] = False,
    revoke: Annotated[str, Option(metavar="ID", help="Make this token invalid.")] = "",
    as_json: Annotated[bool, Option("--json", help="With --list: print JSON.")] = False,
    key_file: KeyFile = None,
) -> None:
    """Make, list and revoke tokens. With a token, an analyst of PIPELINE.yaml asks on the page, over HTTP or by Kafka,
    and a reader reads what the operator has closed to the public (`--access`).
    """
    if (bool(analyst), bool(reader), listed, bool(revoke)).count(True) != 1:
        raise UsageError(
            "name exactly one of --analyst NAME, --reader NAME, --list and --revoke ID"
        )
    if listed:
        _show(handed_out(pipeline, key_file), as_json)
    elif revoke:
        gone = take_back(pipeline, key_file, revoke)
        typer.echo(
            f"{gone.id}: revoked. {gone.reader} can no longer read with this token from any page or engine that "
            f"uses {gone.named_in}"
            if gone.reader
            else f"{gone.id}: revoked. {gone.analyst} can no longer ask with this token from any engine that uses "
            f"{gone.named_in}. Series that were created with the token continue; `stream-dp query halt` ends them"
        )
    else:
        making = hand_out_reading if reader else hand_out
        made = making(pipeline, key_file, reader or analyst, days)
        typer.echo(made.secret)
        typer.echo(
            f"stream-dp: token {made.id} of {reader or analyst}, valid until {made.expires}. The token is shown "
            f"only now: pass it on as safely as a password. An engine accepts the token as long as {made.named_in} "
            "lists it",
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


class _MakeUnlessNamed(WholeHelpGroup):
    """A group of which `make` is meant where no command is named: `stream-dp key FILE`."""

    default = "make"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = args and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if named else [self.default, *args])


key = typer.Typer(
    help="Make or rotate the operator's key, in a file that only its owner can read (mode 0600).",
    cls=_MakeUnlessNamed,
    add_completion=False,
    rich_markup_mode=None,
)


@key.command()
def make(
    file: Annotated[
        Path,
        Argument(metavar="FILE", help="The file of the key. An existing key is left as it is."),
    ] = Path("stream-dp.key"),
) -> None:
    """Make the operator's key in FILE, unless FILE holds a key already. `stream-dp key FILE` does the same.

    The key seals the journal, and tokens of analysts are made with it. Keep a copy of the key apart from the journal:
    without the key, the pipeline cannot continue.
    """
    outcome = (
        "made; nobody else can read it" if key_at(file) else "exists already and was left as it is"
    )
    typer.echo(f"{file}: {outcome}", err=True)
    _export(KEY_VARIABLE, str(file.absolute()))
    typer.echo(
        "Keep a copy of the key apart from the journal. Without the key, nobody can read the journal.",
        err=True,
    )


@key.command()
def rotate(
    pipeline: PipelineFile,
    *,
    new_key_file: Annotated[
        Path | None, Option(metavar="FILE", help="The new key, as `stream-dp key` makes it.")
    ] = None,
    new_key_command: Annotated[
        str,
        Option(
            metavar="COMMAND",
            help="For a KMS: the program and its arguments. It wraps and unwraps keys with the new KMS key.",
        ),
    ] = "",
    key_file: KeyFile = None,
) -> None:
    """Wrap PIPELINE.yaml's data key under a new operator's key, in one step. The journal does not change.

    A running engine keeps running. From its next start on, it needs the new key and the new file of the wrapped key.
    Keep a copy of each, in different places: without both, nobody can read the journal.
    """
    rotating = rotate_key(pipeline, key_file, new_key_file, new_key_command, opens)
    done = asyncio.run(rotating)
    typer.echo(
        f"{done.path}: {'the data key' if done.begun else 'a new data key'} is wrapped under the new operator's "
        "key. No other key opens this file. Keep copies of the file, and replace or delete copies of the former "
        "file",
        err=True,
    )
    if done.former_is_data:
        typer.echo(
            "The data key is the former operator's key, so anybody with a copy of that key can still read the journal",
            err=True,
        )
    if new_key_file is None:
        _export(COMMAND_VARIABLE, new_key_command)
    else:
        _export(KEY_VARIABLE, str(new_key_file.absolute()))


def _export(variable: str, value: str) -> None:
    typer.echo(f"export {variable}={shlex.quote(value)}")
