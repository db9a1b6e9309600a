"""`stream-dp key`: make the operator's key, a file of 32 random bytes that nobody else can read; rotate it."""

import asyncio
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from stream_dp.cli.main import WholeHelpGroup
from stream_dp.cli.options import KeyFile, PipelineFile
from stream_dp.operate.doctor import opens
from stream_dp.operate.keys import COMMAND_VARIABLE, KEY_VARIABLE, key_at, rotate_key


class _MakeUnlessNamed(WholeHelpGroup):
    """A group of which `make` is meant where no command is named: `stream-dp key FILE`."""

    default = "make"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = args and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if named else [self.default, *args])


key = typer.Typer(
    help="Make the operator's key in FILE, which nobody else can read (mode 0600); rotate it.",
    cls=_MakeUnlessNamed,
    add_completion=False,
    rich_markup_mode=None,
)


@key.command()
def make(
    file: Annotated[
        Path, Argument(metavar="FILE", help="The file for the key; an existing key is kept.")
    ] = Path("stream-dp.key"),
) -> None:
    """Make the operator's key in FILE, as `stream-dp key FILE` does too; an existing key is kept.

    It seals the journal and makes the tokens of analysts. Keep a copy of it apart from the journal: without it nobody
    can go on with the pipeline.
    """
    outcome = "made; nobody else can read it" if key_at(file) else "is there already and stays"
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
            help="The program that wraps and unwraps the new key, with its arguments, for a KMS.",
        ),
    ] = "",
    key_file: KeyFile = None,
) -> None:
    """Wrap PIPELINE.yaml's data key under a new operator's key, in one step; the journal stays as it is.

    An engine that runs goes on; from its next start on it needs the new key and the new file of the wrapped key. Keep
    copies of both, in two places: nobody can read the journal without them.
    """
    rotating = rotate_key(pipeline, key_file, new_key_file, new_key_command, opens)
    done = asyncio.run(rotating)
    typer.echo(
        f"{done.path}: {'the data key' if done.begun else 'a new data key'} is wrapped under the new operator's key, "
        "and no other key opens it. Keep copies of this file; replace or delete copies of the former file",
        err=True,
    )
    if done.former_is_data:
        typer.echo(
            "The data key is the former operator's key: anybody with a copy of that key can still read the journal",
            err=True,
        )
    if new_key_file is None:
        _export(COMMAND_VARIABLE, new_key_command)
    else:
        _export(KEY_VARIABLE, str(new_key_file.absolute()))


def _export(variable: str, value: str) -> None:
    typer.echo(f"export {variable}={shlex.quote(value)}")
