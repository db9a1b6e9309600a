"""`LocalKafka`: a cluster of one or three local nodes as an asynchronous context manager.

Rules: one broker per data folder (lock.py). The first start formats the folder, later ones continue
with its data, also after `kill -9` and with other ports, but with the same number of nodes. Started
means ready for clients. Whatever goes wrong, no Java process and no lock stays behind. No task runs
in the background: who wants to know of a death calls `check` or awaits `watch`, so it may be used
from more than one event loop. Start it from a thread that lives as long as the broker should: Linux
kills the broker when that thread ends.
"""

import asyncio
import os
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from stream_dp.broker import config, free_ports, node_waits
from stream_dp.broker.identity import read_or_decide
from stream_dp.broker.jars import resolve_jars
from stream_dp.broker.java import find_java
from stream_dp.broker.lock import FolderLock, take
from stream_dp.broker.node import Node, NodeRuntime
from stream_dp.broker.node_waits import PortLost
from stream_dp.broker.restart import fence_former_life
from stream_dp.core.progress import Progress, unseen
from stream_dp.errors import UsageError, WorldError

_HEAP_MB = {1: 512, 3: 384}
_GRACE_SECONDS = 15.0
_WATCH_SECONDS = 0.5
_PORT_ATTEMPTS = 3


class LocalKafka:
    """A local Kafka over a data folder.

    Example:
        async with LocalKafka(state_dir() / "broker") as kafka:
            await create_topic(kafka.bootstrap, "events")
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        nodes: int = 1,
        port: int | None = None,
        progress: Progress = unseen,
    ) -> None:
        if nodes not in _HEAP_MB:
            raise UsageError(f"nodes: a local Kafka has 1 or 3 nodes, not {nodes}")
        if port is not None and not 1 <= port <= 65536 - nodes:
            raise UsageError(
                f"port: {port} is not a port number with {nodes} free to use from there"
            )
        self._data_dir = data_dir.absolute()
        self._size = nodes
        self._port = port
        self._progress = progress
        self._nodes = [Node(self._data_dir / f"node-{n}") for n in range(1, nodes + 1)]
        self._cluster: tuple[config.NodePorts, ...] = ()
        self._lock: FolderLock | None = None

    @property
    def bootstrap(self) -> str:
        """ "127.0.0.1:PORT", comma separated for three nodes; of a started broker only."""
        if not self._cluster:
            raise UsageError("this Kafka is not started")
        return config.bootstrap(self._cluster)

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the running nodes, in the order of the nodes."""
        return tuple(n.pid for n in self._nodes if n.running and n.pid is not None)

    async def start(self) -> None:
        """Start and return when all nodes are ready.

        Raises:
            WorldError: no Java, no jars, folder or port in use, or the process died; says which.
            UsageError: the folder holds another number of nodes, or it is started already.
        """
        if self._lock is not None:
            raise UsageError("this Kafka is started already")
        self._lock = await take(self._data_dir)
        try:
            await self._start(self._lock)
        except OSError as error:
            await self._end(grace=0)
            raise WorldError(f"{self._data_dir}: Kafka cannot start here: {error}") from error
        except BaseException:
            await self._end(grace=0)
            raise

    async def stop(self) -> None:
        """Stop cleanly; kill after a grace period. Does nothing if not started."""
        await self._end(grace=_GRACE_SECONDS)

    def check(self) -> None:
        """Raise WorldError if a node died."""
        for node in self._nodes:
            if not node.running:
                raise node.obituary("died")

    async def watch(self) -> NoReturn:
        """Wait until a node dies, then raise WorldError."""
        while True:
            self.check()
            await asyncio.sleep(_WATCH_SECONDS)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _start(self, lock: FolderLock) -> None:
        cluster_id = read_or_decide(self._data_dir, self._size)
        java = await asyncio.to_thread(find_java)
        jars = await asyncio.to_thread(resolve_jars, self._progress)
        classpath = os.pathsep.join(map(str, jars))
        machine = NodeRuntime(java, classpath, _HEAP_MB[self._size], lock.fileno())
        last = free_ports.recall(self._data_dir / "ports.json")
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._cluster = free_ports.choose_ports(
                self._size, self._port, last if attempt == 1 else ()
            )
            free_ports.remember(self._data_dir / "ports.json", self._cluster)
            try:
                await self._launch(machine, cluster_id)
            except PortLost:
                await node_waits.stop(self._nodes, grace=0)
                if self._port is not None or attempt == _PORT_ATTEMPTS:
                    raise
            else:
                return

    async def _launch(self, machine: NodeRuntime, cluster_id: str) -> None:
        if any(node.died_uncleanly for node in self._nodes):
            await fence_former_life(self._nodes, self._cluster, machine)
        for node, own in zip(self._nodes, self._cluster, strict=True):
            node.write_config(config.server_properties(own, self._cluster))
            await asyncio.to_thread(node.format, machine, cluster_id)
        for node in self._nodes:
            node.launch(machine)
        await node_waits.until_ready(self._nodes)

    async def _end(self, grace: float) -> None:
        try:
            await node_waits.stop(self._nodes, grace)
        finally:
            self._cluster = ()
            if self._lock is not None:
                self._lock.release()
                self._lock = None
