"""The checks of `stream-dp doctor`: the cluster, rights, topics, clocks, and this machine. Nothing is changed.

Rules: each check is a function that returns findings. A check changes nothing, except that `--write` lets it write
records into the doctor's own topic. No finding holds an offset, a lag or a count of records.
"""

import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from stream_dp.broker.jars import state_dir
from stream_dp.engine.history import read_summary
from stream_dp.errors import FailClosed, StreamDPError, UsageError
from stream_dp.files.highwater import HighWater
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.clients import KEPT, KafkaSettings, library
from stream_dp.kafka.client.rights import (
    CREATE,
    DESCRIBE_CONFIGS,
    READ,
    WRITE,
    TopicRights,
    group_rights,
    may_create,
    may_transact,
    reach,
    topics_seen,
)
from stream_dp.kafka.client.topics import (
    PLAIN,
    STAMPED,
    UNCOMPACTED,
    administering,
    config,
    mending,
)
from stream_dp.kafka.log.append_clock import Difference, append_differences, clock_topic
from stream_dp.kafka.log.questions import RULES
from stream_dp.operate.audit.journal_access import partitions_at_first, require_own, sealed_commits
from stream_dp.operate.keys import sealer_for
from stream_dp.operate.observe.operator_figures import FEWEST
from stream_dp.operate.run.settings import settings_for
from stream_dp.operate.run.wiring import open_ports
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_homes import grown
from stream_dp.pipeline.yaml import load
from stream_dp.records.endpoints import (
    KafkaJournalSpec,
    KafkaSourceSpec,
    ReleasesFile,
    SqliteJournalSpec,
    WallClock,
)


class Level(StrEnum):
    """How good the finding is; `UNCHECKED` means that the check could not be made."""

    OK = "ok"
    UNCHECKED = "not checked"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Observation:
    """One finding: its subject, the result, and the command or key that mends it.

    `exit_code` is the doctor's exit code for this finding: 4, 5, or 0 if nothing is wrong.
    """

    level: Level
    about: str
    says: str
    mend: str = ""
    exit_code: int = 0


def fine(about: str, says: str) -> Observation:
    return Observation(Level.OK, about, says)


def unchecked(about: str, says: str, mend: str) -> Observation:
    return Observation(Level.UNCHECKED, about, says, mend)


def warning(about: str, says: str, mend: str) -> Observation:
    """Return a finding of a problem that may stop an engine later."""
    return Observation(Level.WARNING, about, says, mend)


def closed(about: str, says: str, mend: str) -> Observation:
    """Return a finding on which an engine would stop to stay safe."""
    return Observation(Level.WRONG, about, says, mend, 4)


def denied(about: str, says: str, mend: str) -> Observation:
    """Return a finding that the environment refuses: no answer, no login, no right or no space."""
    return Observation(Level.WRONG, about, says, mend, 5)


def exit_code(findings: Sequence[Observation]) -> int:
    """Return the worst exit code: 5 before 4 before 0, because an unreachable part hides the problems behind it."""
    return max((finding.exit_code for finding in findings), default=0)


_LITTLE, _FULL = 1 << 30, 100 << 20


def check_key(spec: PipelineSpec, key_file: Path | None) -> tuple[Sealer | None, list[Observation]]:
    """Return the sealer and a finding on the operator's key; never make a key."""
    about = "operator's key"
    if key_file is None and not os.environ.get("STREAM_DP_KEY_FILE") and spec.public_data:
        return None, [fine(about, "is made at the first run, for public data")]
    try:
        sealer = sealer_for(spec, key_file)
    except UsageError as error:
        return None, [closed(about, "cannot be used", str(error))]
    return sealer, [fine(about, "is there, and no one else may read it")]


async def check_owner(built: Built, sealer: Sealer) -> list[Observation]:
    """Return a finding on whether this file and key began the journal, if there is one."""
    try:
        await require_own(built, sealer, private=True)
    except FailClosed as error:
        return [closed("journal", "does not belong to this file and key", str(error))]
    return [fine("journal", "does not exist yet, or belongs to this file and key")]


