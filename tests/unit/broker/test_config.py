"""The text of server.properties, and the ports that go into it."""

import socket
from pathlib import Path

import pytest

from stream_dp.broker.process import (
    NodePorts,
    bootstrap,
    choose_ports,
    controller_properties,
    recall_ports,
    remember_ports,
    server_properties,
)
from stream_dp.errors import WorldError

CLUSTER = tuple(NodePorts(n, 9090 + n, 9190 + n) for n in (1, 2, 3))


def settings(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def test_one_node() -> None:
    found = settings(server_properties(CLUSTER[0], CLUSTER[:1]))
    assert found["process.roles"] == "broker,controller"
    assert found["controller.quorum.voters"] == "1@127.0.0.1:9191"
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:9091,CONTROLLER://127.0.0.1:9191"
    assert found["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9091"
    assert {v for k, v in found.items() if "replication.factor" in k or "min.isr" in k} == {"1"}
    assert found["min.insync.replicas"] == "1"


def test_one_node_is_not_fenced_by_itself_where_it_waits_for_a_processor() -> None:
    """With two seconds it was, on a machine at its limit: no topic was made, no record was taken."""
    alone, of_three = (settings(server_properties(CLUSTER[0], CLUSTER[:n])) for n in (1, 3))
    assert int(alone["broker.session.timeout.ms"]) >= 60_000
    assert int(of_three["broker.session.timeout.ms"]) < 10_000, "partitions move while a test waits"


def test_the_former_life_of_one_node_ends_at_once() -> None:
    found = settings(controller_properties(CLUSTER[0], CLUSTER[:1]))
    assert int(found["broker.session.timeout.ms"]) <= 500


def test_three_nodes() -> None:
    texts = [settings(server_properties(own, CLUSTER)) for own in CLUSTER]
    assert [t["node.id"] for t in texts] == ["1", "2", "3"]
    voters = "1@127.0.0.1:9191,2@127.0.0.1:9192,3@127.0.0.1:9193"
    assert {t["controller.quorum.voters"] for t in texts} == {voters}
    assert {v for k, v in texts[1].items() if "replication.factor" in k} == {"3"}
    assert {texts[1]["min.insync.replicas"], texts[1]["transaction.state.log.min.isr"]} == {"2"}
    assert bootstrap(CLUSTER) == "127.0.0.1:9091,127.0.0.1:9092,127.0.0.1:9093"


def test_nothing_expires_and_nothing_is_created_by_itself() -> None:
    found = settings(server_properties(CLUSTER[0], CLUSTER[:1]))
    assert found["log.retention.ms"] == "-1"
    assert int(found["offsets.retention.minutes"]) > 60 * 24 * 365
    assert found["auto.create.topics.enable"] == "false"
    assert found["log.message.timestamp.type"] == "CreateTime"
    assert int(found["message.max.bytes"]) > 1024 * 1024 + 4096


def test_no_path_is_absolute() -> None:
    assert settings(server_properties(CLUSTER[0], CLUSTER))["log.dirs"] == "data"


def test_the_last_ports_are_taken_again_if_free(tmp_path: Path) -> None:
    first = choose_ports(3, None)
    remember_ports(tmp_path / "ports.json", first)
    assert recall_ports(tmp_path / "ports.json") == first
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", first[1].broker))
        again = choose_ports(3, None, first)
    assert again[1].broker != first[1].broker
    assert (again[0], again[2]) == (first[0], first[2])
    assert recall_ports(tmp_path / "nothing.json") == ()


def test_the_controllers_of_a_recovery_have_no_broker() -> None:
    found = settings(controller_properties(CLUSTER[1], CLUSTER))
    assert found["process.roles"] == "controller"
    assert found["listeners"] == "CONTROLLER://127.0.0.1:9192"
    assert found["node.id"] == "2"
    assert "advertised.listeners" not in found


def test_free_ports_are_distinct() -> None:
    chosen = choose_ports(3, None)
    assert len({p for n in chosen for p in (n.broker, n.controller)}) == 6
    assert [n.node for n in chosen] == [1, 2, 3]


def test_a_port_that_is_in_use_is_refused() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        with pytest.raises(WorldError, match=str(port)):
            choose_ports(1, port)
