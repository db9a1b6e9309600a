"""Ports for servers that a test starts, stops and starts again at the same place.

Rules: no port is given twice in a run, to whatever test or worker (`pytest -n`): who has one may bind it late, or leave
it for a while.
"""

import os
import random
import socket
from collections.abc import Iterator

BELOW_OUTGOING = range(20_000, 32_000)


def own_ports(worker: int, workers: int) -> Iterator[int]:
    """A worker's share of the ports, in any order."""
    share = BELOW_OUTGOING[worker % workers :: workers]
    return iter(random.SystemRandom().sample(share, len(share)))


_LEFT = own_ports(
    int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")),
    int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")),
)


def free_port() -> int:
    """A port that is free and stays so: connections get theirs from higher numbers (Linux: from 32,768 on)."""
    for port in _LEFT:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no port is left")
