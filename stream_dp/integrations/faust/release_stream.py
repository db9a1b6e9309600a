"""The releases of a pipeline in an agent of a Faust app: typed, each once, in order, without a gap.

Rules: the topic has one partition, so one worker of the app has it at a time; when that dies, another goes on behind
what was committed, and what it sees again is dropped where `seen` outlives the process. Releases are numbered from 1
without gaps, and a body never changes: a number that was handed out is a repeat (dropped, if its body is the one that
was seen), the next one is fresh, and any other is a gap. What is wrong with the releases ends the app: an agent alone
would be started again, behind what is wrong.
"""

import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

from faust import App, Stream, Topic
from faust.types import TopicT

from stream_dp.errors import FailClosed, StreamDPError
from stream_dp.integrations.faust.stopping import stop_app
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.log.public import ensure_public
from stream_dp.python.public_release import PublicRelease

REMEMBERED = 10_000
"""Of how many releases the body is remembered, to know another version of one."""


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


class ReleaseCheck:
    """The releases of `pipeline`, the ones after what `seen` holds under this name: [last number, digest of its body].

    `seen` may be a dict, or what outlives the process, such as a Faust table.
    """

    def __init__(self, pipeline: str, seen: MutableMapping[str, Any] | None = None) -> None:
        self._pipeline = pipeline
        self._seen: MutableMapping[str, Any] = {} if seen is None else seen
        self._digests: OrderedDict[int, str] = OrderedDict()

    def fresh(self, body: bytes) -> PublicRelease | None:
        """Return the release, or None for a repeat.

        Raises:
            FailClosed: no release, a gap, or another body under a number that was seen.
        """
        release, found = PublicRelease.of(body), _digest(body)
        number, known = release.sequence, self._seen.get(self._pipeline)
        if known is not None:
            last, digest = known
            self._remember(last, digest)
            if number <= last:
                if self._digests.get(number, found) != found:
                    raise FailClosed(self._wrong("one was published in two versions"))
                return None
            if number != last + 1:
                raise FailClosed(self._wrong("one or more are missing before the one that came"))
        return release

    def done(self, release: PublicRelease) -> None:
        """Note that a release was handed out and dealt with: it is a repeat from now on."""
        digest = _digest(release.body)
        self._remember(release.sequence, digest)
        self._seen[self._pipeline] = [release.sequence, digest]

    def _remember(self, number: int, digest: str) -> None:
        self._digests[number] = digest
        while len(self._digests) > REMEMBERED:
            self._digests.popitem(last=False)

    def _wrong(self, what: str) -> str:
        return (
            f"releases of {self._pipeline}: {what}; nothing after it may be acted on. Look at the topic "
            f"{self._pipeline}.releases: only its engine may write there, and it must keep everything"
        )


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
