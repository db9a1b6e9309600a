"""Clients without a broker: settings, secrets, how a connection ends, what errors tell, topics of a slow cluster."""

import asyncio
import logging
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from kafka.certificates import Authority

from stream_dp.engine.lanes.rows import RowSealer
from stream_dp.errors import FailClosed, Outage, UsageError, WorldError
from stream_dp.kafka.client import clients as kafka_client
from stream_dp.kafka.client import topics as kafka_topics
from stream_dp.kafka.client.clients import (
    KafkaSettings,
    disconnect,
    library,
    patiently,
    some_broker,
    speaking,
)
from stream_dp.kafka.client.security import BearerTokens, arguments
from stream_dp.kafka.client.topics import (
    UNCOMPACTED,
    TopicLook,
    administering,
    ensure,
    warnings,
)
from stream_dp.kafka.log import rows as kafka_rows
from stream_dp.kafka.log.lease import KafkaLease
from stream_dp.kafka.log.rows import KafkaRows
from stream_dp.records.endpoints import Security

NOWHERE = KafkaSettings("127.0.0.1:1", patience_s=3)
IN_TIME = 60  # seconds; what is not done then would go on for ever
SECRET = "swordfish"  # noqa: S105 - of these tests only
TOKEN = "aaa.bbb-_~+/.cc=="  # noqa: S105 - of these tests only


def secret(folder: Path, content: str, mode: int = 0o600) -> Path:
    path = folder / "secret"
    path.write_text(content)
    path.chmod(mode)
    return path


def password(path: Path) -> Security:
    login: Any = {"mechanism": "PLAIN", "username": "engine", "password_file": path}
    return Security(protocol="SASL_PLAINTEXT", **login)