async def check_records(spec: PipelineSpec, sealer: Sealer, pipeline: Path) -> list[Observation]:
    """Return a finding on whether more than the declared share of the journal's records is dead or late.

    The finding names no count. Return nothing if there is no journal.
    """
    about = "records"
    try:
        met = await read_summary(sealed_commits(spec), sealer, spec.name)
    except UsageError:
        return []
    except StreamDPError as error:
        return [unchecked(about, str(error), "mend what is named above")]
    every = met.events + met.dead_letters
    if every < FEWEST or met.dead_letters + met.late <= spec.source.warn_dead * every:
        return [fine(about, "could be used, but for a share that `warn_dead` allows")]
    kinds = {"dead letters": met.dead_letters, "late": met.late}
    named = " or ".join(kind for kind, number in kinds.items() if number)
    says = f"more of them than `warn_dead` allows are {named}"
    mend = f"`stream-dp dead-letters {pipeline}` lists them"
    if met.late:
        mend += "; late ones: set the clocks of brokers and this machine by NTP"
    return [warning(about, says, mend)]


async def check_partitions(spec: PipelineSpec, sealer: Sealer, now: int) -> list[Observation]:
    """Return a finding on whether the source has as many partitions as at the first start.

    Return nothing unless users are protected and the first start has happened.
    """
    about = "partitions of the source"
    first = await partitions_at_first(spec, sealer) if spec.privacy.unit == "user" else None
    if first is None:
        return []
    if now == first:
        return [fine(about, "are those of the first start")]
    return [warning(about, grown(first, now), "")]


def check_folders(spec: PipelineSpec) -> list[Observation]:
    """Return findings on the folders into which an engine writes."""
    folders = {state_dir() / "high-water"}
    if isinstance(spec.journal, SqliteJournalSpec):
        folders.add(spec.journal.path.parent)
    if isinstance(spec.releases, ReleasesFile):
        folders.add(spec.releases.path.parent)
    return [_folder(folder.absolute()) for folder in sorted(folders)]


def has_journal(spec: PipelineSpec) -> bool:
    """Return whether the journal is a file that exists."""
    return isinstance(spec.journal, SqliteJournalSpec) and spec.journal.path.exists()


def check_mark(spec: PipelineSpec, sealer: Sealer, *, begun: bool) -> list[Observation]:
    """Return a finding on the high-water mark of a journal that has begun."""
    about, journal = "high-water mark", open_ports(spec, sealer).journal
    if not begun or not isinstance(journal, HighWater):
        return []
    if journal.path.exists():
        return [fine(about, "is there, so a journal that vanishes would be noticed here")]
    says = "is missing on this machine: a lost or older journal would not be noticed here"
    return [warning(about, says, f"copy {journal.path} from where the engine ran, or run it here")]


def _folder(folder: Path) -> Observation:
    about = f"folder {folder}"
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return denied(about, "may not be written", f"make {there} writable for this user")
    free = shutil.disk_usage(there).free
    if free < _FULL:
        return denied(about, "has less than 100 MiB free", "free some space there")
    if free < _LITTLE:
        return warning(about, "has less than 1 GiB free", "free some space there")
    return fine(about, "may be written, and has space")


SOURCE_RIGHTS = (READ, DESCRIBE_CONFIGS)
OWN_RIGHTS = (READ, WRITE, CREATE, DESCRIBE_CONFIGS)
CLOCK_RIGHTS = (WRITE, CREATE, DESCRIBE_CONFIGS)
NEEDED: Mapping[str, tuple[str, ...]] = {
    "--topic {topic}": SOURCE_RIGHTS,
    "--topic {name}. --resource-pattern-type prefixed": OWN_RIGHTS,
    "--transactional-id {name}. --resource-pattern-type prefixed": (WRITE,),
    "--group {name}. --resource-pattern-type prefixed": (READ,),
}
"""The rights of an engine of pipeline NAME that reads TOPIC, by resource as `kafka-acls.sh` names it: the only list.

The page in docs/ shows it, and a test runs an engine with exactly these rights. With a journal in a file an engine
needs only the first, and on a wall clock `CLOCK_RIGHTS` on NAME.private.clock.
"""
_HOUR_MS, _DAY_MIN = 3_600_000, 24 * 60
_SHORT_MS = 72 * _HOUR_MS
_SHORT_MIN = 30 * _DAY_MIN
_LARGE = 16 * 1024 * 1024
_IN_THE_CLEAR = ("PLAIN", "OAUTHBEARER")
KEPT_TOPICS, QUERIES = ("private.journal", "releases", "answers"), "queries"


