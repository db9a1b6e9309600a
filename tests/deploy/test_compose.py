"""deploy/compose.yaml: it keeps the schema of the compose specification, and the rules of a hardened service.

Rules: no Docker here. The schema is the one that the package check-jsonschema has; every check is shown a broken file.
"""

import json
import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
import yaml
from deploy.deploy_files import DEPLOY, ENDS_WITHIN_S, mutated, unknown_words

from stream_dp.pipeline.yaml import load

FILE = (DEPLOY / "compose.yaml").read_text()
SCHEMA = json.loads(
    (files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json").read_text()
)
ONCE = {"topic"}
_IMAGE = re.compile(r"[\w./-]+:v?\d+\.\d+\.\d+")


def against_schema(compose: dict[str, Any]) -> Iterator[str]:
    for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(compose):
        yield f"{'.'.join(map(str, error.path))}: {error.message}"


def hardening(compose: dict[str, Any]) -> Iterator[str]:
    for name, service in compose["services"].items():
        if service.get("cap_drop") != ["ALL"] or service.get("privileged") or "cap_add" in service:
            yield f"{name}: keeps capabilities"
        if "no-new-privileges:true" not in service.get("security_opt", []):
            yield f"{name}: may gain privileges"
        if not name.startswith("kafka-") and not service.get("read_only"):
            yield f"{name}: may write into its image"
        if not _IMAGE.fullmatch(service["image"]):
            yield f"{name}: its image is not pinned to a version"
        if any(not str(port).startswith("127.0.0.1:") for port in service.get("ports", [])):
            yield f"{name}: can be reached from other machines"
        if any(
            re.search("PASSWORD$|SECRET$|KEY$|TOKEN$", key)
            for key in service.get("environment", {})
        ):
            yield f"{name}: a secret as a value"


def life(compose: dict[str, Any]) -> Iterator[str]:
    for name, service in compose["services"].items():
        restart = service.get("restart", "no")
        if restart != "unless-stopped" and not re.fullmatch(r"on-failure:\d+", restart):
            yield f"{name}: restart is {restart}"
        if "stream-dp" in service["image"] and not restart.startswith("on-failure"):
            yield f"{name}: is started again whatever it says"
        ours = "stream-dp" in service["image"]
        if name not in ONCE and not ours and "healthcheck" not in service:
            yield f"{name}: nobody asks how it is"
        grace = re.fullmatch(r"(\d+)(s|m)", service.get("stop_grace_period", "10s"))
        assert grace is not None
        if ours and int(grace[1]) * (60 if grace[2] == "m" else 1) < ENDS_WITHIN_S:
            yield f"{name}: is killed before it has ended"
        for other in service.get("depends_on", {}):
            if other not in compose["services"]:
                yield f"{name}: waits for {other}, which is not there"


def files_there(compose: dict[str, Any]) -> Iterator[str]:
    for name, service in compose["services"].items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if not (
                (DEPLOY / source).exists() if source[0] == "." else source in compose["volumes"]
            ):
                yield f"{name}: no {source}"
        for what in ("secrets", "networks"):
            named = service.get(what, [])
            yield from (f"{name}: no {one} in {what}" for one in named if one not in compose[what])


def our_commands(compose: dict[str, Any]) -> Iterator[str]:
    for name, service in compose["services"].items():
        if not service["image"].startswith("stream-dp:"):
            continue
        command = service["command"]
        yield from (f"{name}: no {word}" for word in unknown_words(command))
        mounted = {volume.split(":")[1].rpartition("/")[2] for volume in service.get("volumes", [])}
        if command[0] in ("run", "worker") and not {command[1]} <= mounted:
            yield f"{name}: no {command[1]}"
        if command[0] == "run" and "--standby" not in command:
            yield f"{name}: takes over from the other one"
        if command[0] == "run" and command[command.index("--log-format") + 1] != "json":
            yield f"{name}: logs for people"
        if command[0] == "run" and "stream-dp.key" not in service["secrets"]:
            yield f"{name}: no key"
        if command[0] == "worker" and service["secrets"] != ["worker.key"]:
            yield f"{name}: has other keys than a worker's"
        if command[0] == "worker" and command[2:] != ["--key-file", "/run/secrets/worker.key"]:
            yield f"{name}: takes another key"
        if command[0] == "worker" and (service["networks"], "ports" in service) != (
            ["brokers"],
            False,
        ):
            yield f"{name}: can be reached, or reaches others than brokers"


def figures(compose: dict[str, Any]) -> Iterator[str]:
    """Who but the operator can come to the exact figures."""
    scrapers = {
        n for n, one in compose["services"].items() if "scraper.token" in one.get("secrets", [])
    }
    tellers = set()
    for name, service in compose["services"].items():
        command = service.get("command", [])
        if "--operator-port" not in command:
            continue
        tellers.add(name)
        token = command[command.index("--operator-token-file") + 1].rpartition("/")[2]
        if token not in service["secrets"]:
            yield f"{name}: its figures have no token"
    inside = {n for n, one in compose["services"].items() if "operated" in one["networks"]}
    if not compose["networks"]["operated"].get("internal") or inside != tellers | scrapers:
        yield f"others than the operator are in the network of the figures: {inside}"
    if any("watched" in compose["services"][name]["networks"] for name in scrapers):
        yield "dashboards reach the operator's Prometheus"
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "operator.yaml").read_text())
    (job,) = scraped["scrape_configs"]
    targets = {one for static in job["static_configs"] for one in static["targets"]}
    if targets != {f"{name}:9911" for name in tellers}:
        yield f"scraped: {targets}"


