"""`stream-dp key`: make the operator's key, a file of 32 random bytes that nobody else can read."""

import shlex
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from stream_dp.operate.keys import KEY_VARIABLE, key_at


def key(
    file: Annotated[
        Path, Argument(metavar="FILE", help="Where it goes; an existing key is kept.")
    ] = Path("stream-dp.key"),
) -> None:
    """Make the operator's key in FILE, which nobody else can read (mode 0600); an existing key is kept.

    It seals the journal and makes the tokens of analysts. Keep a copy of it apart from the journal: without it nobody
    can go on with the pipeline.
    """
    outcome = "made; nobody else can read it" if key_at(file) else "is there already and stays"
    typer.echo(f"{file}: {outcome}", err=True)
    typer.echo(f"export {KEY_VARIABLE}={shlex.quote(str(file.absolute()))}")
    typer.echo(
        "Keep a copy of it apart from the journal, which nobody can read without it.", err=True
    )
