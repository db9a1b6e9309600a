"""deploy/kafka/setup.sh: what it would run is what docs/kafka.md and the engine's own topics say, no more and no less.

Rules: no broker here, the script only prints; tests/kafka/test_secured_kafka.py runs it on a real one.
"""

import shlex
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest
from deploy.deploy_files import DEPLOY, mutated, said_by

from stream_dp.kafka.client.clients import KEPT
from stream_dp.kafka.client.topics import PLAIN, STAMPED, UNCOMPACTED
from stream_dp.kafka.log import public as kafka_public
from stream_dp.kafka.log import rows as kafka_rows
from stream_dp.kafka.log.append_clock import WANTED
from stream_dp.operate.doctor import NEEDED

SCRIPT = (DEPLOY / "kafka" / "setup.sh").read_text()
WHERE = "--bootstrap broker:9092 --pipeline orders --source orders-events --engine User:engine"
PUBLIC = {**kafka_public._RULES, **kafka_public._HINTS}
SETTINGS = {
    "orders-events": {**UNCOMPACTED, **PLAIN, **STAMPED, "retention.ms": "604800000"},
    "orders.private.journal": dict(KEPT),
    "orders.private.lease": dict(KEPT),
    "orders.private.clock": dict(WANTED),
    "orders.releases": PUBLIC,
    "orders.answers": PUBLIC,
    "orders.queries": {**kafka_public.QUERY_RULES, **kafka_public.QUERY_HINTS},
}
ENGINE = {
    (resource.format(name="orders", topic="orders-events"), right)
    for resource, rights in NEEDED.items()
    for right in rights
}


class Planned(NamedTuple):
    """What the script would do: the rights of each principal, the settings of each topic."""

    rights: dict[str, set[tuple[str, str]]]
    topics: dict[str, dict[str, str]]


def said(script: str, folder: Path, options: str) -> subprocess.CompletedProcess[str]:
    file = folder / "setup.sh"
    file.write_text(script)
    return subprocess.run(["sh", file, *shlex.split(options)], capture_output=True, text=True)


def planned(script: str, folder: Path, options: str = "") -> Planned:
    run = said(script, folder, f"{WHERE} {options} --print")
    assert run.returncode == 0, run.stderr
    rights: dict[str, set[tuple[str, str]]] = defaultdict(set)
    topics: dict[str, dict[str, str]] = {}
    for line in run.stdout.splitlines():
        tool, *words = shlex.split(line)
        assert words[:2] == ["--bootstrap-server", "broker:9092"]
        if tool == "kafka-topics.sh":
            name = words[words.index("--topic") + 1]
            pairs = [words[at + 1] for at, word in enumerate(words) if word == "--config"]
            topics[name] = dict(pair.split("=", 1) for pair in pairs)
            continue
        assert (tool, words[2:4]) == ("kafka-acls.sh", ["--add", "--allow-principal"])
        granted = [words[at + 1] for at, word in enumerate(words) if word == "--operation"]
        resource = " ".join(words[5 : len(words) - 2 * len(granted)])
        rights[words[4]] |= {(resource, right) for right in granted}
    return Planned(dict(rights), topics)


def test_the_engine_gets_what_the_doctor_asks_for_and_no_more(tmp_path: Path) -> None:
    assert planned(SCRIPT, tmp_path).rights == {"User:engine": ENGINE}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Read Write Create DescribeConfigs", "Read Write DescribeConfigs"),
        ('--group "$pipeline."', '--group "*"'),
        ('grant "$1" Read DescribeConfigs --', 'grant "$1" All --'),
    ],
)
def test_other_rights_are_noticed(old: str, new: str, tmp_path: Path) -> None:
    assert planned(mutated(SCRIPT, old, new), tmp_path).rights != {"User:engine": ENGINE}


def test_everybody_else_gets_only_their_own(tmp_path: Path) -> None:
    options = "--reader User:r --reader 'User:CN=r two' --analyst User:a --producer User:p --feeder User:f"
    rights = planned(SCRIPT, tmp_path, options).rights
    reading = {("--topic orders.releases", "Read")}
    writing = ("--topic orders-events", "Write")
    assert rights == {
        "User:engine": ENGINE,
        "User:r": reading,
        "User:CN=r two": reading,
        "User:a": {("--topic orders.queries", "Write"), ("--topic orders.answers", "Read")},
        "User:p": {writing},
        "User:f": {writing, ("--transactional-id orders-events.stream-dp-feed", "Write")},
    }


