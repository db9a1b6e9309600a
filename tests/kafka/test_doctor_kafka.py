"""`doctor` on a real broker that asks for a login and for rights: each cause has its name, each right its command."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka.certificates import Authority
from kafka.kafka_worlds import administering, alter, create, visible
from kafka.secured_broker import (
    CREATE,
    DESCRIBE_CONFIGS,
    GROUP,
    READ,
    TOPIC,
    TRANSACTION,
    WAYS,
    WRITE,
    Secured,
    unsecured_token,
)
from kafka.secured_worlds import TICKS, SecuredWorld

from stream_dp.kafka.client.clients import KEPT

STAMPED: dict[str, Any] = {
    "message_timestamp_type": "LogAppendTime",
    "compression_type": "uncompressed",
}


@pytest.fixture
def world(
    secured: Secured, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> SecuredWorld:
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path / "home"))
    return SecuredWorld(secured, tmp_path, name, "SCRAM")


def told(
    world: SecuredWorld, capfd: pytest.CaptureFixture[str], *options: str
) -> tuple[int, list[dict[str, Any]]]:
    """The exit code and what is not well."""
    capfd.readouterr()
    code = world.command("doctor", world.file, "--key-file", world.key(), "--json", *options)
    said = json.loads(capfd.readouterr().out)
    assert said["exit_code"] == code
    return code, [one for one in said["checks"] if one["level"] != "ok"]


def topics(world: SecuredWorld) -> list[str]:
    """The pipeline's own topics that are there."""

    async def look() -> list[str]:
        async with administering(world.secured.admin) as admin:
            every = [one["topic"] for one in await admin.describe_topics()]
        return [one for one in every if one.startswith(f"{world.name}.")]

    return asyncio.run(look())


@pytest.mark.parametrize("way", WAYS)
def test_with_the_rights_of_the_documentation_all_is_well(
    world: SecuredWorld, way: str, capfd: pytest.CaptureFixture[str]
) -> None:
    mine = world._replace(way=way).write()
    asyncio.run(create(mine.secured.admin, mine.topic, **STAMPED))
    mine.grant(feeding=False)
    code, found = told(mine, capfd)
    clear = [("source.security", "warning")] if way == "OAUTH" else []
    assert code == 0
    assert [(one["about"], one["level"]) for one in found] == [*clear, ("brokers", "not checked")]
    assert topics(mine) == []


WRONG_LOGINS = {
    "password": ("SCRAM", "the broker refuses this login"),
    "mechanism": ("SCRAM", "this listener does not take this mechanism"),
    "authority": (
        "PLAIN",
        "its certificate is signed by an authority that is not trusted here (TLS)",
    ),
    "no certificate": ("MTLS", "the broker does not take this client's certificate (TLS)"),
    "expired": ("MTLS", "the broker does not take this client's certificate (TLS)"),
    "foreign": ("MTLS", "the broker does not take this client's certificate (TLS)"),
    "token": ("OAUTH", "the broker refuses the bearer token"),
    "old token": ("OAUTH", "the broker refuses the bearer token"),
}


def wrong_login(world: SecuredWorld, case: str) -> dict[str, Any]:
    """What `source.security` says wrongly."""
    secured, stranger = world.secured, Authority(world.folder, "stranger")
    certificates = {
        "expired": secured.authority.sign("late", days=-1),
        "foreign": stranger.sign("foreign"),
    }
    if case in certificates:
        own = certificates[case]
        return {"certificate_file": own.certificate, "key_file": own.key}
    others: dict[str, dict[str, Any]] = {
        "password": {"password_file": secured.secret("wrong", "sardine")},
        "mechanism": {"mechanism": "PLAIN"},
        "authority": {"ca_file": stranger.file},
        "no certificate": {"certificate_file": None, "key_file": None},
        "token": {"token_file": secured.secret("bad-token", "nonsense")},
        "old token": {"token_file": secured.secret("old-token", unsecured_token("x", -60))},
    }
    return others[case]


