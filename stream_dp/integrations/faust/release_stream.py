"""The releases of a pipeline in an agent of a Faust app: typed, each once, in order, without a gap.

Rules: the topic has one partition, so one worker of the app has it at a time; when that dies, another goes on behind
what was committed, and what it sees again is dropped where `seen` outlives the process. What is wrong with the releases
ends the app: an agent alone would be started again, behind what is wrong.
"""

from collections.abc import AsyncIterator, MutableMapping
from typing import Any

from faust import App, Stream, Topic
from faust.types import TopicT

from stream_dp.errors import StreamDPError
from stream_dp.integrations.faust.release_check import ReleaseCheck
from stream_dp.integrations.faust.stopping import stop_app
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.log.public import ensure_public
from stream_dp.python.public_release import PublicRelease


class ReleaseStream:
    """The releases of the pipeline `name`: `topic` is what an agent reads, and a call checks its stream.

    `seen` keeps how far it has come: a dict (the default) as long as the process lives, a Faust table with one
    partition beyond that. A release counts as dealt with when the next one is asked for, so the one at which a worker
    died comes again: `sequence` tells it.

    Examples
    --------
    ::

        alerts = engine.releases()

        @app.agent(alerts.topic)
        async def react(stream):
            async for release in alerts(stream):
                ...
    """

    def __init__(
        self,
        app: App,
        settings: KafkaSettings,
        name: str,
        seen: MutableMapping[str, Any] | None = None,
    ) -> None:
        self._app = app
        self._name = name
        self._seen: MutableMapping[str, Any] = {} if seen is None else seen
        self.topic: TopicT = _topic(app, settings, f"{name}.releases")

    async def __call__(self, stream: Stream[bytes]) -> AsyncIterator[PublicRelease]:
        """Yield the releases of the agent's stream.

        Raises:
            FailClosed: a gap, another version, or no release; the app ends.
        """
        check = ReleaseCheck(self._name, self._seen)
        try:
            async for body in stream:
                release = check.fresh(body)
                if release is not None:
                    yield release
                    check.done(release)
        except StreamDPError as error:
            await stop_app(self._app, error)
            raise


def _topic(app: App, settings: KafkaSettings, name: str) -> TopicT:
    """The topic as Faust reads it; where there is none yet, it is made as the engine makes it."""

    class PublicTopicOfOurs(Topic):
        """Declared by the rules of public topics, not by those of the app."""

        async def maybe_declare(self) -> None:
            """Make it, or check it."""
            await ensure_public(settings, name)

    return PublicTopicOfOurs(
        app,
        topics=[name],
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
        partitions=1,
        internal=True,  # Faust declares those only
    )
