"""The releases of a pipeline in an agent of a Faust app: typed, each once, in order, without a gap.

Rules: the topic has one partition, so one worker of the app reads it at a time. If that worker dies, another
continues after the committed offset, and repeats are dropped if `seen` outlives the process. An error in the
releases ends the app: Faust would restart a failed agent after the faulty release.
"""

import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from faust import App, Stream, Topic
from faust.types import TopicT
from mode import Service

from stream_dp.client.public_release import PublicRelease
from stream_dp.errors import FailClosed, StreamDPError, UsageError
from stream_dp.journal.release import named, read
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.log.public import ensure_public


class EngineStopped(SystemExit):
    """Ends the app because of `error`; the worker's process exits with the command line's exit code."""

    def __init__(self, error: StreamDPError) -> None:
        super().__init__(error.exit_code)
        self.error = error

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.error})"

    def __str__(self) -> str:
        return str(self.error)


async def stop_app(service: Service, error: BaseException) -> None:
    """End the app of this service with an exit code; the first cause counts and is logged without its traceback.

    Faust restarts an agent that raises, so an error that must stop the app is passed to the app itself. Of an error
    that is not ours only the type is told, because libraries put data into their texts.
    """
    if not isinstance(error, StreamDPError):
        error = StreamDPError(
            f"a bug of stream_dp, or of the app's own code ({type(error).__name__}); its text may hold data, so it is "
            "not repeated here"
        )
    reason = EngineStopped(error)
    reason.__suppress_context__ = True
    await service.crash(reason)


def require_alone(stream: Stream[Any], what: str) -> None:
    if stream.concurrency_index is not None:
        raise UsageError(
            f"{what}: the agent must run only once in each worker: remove `concurrency`"
        )


REMEMBERED = 10_000  # releases whose digests are kept, to detect another version


class ReleaseStream:
    """The releases of the pipeline `name`: `topic` is for an agent, whose stream a call of this object checks.

    `seen` stores the position, and the keys of series whose values are arrays: a dict (the default) for the life of
    the process, a Faust table with one partition beyond that. A release counts as done when the agent requests the next
    one, so the release at which a worker died comes again; its `sequence` identifies it.

    Example::

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
        self._app, self._name = app, name
        self._seen: MutableMapping[str, Any] = {} if seen is None else seen
        topic = f"{name}.releases"
        self.topic = topic_of_ours(app, topic, 1, lambda: ensure_public(settings, topic))

    async def __call__(self, stream: Stream[bytes]) -> AsyncIterator[PublicRelease]:
        """Yield the releases of the agent's stream; a gap, another version or junk ends the app (FailClosed)."""
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


def topic_of_ours(
    app: App, name: str, partitions: int, ensure: Callable[[], Awaitable[object]]
) -> TopicT:
    """Return the topic for Faust; a missing topic is made in the engine's way, by `ensure`."""

    class TopicOfOurs(Topic):
        """Declared by our rules, not by those of the app."""

        async def maybe_declare(self) -> None:
            await ensure()

    return TopicOfOurs(
        app,
        topics=[name],
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
        partitions=partitions,
        internal=True,  # Faust declares internal topics only
    )


class ReleaseCheck:
    """Checks that releases follow the position in `seen` under `pipeline`: [last number, digest of its body].

    Releases are numbered from 1 without gaps, and a body never changes. A number that was already returned is a
    repeat, the next number is fresh, and any other is a gap.
    """

    def __init__(self, pipeline: str, seen: MutableMapping[str, Any] | None = None) -> None:
        self._pipeline = pipeline
        self._seen: MutableMapping[str, Any] = {} if seen is None else seen
        self._digests: OrderedDict[int, str] = OrderedDict()

    def fresh(self, body: bytes) -> PublicRelease | None:
        """Return the release, or None for a repeat; FailClosed for junk, a gap, or another body of a known number."""
        first, digest_now = read(body), _digest(body)
        place = f"{self._pipeline} {first.series}"
        if first.keys:
            self._seen[place] = list(first.keys)
        whole = named(first, self._seen.get(place, ()))
        release = PublicRelease.of(body, lambda _: whole)
        number, known = release.sequence, self._seen.get(self._pipeline)
        if known is not None:
            last, digest = known
            self._remember(last, digest)
            if number <= last:
                if self._digests.get(number, digest_now) != digest_now:
                    raise FailClosed(self._wrong("one release was published in two versions"))
                return None
            if number != last + 1:
                raise FailClosed(self._wrong("at least one release is missing before this one"))
        return release

    def done(self, release: PublicRelease) -> None:
        """Note that a release was handled: from now on it is a repeat."""
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
