"""A cluster of one's own whose nodes are killed, halted and started again, one by one or all.

Rules: everything here is synchronous and called from the main thread: a broker ends with the thread that started it.
"""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from free_ports import free_port

from stream_dp.broker.jars import resolve_jars
from stream_dp.broker.process import LocalKafka, NodePorts, NodeRuntime, find_java, remember_ports
from stream_dp.errors import WorldError

READY_S = 120
STARTS = 3


class Cluster:
    """Nodes by their index; `down` and `halted` ones come back by `start` and `resume`."""

    def __init__(self, kafka: LocalKafka, runner: asyncio.Runner) -> None:
        self._kafka = kafka
        self._runner = runner

    @property
    def bootstrap(self) -> str:
        return self._kafka.bootstrap

    @property
    def size(self) -> int:
        return len(self._kafka._nodes)

    def kill(self, node: int) -> None:
        self._kafka._nodes[node].kill()

    def halt(self, node: int) -> None:
        """Stop its process: its connections stay open, and nothing answers."""
        os.kill(self._pid(node), signal.SIGSTOP)

    def resume(self, node: int) -> None:
        os.kill(self._pid(node), signal.SIGCONT)

    def start(self, node: int) -> None:
        kafka = self._kafka
        assert kafka._lock is not None
        classpath = os.pathsep.join(map(str, resolve_jars()))
        one = kafka._nodes[node]
        one.log.unlink(missing_ok=True)
        one.launch(NodeRuntime(find_java(), classpath, 384, kafka._lock.fileno()))
        end = time.monotonic() + READY_S
        while not one.ready:
            assert one.running, "the node died while starting"
            assert time.monotonic() < end
            time.sleep(0.05)

    def end(self, node: int) -> None:
        """Stop it as one stops a broker that is to come back: it hands over what it leads."""
        one = self._kafka._nodes[node]
        one.terminate()
        end = time.monotonic() + 30
        while one.running:
            if time.monotonic() > end:
                one.kill()
            time.sleep(0.05)

    def restart(self) -> None:
        """Kill all nodes, and start the cluster again, at the same addresses."""
        before = self.bootstrap
        for node in range(self.size):
            self.kill(node)
        self._runner.run(self._kafka.stop())
        self._start_all(before)

    def down_for(self, seconds: float) -> None:
        before = self.bootstrap
        for node in range(self.size):
            self.kill(node)
        self._runner.run(self._kafka.stop())
        time.sleep(seconds)
        self._start_all(before)

    def _start_all(self, before: str) -> None:
        """Start the cluster; again where its nodes do not find one another in time, as on a busy machine."""
        for attempt in range(STARTS):
            try:
                self._runner.run(self._kafka.start())
                break
            except WorldError as error:
                if attempt == STARTS - 1:
                    raise
                print(f"the cluster is started once more: {str(error).splitlines()[0]}")
        assert self.bootstrap == before, "the ports were taken by someone else"

    def _pid(self, node: int) -> int:
        pid = self._kafka._nodes[node].pid
        assert pid is not None
        return pid


def keep_ports(folder: Path, nodes: int) -> None:
    """Give a cluster that begins in this folder ports that nobody else gets while it is down."""
    ports = [NodePorts(node, free_port(), free_port()) for node in range(1, nodes + 1)]
    remember_ports(folder / "ports.json", ports)


@contextmanager
def cluster(folder: Path, nodes: int) -> Iterator[Cluster]:
    """A cluster over a folder, started; it is stopped at the end, whatever became of its nodes."""
    folder.mkdir(exist_ok=True)
    keep_ports(folder, nodes)
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        kafka = LocalKafka(folder, nodes=nodes)
        runner.run(kafka.start())
        made = Cluster(kafka, runner)
        try:
            yield made
        finally:
            for node in kafka._nodes:
                if node.running and node.pid is not None:
                    os.kill(node.pid, signal.SIGCONT)
                    node.kill()
            runner.run(kafka.stop())
