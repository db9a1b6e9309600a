"""Waiting for nodes: until they are ready, until they have stopped.

Rules: polling, on the clock of the event loop's caller; no tasks. A node that dies while it is
waited for is an error with its last log lines. After `stop` none runs, even if the wait was
cancelled.
"""

import asyncio
import time
from collections.abc import Sequence

from stream_dp.broker.node import Node
from stream_dp.errors import WorldError

_READY_SECONDS = 300.0  # on a machine at its limit; a node that died is seen at once
_POLL_SECONDS = 0.05


class PortLost(WorldError):
    """Somebody took a port between our choice and its use."""


async def until_ready(nodes: Sequence[Node]) -> None:
    """Wait until all are ready for clients.

    Raises:
        PortLost: a node could not listen on its port.
        WorldError: a node died or took too long.
    """
    end = time.monotonic() + _READY_SECONDS
    while waiting := [node for node in nodes if not node.ready]:
        for node in waiting:
            if node.lost_its_port:
                raise PortLost(str(node.obituary("found its port in use")))
            if not node.running:
                raise node.obituary("died while starting")
        if time.monotonic() > end:
            raise waiting[0].obituary(f"was not ready after {_READY_SECONDS:.0f} s")
        await asyncio.sleep(_POLL_SECONDS)


async def until_fenced(nodes: Sequence[Node], seconds: float) -> None:
    """Wait until the active controller has fenced as many brokers as there are nodes, for good, or too long.

    It says so before it writes so, and writes are in order and never pause for a second: what was said is in every
    node's log once all of them have twice grown beyond the longest.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if len(set[int]().union(*(node.fenced for node in nodes))) == len(nodes):
            break
        await asyncio.sleep(_POLL_SECONDS)
    for _ in range(2):
        longest = max(node.written for node in nodes)
        while min(node.written for node in nodes) <= longest:
            if time.monotonic() > end:
                return
            await asyncio.sleep(_POLL_SECONDS)


async def stop(nodes: Sequence[Node], grace: float) -> None:
    """SIGTERM to all; SIGKILL to those that are left after the grace period, in seconds."""
    end = time.monotonic() + grace
    try:
        for node in nodes:
            node.terminate()
        while time.monotonic() < end:
            if not any(node.running for node in nodes):
                break
            await asyncio.sleep(_POLL_SECONDS)
    finally:
        for node in nodes:
            node.kill()
