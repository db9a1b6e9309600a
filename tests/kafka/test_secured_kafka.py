"""A Kafka that asks for a login and for rights: every command comes in each way, `doctor` names what is wrong, an
analyst has the rights of the documentation and no others, and deploy/kafka/setup.sh grants what an engine needs.
"""

import asyncio
import gc
import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from kafka.certificates import Authority
from kafka.kafka_worlds import administering, alter, create, visible
from kafka.secured_broker import (
    CREATE,
    DESCRIBE_CONFIGS,
    GROUP,
    PASSWORD,
    READ,
    TOPIC,
    TRANSACTION,
    USERS,
    WAYS,
    WRITE,
    Secured,
    grant,
    needed,
)

from stream_dp.broker.jars import KAFKA_VERSION, Jar, cache_dir, resolve_jars
from stream_dp.broker.process import find_java
from stream_dp.cli.main import code_of
from stream_dp.client.kafka_messages import talking
from stream_dp.client.message_text import fresh_id, message_text
from stream_dp.errors import StreamDPError, WorldError
from stream_dp.files.system_clock import system_ms
from stream_dp.kafka.client.clients import KEPT, KafkaSettings
from stream_dp.kafka.client.topics import config
from stream_dp.kafka.log.append_clock import BrokerClocks, clock_topic
from stream_dp.kafka.log.reader import reading
from stream_dp.operate.run import settings
from stream_dp.testing.kafka import missing

TOOLS = Jar(
    "org.apache.kafka",
    "kafka-tools",
    KAFKA_VERSION,
    "62f3c5dd7aa3442d4c5bc6a95f86e2502178ea09de8e27f74d9563bf955e253c",
)
QUICK = "-Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CLASSES = {"kafka-topics.sh": "TopicCommand", "kafka-acls.sh": "AclCommand"}


def write_tools(folder: Path) -> Path:
    """Write the tools into this folder; return it, as KAFKA_BIN wants it.

    Raises:
        WorldError: the jars cannot be had.
    """
    own = resolve_jars(folder=cache_dir() / f"kafka-tools-{KAFKA_VERSION}", jars=[TOOLS])
    classpath = os.pathsep.join(map(str, [*own, *resolve_jars()]))
    folder.mkdir()
    for name, each in CLASSES.items():
        tool = folder / name
        line = f"exec '{find_java()}' {QUICK} -cp '{classpath}' org.apache.kafka.tools.{each}"
        tool.write_text(f'#!/bin/sh\n{line} "$@"\n')
        tool.chmod(0o755)
    return folder


TICKS = 3
_LITERAL = 3


class SecuredWorld(NamedTuple):
    """A pipeline NAME that comes in by WAY, in a folder with its key and its data."""

    secured: Secured
    folder: Path
    name: str
    way: str

    @property
    def topic(self) -> str:
        return f"{self.name}-events"

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.yaml"

    def write(self, *, wall: bool = False, **security: Any) -> "SecuredWorld":
        """Write the file, with changes to `source.security`; None leaves a key out."""
        said = {**self.secured.yaml(self.way), **{k: str(v) for k, v in security.items() if v}}
        said = {key: value for key, value in said.items() if security.get(key, "") is not None}
        replay = {"kind": "replay", "field": "time", "start": "2026-01-01T00:00:00Z"}
        clock = (
            {"kind": "wall", "step": "1s"} if wall else {**replay, "step": "1h", "horizon": TICKS}
        )
        source = {"kind": "kafka", "topic": self.topic, "bootstrap": self.secured.at(self.way)}
        pipeline = {
            "version": 1,
            "name": self.name,
            "source": {**source, "security": said},
            "schema": {"time": {"type": "time"}},
            "privacy": {"epsilon": "1"},
            "clock": clock,
            "series": [{"name": "n", "statistic": "count", "epsilon": "1"}],
        }
        self.file.write_text(yaml.safe_dump(pipeline))
        return self

    def data(self) -> Path:
        """A file of records, one in each tick."""
        path = self.folder / "data.jsonl"
        times = [f"2026-01-01T0{hour}:10:00Z" for hour in range(TICKS)]
        path.write_text("".join(f"{json.dumps({'time': time})}\n" for time in times))
        return path

    def grant(self, *, without: Sequence[tuple[int, int]] = (), feeding: bool = True) -> None:
        """Grant what the documentation says, without some (kind, right); and what makes and feeds the topic."""
        user = USERS[self.way]
        grants = [
            one for one in needed(user, self.name, self.topic) if (one[0], one[3]) not in without
        ]
        if feeding:
            feed = f"{self.topic}.stream-dp-feed"
            grants += [(TOPIC, self.topic, _LITERAL, right, user) for right in (WRITE, CREATE)]
            grants.append((TRANSACTION, feed, _LITERAL, WRITE, user))
        asyncio.run(grant(self.secured, grants))

    def feed(self) -> int:
        """Feed the topic by `replay`; return its exit code."""
        where = ("--topic", self.topic, "--pipeline", self.file, "--key-file", self.key())
        return self.command("replay", self.data(), *where)

    def command(self, *arguments: object) -> int:
        return code_of([str(one) for one in arguments])

    def key(self) -> Path:
        path = self.folder / "operator.key"
        if not path.exists():
            path.write_bytes(os.urandom(32))
            path.chmod(0o600)
        return path


