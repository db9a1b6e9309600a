"""The settings of topics and brokers: what would lose or alter records, and what would end a long absence badly."""

from collections.abc import Mapping
from typing import Any

from stream_dp.kafka.client.clients import KEPT, KafkaSettings, library
from stream_dp.kafka.client.rights import TopicRights
from stream_dp.kafka.client.topics import PLAIN, STAMPED, UNCOMPACTED, config, mending
from stream_dp.kafka.log.questions import RULES
from stream_dp.operate.doctor.observation import Observation, closed, fine, unchecked, warning

_HOUR_MS, _DAY_MIN = 3_600_000, 24 * 60
_SHORT_MS = 72 * _HOUR_MS
_SHORT_MIN = 30 * _DAY_MIN
_LARGE = 16 * 1024 * 1024


async def check_source(
    settings: KafkaSettings, admin: Any, look: TopicRights, *, wall: bool
) -> list[Observation]:
    """Findings on the topic that is read."""
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
    """Findings on a topic of the pipeline's own that exists."""
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
    """A finding on the topic by which brokers tell their clocks, where it exists."""
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
    """Findings on the topic of analysts' messages, if it exists: what it holds is no commit, and may be forgotten."""
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
    """Findings on the brokers' own settings, as one of them tells."""
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
