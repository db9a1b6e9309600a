"""The rights of an engine: those that it needs, those that it lacks, and the commands that grant them.

Rules: `NEEDED` is the one list; the page in docs/ shows it, and a test runs an engine with these rights and no others.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.rights import (
    CREATE,
    DESCRIBE_CONFIGS,
    READ,
    WRITE,
    TopicRights,
    group_rights,
    may_create,
    may_transact,
)
from stream_dp.operate.doctor.observation import Observation, denied, fine

SOURCE_RIGHTS = (READ, DESCRIBE_CONFIGS)
OWN_RIGHTS = (READ, WRITE, CREATE, DESCRIBE_CONFIGS)
CLOCK_RIGHTS = (WRITE, CREATE, DESCRIBE_CONFIGS)
NEEDED: Mapping[str, tuple[str, ...]] = {
    "--topic {topic}": SOURCE_RIGHTS,
    "--topic {name}. --resource-pattern-type prefixed": OWN_RIGHTS,
    "--transactional-id {name}. --resource-pattern-type prefixed": (WRITE,),
    "--group {name}. --resource-pattern-type prefixed": (READ,),
}
"""What an engine of pipeline NAME needs that reads TOPIC, as `kafka-acls.sh` wants to be told.

With a journal in a file it needs the first, and on a wall clock `CLOCK_RIGHTS` on NAME.private.clock.
"""


def command(settings: KafkaSettings, resource: str, rights: Sequence[str]) -> str:
    """The command that grants these rights."""
    user = settings.security.username or "NAME-OF-THIS-USER"
    operations = " ".join(f"--operation {right}" for right in rights)
    return (
        f"kafka-acls.sh --bootstrap-server {settings.bootstrap} --command-config ADMIN.properties --add "
        f"--allow-principal 'User:{user}' {operations} {resource}"
    )


async def check_rights(
    settings: KafkaSettings, admin: Any, name: str, source: TopicRights, own: Sequence[TopicRights]
) -> list[Observation]:
    """Findings on what this user may do: one for each resource on which it lacks something, or that all is well.

    `own` are the pipeline's own topics; without any, only the source counts.
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
            found.append(denied("rights", says, command(settings, told, missing)))
    return found or [fine("rights", "this user has all rights that an engine needs")]


async def check_clock_rights(
    settings: KafkaSettings, admin: Any, clock: TopicRights
) -> list[Observation]:
    """Findings on the topic of brokers' clocks, where the journal is a file and so it is the only topic of our own."""
    rights = clock.rights
    if CREATE not in rights and (clock.exists or await may_create(admin, clock.name)):
        rights |= {CREATE}
    missing = [right for right in CLOCK_RIGHTS if right not in rights]
    if not missing:
        return []
    resource = f"--topic {clock.name}"
    says = f"this user lacks {', '.join(missing)} on {resource}"
    return [denied("rights", says, command(settings, resource, missing))]


async def _own_rights(admin: Any, name: str, own: Sequence[TopicRights]) -> list[frozenset[str]]:
    """What this user may do with the pipeline's topics, its transactional id and its group."""
    client = admin._client  # noqa: SLF001 - the admin client hands out no coordinator
    topics = frozenset.intersection(*(look.rights for look in own))
    if CREATE not in topics and await may_create(admin, own[0].name):  # granted on the cluster
        topics |= {CREATE}
    group = f"{name}.engine"
    transact = await may_transact(client, f"{name}.shard-0", group)
    return [topics, frozenset([WRITE] if transact else []), await group_rights(client, group)]
