"""`LocalKafka`: a cluster of one or three local nodes as an asynchronous context manager.

Rules: one broker per data folder (lock.py). The first start formats the folder, later ones continue
with its data, also after `kill -9` and with other ports, but with the same number of nodes. Started
means ready for clients. Whatever goes wrong, no Java process and no lock stays behind. No task runs
in the background: who wants to know of a death calls `check` or awaits `watch`, so it may be used
from more than one event loop. Start it from a thread that lives as long as the broker should: Linux
kills the broker when that thread ends.
"""

import asyncio
import base64
import json
import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from stream_dp.broker import config, ports
from stream_dp.broker.jars import Progress, resolve_jars
from stream_dp.broker.java import find_java
from stream_dp.broker.lock import FolderLock, take
from stream_dp.broker.node import Node
from stream_dp.errors import UsageError, WorldError

_HEAP_MB = {1: 512, 3: 384}
_READY_SECONDS = 90.0
_GRACE_SECONDS = 15.0
_POLL_SECONDS = 0.05
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
        progress: Progress | None = None,
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
        cluster_id = _cluster_id(self._data_dir, self._size)
        java = await asyncio.to_thread(find_java)
        jars = await asyncio.to_thread(resolve_jars, self._progress)
        classpath = os.pathsep.join(map(str, jars))
        last = ports.recall(self._data_dir / "ports.json")
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._configure(last if attempt == 1 else ())
            for node in self._nodes:
                await asyncio.to_thread(node.format, java, classpath, cluster_id)
            for node in self._nodes:
                node.launch(java, classpath, _HEAP_MB[self._size], lock.fileno())
            if await self._until_ready(may_retry=self._port is None and attempt < _PORT_ATTEMPTS):
                return

    def _configure(self, last: Sequence[config.NodePorts]) -> None:
        self._cluster = ports.choose(self._size, self._port, last)
        ports.remember(self._data_dir / "ports.json", self._cluster)
        for node, own in zip(self._nodes, self._cluster, strict=True):
            node.write_config(config.server_properties(own, self._cluster))

    async def _until_ready(self, *, may_retry: bool) -> bool:
        end = time.monotonic() + _READY_SECONDS
        while not all(node.ready for node in self._nodes):
            for node in self._nodes:
                if may_retry and node.lost_its_port:
                    await self._stop_nodes(grace=0)
                    return False
                if not node.running:
                    raise node.obituary("died while starting")
                if time.monotonic() > end and not node.ready:
                    raise node.obituary(f"was not ready after {_READY_SECONDS:.0f} s")
            await asyncio.sleep(_POLL_SECONDS)
        return True

    async def _end(self, grace: float) -> None:
        try:
            await self._stop_nodes(grace)
        finally:
            self._cluster = ()
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    async def _stop_nodes(self, grace: float) -> None:
        end = time.monotonic() + grace
        try:
            for node in self._nodes:
                node.terminate()
            while time.monotonic() < end:
                if not any(node.running for node in self._nodes):
                    break
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            for node in self._nodes:
                node.kill()


def _cluster_id(data_dir: Path, nodes: int) -> str:
    """Read what the folder holds, or decide it on the first start."""
    path = data_dir / "cluster.json"
    if not path.exists():
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps({"id": cluster_id, "nodes": nodes}), encoding="ascii")
        fresh.replace(path)
    try:
        held = json.loads(path.read_text(encoding="ascii"))
        cluster_id, held_nodes = str(held["id"]), int(held["nodes"])
    except (ValueError, KeyError, TypeError) as error:
        raise WorldError(f"{path}: unreadable; restore it or take another folder") from error
    if held_nodes != nodes:
        raise UsageError(
            f"{data_dir}: holds a Kafka of {held_nodes} node(s), not {nodes}; "
            f"use --nodes {held_nodes} or another folder"
        )
    return cluster_id
