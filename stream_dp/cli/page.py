"""`stream-dp page`: the page without the engine. Needs no key, and can write nothing."""

import asyncio
from typing import Annotated

import typer

from stream_dp.app.topic_page import serve_page
from stream_dp.cli.options import AllowHost, Host, PipelineFile, Port


def page(
    pipeline: PipelineFile,
    *,
    port: Port = 8765,
    host: Host = "127.0.0.1",
    allow_host: AllowHost = None,
    bootstrap: Annotated[
        str, typer.Option("--bootstrap", help="Brokers that hold the releases, before the file's.")
    ] = "",
) -> None:
    """Serve the page of PIPELINE.yaml from what it has published, apart from the engine."""
    asyncio.run(
        serve_page(
            pipeline, port, host, frozenset(allow_host or ()), bootstrap,
            lambda url: typer.echo(f"The page is at {url}", err=True),
        )
    )  # fmt: skip