async def diagnose_pipeline(
    pipeline: Path, key_file: Path | None, *, write: bool
) -> list[Observation]:
    """Check everything that a run of this file needs; `write` allows records in the doctor's own topic.

    An unreachable part hides the problems behind it. The order is: this machine; the cluster's addresses, the user's
    rights, topics, broker settings that could lose or alter records or that do not survive a long absence, and
    clocks; last the journal itself.

    Raises:
        UsageError, NotDerivable, BudgetRefused: the pipeline file is invalid; no check was made.
    """
    spec = load(pipeline)
    built = build(spec)
    sealer, found = check_key(spec, key_file)
    found += check_folders(spec)
    begun, answers, partitions = has_journal(spec), True, 0
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
        owned = await check_owner(built, sealer)
        found += owned
        if begun and all(one.level is Level.OK for one in owned):
            found += await check_records(spec, sealer, pipeline)
        if partitions:
            found += await check_partitions(spec, sealer, partitions)
        found += check_mark(spec, sealer, begun=begun)
    return found


class _Cluster:
    """The checks of a cluster. `begun`: the journal has a topic. `answers`: some broker answers.

    `partitions` is the number of the source's partitions, 0 if unknown.
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
        """Check addresses first, then the cluster behind them, then clocks."""
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
        found = await check_rights(self._settings, admin, name, source, own)
        for clock in [looks[each] for each in clocks]:
            if not kafka:
                found += await check_clock_rights(self._settings, admin, clock)
            if clock.exists and DESCRIBE_CONFIGS in clock.rights:
                found.append(await check_clock(self._settings, admin, clock))
        found += await self._source(admin, source)
        brokers = len((await admin.describe_cluster())["brokers"])
        for look in own:
            if look.exists and DESCRIBE_CONFIGS in look.rights:
                found += await self._own(admin, look, brokers)
        node = client.get_random_node()
        found += await check_brokers(self._settings, admin, node)
        for finding in found:
            yield finding

    async def _own(self, admin: Any, look: TopicRights, brokers: int) -> list[Observation]:
        if look.name.endswith(f".{QUERIES}"):
            return await check_queries(self._settings, admin, look)
        return await check_own(self._settings, admin, look, brokers)

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
        return await check_source(self._settings, admin, look, wall=wall)

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
    """Return a finding on clocks that should agree within `settle_ms`; only certain differences count."""
    about = "clocks"
    sure = max((max(one.least, -one.most, 0) for one in found), default=0)
    mend = "set the clocks of brokers and this machine by NTP, or declare a longer clock.delay"
    says = f"of brokers and this machine differ by {sure} ms or more; half of clock.delay is {settle_ms} ms"
    if sure > settle_ms:
        return closed(about, says, mend)
    if sure > settle_ms // 2:
        return warning(about, says, mend)
    return fine(about, "of brokers and this machine agree")


async def check_source(
    settings: KafkaSettings, admin: Any, look: TopicRights, *, wall: bool
) -> list[Observation]:
    about, found = f"topic {look.name}", await config(admin, look.name)

    def mend(wanted: Mapping[str, str]) -> str:
        return mending(settings, look.name, wanted)

    findings = []
    if "compact" in found.get("cleanup.policy", ""):
        findings.append(
            closed(about, "is compacted: an event removes older ones", mend(UNCOMPACTED))
        )
    if wall and any(found.get(key) != value for key, value in STAMPED.items()):
        findings.append(
            closed(
                about, "does not stamp records on arrival: a wall clock needs that", mend(STAMPED)
            )
        )
    if found.get("compression.type") != PLAIN["compression.type"]:
        says = "stores batches as their senders packed them; one that nobody can unpack becomes dead letters"
        findings.append(warning(about, says, mend(PLAIN)))
    kept = int(found.get("retention.ms", -1))
    if 0 <= kept < _SHORT_MS:
        says = f"keeps records for {kept / _HOUR_MS:.3g} h: an engine that is off for longer cannot go on"
        findings.append(warning(about, says, mend({"retention.ms": str(7 * 24 * _HOUR_MS)})))
    if int(found.get("retention.bytes", -1)) >= 0:
        says = "deletes records by size: a burst may delete what was not read yet"
        findings.append(warning(about, says, mend({"retention.bytes": "-1"})))
    if int(found.get("max.message.bytes", 0)) > _LARGE:
        says = "takes batches of more than 16 MiB: they delay ticks"
        findings.append(warning(about, says, mend({"max.message.bytes": str(_LARGE)})))
    return findings or [fine(about, "is kept and stamped as the pipeline needs it")]


async def check_own(
    settings: KafkaSettings, admin: Any, look: TopicRights, brokers: int
) -> list[Observation]:
    """Return findings on one of the pipeline's own topics, which exists."""
    about, found = f"topic {look.name}", await config(admin, look.name)
    wrong = {key: value for key, value in KEPT.items() if found.get(key) != value}
    findings = []
    if wrong:
        says = "could lose or alter what it holds; if it is still whole"
        findings.append(closed(about, says, mending(settings, look.name, wrong)))
    if look.partitions != 1:
        findings.append(closed(about, "must have one partition only", "use another pipeline name"))
    if look.copies == 1:
        says = "has one copy only: a power cut could lose commits"
        how = "replication 3 by kafka-reassign-partitions.sh"
        findings.append(warning(about, says, how if brokers > 1 else f"three brokers, then {how}"))
    elif int(found.get("min.insync.replicas", 1)) < 2:
        says = "takes a commit with one copy in sync: the loss of a broker could lose commits"
        findings.append(
            warning(about, says, mending(settings, look.name, {"min.insync.replicas": "2"}))
        )
    return findings or [fine(about, "keeps all it holds, in several copies")]