def provider(**source: Any) -> BearerTokens:
    security = Security(protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", **source)
    made = arguments(security)["sasl_oauth_token_provider"]
    assert isinstance(made, BearerTokens)
    return made


# --- secrets ------------------------------------------------------------------------------------


def test_a_password_is_read_anew_for_each_client_and_never_shown(tmp_path: Path) -> None:
    settings = KafkaSettings("k:9092", password(secret(tmp_path, "old")))
    secret(tmp_path, f"{SECRET}\r\n", 0o640)  # a group may read it
    assert settings.client()["sasl_plain_password"] == SECRET
    assert SECRET not in repr(settings)


@pytest.mark.parametrize("mode", [0o604, 0o602])
def test_a_secret_that_everybody_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(
        UsageError, match=r"security\.password_file .*can be read by others"
    ) as caught:
        arguments(password(secret(tmp_path, SECRET, mode)))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("content", [b"\n", b"\xff\xfe"])
def test_a_secret_that_is_no_text_is_refused(tmp_path: Path, content: bytes) -> None:
    path = secret(tmp_path, "")
    path.write_bytes(content)
    with pytest.raises(WorldError, match=r"security\.password_file .*holds no text"):
        arguments(password(path))


def test_a_certificate_comes_with_its_key_and_the_keys_password(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    own = authority.sign("engine", password=SECRET.encode())
    tls: Any = {"ca_file": authority.file, "certificate_file": own.certificate, "key_file": own.key}
    security = Security(protocol="SSL", **tls, key_password_file=secret(tmp_path, SECRET))
    context = arguments(security)["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    secret(tmp_path, "wrong")
    with pytest.raises(WorldError, match=r"engine\.key, or the key has another password"):
        arguments(security)
    with pytest.raises(WorldError, match=r"key needs a password \(security\.key_password_file\)"):
        arguments(Security(protocol="SSL", **tls))  # and nobody is asked for it


def test_a_key_that_everybody_may_read_is_refused_also_within_its_certificate(
    tmp_path: Path,
) -> None:
    own = Authority(tmp_path, "authority").sign("engine")
    own.key.chmod(0o644)
    with pytest.raises(UsageError, match=r"security\.key_file .*can be read by others"):
        arguments(Security(protocol="SSL", certificate_file=own.certificate, key_file=own.key))
    both = tmp_path / "both.pem"
    both.write_bytes(own.certificate.read_bytes() + own.key.read_bytes())
    both.chmod(0o644)
    with pytest.raises(UsageError, match=r"security\.certificate_file .*can be read by others"):
        arguments(Security(protocol="SSL", certificate_file=both))
    both.chmod(0o600)
    arguments(Security(protocol="SSL", certificate_file=both))


def test_files_that_cannot_be_used_name_their_key(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path, "authority"), tmp_path / "other.pem"
    other.write_text("nothing")
    own, second = authority.sign("engine"), authority.sign("second")
    gone = tmp_path / "gone"
    tls: list[tuple[dict[str, Any], str]] = [
        ({"ca_file": gone}, r"security\.ca_file .*gone cannot be read: No such"),
        ({"ca_file": other}, r"security\.ca_file .*other.pem holds no certific"),
        ({"certificate_file": gone}, r"security\.certificate_file .*cannot be"),
        (
            {"certificate_file": own.certificate, "key_file": second.key},
            r"no certificate \(PEM\) that matches the key in .*second.key",
        ),
    ]
    unusable = [(Security(protocol="SSL", **keys), says) for keys, says in tls]
    unusable.append((password(gone), r"security\.password_file .*gone cannot be read"))
    for security, says in unusable:
        with pytest.raises(WorldError, match=says):
            arguments(security)


async def test_a_token_file_is_read_at_each_connection(tmp_path: Path) -> None:
    tokens = provider(token_file=secret(tmp_path, f"{TOKEN}\n"))
    assert await tokens.token() == TOKEN
    secret(tmp_path, "next")
    assert await tokens.token() == "next"


async def test_a_token_that_is_none_is_not_repeated(tmp_path: Path) -> None:
    tokens = provider(token_file=secret(tmp_path, f"{SECRET}\x01evil=1"))
    with pytest.raises(OSError, match="no bearer token") as caught:
        await tokens.token()
    assert SECRET not in str(caught.value)
    (tmp_path / "secret").unlink()
    with pytest.raises(OSError, match=r"security\.token failed \(WorldError\)"):
        await tokens.token()


async def test_a_token_may_come_from_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    async def later() -> str:
        return TOKEN

    def broken() -> str:
        raise ValueError(SECRET)

    module = ModuleType("own_tokens")
    vars(module).update(now=lambda: TOKEN, later=later, broken=broken, nothing=3)
    monkeypatch.setitem(sys.modules, "own_tokens", module)

    now, later_on, failing = (
        provider(token=f"own_tokens:{name}") for name in ("now", "later", "broken")
    )
    assert await now.token() == await later_on.token() == TOKEN
    with pytest.raises(OSError, match=r"failed \(ValueError\)") as caught:
        await failing.token()
    assert SECRET not in str(caught.value)
    for named, says in (
        ("own_tokens:nothing", "own_tokens has no function nothing"),
        ("no_such_module:now", r"no_such_module cannot be imported \(ModuleNotFound"),
    ):
        with pytest.raises(UsageError, match=says):
            provider(token=named)


# --- the client library -------------------------------------------------------------------------


def test_the_library_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    library()
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("aiokafka.consumer.fetcher").critical("offset 12345")
    assert "12345" not in caplog.text


def test_offsets_in_the_librarys_errors_do_not_come_through() -> None:
    error = library(".errors").OffsetOutOfRangeError({"place": 12345})
    with pytest.raises(FailClosed) as caught, speaking(NOWHERE, "topic 't'"):
        raise error
    assert "12345" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (library(".errors").TopicAuthorizationFailedError("t"), WorldError, "grant this user"),
        (library(".errors").SaslAuthenticationFailed("no"), WorldError, "user name and password"),
        (library(".errors").UnsupportedSaslMechanismError("no"), WorldError, "mechanism"),
        (ssl.SSLCertVerificationError(1, "CERTIFICATE_VERIFY_FAILED"), WorldError, "no TLS"),
        (ssl.SSLEOFError(8, "EOF"), Outage, "did not answer"),
        (socket.gaierror(-2, "unknown"), Outage, "name of no Kafka broker"),
        (library(".errors").InvalidTopicError("t"), WorldError, "InvalidTopicError"),
        (library(".errors").NotLeaderForPartitionError("t"), Outage, "did not answer"),
        (TimeoutError(), Outage, "did not answer"),
    ],
)
def test_what_may_pass_is_told_from_what_does_not(
    error: Exception, kind: type[Exception], says: str
) -> None:
    with pytest.raises(WorldError, match=says) as caught, speaking(NOWHERE, "topic 't'"):
        raise error
    assert type(caught.value) is kind


async def test_a_look_up_is_repeated_while_that_may_help(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its clock stands still: of the waits, 50 ms and twice as long, the first is within 70 ms on any machine.
    monkeypatch.setattr(kafka_client, "time", SimpleNamespace(monotonic=lambda: 0.0))
    answers: list[Any] = [TimeoutError(), library(".errors").NotLeaderForPartitionError("t"), 7]

    async def look_up() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert await patiently(NOWHERE, "topic 't'", look_up) == 7
    answers += [TimeoutError(), TimeoutError(), 7]
    with pytest.raises(Outage):
        await patiently(replace(NOWHERE, retry_s=0.07), "topic 't'", look_up)
    assert answers == [7]
    answers.insert(0, library(".errors").TopicAuthorizationFailedError("t"))
    with pytest.raises(WorldError, match="denies access"):
        await patiently(NOWHERE, "topic 't'", look_up)
    assert answers == [7]


# --- connections --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (KafkaSettings("no-such-host.invalid:9092", patience_s=9), "can be resolved"),
        (NOWHERE, r"127\.0\.0\.1:1.* no Kafka broker answers|no Kafka broker answers.*127\.0\.0\.1:1"),
    ],
)  # fmt: skip
async def test_why_no_connection_came_about_is_one_line(settings: KafkaSettings, says: str) -> None:
    async with asyncio.timeout(IN_TIME):
        with pytest.raises(WorldError, match=says) as caught:
            await KafkaLease(settings, "p").start()
    assert type(caught.value) is Outage
    assert "\n" not in str(caught.value)


