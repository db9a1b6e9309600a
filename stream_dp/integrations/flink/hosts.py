"""What a Flink job runs: subtasks that are workers of a pipeline, each for a part of its lanes.

Flink places the subtasks, supervises them and starts them again; each reads its lanes' partitions itself, in whole
record batches, as `stream-dp worker` does. Flink's connector hands over no ends of transactions and no ends of silent
partitions, so ticks of its records could not close as those of the engine do.

Rules: nothing is kept in Flink, and no checkpoint is needed: a subtask begins behind the last row that counts, and what
an older copy of it goes on to write are repeats. A host that hears no beat of its job stops reading.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stream_dp.errors import EngineEnded
from stream_dp.operate.keys import worker_keys_for
from stream_dp.operate.run.hosted import workers_of
from stream_dp.operate.run.settings import source_there
from stream_dp.operate.run.worker import Worker
from stream_dp.pipeline.yaml import load

if TYPE_CHECKING:
    from pyflink.datastream import StreamExecutionEnvironment

SILENT_S = 30.0
_LOOK_S = 0.2
_log = logging.getLogger(__name__)


def lanes_of(pipeline: Path) -> int:
    """Return the number of lanes of a pipeline. Raises `UsageError` if no workers read its source."""
    return workers_of(load(pipeline))[1].lanes


@dataclass(slots=True)
class _Given:
    """The lanes of a subtask, as `Members`."""

    lanes: frozenset[int]
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def join(self) -> None: ...
    async def leave(self) -> None: ...


class HostedWorker:
    """A worker in a thread of its own: it runs from the first beat until `stop`, or until no more beats come.

    It reads every lane whose number is `index` modulo `number`. A beat after a silence starts it again.
    """

    def __init__(self, pipeline: Path, key_file: Path | None, index: int, number: int) -> None:
        self._pipeline, self._key_file = pipeline, key_file
        self._index, self._number = index, number
        self._thread: threading.Thread | None = None
        self._beaten, self._stopped = 0.0, False
        self._error: BaseException | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def beat(self) -> None:
        """Let the worker go on; raises what ended it."""
        self._beaten = time.monotonic()
        if self._error is not None:
            raise self._error
        if not self.running:
            self._thread = threading.Thread(target=self._run, name="stream-dp-lanes", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:  # noqa: BLE001 - raised again where Flink sees it
            self._error = error

    async def _work(self) -> None:
        spec = load(self._pipeline)
        lanes = frozenset(range(self._index, lanes_of(self._pipeline), self._number))

        def tell(what: str) -> None:
            _log.info("%s: this worker %s", spec.name, what)

        worker = Worker(spec, worker_keys_for(spec, self._key_file), tell, _Given(lanes))

        async def run() -> None:
            await source_there(spec, tell)
            await worker.run()

        running = asyncio.create_task(run())
        while not running.done():
            await asyncio.wait({running}, timeout=_LOOK_S)
            if self._stopped or time.monotonic() - self._beaten > SILENT_S:
                running.cancel()
                await asyncio.wait({running})
                return
        running.result()
        raise EngineEnded(f"{spec.name}: a worker ended unexpectedly")


def host_lanes(
    env: "StreamExecutionEnvironment", pipeline: Path, key_file: Path | None = None
) -> None:
    """Let the job of `env` host the lanes of a pipeline, by at most as many subtasks as there are lanes.

    Each task manager needs both files, at these paths, and stream_dp in its Python.
    """
    from pyflink.common import Types
    from pyflink.datastream import ProcessFunction
    from pyflink.table import StreamTableEnvironment

    lanes, where = lanes_of(pipeline), pipeline.absolute()
    key = None if key_file is None else key_file.absolute()

    class Lanes(ProcessFunction):  # type: ignore[misc]  # of no known type
        def open(self, runtime_context: Any) -> None:
            index = runtime_context.get_index_of_this_subtask()
            number = runtime_context.get_number_of_parallel_subtasks()
            self._host = HostedWorker(where, key, index, number)

        def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
            self._host.beat()
            return ()

        def close(self) -> None:
            self._host.stop()

    number = min(lanes, env.get_parallelism())
    table = StreamTableEnvironment.create(env)
    table.execute_sql(
        "CREATE TEMPORARY TABLE stream_dp_beats (beat BIGINT) "
        f"WITH ('connector' = 'datagen', 'rows-per-second' = '{2 * number}')"
    )
    beats = table.to_data_stream(table.from_path("stream_dp_beats"))
    hosted = beats.rebalance().process(Lanes(), Types.INT()).set_parallelism(number)
    hosted.name("stream_dp lanes").print().name("unused").set_parallelism(number)


def __getattr__(name: str) -> Any:
    """Return `lanes`, the function of Flink SQL that `stream-dp flink` names: it hosts the lane that it is called with,
    as long as it is.
    """
    if name != "lanes":
        raise AttributeError(name)
    from pyflink.table import DataTypes, ScalarFunction
    from pyflink.table.udf import udf

    class Lanes(ScalarFunction):  # type: ignore[misc]  # of no known type
        def open(self, function_context: Any) -> None:
            self._hosts = dict[int, HostedWorker]()

        def eval(self, lane: int, number: int, pipeline: str, key_file: str | None) -> bool:
            if lane not in self._hosts:
                key = None if key_file is None else Path(key_file)
                self._hosts[lane] = HostedWorker(Path(pipeline), key, lane, number)
            self._hosts[lane].beat()
            return True

        def is_deterministic(self) -> bool:
            return False

        def close(self) -> None:
            for host in self._hosts.values():
                host.stop()

    return udf(Lanes(), result_type=DataTypes.BOOLEAN())
