"""Every command on a Kafka that asks for a login: by SCRAM, PLAIN over TLS, a client certificate, a bearer token."""

import asyncio
import gc
import json
from pathlib import Path
from typing import Any

import pytest
from kafka.certificates import Authority
from kafka.kafka_worlds import visible
from kafka.secured_broker import PASSWORD, WAYS, Secured
from kafka.secured_worlds import TICKS, SecuredWorld

from stream_dp.operate.run import settings

UNREACHABLE = 5


@pytest.fixture
def world(
    secured: Secured, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> SecuredWorld:
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(settings, "WAIT_S", 0.0)  # the broker is there
    return SecuredWorld(secured, tmp_path, name, "SCRAM")


@pytest.mark.parametrize("way", WAYS)
def test_every_command_logs_in(
    world: SecuredWorld, way: str, capfd: pytest.CaptureFixture[str]
) -> None:
    mine = world._replace(way=way).write()
    mine.grant()
    assert mine.command("topic", mine.topic, "--pipeline", mine.file, "--partitions", 2) == 0
    assert mine.feed() == 0
    assert mine.command("run", mine.file, "--until-end", "--key-file", mine.key()) == 0
    assert mine.command("dead-letters", mine.file, "--key-file", mine.key()) == 0
    assert mine.command("ledger", mine.file, "--key-file", mine.key(), "--json") == 0
    said = capfd.readouterr()
    assert json.loads(said.out.splitlines()[-1])["ticks"] == TICKS
    token = (mine.secured.folder / "token").read_text() if way == "OAUTH" else PASSWORD
    assert PASSWORD not in said.out + said.err
    assert token not in said.out + said.err
    releases = asyncio.run(visible(mine.secured.admin, f"{mine.name}.releases"))
    assert [json.loads(one.value)["tick"] for one in releases] == list(range(TICKS))


def test_without_a_pipeline_file_the_environment_says_how_to_log_in(
    world: SecuredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.grant()
    where = ("--bootstrap", world.secured.at("SCRAM"))
    assert world.command("topic", world.topic, *where) == UNREACHABLE
    for key, value in world.secured.yaml("SCRAM").items():
        monkeypatch.setenv(f"STREAM_DP_KAFKA_{key.upper()}", value)
    assert world.command("topic", world.topic, *where) == 0


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the library forgets one it was refused on
def test_who_is_not_known_does_not_get_in(world: SecuredWorld) -> None:
    secured = world.secured
    wrong = secured.secret("wrong", "sardine")
    stranger = Authority(world.folder, "stranger")
    late = secured.authority.sign("late", days=-1)
    cases: list[tuple[str, dict[str, Any]]] = [
        ("SCRAM", {"password_file": wrong}),
        ("PLAIN", {"password_file": wrong}),
        ("PLAIN", {"ca_file": stranger.file}),
        ("MTLS", {"certificate_file": None, "key_file": None}),
        ("MTLS", {"certificate_file": late.certificate, "key_file": late.key}),
        ("OAUTH", {"token_file": secured.secret("bad-token", "nonsense")}),
    ]
    for way, changes in cases:
        mine = world._replace(way=way).write(**changes)
        mine.grant()
        run = ("run", mine.file, "--until-end", "--key-file", mine.key())
        assert mine.command(*run) == UNREACHABLE, (way, changes)
    gc.collect()  # here, and not in another test