@pytest.mark.parametrize("case", WRONG_LOGINS)
def test_each_refused_login_has_its_own_cause(
    world: SecuredWorld, case: str, capfd: pytest.CaptureFixture[str]
) -> None:
    way, cause = WRONG_LOGINS[case]
    mine = world._replace(way=way).write(**wrong_login(world, case))
    code, found = told(mine, capfd)
    about = f"broker {mine.secured.at(way)}"
    assert code == 5
    assert [(one["about"], one["says"]) for one in found if one["level"] == "wrong"] == [
        (about, cause)
    ]


RIGHTS = [
    (TOPIC, READ, "Read"),
    (TOPIC, WRITE, "Write"),
    (TOPIC, CREATE, "Create"),
    (TOPIC, DESCRIBE_CONFIGS, "DescribeConfigs"),
    (TRANSACTION, WRITE, "Write"),
    (GROUP, READ, "Read"),
]


@pytest.mark.parametrize(("kind", "right", "named"), RIGHTS)
def test_a_missing_right_is_named_with_the_command_that_grants_it(
    world: SecuredWorld, kind: int, right: int, named: str, capfd: pytest.CaptureFixture[str]
) -> None:
    mine = world.write()
    asyncio.run(create(mine.secured.admin, mine.topic, **STAMPED))
    mine.grant(without=[(kind, right)], feeding=False)
    code, found = told(mine, capfd)
    rights = [one for one in found if one["about"] == "rights"]
    where = {
        TOPIC: f"--topic {mine.name}. --resource-pattern-type prefixed",
        TRANSACTION: f"--transactional-id {mine.name}. --resource-pattern-type prefixed",
        GROUP: f"--group {mine.name}. --resource-pattern-type prefixed",
    }[kind]
    says = [f"this user lacks {named} on {where}"]
    if (kind, right) == (TOPIC, READ):  # without it a topic may not even be looked at
        says.insert(0, f"this user lacks Read, DescribeConfigs on --topic {mine.topic}")
    elif (kind, right) == (TOPIC, DESCRIBE_CONFIGS):
        says.insert(0, f"this user lacks DescribeConfigs on --topic {mine.topic}")
    assert code == 5
    assert [one["says"] for one in rights] == says
    assert rights[-1]["mend"].endswith(
        f"--add --allow-principal 'User:scram-engine' --operation {named} {where}"
    )


def test_what_a_topic_lacks_is_named_with_the_command_that_mends_it(
    world: SecuredWorld, capfd: pytest.CaptureFixture[str]
) -> None:
    mine = world.write(wall=True)
    mine.grant(feeding=False)
    code, found = told(mine, capfd)
    make = f"stream-dp topic {mine.topic} --pipeline {mine.file} --partitions N"
    assert code == 5
    assert [one["mend"] for one in found if one["about"] == f"topic {mine.topic}"] == [make]
    asyncio.run(
        create(mine.secured.admin, mine.topic, cleanup_policy="compact", retention_ms="60000")
    )
    code, found = told(mine, capfd)
    assert code == 4
    assert [(one["level"], one["says"].split(":")[0].split(";")[0]) for one in found][:4] == [
        ("wrong", "is compacted"),
        ("wrong", "does not stamp records on arrival"),
        ("warning", "stores batches as their senders packed them"),
        ("warning", "keeps records for 0.0167 h"),
    ]
    assert "--add-config cleanup.policy=delete" in found[0]["mend"]


def test_after_a_run_the_journal_its_topics_and_its_mark_are_looked_at(
    world: SecuredWorld, capfd: pytest.CaptureFixture[str]
) -> None:
    mine = world.write()
    asyncio.run(create(mine.secured.admin, mine.topic, **STAMPED))
    mine.grant()
    assert mine.feed() == 0
    assert mine.command("run", mine.file, "--until-end", "--key-file", mine.key()) == 0
    code, found = told(mine, capfd)
    journal = f"{mine.name}.private.journal"
    assert code == 0
    assert {one["level"] for one in found} == {"warning", "not checked"}
    assert f"topic {journal}" in [one["about"] for one in found]
    asyncio.run(alter(mine.secured.admin, journal, {**KEPT, "retention.ms": "1000"}))
    for mark in (mine.folder / "home").rglob("high-water/*.json"):
        mark.unlink()
    mine.key().write_bytes(b"x" * 32)
    code, found = told(mine, capfd)
    wrong = [one["about"] for one in found if one["level"] == "wrong"]
    assert code == 4
    assert wrong == [f"topic {journal}", "journal"]
    assert "high-water mark" in [one["about"] for one in found]


