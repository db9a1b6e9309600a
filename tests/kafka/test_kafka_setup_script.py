"""deploy/kafka/setup.sh on a real broker with an authorizer, by Apache Kafka's own tools: an engine runs there."""

import asyncio
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kafka.kafka_tools import write_tools
from kafka.kafka_worlds import administering, visible
from kafka.secured_broker import TOPIC, TRANSACTION, USERS, WRITE, Secured, grant, needed
from kafka.secured_worlds import TICKS, SecuredWorld

from stream_dp.errors import StreamDPError, WorldError
from stream_dp.files.system_clock import system_ms
from stream_dp.kafka.client.topics import config
from stream_dp.kafka.log.append_clock import BrokerClocks, clock_topic
from stream_dp.kafka.log.reader import reading
from stream_dp.testing.kafka import missing

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "kafka" / "setup.sh"
OWN = ("private.journal", "private.lease", "private.clock", "releases", "answers", "queries")
_LISTED = re.compile(r"ResourcePattern\(resourceType=(\w+), name=([^,]+), patternType=(\w+)\)")
_ACL = re.compile(r"\(principal=(.+?), host=\*, operation=(\w+), permissionType=ALLOW\)")


@pytest.fixture
def world(
    secured: Secured, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> SecuredWorld:
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path / "home"))
    return SecuredWorld(secured, tmp_path, name, "SCRAM").write()


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kafka's tools; found before STREAM_DP_HOME is another one."""
    try:
        return write_tools(tmp_path_factory.mktemp("tools") / "bin")
    except StreamDPError as error:
        missing("kafka", str(error))


def set_up(world: SecuredWorld, tools: Path, *options: str) -> None:
    """Run the script as the administrator."""
    where = ("--bootstrap", world.secured.admin, "--replication", "1")
    what = ("--pipeline", world.name, "--source", world.topic, "--engine", USERS["SCRAM"])
    command: list[str | Path] = ["sh", SCRIPT, *where, *what, *options]
    run = subprocess.run(
        command,
        env={**os.environ, "KAFKA_BIN": str(tools)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def granted(world: SecuredWorld, tools: Path) -> Iterator[tuple[str, ...]]:
    """Each right on what is this pipeline's: kind, name, pattern, operation, principal."""
    command = [str(tools / "kafka-acls.sh"), "--bootstrap-server", world.secured.admin, "--list"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    resource: tuple[str, ...] = ()
    for line in said.splitlines():
        if found := _LISTED.search(line):
            resource = found.groups()
        elif (acl := _ACL.search(line)) and resource[1].startswith(world.name):
            yield (*resource, acl[2], acl[1])


def settings_of(world: SecuredWorld) -> dict[str, dict[str, str]]:
    """The effective settings of the pipeline's own topics, and how many partitions each has."""

    async def look() -> dict[str, dict[str, str]]:
        async with administering(world.secured.admin) as admin:
            wide = {one["topic"]: len(one["partitions"]) for one in await admin.describe_topics()}
            return {
                own: {
                    **await config(admin, f"{world.name}.{own}"),
                    "partitions": str(wide[f"{world.name}.{own}"]),
                }
                for own in OWN
            }

    return asyncio.run(look())


def ran(world: SecuredWorld) -> list[int]:
    """Where the releases lie after a run over some records."""
    feed = f"{world.topic}.stream-dp-feed"
    user, literal = USERS["SCRAM"], 3
    feeding = [
        (TOPIC, world.topic, literal, WRITE, user),
        (TRANSACTION, feed, literal, WRITE, user),
    ]
    asyncio.run(grant(world.secured, feeding))
    assert world.feed() == 0
    assert world.command("run", world.file, "--until-end", "--key-file", world.key()) == 0
    releases = asyncio.run(visible(world.secured.admin, f"{world.name}.releases"))
    return [record.offset for record in releases]


def test_a_pipeline_runs_on_what_the_script_makes(world: SecuredWorld, tools: Path) -> None:
    set_up(world, tools, "--reader", USERS["PLAIN"])
    reader = ("TOPIC", f"{world.name}.releases", "LITERAL", "READ", USERS["PLAIN"])
    assert set(granted(world, tools)) == {*expected(world), reader}
    assert len(ran(world)) == TICKS
    assert asyncio.run(read_by_the_reader(world, "releases")) == "read"
    assert asyncio.run(read_by_the_reader(world, "private.journal")) == "denied"
    other = world._replace(name=f"{world.name}-alone").write()
    other.grant()
    assert other.command("topic", other.topic, "--pipeline", other.file) == 0
    assert len(ran(other)) == TICKS
    clocks = BrokerClocks(world.secured.settings("SCRAM"), clock_topic(other.name), system_ms)
    asyncio.run(clocks.check())  # as an engine on a wall clock does
    assert settings_of(world) == settings_of(other)  # as the engine makes them by itself


def expected(world: SecuredWorld) -> set[tuple[str, ...]]:
    """What the engine needs, as Kafka's tool lists it."""
    kinds = {2: "TOPIC", 3: "GROUP", 5: "TRANSACTIONAL_ID"}
    rights = {3: "READ", 4: "WRITE", 5: "CREATE", 10: "DESCRIBE_CONFIGS"}
    patterns = {3: "LITERAL", 4: "PREFIXED"}
    return {
        (kinds[kind], name, patterns[pattern], rights[right], user)
        for kind, name, pattern, right, user in needed(USERS["SCRAM"], world.name, world.topic)
    }


async def read_by_the_reader(world: SecuredWorld, which: str) -> str:
    """Whether the reader of releases may read one of the pipeline's topics."""
    settings = replace(world.secured.settings("PLAIN"), retry_s=1.0)
    try:
        async with reading(settings, f"{world.name}.{which}") as log:
            await log.last()
    except WorldError:
        return "denied"
    return "read"


def test_one_right_too_many_or_too_few_shows_in_the_list(world: SecuredWorld, tools: Path) -> None:
    right = needed(USERS["SCRAM"], world.name, world.topic)
    asyncio.run(grant(world.secured, right[1:]))
    assert set(granted(world, tools)) < expected(world)
    asyncio.run(grant(world.secured, [*right, (TOPIC, world.topic, 3, WRITE, USERS["SCRAM"])]))
    assert set(granted(world, tools)) > expected(world)
