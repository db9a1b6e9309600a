"""`stream-dp page`: the page without the engine. Needs no key, and can write nothing."""

import asyncio
from pathlib import Path
from typing import Annotated

from typer import Argument

from stream_dp.cli.options import (
    AccessFile,
    AllowHost,
    Bootstrap,
    Host,
    LogForm,
    LogFormat,
    Port,
    logged,
)
from stream_dp.cli.progress_line import progress
from stream_dp.cli.until_stopped import until_stopped
from stream_dp.operate.keys import access_of
from stream_dp.operate.observe.topic_page import READING, serve_page


def page(
    pipeline: Annotated[
        Path,
        Argument(
            metavar="PIPELINE.yaml|DIR",
            show_default=False,
            help="A pipeline file, or a folder of pipeline files.",
        ),
    ],
    *,
    port: Port = 8765,
    host: Host = "127.0.0.1",
    allow_host: AllowHost = None,
    access: AccessFile = None,
    bootstrap: Bootstrap = "",
    log_format: LogFormat = LogForm.TEXT,
) -> None:
    """Serve the page of PIPELINE.yaml, or of all pipeline files in DIR. It reads published releases and needs no
    engine.
    """
    silent = log_format is LogForm.JSON
    with logged(pipeline, log_format) as log, progress(READING, silent=silent) as line:

        def opened(url: str) -> None:
            log("ready", url=url)
            line.say(f"The page is at {url}")

        allowed = access_of(access, allow_host or ())
        served = serve_page(pipeline, port, host, allowed, bootstrap, opened, log, line)
        asyncio.run(until_stopped(served))
