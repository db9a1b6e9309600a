"""Ports of 127.0.0.1 for the nodes of a cluster.

Rules: a port that the user named is never replaced by another. Otherwise the ports of the last run
are taken again where they are free: a broker that died in the middle of a commit finishes it
through the address it had, and readers of committed records wait for that. A free port is only
likely to be free a moment later; who uses it must be ready to ask for others.
"""

import json
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import astuple
from pathlib import Path

from stream_dp.broker.config import HOST, NodePorts
from stream_dp.errors import WorldError


def choose_ports(
    nodes: int, port: int | None, last: Sequence[NodePorts] = ()
) -> tuple[NodePorts, ...]:
    """Ports for nodes 1..n; brokers at `port`, `port` + 1, ... if one is given.

    Raises:
        WorldError: a port that was asked for is in use.
    """
    old = {ports.node: ports for ports in last}
    numbers = range(1, nodes + 1)
    with ExitStack() as held:  # all at once, or the same port could come twice
        if port is None:
            brokers = [_bind_if_free(held, old[n].broker if n in old else 0) for n in numbers]
        else:
            brokers = [_bind(held, port + n - 1) for n in numbers]
        quorum = [_bind_if_free(held, old[n].controller if n in old else 0) for n in numbers]
    return tuple(map(NodePorts, numbers, brokers, quorum))


def remember(path: Path, cluster: Sequence[NodePorts]) -> None:
    """Write down the ports of this run."""
    path.write_text(json.dumps([astuple(ports) for ports in cluster]), encoding="ascii")


def recall(path: Path) -> tuple[NodePorts, ...]:
    """The ports of the last run; none if that cannot be read."""
    try:
        rows = json.loads(path.read_text(encoding="ascii"))
        return tuple(NodePorts(int(n), int(b), int(c)) for n, b, c in rows)
    except (OSError, ValueError, TypeError):
        return ()


def _bind_if_free(held: ExitStack, port: int) -> int:
    try:
        return _bind(held, port)
    except WorldError:
        return _bind(held, 0)


def _bind(held: ExitStack, port: int) -> int:
    sock = held.enter_context(socket.socket())
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((HOST, port))
    except OSError as error:
        raise WorldError(f"port {port} of {HOST} cannot be used: {error.strerror}") from error
    return int(sock.getsockname()[1])