async def test_a_server_that_is_no_broker_is_noticed_in_time() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.set()

    left = asyncio.Event()
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server, asyncio.timeout(IN_TIME):
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(WorldError):
            await KafkaLease(KafkaSettings(f"127.0.0.1:{port}", patience_s=1), "p").start()
        await left.wait()


async def test_a_listener_without_tls_is_told_from_one_that_is_silent() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"this is no TLS record, whatever it is")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    async with server, asyncio.timeout(IN_TIME):
        port = server.sockets[0].getsockname()[1]
        settings = KafkaSettings(f"127.0.0.1:{port}", Security(protocol="SSL"), patience_s=3)
        with pytest.raises(WorldError, match="no TLS connection") as caught:
            await KafkaLease(settings, "p").start()
    assert type(caught.value) is WorldError


class Stubborn:
    """A client whose `stop` ends as `how` says; what it holds is closed after that."""

    def __init__(self, how: str) -> None:
        self.how = how
        self._fetcher, self._client = Part(), Part()

    async def stop(self) -> None:
        if self.how == "cancels":
            inner = asyncio.ensure_future(asyncio.sleep(9))
            inner.cancel()
            await inner
        if self.how == "hangs":
            await asyncio.sleep(99)
        raise OSError


class Part:
    closed = False

    async def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("how", ["cancels", "hangs", "fails"])
async def test_a_client_that_does_not_stop_is_taken_apart_in_time(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_client, "_CLOSING_S", 0.1)
    monkeypatch.setattr(kafka_client, "_CLOSER_S", 0.1)
    client = Stubborn(how)
    async with asyncio.timeout(IN_TIME):
        await disconnect(client)
    assert client._fetcher.closed
    assert client._client.closed


async def test_a_disconnection_that_is_cancelled_ends_and_stays_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_client, "_CLOSER_S", 0.1)
    client = Stubborn("hangs")
    task = asyncio.create_task(disconnect(client))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert client._client.closed


# --- topics -------------------------------------------------------------------------------------