LITERAL, UNREACHABLE = 3, 5
STAMPED: dict[str, Any] = {
    "message_timestamp_type": "LogAppendTime",
    "compression_type": "uncompressed",
}
Found = list[dict[str, Any]]


@pytest.fixture
def world(
    secured: Secured, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> SecuredWorld:
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(settings, "WAIT_S", 0.0)  # the broker is there
    return SecuredWorld(secured, tmp_path, name, "SCRAM")


def ran(world: SecuredWorld) -> int:
    return world.command("run", world.file, "--until-end", "--key-file", world.key())


def ticks_of(world: SecuredWorld) -> list[int]:
    releases = asyncio.run(visible(world.secured.admin, f"{world.name}.releases"))
    return [json.loads(one.value)["tick"] for one in releases]


# --- commands and `doctor`


class Doctor:
    """`doctor --json` on pipelines of a world."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def told(self, world: SecuredWorld, *options: str) -> tuple[int, Found]:
        self._capfd.readouterr()
        key = ("--key-file", world.key())
        code = world.command("doctor", world.file, *key, "--json", *options)
        said = json.loads(self._capfd.readouterr().out)
        assert said["exit_code"] == code
        return code, [one for one in said["checks"] if one["level"] != "ok"]


@pytest.fixture
def doctor(capfd: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(capfd)


def topics(world: SecuredWorld) -> list[str]:

    async def look() -> list[str]:
        async with administering(world.secured.admin) as admin:
            every = [one["topic"] for one in await admin.describe_topics()]
        return [one for one in every if one.startswith(f"{world.name}.")]

    return asyncio.run(look())


@pytest.mark.parametrize("way", WAYS)
def test_every_command_logs_in_and_all_is_well(
    world: SecuredWorld, way: str, doctor: Doctor, capfd: pytest.CaptureFixture[str]
) -> None:
    mine = world._replace(way=way).write()
    mine.grant()
    assert mine.command("topic", mine.topic, "--pipeline", mine.file, "--partitions", 2) == 0
    code, found = doctor.told(mine)
    clear = [("source.security", "warning")] if way == "OAUTH" else []
    assert code == 0
    assert [(one["about"], one["level"]) for one in found] == [*clear, ("brokers", "not checked")]
    assert topics(mine) == []
    assert mine.feed() == 0
    assert ran(mine) == 0
    assert mine.command("dead-letters", mine.file, "--key-file", mine.key()) == 0
    assert mine.command("ledger", mine.file, "--key-file", mine.key(), "--json") == 0
    said = capfd.readouterr()
    assert json.loads(said.out.splitlines()[-1])["ticks"] == TICKS
    assert PASSWORD not in said.out + said.err
    if way == "OAUTH":
        assert (mine.secured.folder / "token").read_text() not in said.out + said.err
    assert ticks_of(mine) == list(range(TICKS))


def test_without_a_pipeline_file_the_environment_says_how_to_log_in(
    world: SecuredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.grant()
    where = ("--bootstrap", world.secured.at("SCRAM"))
    assert world.command("topic", world.topic, *where) == UNREACHABLE
    for key, value in world.secured.yaml("SCRAM").items():
        monkeypatch.setenv(f"STREAM_DP_KAFKA_{key.upper()}", value)
    assert world.command("topic", world.topic, *where) == 0


_CERTIFICATE = "the broker does not take this client's certificate (TLS)"
_AUTHORITY = "its certificate is signed by an authority that is not trusted here (TLS)"
WRONG_LOGINS = {
    "password": ("SCRAM", "the broker refuses this login"),
    "mechanism": ("SCRAM", "this listener does not take this mechanism"),
    "authority": ("PLAIN", _AUTHORITY),
    "no certificate": ("MTLS", _CERTIFICATE),
    "expired": ("MTLS", _CERTIFICATE),
    "token": ("OAUTH", "the broker refuses the bearer token"),
}


def wrong_login(world: SecuredWorld, case: str) -> dict[str, Any]:
    secured = world.secured
    late = secured.authority.sign("late", days=-1)
    cases: dict[str, dict[str, Any]] = {
        "password": {"password_file": secured.secret("wrong", "sardine")},
        "mechanism": {"mechanism": "PLAIN"},
        "authority": {"ca_file": Authority(world.folder, "stranger").file},
        "no certificate": {"certificate_file": None, "key_file": None},
        "expired": {"certificate_file": late.certificate, "key_file": late.key},
        "token": {"token_file": secured.secret("bad-token", "nonsense")},
    }
    return cases[case]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the library forgets one it was refused on
@pytest.mark.parametrize("case", WRONG_LOGINS)
def test_an_unknown_client_does_not_get_in_and_is_told_why(
    world: SecuredWorld, case: str, doctor: Doctor
) -> None:
    way, cause = WRONG_LOGINS[case]
    mine = world._replace(way=way).write(**wrong_login(world, case))
    mine.grant()
    code, found = doctor.told(mine)
    wrong = [(one["about"], one["says"]) for one in found if one["level"] == "wrong"]
    assert (code, wrong) == (UNREACHABLE, [(f"broker {mine.secured.at(way)}", cause)])
    assert ran(mine) == UNREACHABLE
    gc.collect()  # here, and not in another test


RIGHTS = [
    (TOPIC, WRITE, "Write"),
    (TOPIC, DESCRIBE_CONFIGS, "DescribeConfigs"),
    (TRANSACTION, WRITE, "Write"),
    (GROUP, READ, "Read"),
]


@pytest.mark.parametrize(("kind", "right", "named"), RIGHTS)
def test_a_missing_right_is_named_with_the_command_that_grants_it(
    world: SecuredWorld, kind: int, right: int, named: str, doctor: Doctor
) -> None:
    mine = world.write()
    asyncio.run(create(mine.secured.admin, mine.topic, **STAMPED))
    mine.grant(without=[(kind, right)], feeding=False)
    code, found = doctor.told(mine)
    rights = [one for one in found if one["about"] == "rights"]
    option = {TOPIC: "topic", TRANSACTION: "transactional-id", GROUP: "group"}[kind]
    where = f"--{option} {mine.name}. --resource-pattern-type prefixed"
    says = [f"this user lacks {named} on {where}"]
    if (kind, right) == (TOPIC, DESCRIBE_CONFIGS):  # of the source too
        says.insert(0, f"this user lacks DescribeConfigs on --topic {mine.topic}")
    assert (code, [one["says"] for one in rights]) == (5, says)
    granting = f"--add --allow-principal 'User:scram-engine' --operation {named} {where}"
    assert rights[-1]["mend"].endswith(granting)


def test_what_a_topic_lacks_is_named_with_the_command_that_mends_it(
    world: SecuredWorld, doctor: Doctor
) -> None:
    mine = world.write(wall=True)
    mine.grant(feeding=False)
    code, found = doctor.told(mine)
    make = f"stream-dp topic {mine.topic} --pipeline {mine.file} --partitions N"
    assert code == 5
    assert [one["mend"] for one in found if one["about"] == f"topic {mine.topic}"] == [make]
    settings: Any = {"cleanup_policy": "compact", "retention_ms": "60000"}
    asyncio.run(create(mine.secured.admin, mine.topic, **settings))
    code, found = doctor.told(mine)
    assert code == 4
    assert [(one["level"], one["says"].split(":")[0].split(";")[0]) for one in found][:4] == [
        ("wrong", "is compacted"),
        ("wrong", "does not stamp records on arrival, which a wall clock needs"),
        ("warning", "stores batches compressed as their senders sent them"),
        ("warning", "keeps records for 0.0167 h"),
    ]
    assert "--add-config cleanup.policy=delete" in found[0]["mend"]


def test_after_a_run_its_topics_its_journal_and_its_mark_are_looked_at(
    world: SecuredWorld, doctor: Doctor
) -> None:
    mine = world.write()
    journal, queries = f"{mine.name}.private.journal", f"topic {mine.name}.queries"
    asyncio.run(create(mine.secured.admin, mine.topic, **STAMPED))
    mine.grant()
    assert mine.feed() == 0
    assert ran(mine) == 0
    code, found = doctor.told(mine)
    assert code == 0
    assert {one["level"] for one in found} == {"warning", "not checked"}
    about = [one["about"] for one in found]
    assert {f"topic {journal}", f"topic {mine.name}.answers"} <= {*about}  # one copy only
    assert queries not in about

    wrong = {"message.timestamp.type": "CreateTime", "compression.type": "producer"}
    asyncio.run(alter(mine.secured.admin, f"{mine.name}.queries", wrong))
    code, found = doctor.told(mine)
    said_of_it = [one for one in found if one["about"] == queries]
    assert (code, [one["level"] for one in said_of_it]) == (4, ["wrong", "warning"])
    assert "message.timestamp.type=LogAppendTime" in said_of_it[0]["mend"]
    assert ran(mine) == 4

    asyncio.run(alter(mine.secured.admin, journal, {**KEPT, "retention.ms": "1000"}))
    for mark in (mine.folder / "home").rglob("high-water/*.json"):
        mark.unlink()
    mine.key().write_bytes(b"x" * 32)
    code, found = doctor.told(mine)
    assert code == 4
    wrong_ones = {one["about"] for one in found if one["level"] == "wrong"}
    assert wrong_ones == {f"topic {journal}", "journal", queries}
    assert "high-water mark" in [one["about"] for one in found]


def test_clocks_are_compared_where_it_is_asked_for(world: SecuredWorld, doctor: Doctor) -> None:
    mine = world.write(wall=True)
    asyncio.run(create(mine.secured.admin, mine.topic, **STAMPED))
    mine.grant(feeding=False)
    code, found = doctor.told(mine)
    assert (code, [one["about"] for one in found]) == (0, ["brokers", "clocks"])
    assert topics(mine) == []
    code, found = doctor.told(mine, "--write")
    assert (code, [one["about"] for one in found]) == (0, ["brokers"])
    assert topics(mine) == [f"{mine.name}.private.clock"]
    assert asyncio.run(visible(mine.secured.admin, mine.topic)) == []


def test_the_topic_of_clocks_is_looked_at_also_beside_a_journal_in_a_file(
    world: SecuredWorld, doctor: Doctor
) -> None:
    mine = world.write(wall=True)
    clocks = f"{mine.name}.private.clock"
    said = yaml.safe_load(mine.file.read_text())
    said["clock"]["horizon"] = TICKS
    said["journal"] = {"kind": "sqlite", "path": "journal.db"}
    said["releases"] = {"path": "releases.jsonl"}
    mine.file.write_text(yaml.safe_dump(said))
    asyncio.run(create(mine.secured.admin, mine.topic, **STAMPED))
    mine.grant(without=[(TOPIC, WRITE)], feeding=False)
    code, found = doctor.told(mine)
    lacks = [one["says"] for one in found if one["about"] == "rights"]
    assert (code, lacks) == (5, [f"this user lacks Write on --topic {clocks}"])
    mine.grant(feeding=False)
    asyncio.run(create(mine.secured.admin, clocks, message_timestamp_type="CreateTime"))
    code, found = doctor.told(mine)
    wrong = {one["about"]: one["mend"] for one in found if one["level"] == "wrong"}
    assert (code, list(wrong)) == (4, [f"topic {clocks}"])
    assert "message.timestamp.type=LogAppendTime" in wrong[f"topic {clocks}"]
    assert ran(mine) == 4


# --- an analyst


async def sent(settings: KafkaSettings, pipeline: str) -> str:
    """Send a message that no engine answers; what the client says in the end."""
    name = fresh_id()
    with pytest.raises(WorldError) as waited:
        async with talking(settings, pipeline, "5e" * 32) as messages:
            await messages.answer(message_text("list", {}, name, "ann"), name, 0.5)
    return str(waited.value)


async def readable(settings: KafkaSettings, topic: str) -> bool:
    try:
        async with reading(replace(settings, patience_s=2.0, retry_s=1.0), topic) as log:
            await log.last()
    except WorldError:
        return False
    return True


def test_an_analyst_needs_write_on_queries_and_read_on_answers_alone(world: SecuredWorld) -> None:
    """The engine, which comes in by SCRAM, has run and is off; she comes in by PLAIN, as a user of her own."""
    mine, ann = world.write(), world.secured.settings("PLAIN")
    asyncio.run(create(mine.secured.admin, mine.topic, 1))
    mine.grant()
    assert mine.feed() == 0
    assert ran(mine) == 0
    answers, queries = f"{mine.name}.answers", f"{mine.name}.queries"
    assert queries in asyncio.run(sent(ann, mine.name))
    for topic, right in ((queries, WRITE), (answers, READ)):
        assert topic in asyncio.run(sent(ann, mine.name))
        right_on = (TOPIC, topic, LITERAL, right, USERS["PLAIN"])
        asyncio.run(grant(mine.secured, [right_on]))
    assert "no engine of" in asyncio.run(sent(ann, mine.name))
    for which in ("queries", "releases", "private.journal", "private.lease"):
        assert not asyncio.run(readable(ann, f"{mine.name}.{which}"))


# --- deploy/kafka/setup.sh, by Apache Kafka's own tools

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "kafka" / "setup.sh"
OWN = ("private.journal", "private.lease", "private.clock", "releases", "answers", "queries")
_LISTED = re.compile(r"ResourcePattern\(resourceType=(\w+), name=([^,]+), patternType=(\w+)\)")
_ACL = re.compile(r"\(principal=(.+?), host=\*, operation=(\w+), permissionType=ALLOW\)")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kafka's tools; found before STREAM_DP_HOME is another one."""
    try:
        return write_tools(tmp_path_factory.mktemp("tools") / "bin")
    except StreamDPError as error:
        missing("kafka", str(error))


def set_up(world: SecuredWorld, tools: Path, *options: str) -> None:
    where = ("--bootstrap", world.secured.admin, "--replication", "1")
    what = ("--pipeline", world.name, "--source", world.topic, "--engine", USERS["SCRAM"])
    command: list[str | Path] = ["sh", SCRIPT, *where, *what, *options]
    environment = {**os.environ, "KAFKA_BIN": str(tools)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
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


def expected(world: SecuredWorld) -> set[tuple[str, ...]]:
    kinds = {2: "TOPIC", 3: "GROUP", 5: "TRANSACTIONAL_ID"}
    rights = {3: "READ", 4: "WRITE", 5: "CREATE", 10: "DESCRIBE_CONFIGS"}
    patterns = {3: "LITERAL", 4: "PREFIXED"}
    return {
        (kinds[kind], name, patterns[pattern], rights[right], user)
        for kind, name, pattern, right, user in needed(USERS["SCRAM"], world.name, world.topic)
    }


def settings_of(world: SecuredWorld) -> dict[str, dict[str, str]]:
    """The effective settings of the pipeline's own topics, and how many partitions each has."""

    async def look() -> dict[str, dict[str, str]]:
        async with administering(world.secured.admin) as admin:
            wide = {one["topic"]: len(one["partitions"]) for one in await admin.describe_topics()}
            own = {which: f"{world.name}.{which}" for which in OWN}
            return {
                which: {**await config(admin, topic), "partitions": str(wide[topic])}
                for which, topic in own.items()
            }

    return asyncio.run(look())


def fed_and_ran(world: SecuredWorld) -> list[int]:
    user, feed = USERS["SCRAM"], f"{world.topic}.stream-dp-feed"
    feeding = [(TOPIC, world.topic, LITERAL, WRITE), (TRANSACTION, feed, LITERAL, WRITE)]
    asyncio.run(grant(world.secured, [(*right, user) for right in feeding]))
    assert world.feed() == 0
    assert ran(world) == 0
    return ticks_of(world)


def test_a_pipeline_runs_on_what_the_script_makes(world: SecuredWorld, tools: Path) -> None:
    mine = world.write()
    set_up(mine, tools, "--reader", USERS["PLAIN"])
    releases = ("TOPIC", f"{mine.name}.releases", "LITERAL", "READ", USERS["PLAIN"])
    assert set(granted(mine, tools)) == {*expected(mine), releases}
    assert fed_and_ran(mine) == list(range(TICKS))
    reader = world.secured.settings("PLAIN")
    assert asyncio.run(readable(reader, f"{mine.name}.releases"))
    assert not asyncio.run(readable(reader, f"{mine.name}.private.journal"))
    other = mine._replace(name=f"{mine.name}-alone").write()
    other.grant()
    assert other.command("topic", other.topic, "--pipeline", other.file) == 0
    assert fed_and_ran(other) == list(range(TICKS))
    clocks = BrokerClocks(world.secured.settings("SCRAM"), clock_topic(other.name), system_ms)
    asyncio.run(clocks.check())  # as an engine on a wall clock does
    assert settings_of(mine) == settings_of(other)  # as the engine makes them by itself


def test_one_right_too_many_or_too_few_shows_in_the_list(world: SecuredWorld, tools: Path) -> None:
    right = needed(USERS["SCRAM"], world.name, world.topic)
    asyncio.run(grant(world.secured, right[1:]))
    assert set(granted(world, tools)) < expected(world)
    asyncio.run(grant(world.secured, [*right, (TOPIC, world.topic, 3, WRITE, USERS["SCRAM"])]))
    assert set(granted(world, tools)) > expected(world)
