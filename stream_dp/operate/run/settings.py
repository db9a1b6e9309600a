"""Settings of the adapters, from the specification and the environment.

Rules: flags override STREAM_DP_KAFKA_* variables, which override the pipeline file. STREAM_DP_KAFKA_BOOTSTRAP is
`source.bootstrap`; any other variable is the key with its name in `source.security`, with paths relative to the
working folder.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from stream_dp.core.wording import near_names
from stream_dp.engine.lanes.rows import RowSealer
from stream_dp.engine.ports import Clock
from stream_dp.errors import Outage, StreamDPError, UsageError, WorldError
from stream_dp.kafka.client.clients import KafkaSettings, backing_off
from stream_dp.kafka.client.security import OPEN
from stream_dp.kafka.client.tick_marks import TickMarks
from stream_dp.kafka.client.topics import administering
from stream_dp.kafka.log.append_clock import clock_topic
from stream_dp.kafka.log.lease import KafkaLease, Presence
from stream_dp.kafka.log.rows import KafkaRows
from stream_dp.kafka.source.source import EVERY, KafkaSource, ReplayTicks, Share, StampTicks
from stream_dp.pipeline.fingerprints import fingerprint, text_of
from stream_dp.pipeline.problems import Written, message, suggestion
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.records import endpoints
from stream_dp.records.endpoints import KafkaSourceSpec, Security, WallClock

_T = TypeVar("_T")
_VARIABLE = "STREAM_DP_KAFKA_"


def settled(part: object, kind: type[_T]) -> _T:
    """Return `part`, which the specification's checks guarantee to be of `kind`; raise UsageError if it is not."""
    if not isinstance(part, kind):
        raise UsageError(
            f"this command needs a {kind.__name__} here, but the file declares a "
            f"{type(part).__name__}; check the file with `stream-dp plan`"
        )
    return part


def written_to(spec: PipelineSpec) -> KafkaSourceSpec:
    """Return the source of a pipeline for a writer of its topic; raise UsageError if it reads no plain JSON there."""
    source = settled(spec.source, KafkaSourceSpec)
    if source.values is not None:
        raise UsageError(
            f"{spec.name} reads values that are not plain JSON (source.values), so every record "
            "that this command writes would be a dead letter. Write to the topic with a "
            "producer that uses the serializer of these schemas"
        )
    return source


def settings_for(source: endpoints.KafkaSourceSpec, bootstrap: str = "") -> KafkaSettings:
    """Return how to reach the source's brokers; `bootstrap` from a flag overrides the environment and the source."""
    security = {} if source.security is None else source.security.model_dump(exclude_none=True)
    return _settings(bootstrap, source.bootstrap, security)