def test_a_worker_gets_what_the_page_says_and_the_engine_may_delete_rows(tmp_path: Path) -> None:
    """tests/kafka/test_workers.py runs a worker with these rights alone."""
    rights = planned(SCRIPT, tmp_path, "--worker User:w").rights
    rows, layout = "--topic orders.private.rows", "--topic orders.private.layout"
    clock = "--topic orders.private.clock"
    assert rights == {
        "User:engine": ENGINE | {(rows, "Delete"), (layout, "Delete")},
        "User:w": {
            ("--topic orders-events", "Read"), ("--topic orders-events", "DescribeConfigs"),
            (rows, "Read"), (rows, "Write"), (rows, "DescribeConfigs"), (layout, "Read"),
            (clock, "Write"), (clock, "DescribeConfigs"), ("--group orders.workers", "Read"),
        },
    }  # fmt: skip


def test_topics_are_made_as_the_engine_makes_them(tmp_path: Path) -> None:
    for copies, in_sync in (("1", "1"), ("3", "2")):
        made = planned(SCRIPT, tmp_path, f"--replication {copies}").topics
        copied = {"min.insync.replicas": in_sync}
        assert made == {name: settings | copied for name, settings in SETTINGS.items()}
    assert planned(SCRIPT, tmp_path, "--no-topics").topics == {}


def test_topics_of_workers_are_made_where_there_are_lanes(tmp_path: Path) -> None:
    kept = {**KEPT, **kafka_rows._HINTS, "min.insync.replicas": "2"}
    made = planned(SCRIPT, tmp_path, "--lanes 12").topics
    assert made.keys() - SETTINGS.keys() == {"orders.private.rows", "orders.private.layout"}
    assert made["orders.private.rows"] == made["orders.private.layout"] == kept
    said_all = said(SCRIPT, tmp_path, f"{WHERE} --lanes 12 --print").stdout
    wide = [shlex.split(line) for line in said_all.splitlines() if "private.rows" in line]
    assert [line[line.index("--partitions") + 1] for line in wide] == ["12"]
    broken = planned(
        mutated(SCRIPT, '    kept "$pipeline.private.rows"', '    topic "$pipeline.private.rows"'),
        tmp_path,
        "--lanes 12",
    )
    assert broken.topics != made


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("retention.ms=-1", "retention.ms=604800000"),
        ("unclean.leader.election.enable=false", "cleanup.policy=delete"),
        ("message.timestamp.type=LogAppendTime", "message.timestamp.type=CreateTime"),
    ],
)
def test_other_settings_are_noticed(old: str, new: str, tmp_path: Path) -> None:
    broken = planned(mutated(SCRIPT, old, new), tmp_path).topics
    assert broken != planned(SCRIPT, tmp_path).topics


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("--bootstrap b:1 --pipeline orders --source orders-events", "--engine is missing"),
        (f"{WHERE} --reader", "--reader is not known, or its value is missing"),
        (f"{WHERE} --replication many", "whole numbers"),
        (f"{WHERE} --source orders.events", "where only the engine may write"),
    ],
)
def test_wrong_options_are_refused_at_once(options: str, why: str, tmp_path: Path) -> None:
    run = said(SCRIPT, tmp_path, f"{options} --print" if "--reader" not in options else options)
    assert (run.returncode, run.stdout) == (2, "")
    assert why in run.stderr


def test_shellcheck_is_content(tmp_path: Path) -> None:
    assert said_by("shellcheck", DEPLOY / "kafka" / "setup.sh") == ""
    broken = tmp_path / "setup.sh"
    broken.write_text(mutated(SCRIPT, 'topic "$source"', "topic $source"))
    assert said_by("shellcheck", broken) != ""


def test_a_tool_that_fails_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = tmp_path / "kafka-acls.sh"
    fails.write_text("#!/bin/sh\nexit 1\n")
    fails.chmod(0o755)
    monkeypatch.setenv("KAFKA_BIN", str(tmp_path))
    assert said(SCRIPT, tmp_path, f"{WHERE} --no-topics").returncode == 1
    last = SCRIPT.replace('engine_rights "$engine"\n', "")
    assert said(last, tmp_path, f"{WHERE} --no-topics --reader User:r").returncode == 1
