"""`python -m stream_dp.testing run PIPELINE.yaml`: the product's run with noise that protects nobody.

Rules: for tests only. The journal and every release are marked not private, whatever the noise. The product refuses
such a journal, and this command refuses the product's. Messages and exit codes are the product's.
"""

import sys
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import count
from typing import Annotated

import typer
from typer import Option

from stream_dp.cli.commands.run import Standby, run_on_terminal
from stream_dp.cli.main import code_of
from stream_dp.cli.options import KeyFile, PipelineFile, Processes, UntilEnd, with_groups
from stream_dp.engine.ports import Ports
from stream_dp.engine.run_config import GROUP
from stream_dp.errors import UsageError
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.log.lease import Holder
from stream_dp.noise import NoiseStream
from stream_dp.operate.run.run_pipeline import RunOptions
from stream_dp.operate.run.wiring import Setup, open_ports
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.testing.faults import Dawdling, Watch, WatchedJournal, WatchedPublic, point_of
from stream_dp.testing.noise import ZeroNoise

app = typer.Typer(
    callback=lambda: None,  # so that `run` is a command of a group
    help="The test kit's commands. Nothing they release is private.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@dataclass(frozen=True, slots=True)
class Faults:
    """What happens to a run, and how fast it reads."""

    crash: Annotated[str | None, Option(metavar="POINT:NUMBER", help="Where to be killed.")] = None
    pause: Annotated[
        str | None, Option(metavar="POINT:NUMBER", help="Where to be stopped (SIGSTOP).")
    ] = None
    trace: Annotated[bool, Option("--trace", help="Say on stdout which points are reached.")] = (
        False
    )
    dawdle: Annotated[
        int | None,
        Option(metavar="MS", help="Read one batch at a time, with pauses; commit each tick alone."),
    ] = None
    processes: Processes = None


@app.command()
@with_groups
def run(
    pipeline: PipelineFile,
    *,
    until_end: UntilEnd = False,
    zero_noise: Annotated[bool, Option("--zero-noise", help="No noise at all.")] = False,
    seed: Annotated[
        int | None, Option(help="Noise from this number, the same in every fresh run.")
    ] = None,
    key_file: KeyFile = None,
    standby: Standby = False,
    faults: Faults,
) -> None:
    """Run PIPELINE.yaml with zero, seeded or real noise, marked not private."""
    if zero_noise and seed is not None:
        raise UsageError("--zero-noise and --seed exclude each other; name one")
    make_noise = (lambda _seed, _index: ZeroNoise()) if zero_noise else NoiseStream
    watch = Watch(point_of(faults.crash), point_of(faults.pause), faults.trace)
    adapters = partial(_adapters, watch=watch, seed=seed, dawdle=faults.dawdle)
    # one tick per commit, else the n-th commit would hold other ticks on a slower disk
    group = GROUP if faults.dawdle is None else 1
    setup = Setup(make_noise, private=False, adapters=adapters, group=group)
    options = RunOptions(
        until_end=until_end, key_file=key_file, standby=standby, processes=faults.processes
    )
    run_on_terminal(pipeline, options, setup)


def _adapters(
    spec: PipelineSpec,
    sealer: Sealer,
    accepted: str,
    holder: Holder,
    *,
    watch: Watch,
    seed: int | None,
    dawdle: int | None,
) -> Ports:
    """Return the product's adapters with the watch, perhaps slowed down, perhaps with known seeds."""
    ports = open_ports(spec, sealer, accepted, holder)
    ports = replace(
        ports,
        source=ports.source if dawdle is None else Dawdling(ports.source, dawdle),
        journal=WatchedJournal(ports.journal, watch),
        sink=WatchedPublic(ports.sink, watch, "publish"),
        answers=ports.answers and WatchedPublic(ports.answers, watch, "answer"),
    )
    if seed is None:
        return ports
    numbers = count()
    return replace(ports, seeds=lambda: sha256(f"{seed}/{next(numbers)}".encode()).digest())


if __name__ == "__main__":
    sys.exit(code_of(commands=app))