def kafka_source(
    spec: PipelineSpec, clock: Clock, mark_key: Callable[[], bytes], share: Share = EVERY
) -> KafkaSource:
    """Return the source of a pipeline whose source is a topic; `share` are the partitions that it reads."""
    source, ticking = settled(spec.source, KafkaSourceSpec), spec.clock
    ticks = (
        StampTicks(ticking.step, ticking.delay // 2, clock_topic(spec.name))
        if isinstance(ticking, WallClock)
        else ReplayTicks(TickMarks(mark_key(), source.topic, ticking.grid))
    )
    return KafkaSource(
        settings_for(source), source.topic, clock, ticks,
        wait=source.open_transactions == "wait", limit=source.largest_batch, share=share,
        read=source.read(spec.fields),
    )  # fmt: skip


def rows_of(spec: PipelineSpec, key: bytes, lease: KafkaLease | None = None) -> KafkaRows | None:
    """Return the logs of a pipeline's rows; None where no workers read its source."""
    source = spec.source
    if not isinstance(source, KafkaSourceSpec) or source.workers is None:
        return None
    sealer = RowSealer(key, spec.name, pad=source.workers.pad)
    settings = settings_for(source)
    file = b"" if lease is None else text_of(spec)
    return KafkaRows(
        settings, spec.name, sealer, source.workers.lanes, fingerprint(spec), file, lease
    )


def settings_at(bootstrap: str, pipeline: Path | None) -> KafkaSettings:
    """Return how to reach the brokers at `bootstrap` from a flag, of a pipeline file, or of the environment."""
    if pipeline is None:
        return _settings(bootstrap, "", {})
    return settings_for(settled(load(pipeline).source, endpoints.KafkaSourceSpec), bootstrap)


def _settings(flag: str, declared: str, security: Mapping[str, Any]) -> KafkaSettings:
    variables = _from_environment()
    variable, named = f"{_VARIABLE}BOOTSTRAP", variables.pop("bootstrap", "")
    address = flag or named or declared
    if not address:
        raise UsageError(f"where is Kafka? Name it with --bootstrap, --pipeline or {variable}")
    try:
        endpoints.addresses(address)
    except ValueError as error:
        raise UsageError(f"{'--bootstrap' if flag else variable}: {error}") from None
    return KafkaSettings(address, _secured(security, variables))


def _from_environment() -> dict[str, str]:
    """Return the settings in the environment, by key; raise UsageError if a variable names no known key."""
    values = {
        name.removeprefix(_VARIABLE).lower(): value
        for name, value in os.environ.items()
        if name.startswith(_VARIABLE) and value
    }
    known = ("bootstrap", *Security.model_fields)
    if unknown := sorted(set(values) - set(known)):
        names = ", ".join(f"{_VARIABLE}{key.upper()}" for key in known)
        near = near_names(unknown[0], known)
        there = f"did you mean {_VARIABLE}{near[0].upper()}?" if near else f"known are {names}"
        raise UsageError(f"{_VARIABLE}{unknown[0].upper()} is not known; {there}")
    return values


def _secured(declared: Mapping[str, Any], variables: Mapping[str, str]) -> Security:
    """Return `security`; the environment overrides the file. Each problem names its variable or key."""
    both = {**declared, **variables}
    if not both:
        return OPEN
    try:
        return Security.model_validate({"protocol": "PLAINTEXT", **both})
    except ValidationError as error:
        lines = []
        for problem in error.errors(include_url=False, include_input=False):
            key = str(problem["loc"][0])
            name = f"{_VARIABLE}{key.upper()}" if key in variables else f"source.security.{key}"
            hint = suggestion(problem, Written(str(both.get(key, ""))))
            lines.append(f"{name}: {message(problem)}{hint}")
        raise UsageError("\n".join(lines)) from None


def patience_of(spec: PipelineSpec) -> float:
    """Return how many seconds a run rides out an outage; 0 if its source has no brokers."""
    source = spec.source
    return source.patience / 1000 if isinstance(source, endpoints.KafkaSourceSpec) else 0


RESTARTS, WINDOW_S = 30, 3600.0
"""The number of attempts that may fail after they ran, within a window of seconds."""
STEADY_S = 60.0
"""After this many seconds of running, earlier failures are over, even if there was nothing to commit."""
_LONGEST_WAIT_S = 5.0


class Patience:
    """Rides out `seconds` without a durable commit; with `from_the_start`, also before any attempt ran.

    Without `from_the_start`, an error before the first attempt ran is not an outage: a wrong address is reported at
    once. The wait grows with each attempt. The number of attempts that ran is limited too, so that repeated failures
    end. The final error names the first cause, not its consequences.
    """

    def __init__(
        self,
        seconds: float,
        *,
        from_the_start: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._now = now
        self._tried = from_the_start
        self._running: float | None = None
        self._failing: float | None = None
        self._first = ""
        self._waits = backing_off(_LONGEST_WAIT_S)
        self._failed: deque[float] = deque()

    def runs(self) -> None:
        self._tried = True
        self._running = self._now()

    def wait(self, error: Outage, advanced: bool) -> float:
        """Return the seconds to wait before the next attempt; `advanced`: the failed attempt made a commit durable.

        Raises Outage (`error`, if no attempt ran yet) or WorldError (patience or attempts are used up).
        """
        if not self._tried:
            raise error
        now, running = self._now(), self._running
        self._running = None
        got_over = running is not None and (advanced or now - running > STEADY_S)
        if got_over or self._failing is None:
            self._failing, self._first = now, str(error)
            self._waits = backing_off(_LONGEST_WAIT_S)
        if running is not None:
            self._failed.append(now)
        while self._failed and now - self._failed[0] > WINDOW_S:
            self._failed.popleft()
        if now - self._failing > self._seconds:
            raise self._given_up(error, f"nothing could be committed for {self._seconds:g} s")
        if len(self._failed) > RESTARTS:
            raise self._given_up(error, f"it failed {RESTARTS} times within an hour")
        return next(self._waits)

    def _given_up(self, error: Outage, why: str) -> WorldError:
        began = "" if str(error) == self._first else f"; the first error was: {self._first}"
        return WorldError(
            f"{error}. stream_dp tried again and gave up, because {why}{began}. What was published stays valid, "
            "and a new start continues there"
        )


async def joined(presence: Presence) -> None:
    """Join the engines of a pipeline, and retry on errors: presence only informs standbys."""
    waits = backing_off(_LONGEST_WAIT_S)
    while True:
        with suppress(StreamDPError):
            return await presence.join()
        await asyncio.sleep(next(waits))


WAIT_S = 60.0
"""How long to wait until a broker answers."""
_AGAIN_S = 0.3


async def answered(look: Callable[[], Awaitable[_T]], seconds: float) -> _T:
    """Return what `look` finds, which changes nothing; look again for so many seconds while nobody answers."""
    deadline, waits = time.monotonic() + seconds, backing_off(_LONGEST_WAIT_S)
    while True:
        try:
            return await look()
        except Outage:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(next(waits))


async def source_there(spec: PipelineSpec, tell: Callable[[str], None]) -> None:
    """Wait for the brokers of a pipeline's source, if it has any; see `brokers_there`."""
    if isinstance(spec.source, KafkaSourceSpec):
        await brokers_there(settings_for(spec.source), tell)


async def brokers_there(settings: KafkaSettings, tell: Callable[[str], None]) -> None:
    """Return when a broker answers; try for `WAIT_S` seconds and `tell` once that the program waits.

    Lines for starting brokers and for using them can therefore be pasted at once. Only errors that can pass by
    themselves are waited for, not a wrong login or certificate. No content of a topic is read. Raises Outage if no
    broker answered in that time.
    """
    deadline, waiting = time.monotonic() + WAIT_S, False
    while True:
        try:
            return await _looked(settings)
        except Outage:
            if time.monotonic() >= deadline:
                raise
        if not waiting:
            tell(f"Waiting for Kafka at {settings.bootstrap}, for {WAIT_S:.0f} s at most")
            waiting = True
        await asyncio.sleep(_AGAIN_S)


async def _looked(settings: KafkaSettings) -> None:
    """Return if a broker answers and names a usable broker: a starting broker may name none for a moment."""
    async with administering(settings, "no connection") as admin:
        brokers = (await admin.describe_cluster())["brokers"]
    if not brokers:
        raise Outage(f"Kafka at {settings.bootstrap} has started but names no broker yet")
