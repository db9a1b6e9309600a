"""`stream-dp run`: run a pipeline until stopped."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stream_dp.app.running import Run, served, signals
from stream_dp.app.wiring import open_ports, require_own, sealer_for
from stream_dp.cli.options import KeyFile, PipelineFile, Port
from stream_dp.errors import UsageError
from stream_dp.noise import NoiseStream
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.runtime.keys import Sealer
from stream_dp.runtime.ports import Ports
from stream_dp.runtime.recovery import NoiseMaker

KEPT_RELEASES = 10_000  # of each series, in memory, for the page


def run(
    pipeline: PipelineFile,
    *,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the horizon of a replay clock.")
    ] = False,
    serve: Annotated[bool, typer.Option("--serve", help="Serve the API and the page.")] = False,
    port: Port = 8765,
    key_file: KeyFile = None,
    accept_new_guarantee: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Begin an empty journal although the pipeline ran on this source before; the journal records "
            "NAME. The old and the new guarantee add up.",
        ),
    ] = "",
) -> None:
    """Run PIPELINE.yaml until stopped; goes on where the journal ends."""
    asyncio.run(
        run_pipeline(
            pipeline,
            until_end,
            port if serve else None,
            key_file,
            accepted=accept_new_guarantee,
        )
    )


async def run_pipeline(
    pipeline: Path,
    until_end: bool,
    port: int | None,
    key_file: Path | None,
    make_noise: NoiseMaker = NoiseStream,
    *,
    private: bool = True,
    adapters: Callable[[PipelineSpec, Sealer, str], Ports] = open_ports,
    accepted: str = "",
) -> None:
    """Load, build, run; the test kit calls it with other noise, `private=False` and watched adapters."""
    spec = load(pipeline)
    if until_end and spec.clock.horizon is None:
        raise UsageError("--until-end: this clock has no horizon, so there is no end")
    built = build(spec)
    console = Console(stderr=True)
    sealer = sealer_for(spec, key_file)
    await require_own(built, sealer, private=private)
    ports = adapters(spec, sealer, accepted)
    keep = 1 if port is None else KEPT_RELEASES
    this = Run(built, ports, make_noise, private=private, keep=keep, accepted=accepted)

    def opened(url: str) -> None:
        console.print(f"The page is at {url}")

    async with signals(this), served(this, port, opened):
        await this.until_end(console)
        if not until_end:
            await this.stopped.wait()
    console.print(f"{spec.name}: {this.ticks} ticks, {this.releases} releases")
