"""The checks of `stream-dp doctor`: the cluster, rights, topics, clocks, and this machine.

Rules: a check changes nothing, except that `--write` lets it write records into the doctor's own topic. No finding
holds an offset, a lag or a count of records.
"""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from stream_dp.broker.jars import state_dir
from stream_dp.engine.history import read_summary
from stream_dp.errors import FailClosed, Outage, StreamDPError, UsageError, WorldError
from stream_dp.files.highwater import HighWater
from stream_dp.journal.keys import KEY_BYTES, Sealer
from stream_dp.kafka.client.clients import KEPT, KafkaSettings, library
from stream_dp.kafka.client.rights import (
    CREATE,
    DELETE,
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
from stream_dp.kafka.log.public import QUERY_RULES
from stream_dp.operate.audit.journal_access import (
    GoingOn,
    built_of,
    check_pages,
    first_sealed,
    partitions_at_first,
    require_own,
    sealed_commits,
)
from stream_dp.operate.keys import KEY_VARIABLE, sealer_for, wrapped_key
from stream_dp.operate.observe.operator_figures import FEWEST
from stream_dp.operate.run.settings import settings_for, source_there
from stream_dp.operate.run.wiring import open_ports
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_homes import grown
from stream_dp.pipeline.yaml import load
from stream_dp.records.endpoints import (
    KafkaJournalSpec,
    KafkaSourceSpec,
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


Kind = Callable[[str, str, str], Observation]

fine = partial(Observation, Level.OK)
unchecked = partial(Observation, Level.UNCHECKED)
warning: Kind = partial(Observation, Level.WARNING)  # it may stop an engine later
closed: Kind = partial(Observation, Level.WRONG, exit_code=4)  # an engine stops to stay safe
denied: Kind = partial(Observation, Level.WRONG, exit_code=5)  # no answer, login, right or space


def exit_code(findings: Sequence[Observation]) -> int:
    """Return the worst exit code: 5 before 4 before 0, because an unreachable part hides the problems behind it."""
    return max((finding.exit_code for finding in findings), default=0)


_LITTLE, _FULL = 1 << 30, 100 << 20


def check_key(spec: PipelineSpec, key_file: Path | None) -> tuple[Sealer | None, Observation]:
    """Return the sealer and a finding on the operator's key; never make a key."""
    about = "operator's key"
    try:
        path, wrapped = wrapped_key(spec)
        named = key_file or wrapped or os.environ.get(KEY_VARIABLE)
        if not named and spec.public_data:
            return None, fine(about, "will be made at the first run, because the data are public")
        sealer = sealer_for(spec, key_file)
    except StreamDPError as error:
        kind = denied if isinstance(error, WorldError) else closed
        return None, kind(about, "cannot be used", str(error))
    private = "exists, and nobody else can read it"
    return sealer, fine(about, f"opens the wrapped key {path}" if wrapped else private)


async def check_owner(going_on: GoingOn, sealer: Sealer) -> Observation:
    """Return whether the journal goes on with this file and key; where there is none, whether there was one."""
    built = going_on.built
    try:
        none = await require_own(built, sealer, private=True)
        going_on.require()
        lost = none and _has_run(built.spec, sealer)
    except FailClosed as error:
        return closed("journal", "does not belong to this file and key", str(error))
    except Outage as error:
        return denied("journal", "cannot be read now", str(error))
    if not none:
        return fine("journal", "belongs to this file and key")
    if lost:
        mend = "restore the journal; an engine does not start without it"
        return closed("journal", "is missing, although this pipeline has run before", mend)
    return fine("journal", "does not exist yet: the first start creates it")


async def opens(spec: PipelineSpec, sealer: Callable[[], Sealer]) -> bool:
    """Return whether there is a journal, after opening it with this key.

    Raises FailClosed if it has another key, or is missing; WorldError if no broker answers.
    """
    if not isinstance(spec.journal, SqliteJournalSpec):
        await source_there(spec, lambda line: None)
    try:
        begin, sealed = await first_sealed(await sealed_commits(spec))
    except UsageError:
        try:
            given = sealer()
        except UsageError:
            given = Sealer(bytes(KEY_BYTES), spec.name)  # the mark's place depends on no key
        if _has_run(spec, given):
            says = "is missing, although this pipeline has run before: restore it"
            raise FailClosed(f"the journal of {spec.name} {says}") from None
        return False
    if sealed is not None:
        sealer().open(begin, sealed)
    return True


def _has_run(spec: PipelineSpec, sealer: Sealer) -> bool:
    """Return whether this machine has seen the pipeline run."""
    marked = open_ports(spec, sealer).journal
    return isinstance(marked, HighWater) and marked.has_run


async def check_records(spec: PipelineSpec, sealer: Sealer, pipeline: Path) -> list[Observation]:
    """Return whether more than the declared share of the journal's records is dead or late; nothing without a journal.

    The finding names no count.
    """
    about = "records"
    try:
        here = await sealed_commits(spec)
        total = await read_summary(here.commits, sealer, spec.name, begin=here.begin)
    except UsageError:
        return []
    except FailClosed as error:
        return [closed("journal", "is not whole", str(error))]
    except StreamDPError as error:
        return [unchecked(about, str(error), "fix the problem that is named above")]
    late = total.totals.late
    records = total.totals.records + total.dead_letters
    if records < FEWEST or total.dead_letters + late <= spec.source.warn_dead * records:
        return [fine(about, "could be used, apart from a share that `warn_dead` allows")]
    kinds = {"dead letters": total.dead_letters, "late": late}
    named = " or ".join(kind for kind, number in kinds.items() if number)
    mend = f"`stream-dp dead-letters {pipeline}` lists these records"
    if late:
        mend += "; if records are late, set the clocks of brokers and this machine by NTP"
    return [warning(about, f"more of them than `warn_dead` allows are {named}", mend)]


def check_journal(spec: PipelineSpec) -> Observation:
    """Return whether every page of the journal's file can be read; a start reads only the last ones."""
    try:
        check_pages(spec)
    except FailClosed as error:
        return closed("journal", "has damaged pages", str(error))
    return fine("journal", "can be read completely")


async def check_partitions(spec: PipelineSpec, sealer: Sealer, now: int) -> list[Observation]:
    """Return whether the source has as many partitions as at the first start; nothing unless users are protected."""
    about = "partitions of the source"
    first = await partitions_at_first(spec, sealer) if spec.privacy.unit == "user" else None
    if first is None:
        return []
    if now == first:
        return [fine(about, "are the same as at the first start")]
    return [warning(about, grown(first, now), "")]


def check_folders(spec: PipelineSpec) -> list[Observation]:
    """Return findings on the folders into which an engine writes."""
    folders = {state_dir() / "high-water"}
    if isinstance(spec.journal, SqliteJournalSpec):
        folders.add(spec.journal.path.parent)
    if spec.releases_path is not None:
        folders.add(spec.releases_path.parent)
    return [_folder(folder.absolute()) for folder in sorted(folders)]


def _folder(folder: Path) -> Observation:
    about = f"folder {folder}"
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return denied(about, "may not be written", f"make {there} writable for this user")
    free = shutil.disk_usage(there).free
    if free < _FULL:
        return denied(about, "has less than 100 MiB free", "free some space there")
    if free < _LITTLE:
        return warning(about, "has less than 1 GiB free", "free some space there")
    return fine(about, "can be written, and has free space")


def check_mark(spec: PipelineSpec, sealer: Sealer) -> list[Observation]:
    """Return a finding on the high-water mark of a journal that has begun."""
    about, journal = "high-water mark", open_ports(spec, sealer).journal
    if not isinstance(journal, HighWater):
        return []
    if journal.path.exists():
        return [fine(about, "exists, so the loss of the journal would be noticed on this machine")]
    says = "is missing, so a lost or older journal would not be noticed on this machine"
    return [warning(about, says, f"copy {journal.path} from where the engine ran, or run it here")]


CLOCK_RIGHTS = (WRITE, CREATE, DESCRIBE_CONFIGS)
NEEDED: Mapping[str, tuple[str, ...]] = {
    "--topic {topic}": (READ, DESCRIBE_CONFIGS),
    "--topic {name}. --resource-pattern-type prefixed": (READ, WRITE, CREATE, DESCRIBE_CONFIGS),
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
_JOURNAL, _QUERIES, _ROWS = "private.journal", "queries", "private.rows"
_OWN_TOPICS = (_JOURNAL, "releases", "answers", _QUERIES)


async def diagnose_pipeline(
    pipeline: Path, key_file: Path | None, *, write: bool
) -> list[Observation]:
    """Check everything that a run of this file needs; `write` allows records in the doctor's own topic.

    An unreachable part hides the problems behind it. The order is: this machine; the cluster's addresses, the user's
    rights, topics, broker settings that could lose or alter records or that do not survive a long absence, and
    clocks; last the journal itself. An invalid pipeline file raises: then no check was made.
    """
    spec = load(pipeline)
    sealer, key = check_key(spec, key_file)
    try:
        going_on = await built_of(spec, sealer, sure=True)
    except Outage:  # what does not answer is found below
        going_on = await built_of(spec, None)
    findings = [
        key,
        *check_folders(spec),
        fine("decoding", f"is done {Router(spec, 0).decoder.says}"),
    ]
    begun = isinstance(spec.journal, SqliteJournalSpec) and spec.journal.path.exists()
    if begun:
        findings.append(check_journal(spec))
    answers, partitions = True, 0
    if isinstance(spec.source, KafkaSourceSpec):
        cluster = _Cluster(spec, spec.source, pipeline)
        try:
            await cluster.check(write=write)
        except StreamDPError as error:
            cluster.findings.append(denied("cluster", str(error), ""))
        findings += cluster.findings
        begun = begun or cluster.begun
        answers, partitions = cluster.answers, cluster.partitions
    if sealer is not None and answers:
        findings.append(owner := await check_owner(going_on, sealer))
        if begun and owner.level is Level.OK:
            findings += await check_records(spec, sealer, pipeline)
        if partitions:
            findings += await check_partitions(spec, sealer, partitions)
        if begun:
            findings += check_mark(spec, sealer)
    return findings


class _Cluster:
    """The checks of a cluster, with their `findings`.

    `begun`: the journal has a topic. `answers`: some broker answers. `partitions` is the number of the source's
    partitions, 0 if unknown.
    """

    def __init__(self, spec: PipelineSpec, source: KafkaSourceSpec, file: Path) -> None:
        self._spec, self._topic, self._file = spec, source.topic, file
        self._settings = settings_for(source)
        self.findings: list[Observation] = []
        self.begun = self.answers = False
        self.partitions = 0

    async def check(self, *, write: bool) -> None:
        """Check addresses first, then the cluster behind them, then clocks."""
        security = self._settings.security
        if security.protocol == "SASL_PLAINTEXT" and security.mechanism in _IN_THE_CLEAR:
            says = "the password or token travels unencrypted: anybody who reads the network traffic can use it"
            self.findings.append(warning("source.security", says, "protocol: SASL_SSL"))
        addresses = await reach(self._settings)
        self.answers = any(not at.cause for at in addresses)
        bad = warning if self.answers else denied
        for at in addresses:
            about = f"broker {at.address}"
            self.findings.append(
                bad(about, at.cause, at.mend) if at.cause else fine(about, "answers")
            )
        if self.answers:
            async with administering(self._settings, "the cluster") as admin:
                self.findings += await self._inside(admin)
            self.findings.append(await self._clocks(write=write))

    async def _inside(self, admin: Any) -> list[Observation]:
        spec, settings = self._spec, self._settings
        in_kafka = isinstance(spec.journal, KafkaJournalSpec)
        workers = spec.source.workers if isinstance(spec.source, KafkaSourceSpec) else None
        lanes = {f"{spec.name}.{_ROWS}": workers.lanes} if workers is not None else {}
        topics = (*_OWN_TOPICS, "private.layout") if lanes else _OWN_TOPICS
        names = [*(f"{spec.name}.{topic}" for topic in topics), *lanes] if in_kafka else []
        clocks = [clock_topic(spec.name)] if isinstance(spec.clock, WallClock) else []
        client = admin._client  # noqa: SLF001 - the admin client asks for no rights
        seen = await topics_seen(client, [self._topic, *names, *clocks])
        brokers = len((await admin.describe_cluster())["brokers"])
        own = [seen[name] for name in names]
        self.begun = any(topic.exists for topic in own[:1])
        findings = await check_rights(settings, admin, spec.name, seen[self._topic], own)
        deletes = [own[0]] if self.begun and spec.journal.keep is not None else []
        for pruned in deletes + [topic for topic in own[len(_OWN_TOPICS) :] if topic.exists]:
            findings += _lacking(settings, (DELETE,), pruned.rights, f"--topic {pruned.name}")
        for clock in [seen[name] for name in clocks]:
            if not in_kafka:
                findings += await check_clock_rights(settings, admin, clock)
            if clock.exists and DESCRIBE_CONFIGS in clock.rights:
                findings += check_clock(await _Topic.of(settings, admin, clock), brokers)
        findings += await self._source(admin, seen[self._topic])
        if self.partitions and workers is not None and workers.lanes > self.partitions:
            says = f"{workers.lanes} lanes are more than the partitions of topic {self._topic}"
            findings.append(
                closed("source.workers.lanes", says, "declare at most one lane for each partition")
            )
        for looked in own:
            if looked.exists and DESCRIBE_CONFIGS in looked.rights:
                topic = await _Topic.of(settings, admin, looked)
                queries = looked.name.endswith(f".{_QUERIES}")
                findings += (
                    check_queries(topic)
                    if queries
                    else check_own(topic, brokers, lanes.get(looked.name, 1))
                )
        return findings + await check_brokers(settings, admin, client.get_random_node())

    async def _source(self, admin: Any, seen: TopicRights) -> list[Observation]:
        about = f"topic {seen.name}"
        if seen.exists is False:
            make = f"stream-dp topic {seen.name} --pipeline {self._file} --partitions N"
            return [denied(about, "does not exist", make)]
        if DESCRIBE_CONFIGS not in seen.rights:
            return [
                unchecked(
                    about,
                    "this user has no right to read its settings",
                    "grant the rights named above",
                )
            ]
        (described,) = await admin.describe_topics([seen.name])
        self.partitions = len(described["partitions"])
        wall = isinstance(self._spec.clock, WallClock)
        return check_source(await _Topic.of(self._settings, admin, seen), wall=wall)

    async def _clocks(self, *, write: bool) -> Observation:
        about, clock = "clocks", self._spec.clock
        if not isinstance(clock, WallClock):
            return fine(about, "do not matter to a replay clock")
        if not write:
            says = "of brokers and this machine were not compared, because a comparison writes records to a topic"
            return unchecked(about, says, "add --write")
        try:
            differences = await append_differences(self._settings, self._spec.name)
        except StreamDPError as error:
            return unchecked(about, str(error), "grant the rights named above")
        return judged(differences, clock.delay // 2)


def judged(differences: list[Difference], settle_ms: int) -> Observation:
    """Return a finding on clocks that should agree within `settle_ms`; only certain differences count."""
    about = "clocks"
    sure = max((max(clock.least, -clock.most, 0) for clock in differences), default=0)
    mend = "set the clocks of brokers and this machine by NTP, or declare a longer clock.delay"
    says = f"of brokers and this machine differ by {sure} ms or more; half of clock.delay is {settle_ms} ms"
    if sure > settle_ms:
        return closed(about, says, mend)
    if sure > settle_ms // 2:
        return warning(about, says, mend)
    return fine(about, "of brokers and this machine agree")


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic that exists: as this user sees it, and its configuration."""

    settings: KafkaSettings
    seen: TopicRights
    config: Mapping[str, str]

    @classmethod
    async def of(cls, settings: KafkaSettings, admin: Any, seen: TopicRights) -> "_Topic":
        return cls(settings, seen, await config(admin, seen.name))

    @property
    def about(self) -> str:
        return f"topic {self.seen.name}"

    def number(self, key: str, default: int) -> int:
        return int(self.config.get(key, default))

    def otherwise(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """Return the wanted settings that the topic does not have."""
        return {key: value for key, value in wanted.items() if self.config.get(key) != value}

    def finding(self, kind: Kind, says: str, wanted: Mapping[str, str]) -> Observation:
        """Return a finding that these settings mend."""
        return kind(self.about, says, mending(self.settings, self.seen.name, wanted))

    def ruled(self, rules: Mapping[str, str], says: str, partitions: int = 1) -> list[Observation]:
        """Return where a topic of the pipeline's own breaks its rules, or has not so many partitions."""
        wrong = self.otherwise(rules)
        findings = [self.finding(closed, says, wrong)] if wrong else []
        if self.seen.partitions != partitions:
            says, mend = "must have one partition only", "use another pipeline name"
            if self.seen.name.endswith(_ROWS):
                says = f"has {self.seen.partitions} partitions; source.workers.lanes: {partitions}"
                mend = (
                    "declare the topic's number of partitions: a pipeline cannot change this number"
                )
            findings.append(closed(self.about, says, mend))
        return findings

    def packed(self, harm: str) -> list[Observation]:
        if not self.otherwise(PLAIN):
            return []
        says = f"stores batches compressed as their senders sent them; {harm}"
        return [self.finding(warning, says, PLAIN)]


def check_source(topic: _Topic, *, wall: bool) -> list[Observation]:
    findings = []
    if "compact" in topic.config.get("cleanup.policy", ""):
        says = "is compacted: a new event may remove an older event"
        findings.append(topic.finding(closed, says, UNCOMPACTED))
    if wall and topic.otherwise(STAMPED):
        says = "does not stamp records on arrival, which a wall clock needs"
        findings.append(topic.finding(closed, says, STAMPED))
    findings += topic.packed("records of a batch that cannot be decompressed become dead letters")
    kept = topic.number("retention.ms", -1)
    if 0 <= kept < _SHORT_MS:
        says = f"keeps records for {kept / _HOUR_MS:.3g} h: an engine that was stopped for longer cannot continue"
        findings.append(topic.finding(warning, says, {"retention.ms": str(7 * 24 * _HOUR_MS)}))
    if topic.number("retention.bytes", -1) >= 0:
        says = "deletes records by size, so a burst may delete records that were not read yet"
        findings.append(topic.finding(warning, says, {"retention.bytes": "-1"}))
    if topic.number("max.message.bytes", 0) > _LARGE:
        says = "accepts batches of more than 16 MiB, which delay ticks"
        findings.append(topic.finding(warning, says, {"max.message.bytes": str(_LARGE)}))
    return findings or [fine(topic.about, "keeps and stamps its records as the pipeline needs")]


def check_own(topic: _Topic, brokers: int, partitions: int = 1) -> list[Observation]:
    harm = "could lose or alter its records; if it is still complete"
    findings = topic.ruled(KEPT, harm, partitions)
    if topic.seen.copies == 1:
        says = "has only one copy: a power cut could lose commits"
        how = "replication 3 by kafka-reassign-partitions.sh"
        mend = how if brokers > 1 else f"three brokers, then {how}"
        findings.append(warning(topic.about, says, mend))
    elif topic.number("min.insync.replicas", 1) < 2:
        says = "accepts a commit with one copy in sync: if a broker fails, commits could be lost"
        findings.append(topic.finding(warning, says, {"min.insync.replicas": "2"}))
    return findings or [fine(topic.about, "keeps all its records, in several copies")]


def check_queries(topic: _Topic) -> list[Observation]:
    """Return findings on the topic of analysts' messages; unlike commits, messages may be deleted."""
    findings = topic.ruled(QUERY_RULES, "must stamp messages on arrival, and must not be compacted")
    findings += topic.packed("messages of a batch that cannot be decompressed are refused")
    return findings or [fine(topic.about, "stamps messages on arrival, in one order")]


def check_clock(topic: _Topic, brokers: int) -> list[Observation]:
    """Return findings on the topic whose stamps show the brokers' clocks."""
    if topic.otherwise(STAMPED):
        says = "does not stamp records on arrival, so the brokers' clocks cannot be compared"
        return [topic.finding(closed, says, STAMPED)]
    if topic.seen.partitions < brokers:
        says = "has fewer partitions than there are brokers: the clocks of some brokers are never compared"
        mend = f"kafka-topics.sh --alter --topic {topic.seen.name} --partitions {brokers}"
        where = f"--bootstrap-server {topic.settings.bootstrap}"
        return [warning(topic.about, says, f"{mend} {where}")]
    return [fine(topic.about, "stamps records on arrival, and has a partition for each broker")]


async def check_brokers(settings: KafkaSettings, admin: Any, node: int) -> list[Observation]:
    """Return findings on the brokers' own settings, read from one broker."""
    kinds, about = library(".admin.config_resource"), "brokers"
    resource = kinds.ConfigResource(kinds.ConfigResourceType.BROKER, str(node))
    (answer,) = await admin.describe_configs([resource])
    ((code, _, _, _, entries),) = answer.resources
    if code:
        says = "this user has no right to read the brokers' settings"
        return [
            unchecked(
                about,
                says,
                "grant DescribeConfigs on --cluster, or ask the administrator of the brokers",
            )
        ]
    values = {entry[0]: entry[1] for entry in entries}
    findings = []
    kept = int(values.get("offsets.retention.minutes", _SHORT_MIN))
    if kept < _SHORT_MIN:
        says = f"forget the offsets of a group after {kept / _DAY_MIN:.3g} days: do not stop an engine for longer"
        mend = f"offsets.retention.minutes={_SHORT_MIN} at every broker"
        findings.append(warning(about, says, mend))
    if int(values.get("transaction.max.timeout.ms", 900_000)) < settings.transaction_timeout_ms:
        mend = f"transaction.max.timeout.ms={settings.transaction_timeout_ms} at every broker"
        findings.append(
            closed(about, "limit transactions to a shorter time than an engine needs", mend)
        )
    return findings or [fine(about, "keep offsets and allow transactions for long enough")]


async def check_rights(
    settings: KafkaSettings, admin: Any, name: str, source: TopicRights, own: Sequence[TopicRights]
) -> list[Observation]:
    """Return a finding for each resource on which this user lacks rights, or one finding that all rights are there.

    `own` are the pipeline's own topics; if empty, only the rights on the source are checked.
    """
    held = [source.rights, *(await _own_rights(admin, name, own) if own else ())]
    findings: list[Observation] = []
    for (resource, wanted), rights in zip(NEEDED.items(), held, strict=False):
        findings += _lacking(
            settings, wanted, rights, resource.format(name=name, topic=source.name)
        )
    return findings or [fine("rights", "this user has all rights that an engine needs")]


async def check_clock_rights(
    settings: KafkaSettings, admin: Any, clock: TopicRights
) -> list[Observation]:
    """Return findings on the topic of brokers' clocks, which is the only own topic if the journal is a file."""
    rights = clock.rights
    if CREATE not in rights and (clock.exists or await may_create(admin, clock.name)):
        rights |= {CREATE}
    return _lacking(settings, CLOCK_RIGHTS, rights, f"--topic {clock.name}")


def _lacking(
    settings: KafkaSettings, wanted: Sequence[str], held: frozenset[str], resource: str
) -> list[Observation]:
    """Return a finding, with the command that grants the missing rights, if there are any."""
    missing = [right for right in wanted if right not in held]
    if not missing:
        return []
    user = settings.security.username or "NAME-OF-THIS-USER"
    operations = " ".join(f"--operation {right}" for right in missing)
    grant = (
        f"kafka-acls.sh --bootstrap-server {settings.bootstrap} --command-config ADMIN.properties --add "
        f"--allow-principal 'User:{user}' {operations} {resource}"
    )
    return [denied("rights", f"this user lacks {', '.join(missing)} on {resource}", grant)]


async def _own_rights(admin: Any, name: str, own: Sequence[TopicRights]) -> list[frozenset[str]]:
    """Return this user's rights on the pipeline's topics, on its transactional id and on its group."""
    client = admin._client  # noqa: SLF001 - the admin client hands out no coordinator
    topics = frozenset.intersection(*(topic.rights for topic in own))
    if CREATE not in topics and await may_create(admin, own[0].name):  # granted on the cluster
        topics |= {CREATE}
    group = f"{name}.engine"
    transact = await may_transact(client, f"{name}.shard-0", group)
    return [topics, frozenset([WRITE] if transact else []), await group_rights(client, group)]