async def check_clock(settings: KafkaSettings, admin: Any, look: TopicRights) -> Observation:
    """Return a finding on the topic whose stamps show the brokers' clocks; the topic exists."""
    about, found = f"topic {look.name}", await config(admin, look.name)
    if any(found.get(key) != value for key, value in STAMPED.items()):
        says = "does not stamp on arrival, so brokers cannot tell their clocks"
        return closed(about, says, mending(settings, look.name, STAMPED))
    brokers = len((await admin.describe_cluster())["brokers"])
    if look.partitions < brokers:
        says = "has fewer partitions than there are brokers: the clocks of some are never looked at"
        mend = f"kafka-topics.sh --alter --topic {look.name} --partitions {brokers}"
        return warning(about, says, f"{mend} --bootstrap-server {settings.bootstrap}")
    return fine(about, "stamps on arrival, with a partition for each broker")


async def check_queries(
    settings: KafkaSettings, admin: Any, look: TopicRights
) -> list[Observation]:
    """Return findings on the topic of analysts' messages, if it exists; unlike commits, messages may be deleted."""
    about, found = f"topic {look.name}", await config(admin, look.name)
    wrong = {key: value for key, value in RULES.items() if found.get(key) != value}
    findings = []
    if wrong:
        says = "must stamp messages on arrival, and let none remove another"
        findings.append(closed(about, says, mending(settings, look.name, wrong)))
    if look.partitions != 1:
        findings.append(closed(about, "must have one partition only", "use another pipeline name"))
    if found.get("compression.type") != PLAIN["compression.type"]:
        says = "stores batches as their senders packed them; messages in one that nobody can unpack are refused"
        findings.append(warning(about, says, mending(settings, look.name, PLAIN)))
    return findings or [fine(about, "stamps messages on arrival, in one order")]


