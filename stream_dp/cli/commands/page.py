"""`stream-dp page`: the page without the engine. Needs no key, and can write nothing."""

import asyncio

from stream_dp.cli.options import (
    AllowHost,
    Bootstrap,
    Host,
    LogForm,
    LogFormat,
    PipelineFile,
    Port,
    logged,
)
from stream_dp.cli.progress_line import progress
from stream_dp.cli.until_stopped import until_stopped
from stream_dp.operate.observe.topic_page import READING, serve_page


def page(
    pipeline: PipelineFile,
    *,
    port: Port = 8765,
    host: Host = "127.0.0.1",
    allow_host: AllowHost = None,
    bootstrap: Bootstrap = "",
    log_format: LogFormat = LogForm.TEXT,
) -> None:
    """Serve the page of PIPELINE.yaml from its published releases, apart from the engine."""
    silent = log_format is LogForm.JSON
    with logged(pipeline, log_format) as log, progress(READING, silent=silent) as line:

        def opened(url: str) -> None:
            log("ready", url=url)
            line.say(f"The page is at {url}")

        names = frozenset(allow_host or ())
        served = serve_page(pipeline, port, host, names, bootstrap, opened, log, line)
        asyncio.run(until_stopped(served))
