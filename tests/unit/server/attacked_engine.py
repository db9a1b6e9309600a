"""An engine with its page in a process of its own that may open few files: `attacked_engine.py PIPELINE.yaml FILES`.

It serves before it reads, says its address, and reads on when a line comes on standard input. Noise is seeded, so that
two runs release the same bytes.
"""

import asyncio
import resource
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

from stream_dp.engine.ports import Batch, Ports
from stream_dp.operate.run.run_pipeline import Operator, RunOptions, run_pipeline
from stream_dp.operate.run.wiring import Setup, open_ports
from stream_dp.testing.faults import Dawdling

PAUSE = 2  # ms


class Held(Dawdling):
    """A source that hands out nothing until it is told to, and then a batch at a time."""

    told = False

    async def read(self) -> Sequence[Batch]:
        """Wait for the line, once; a moment between batches lets clients in."""
        if not self.told:
            self.told = bool(await asyncio.to_thread(sys.stdin.readline))
        return await super().read()


def seeded(*opened: Any) -> Ports:
    numbers = count()
    return replace(open_ports(*opened), seeds=lambda: sha256(b"%d" % next(numbers)).digest())


def held(*opened: Any) -> Ports:
    ports = seeded(*opened)
    return replace(ports, source=Held(ports.source, PAUSE))


def main(pipeline: str, files: str) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(files), hard))
    setup = Setup(private=False, adapters=held, group=1)
    operator = Operator(opened=partial(print, flush=True))
    options = RunOptions(until_end=True, port=0)
    asyncio.run(run_pipeline(Path(pipeline), options, setup, operator=operator))


if __name__ == "__main__":
    main(*sys.argv[1:])