async def check_brokers(settings: KafkaSettings, admin: Any, node: int) -> list[Observation]:
    """Return findings on the brokers' own settings, read from one broker."""
    kinds, about = library(".admin.config_resource"), "brokers"
    resource = kinds.ConfigResource(kinds.ConfigResourceType.BROKER, str(node))
    (answer,) = await admin.describe_configs([resource])
    ((code, _, _, _, entries),) = answer.resources
    if code:
        says = "their settings may not be looked at by this user"
        return [unchecked(about, says, "grant DescribeConfigs on --cluster, or ask who runs them")]
    found = {entry[0]: entry[1] for entry in entries}
    findings = []
    kept = int(found.get("offsets.retention.minutes", _SHORT_MIN))
    if kept < _SHORT_MIN:
        says = f"forget where a group stands after {kept / _DAY_MIN:.3g} days: an engine should not be off for longer"
        findings.append(
            warning(about, says, f"offsets.retention.minutes={_SHORT_MIN} at every broker")
        )
    if int(found.get("transaction.max.timeout.ms", 900_000)) < settings.transaction_timeout_ms:
        wanted = f"transaction.max.timeout.ms={settings.transaction_timeout_ms} at every broker"
        findings.append(closed(about, "do not allow transactions as long as an engine's", wanted))
    return findings or [fine(about, "keep offsets and allow transactions for long enough")]


def grant_command(settings: KafkaSettings, resource: str, rights: Sequence[str]) -> str:
    user = settings.security.username or "NAME-OF-THIS-USER"
    operations = " ".join(f"--operation {right}" for right in rights)
    return (
        f"kafka-acls.sh --bootstrap-server {settings.bootstrap} --command-config ADMIN.properties --add "
        f"--allow-principal 'User:{user}' {operations} {resource}"
    )


async def check_rights(
    settings: KafkaSettings, admin: Any, name: str, source: TopicRights, own: Sequence[TopicRights]
) -> list[Observation]:
    """Return a finding for each resource on which this user lacks rights, or one finding that all rights are there.

    `own` are the pipeline's own topics; if empty, only the rights on the source are checked.
    """
    held = [source.rights]
    if own:
        held += await _own_rights(admin, name, own)
    found = []
    for (resource, wanted), there in zip(NEEDED.items(), held, strict=False):
        missing = [right for right in wanted if right not in there]
        if missing:
            told = resource.format(name=name, topic=source.name)
            says = f"this user lacks {', '.join(missing)} on {told}"
            found.append(denied("rights", says, grant_command(settings, told, missing)))
    return found or [fine("rights", "this user has all rights that an engine needs")]


async def check_clock_rights(
    settings: KafkaSettings, admin: Any, clock: TopicRights
) -> list[Observation]:
    """Return findings on the topic of brokers' clocks, which is the only own topic if the journal is a file."""
    rights = clock.rights
    if CREATE not in rights and (clock.exists or await may_create(admin, clock.name)):
        rights |= {CREATE}
    missing = [right for right in CLOCK_RIGHTS if right not in rights]
    if not missing:
        return []
    resource = f"--topic {clock.name}"
    says = f"this user lacks {', '.join(missing)} on {resource}"
    return [denied("rights", says, grant_command(settings, resource, missing))]


async def _own_rights(admin: Any, name: str, own: Sequence[TopicRights]) -> list[frozenset[str]]:
    """Return this user's rights on the pipeline's topics, on its transactional id and on its group."""
    client = admin._client  # noqa: SLF001 - the admin client hands out no coordinator
    topics = frozenset.intersection(*(look.rights for look in own))
    if CREATE not in topics and await may_create(admin, own[0].name):  # granted on the cluster
        topics |= {CREATE}
    group = f"{name}.engine"
    transact = await may_transact(client, f"{name}.shard-0", group)
    return [topics, frozenset([WRITE] if transact else []), await group_rights(client, group)]