CHECKS = (against_schema, hardening, life, files_there, our_commands, figures)


@pytest.mark.parametrize("check", CHECKS)
def test_it_is_well(check: Callable[[dict[str, Any]], Iterator[str]]) -> None:
    assert list(check(yaml.safe_load(FILE))) == []


@pytest.mark.parametrize(
    ("check", "old", "new"),
    [
        (against_schema, "mem_limit: 1g", "memory_limit: 1g"),
        (hardening, "cap_drop: [ALL]", "cap_drop: []"),
        (hardening, "  read_only: true\n  tmpfs: [/tmp]\n  secrets", "  tmpfs: [/tmp]\n  secrets"),
        (hardening, "prom/prometheus:v3.5.0", "prom/prometheus:latest"),
        (hardening, "127.0.0.1:3000:3000", "3000:3000"),
        (hardening, "GF_SECURITY_ADMIN_PASSWORD__FILE: /run", "GF_SECURITY_ADMIN_PASSWORD: /run"),
        (life, "restart: on-failure:20", "restart: always"),
        (life, "stop_grace_period: 20s", "stop_grace_period: 5s"),
        (life, "    topic: {condition", "    topics: {condition"),
        (files_there, "./orders.yaml:/etc", "./order.yaml:/etc"),
        (files_there, "secrets: [stream-dp.key, ", "secrets: [stream-dp, "),
        (files_there, "networks: [brokers, watched, ope", "networks: [brokers, front, ope"),
        (figures, "secrets/figures.token]", "secrets/other.token]"),
        (figures, "operated: {internal: true}", "operated: {}"),
        (figures, "networks: [operated, outside]", "networks: [operated, watched, outside]"),
        (our_commands, "--allow-host, engine", "--allow-hosts, engine"),
        (our_commands, "--standby, ", ""),
        (our_commands, "--log-format, json", "--log-format, text"),
        (our_commands, "secrets: [worker.key]", "secrets: [stream-dp.key]"),
        (our_commands, "--key-file, /run/secrets/worker.key", "--key-file, /run/secrets/other"),
        (
            our_commands,
            "networks: [brokers]\n    secrets: [worker",
            "networks: [outside]\n    secrets: [worker",
        ),
    ],
)
def test_a_broken_file_is_noticed(
    check: Callable[[dict[str, Any]], Iterator[str]], old: str, new: str
) -> None:
    assert list(check(yaml.safe_load(mutated(FILE, old, new)))) != []


def test_brokers_know_each_other() -> None:
    compose = yaml.safe_load(FILE)
    brokers = {name: one for name, one in compose["services"].items() if name.startswith("kafka-")}
    voters = {f"{one['environment']['KAFKA_NODE_ID']}@{name}:9093" for name, one in brokers.items()}
    for name, one in brokers.items():
        assert set(one["environment"]["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(",")) == voters
        assert one["environment"]["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{name}:9092"
        assert one["hostname"] == name


def test_the_pipeline_is_one_of_these_brokers() -> None:
    spec = load(DEPLOY / "orders.yaml")
    brokers = [name for name in yaml.safe_load(FILE)["services"] if name.startswith("kafka-")]
    assert spec.source.bootstrap == ",".join(f"{name}:9092" for name in brokers)  # type: ignore[attr-defined]  # Kafka's
    assert spec.source.topic == yaml.safe_load(FILE)["services"]["topic"]["command"][1]  # type: ignore[attr-defined]