def test_a_warning_is_one_line_for_all_its_topics() -> None:
    assert warnings({"a": "one copy", "b": "one copy", "c": ""}) == ("a and b: one copy",)
    assert warnings({"a": "x", "b": "y"}) == ("a: x", "b: y")


UNKNOWN, DENIED, FINE = 3, 29, 0


class Cluster:
    """Has the topic; of its settings it gives these answers, one after the other."""

    codes: list[int]

    async def describe_topics(self) -> list[dict[str, Any]]:
        partition = {"partition": 0, "leader": 1, "replicas": [1, 2, 3]}
        return [{"topic": "t", "partitions": [partition]}]

    async def describe_cluster(self) -> dict[str, Any]:
        return {"brokers": [{"host": name} for name in "abc"]}

    async def describe_configs(self, _: object) -> list[Any]:
        entries = [("cleanup.policy", "delete"), ("min.insync.replicas", "2")]
        return [SimpleNamespace(resources=[(self.codes.pop(0), "", 2, "t", entries)])]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()

    @asynccontextmanager
    async def administering(*_: object) -> AsyncIterator[Cluster]:
        yield made

    monkeypatch.setattr(kafka_topics, "administering", administering)
    return made


async def test_a_broker_that_does_not_know_the_topic_yet_is_asked_again(cluster: Cluster) -> None:
    cluster.codes = [UNKNOWN, UNKNOWN, FINE]
    assert await ensure(KafkaSettings("kafka:9092"), "t", UNCOMPACTED) == ""
    assert cluster.codes == []


async def test_a_broker_that_denies_is_not_asked_again(cluster: Cluster) -> None:
    cluster.codes = [DENIED, FINE]
    with pytest.raises(WorldError, match="grant this user the rights"):
        await ensure(KafkaSettings("kafka:9092"), "t", UNCOMPACTED)
    assert cluster.codes == [FINE]


class Nodes:
    """A client that knows nodes 1 to 3, of which these answer; it takes the first at random."""

    def __init__(self, *up: int) -> None:
        self._up = up
        self.cluster = SimpleNamespace(
            brokers=lambda: [SimpleNamespace(nodeId=n) for n in (1, 2, 3)]
        )

    def get_random_node(self) -> int:
        return 1

    async def ready(self, node: int) -> bool:
        return node in self._up


async def test_a_broker_that_is_away_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [await some_broker(Nodes(*up)) for up in ((1, 2), (2, 3), (3,))] == [1, 2, 3]
    with pytest.raises(library(".errors").KafkaConnectionError):
        await some_broker(Nodes())

    class Admin:
        _client = Nodes(3)

        def __init__(self, **_: object) -> None: ...

        async def _send_request(self, request: str, node: int | None = None) -> tuple[str, Any]:
            return request, node

    fake = {".admin": SimpleNamespace(AIOKafkaAdminClient=Admin)}
    monkeypatch.setattr(kafka_topics, "library", lambda part: fake.get(part) or library(part))
    monkeypatch.setattr(kafka_topics, "connected", lambda *_: nullcontext())
    async with administering(KafkaSettings("kafka:9092"), "a test") as admin:
        assert await admin._send_request("any") == ("any", 3)
        assert await admin._send_request("the second", 2) == ("the second", 2)


async def test_rows_that_cannot_be_opened_leave_no_client_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, made = KafkaRows(NOWHERE, "shop", RowSealer(bytes(32), "shop"), 2, ""), list[Any]()
    consumer = rows._consumer

    async def look(_: KafkaRows) -> TopicLook:
        return TopicLook("id", (0, 1))

    async def away(*_: object) -> None:
        raise Outage("no broker answers")

    def noted(level: str) -> Any:
        made.append(consumer(level))
        return made[-1]

    monkeypatch.setattr(KafkaRows, "_look", look)
    monkeypatch.setattr(rows, "_consumer", noted)
    monkeypatch.setattr(kafka_rows, "connect", away)
    with pytest.raises(Outage):
        await rows.open()
    await rows.close()
    assert [client._closed for client in made] == [True] * 3
