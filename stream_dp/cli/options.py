"""Arguments and options that several commands take, and how they say that they wait."""

from pathlib import Path
from typing import Annotated

import typer

PipelineFile = Annotated[
    Path,
    typer.Argument(metavar="PIPELINE.yaml", show_default=False, help="The pipeline file."),
]
KeyFile = Annotated[
    Path | None, typer.Option("--key-file", help="The operator's 32-byte key (mode 0600).")
]
Bootstrap = Annotated[
    str, typer.Option(help="Address of Kafka (host:port), as `stream-dp broker` prints it.")
]
Host = Annotated[
    str,
    typer.Option(
        "--host", help="Address to serve the page on; 0.0.0.0 for all, behind a proxy with TLS."
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        metavar="NAME",
        show_default=False,
        help="A further name by which clients may call the page; may be given several times.",
    ),
]
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="Port of the page; the next free one if taken.")
]


def say_on_stderr(line: str) -> None:
    """Say a line on stderr, for whoever sits there."""
    typer.echo(line, err=True)