def test_the_topics_of_messages_are_looked_at_each_by_its_own_rules(
    world: SecuredWorld, capfd: pytest.CaptureFixture[str]
) -> None:
    mine = world.write()
    asyncio.run(create(mine.secured.admin, mine.topic, **STAMPED))
    mine.grant()
    assert mine.feed() == 0
    assert mine.command("run", mine.file, "--until-end", "--key-file", mine.key()) == 0
    _, found = told(mine, capfd)
    said = [(one["about"], one["level"]) for one in found]
    assert (f"topic {mine.name}.answers", "warning") in said  # one copy only
    assert f"topic {mine.name}.queries" not in [about for about, _ in said]
    wrong = {"message.timestamp.type": "CreateTime", "compression.type": "producer"}
    asyncio.run(alter(mine.secured.admin, f"{mine.name}.queries", wrong))
    code, found = told(mine, capfd)
    said_of_it = [one for one in found if one["about"] == f"topic {mine.name}.queries"]
    assert code == 4
    assert [one["level"] for one in said_of_it] == ["wrong", "warning"]
    assert "message.timestamp.type=LogAppendTime" in said_of_it[0]["mend"]
    assert mine.command("run", mine.file, "--until-end", "--key-file", mine.key()) == 4


def test_clocks_are_compared_where_it_is_asked_for(
    world: SecuredWorld, capfd: pytest.CaptureFixture[str]
) -> None:
    mine = world.write(wall=True)
    asyncio.run(create(mine.secured.admin, mine.topic, **STAMPED))
    mine.grant(feeding=False)
    code, found = told(mine, capfd)
    assert (code, [one["about"] for one in found]) == (0, ["brokers", "clocks"])
    assert topics(mine) == []
    code, found = told(mine, capfd, "--write")
    assert (code, [one["about"] for one in found]) == (0, ["brokers"])
    assert topics(mine) == [f"{mine.name}.private.clock"]
    assert asyncio.run(visible(mine.secured.admin, mine.topic)) == []


def test_the_topic_of_clocks_is_looked_at_also_beside_a_journal_in_a_file(
    world: SecuredWorld, capfd: pytest.CaptureFixture[str]
) -> None:
    mine = world.write(wall=True)
    clocks = f"{mine.name}.private.clock"
    said = yaml.safe_load(mine.file.read_text())
    said["clock"]["horizon"] = TICKS
    said |= {
        "journal": {"kind": "sqlite", "path": "journal.db"},
        "releases": {"path": "releases.jsonl"},
    }
    mine.file.write_text(yaml.safe_dump(said))
    asyncio.run(create(mine.secured.admin, mine.topic, **STAMPED))
    mine.grant(without=[(TOPIC, WRITE)], feeding=False)
    code, found = told(mine, capfd)
    lacks = [one["says"] for one in found if one["about"] == "rights"]
    assert (code, lacks) == (5, [f"this user lacks Write on --topic {clocks}"])
    mine.grant(feeding=False)
    asyncio.run(create(mine.secured.admin, clocks, message_timestamp_type="CreateTime"))
    code, found = told(mine, capfd)
    wrong = {one["about"]: one["mend"] for one in found if one["level"] == "wrong"}
    assert (code, list(wrong)) == (4, [f"topic {clocks}"])
    assert "message.timestamp.type=LogAppendTime" in wrong[f"topic {clocks}"]
    assert mine.command("run", mine.file, "--until-end", "--key-file", mine.key()) == 4
