"""One Java process of the broker and its folder.

Rules: the process runs in a session of its own (no Ctrl-C of the terminal), in its folder, and dies with its
parent. It is ready when its log says so; an open port is too early. All methods return at once; the caller waits.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from stream_dp.broker import child
from stream_dp.errors import WorldError

# ---
# The text of server.properties, for one node or three.
#
# Rules: this file only makes text; it uses no files and no sockets. Every path is relative to the node's folder, the
# working directory of its Java process, so no path needs escaping and a data folder may be moved. Both sizes use
# static `controller.quorum.voters`: the ports are only in this text, so a restart over old data may change them. A
# local broker keeps everything: records, offsets and transactional ids do not expire.

HOST = "127.0.0.1"
_INT_MAX = 2**31 - 1
_TWO_MIB = 2 * 1024 * 1024  # a 1 MiB value plus its framing exceeds Kafka's default of 1 MiB
_INTERNAL_PARTITIONS = 4


@dataclass(frozen=True)
class NodePorts:
    """The ports of one node: for clients and for the controllers' quorum."""

    node: int
    broker: int
    controller: int


def bootstrap(cluster: Sequence[NodePorts]) -> str:
    """Return the address list for clients.

    >>> bootstrap([NodePorts(1, 9092, 9093), NodePorts(2, 9094, 9095)])
    '127.0.0.1:9092,127.0.0.1:9094'
    """
    return ",".join(f"{HOST}:{ports.broker}" for ports in cluster)


def server_properties(own: NodePorts, cluster: Sequence[NodePorts]) -> str:
    """Return the configuration of one node of the cluster."""
    settings = _identity(own, cluster) | _replication(len(cluster)) | _behaviour()
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def controller_properties(own: NodePorts, cluster: Sequence[NodePorts]) -> str:
    """Return the configuration of one node without its broker, for `fence_former_life`; it fences fast."""
    settings = _identity(own, cluster)
    settings["process.roles"] = "controller"
    settings["listeners"] = f"CONTROLLER://{HOST}:{own.controller}"
    settings["broker.session.timeout.ms"] = 500
    settings["broker.heartbeat.interval.ms"] = 100
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


def _replication(nodes: int) -> dict[str, object]:
    in_sync = 2 if nodes > 1 else 1
    settings: dict[str, object] = {
        "default.replication.factor": nodes,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": nodes,
        "transaction.state.log.replication.factor": nodes,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": nodes,
        "share.coordinator.state.topic.min.isr": in_sync,
    }
    # A node without CPU time for this long is fenced. In a cluster of three, the others then lead its partitions; a
    # single node only refuses topics and writers. `fence_former_life` fences the brokers of a former run.
    return settings | {"broker.session.timeout.ms": 60_000 if nodes == 1 else 6000}


def _behaviour() -> dict[str, object]:
    return {
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


_READY = "Kafka Server started"
_FENCED = r"Fencing broker (\d+)"
_PORT_TAKEN = "Address already in use"
_LAST_LINES = 8
_LINE_WIDTH = 300
_FORMATTED = "formatted"
_FORMAT_SECONDS = 300


@dataclass(frozen=True)
class NodeRuntime:
    """The runtime that all nodes of a cluster share."""

    java: Path
    classpath: str
    heap_mb: int
    lock: int
    """File descriptor of the lock of the data folder, which the processes inherit."""


class Node:
    """A node of the cluster: its folder, and its process once started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "server.log"
        self._console = folder / "console.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id; None before the first start."""
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def ready(self) -> bool:
        """Whether the node's log says that it is ready."""
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
        """Whether the node ended because another process took its port."""
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
        tool = [*_jvm(machine), "-XX:TieredStopAtLevel=1", "kafka.tools.StorageTool"]
        identity = f"--cluster-id={cluster_id}"  # as one argument, because it may begin with a dash
        arguments = ["format", "--ignore-formatted", identity, "-c", "server.properties"]
        try:
            run = subprocess.run(
                [*tool, *arguments],
                cwd=self.folder,
                capture_output=True,
                text=True,
                timeout=_FORMAT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise WorldError(
                f"{self.folder}: Kafka did not format its storage in {_FORMAT_SECONDS} s"
            ) from error
        if run.returncode:
            lines = _last_lines(run.stdout + run.stderr)
            raise WorldError(
                "\n".join([f"{self.folder}: Kafka cannot format its storage:", *lines])
            )
        mark.touch()

    def launch(self, machine: NodeRuntime) -> None:
        """Start the process."""
        command = _tied([*_jvm(machine), f"-Xmx{machine.heap_mb}m"])
        with self._console.open("wb") as console:
            self._process = subprocess.Popen(
                [*command, "kafka.Kafka", "server.properties"],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[machine.lock],
            )

    def terminate(self) -> None:
        """Ask the process to end."""
        if self._process and self.running:
            self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL and wait for the end, which is immediate."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def obituary(self, what: str) -> WorldError:
        """Return the error with the cause, the last log lines and the log's place."""
        code = self._process.poll() if self._process else None
        lines = _last_lines(_text(self._console) + _text(self.log))
        head = f"Kafka ({self.folder.name}) {what}" + (
            "" if code is None else f", exit code {code}"
        )
        return WorldError("\n".join([f"{head}; its log is {self.log}", *(f"  {x}" for x in lines)]))


def _jvm(machine: NodeRuntime) -> Sequence[str]:
    return (
        str(machine.java),
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        "-Dlog4j2.configurationFile=log4j2.properties",
        "-cp",
        machine.classpath,
    )


def _tied(command: Sequence[str]) -> list[str]:
    return [sys.executable, "-I", "-S", str(child.__file__), str(os.getpid()), *command]


def _last_lines(text: str) -> list[str]:
    """Return the last informative lines: without stack frames, and cut to a width."""
    lines = [line[:_LINE_WIDTH] for line in text.splitlines() if not line.startswith("\tat ")]
    return lines[-_LAST_LINES:]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
