"""All checks of a pipeline, one after the other; what cannot be reached hides what lies behind it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from stream_dp.errors import StreamDPError
from stream_dp.kafka.client.reach import reach
from stream_dp.kafka.client.rights import DESCRIBE_CONFIGS, TopicRights, topics_seen
from stream_dp.kafka.client.topics import administering
from stream_dp.kafka.log.append_clock import Difference, append_differences, clock_topic
from stream_dp.operate.doctor import acl, machine, settings_check
from stream_dp.operate.doctor.observation import (
    Level,
    Observation,
    closed,
    denied,
    fine,
    unchecked,
    warning,
)
from stream_dp.operate.run.settings import settings_for
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.file.endpoints import KafkaJournalSpec, KafkaSourceSpec, WallClock
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.pipeline.file.yaml import load

_IN_THE_CLEAR = ("PLAIN", "OAUTHBEARER")
KEPT_TOPICS, QUERIES = ("private.journal", "releases", "answers"), "queries"


async def diagnose_pipeline(
    pipeline: Path, key_file: Path | None, *, write: bool
) -> list[Observation]:
    """Look at everything that a run of this file needs; `write` allows records in the doctor's own topic.

    Raises:
        UsageError, NotDerivable, BudgetRefused: the file is broken; nothing was looked at.
    """
    spec = load(pipeline)
    built = build(spec)
    sealer, found = machine.check_key(spec, key_file)
    found += machine.check_folders(spec)
    begun, answers, partitions = machine.has_journal(spec), True, 0
    if isinstance(spec.source, KafkaSourceSpec):
        cluster = _Cluster(spec, spec.source, pipeline)
        try:
            async for finding in cluster.findings(write=write):
                found.append(finding)
        except StreamDPError as error:
            found.append(denied("cluster", str(error), ""))
        begun, answers = begun or cluster.begun, cluster.answers
        partitions = cluster.partitions
    if sealer is not None and answers:
        owned = await machine.check_owner(built, sealer)
        found += owned
        if begun and all(one.level is Level.OK for one in owned):
            found += await machine.check_records(spec, sealer, pipeline)
        if partitions:
            found += await machine.check_partitions(spec, sealer, partitions)
        found += machine.check_mark(spec, sealer, begun=begun)
    return found


class _Cluster:
    """The checks of a cluster; `begun`: the journal has a topic, `answers`: some broker does.

    `partitions` of the source, 0 where they are not known.
    """

    def __init__(self, spec: PipelineSpec, source: KafkaSourceSpec, file: Path) -> None:
        self._spec = spec
        self._topic = source.topic
        self._file = file
        self._settings = settings_for(source)
        self.begun = False
        self.answers = False
        self.partitions = 0

    async def findings(self, *, write: bool) -> AsyncIterator[Observation]:
        """Look from the outside in."""
        security = self._settings.security
        if security.protocol == "SASL_PLAINTEXT" and security.mechanism in _IN_THE_CLEAR:
            says = "the password or token travels unencrypted: whoever listens may use it"
            yield warning("source.security", says, "protocol: SASL_SSL")
        reached = await reach(self._settings)
        self.answers = any(not at.cause for at in reached)
        bad = warning if self.answers else denied
        for at in reached:
            about = f"broker {at.address}"
            yield bad(about, at.cause, at.mend) if at.cause else fine(about, "answers")
        if not self.answers:
            return
        async with administering(self._settings, "the cluster") as admin:
            async for finding in self._inside(admin):
                yield finding
        yield await self._clock(write=write)

    async def _inside(self, admin: Any) -> AsyncIterator[Observation]:
        name, kafka = self._spec.name, isinstance(self._spec.journal, KafkaJournalSpec)
        names = [f"{name}.{each}" for each in (*KEPT_TOPICS, QUERIES)] if kafka else []
        client = admin._client  # noqa: SLF001 - the admin client asks for no rights
        clocks = [clock_topic(name)] if isinstance(self._spec.clock, WallClock) else []
        looks = await topics_seen(client, [self._topic, *names, *clocks])
        source, own = looks[self._topic], [looks[each] for each in names]
        self.begun = any(look.exists for look in own[:1])
        found = await acl.check_rights(self._settings, admin, name, source, own)
        for clock in [looks[each] for each in clocks]:
            if not kafka:
                found += await acl.check_clock_rights(self._settings, admin, clock)
            if clock.exists and DESCRIBE_CONFIGS in clock.rights:
                found.append(await settings_check.check_clock(self._settings, admin, clock))
        found += await self._source(admin, source)
        brokers = len((await admin.describe_cluster())["brokers"])
        for look in own:
            if look.exists and DESCRIBE_CONFIGS in look.rights:
                found += await self._own(admin, look, brokers)
        node = client.get_random_node()
        found += await settings_check.check_brokers(self._settings, admin, node)
        for finding in found:
            yield finding

    async def _own(self, admin: Any, look: TopicRights, brokers: int) -> list[Observation]:
        if look.name.endswith(f".{QUERIES}"):
            return await settings_check.check_queries(self._settings, admin, look)
        return await settings_check.check_own(self._settings, admin, look, brokers)

    async def _source(self, admin: Any, look: TopicRights) -> list[Observation]:
        about = f"topic {look.name}"
        if look.exists is False:
            make = f"stream-dp topic {look.name} --pipeline {self._file} --partitions N"
            return [denied(about, "does not exist", make)]
        if DESCRIBE_CONFIGS not in look.rights:
            return [unchecked(about, "may not be looked at", "grant the rights named above")]
        (described,) = await admin.describe_topics([look.name])
        self.partitions = len(described["partitions"])
        wall = isinstance(self._spec.clock, WallClock)
        return await settings_check.check_source(self._settings, admin, look, wall=wall)

    async def _clock(self, *, write: bool) -> Observation:
        about, clock = "clocks", self._spec.clock
        if not isinstance(clock, WallClock):
            return fine(about, "do not matter to a replay clock")
        if not write:
            says = "of brokers and this machine were not compared: that takes a record in a topic of the doctor's own"
            return unchecked(about, says, "add --write")
        try:
            found = await append_differences(self._settings, self._spec.name)
        except StreamDPError as error:
            return unchecked(about, str(error), "grant the rights named above")
        return judged(found, clock.delay // 2)


def judged(found: list[Difference], settle_ms: int) -> Observation:
    """A finding on clocks that should agree to within `settle_ms`; a difference counts as far as it is sure."""
    about = "clocks"
    sure = max((max(one.least, -one.most, 0) for one in found), default=0)
    mend = "set the clocks of brokers and this machine by NTP, or declare a longer clock.delay"
    says = f"of brokers and this machine differ by {sure} ms or more; half of clock.delay is {settle_ms} ms"
    if sure > settle_ms:
        return closed(about, says, mend)
    if sure > settle_ms // 2:
        return warning(about, says, mend)
    return fine(about, "of brokers and this machine agree")
