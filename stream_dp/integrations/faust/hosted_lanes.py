"""Lanes of a pipeline's source in agents of a Faust app: Faust shares them out, and each is read as a worker reads it.

Rules: only the assignment is Faust's. Which rows count is decided by their order in the log (`engine.lanes.rows`), so
neither repeats nor commits of Faust play a part.
"""

import asyncio
from pathlib import Path

from faust import App, Stream

from stream_dp.integrations.faust.release_stream import require_alone, stop_app, topic_of_ours
from stream_dp.journal.keys import WorkerKeys
from stream_dp.kafka.log.rows import ensure_rows
from stream_dp.operate.keys import worker_keys_for
from stream_dp.operate.run.hosted import workers_of
from stream_dp.operate.run.settings import settings_for
from stream_dp.operate.run.worker import Worker
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load

_LOOK_S = 0.25


class HostedLanes:
    """The lanes of a pipeline's source, read by whichever workers of the app have their partitions of `topic`.

    `topic` is that of rows, which has a partition for each lane. So Faust shares the lanes out, as it does partitions
    of any topic; what Faust delivers plays no part. A lane reads the source as a worker of the product does, in whole
    batches, and its rows count by their order in the log: two workers on one lane, or none for a while, do no harm.

    Example::

        lanes = engine.lanes()

        @app.agent(lanes.topic)
        async def count(stream):
            await lanes(stream)
    """

    def __init__(self, app: App, spec: PipelineSpec, keys: WorkerKeys) -> None:
        self._app, self._spec, self._keys = app, spec, keys
        source, workers = workers_of(spec)
        settings, name = settings_for(source), f"{spec.name}.private.rows"
        self.topic = topic_of_ours(
            app, name, workers.lanes, lambda: ensure_rows(settings, name, workers.lanes)
        )

    async def __call__(self, stream: Stream[bytes]) -> None:
        """Read lanes until the agent ends. What stops a worker of the product ends the app, with its exit code."""
        assigned = AssignedLanes(self._app, f"{self._spec.name}.private.rows")
        worker = Worker(self._spec, self._keys, self._tell, assigned)
        working = asyncio.create_task(self._work(worker, stream))
        try:
            async for _ in stream:  # rows are heard where they are judged
                pass
        finally:
            working.cancel()
            await asyncio.wait({working})

    async def _work(self, worker: Worker, stream: Stream[bytes]) -> None:
        try:
            require_alone(stream, "lanes")
            await worker.run()
        except Exception as error:  # noqa: BLE001 - ticks would wait for this lane, so the app must not go on
            cause = error
        else:
            return
        await stop_app(self._app, cause)

    def _tell(self, what: str) -> None:
        self._app.log.info("%s: this worker %s", self._spec.name, what)


class AssignedLanes:
    """The lanes whose partitions of the topic of rows are assigned to this worker of the app."""

    def __init__(self, app: App, topic: str) -> None:
        self._app, self._topic = app, topic
        self.lanes: frozenset[int] = frozenset()
        self.changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def join(self) -> None:
        self._watching = self._watching or asyncio.create_task(self._watch())

    async def leave(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait({watching})

    async def _watch(self) -> None:
        while True:
            every = self._app.consumer.assignment()
            lanes = frozenset(tp.partition for tp in every if tp.topic == self._topic)
            if lanes != self.lanes:
                self.lanes = lanes
                self.changed.set()
            await asyncio.sleep(_LOOK_S)


def lanes(app: App, pipeline: str | Path, *, key_file: str | Path | None = None) -> HostedLanes:
    """Return the lanes of a pipeline for an agent of this app; its engine may run elsewhere.

    `key_file` is what `stream-dp worker --export-key` wrote, or the operator's key (default: `STREAM_DP_KEY_FILE`).
    Privacy claim: none of its own; rows are private, and what is released of them is the engine's.

    Raises:
        UsageError: the pipeline is not valid, or has no `source: workers`, or there is no key.
    """
    spec = load(Path(pipeline))
    return HostedLanes(
        app, spec, worker_keys_for(spec, None if key_file is None else Path(key_file))
    )
