"""Kafka settings and error texts, without a broker."""

import asyncio
import builtins
import logging
import socket
import ssl
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stream_dp.errors import FailClosed, Outage, UsageError, WorldError
from stream_dp.kafka.client import clients as kafka_client
from stream_dp.kafka.client.clients import KafkaSettings, disconnect, library, patiently, speaking
from stream_dp.kafka.client.security import KafkaSecurity
from stream_dp.kafka.client.topics import warnings
from stream_dp.kafka.log.lease import KafkaLease

NOWHERE = KafkaSettings("127.0.0.1:1", patience_s=3)
IN_TIME = 60  # seconds; what is not done then would go on for ever
SECRET = "swordfish"  # noqa: S105 - of this test only


def test_passwords_come_from_files_and_show_in_no_repr(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text(f"{SECRET}\n")
    secret.chmod(0o600)
    settings = KafkaSettings(
        "k:9092", KafkaSecurity("SASL_PLAINTEXT", "SCRAM-SHA-512", "engine", secret)
    )
    assert settings.client()["sasl_plain_password"] == SECRET
    assert SECRET not in repr(settings)


def test_a_missing_password_file_is_named(tmp_path: Path) -> None:
    settings = KafkaSettings(
        "k:9092", KafkaSecurity("SASL_PLAINTEXT", "PLAIN", "engine", tmp_path / "gone")
    )
    with pytest.raises(WorldError, match=r"security\.password_file .*gone cannot be read"):
        settings.client()


@pytest.mark.parametrize(
    "wrong",
    [
        {"protocol": "TLS"},
        {"protocol": "SASL_SSL", "mechanism": "GSSAPI"},
        {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "engine"},
        {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER"},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"security\."):
        KafkaSecurity(**wrong)


def test_without_the_extra_its_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.split(".")[0] == "aiokafka"]:
        monkeypatch.delitem(sys.modules, name)
    found = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "aiokafka":
            raise ModuleNotFoundError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    with pytest.raises(UsageError, match=r"stream_dp\[kafka\]"):
        library()


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


async def test_an_unreachable_broker_is_one_line_in_time() -> None:
    async with asyncio.timeout(IN_TIME):
        with pytest.raises(WorldError, match=r"127\.0\.0\.1:1") as caught:
            await KafkaLease(NOWHERE, "p").start()
    assert "\n" not in str(caught.value)


async def test_a_server_that_is_no_broker_is_noticed_in_time() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.set()

    left = asyncio.Event()
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        settings = KafkaSettings(f"127.0.0.1:{port}", patience_s=1)
        async with asyncio.timeout(IN_TIME):
            with pytest.raises(WorldError):
                await KafkaLease(settings, "p").start()
        await left.wait()


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


def test_one_warning_is_one_line_for_all_its_topics() -> None:
    assert warnings({"a": "one copy", "b": "one copy", "c": ""}) == ("a and b: one copy",)
    assert warnings({"a": "x", "b": "y"}) == ("a: x", "b: y")


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
        (library(".errors").KafkaTimeoutError(), Outage, "did not answer"),
        (library(".errors").KafkaError("went away"), Outage, "did not answer"),
        (TimeoutError(), Outage, "did not answer"),
        (ConnectionResetError(), Outage, "did not answer"),
    ],
)
def test_what_may_pass_is_told_from_what_does_not(
    error: Exception, kind: type[Exception], says: str
) -> None:
    with pytest.raises(WorldError, match=says) as caught, speaking(NOWHERE, "topic 't'"):
        raise error
    assert type(caught.value) is kind


async def test_a_look_up_is_repeated_while_that_may_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock stands still: of the waits, 50 ms and twice as long, the first is within 70 ms on any machine."""
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


@pytest.mark.parametrize(
    ("settings", "kind", "says"),
    [
        (KafkaSettings("no-such-host.invalid:9092", patience_s=9), Outage, "can be resolved"),
        (NOWHERE, Outage, "no Kafka broker answers"),
    ],
)
async def test_why_no_connection_came_about_is_told(
    settings: KafkaSettings, kind: type[Exception], says: str
) -> None:
    async with asyncio.timeout(IN_TIME):
        with pytest.raises(WorldError, match=says) as caught:
            await KafkaLease(settings, "p").start()
    assert type(caught.value) is kind


async def test_a_listener_without_tls_is_told_from_one_that_is_silent() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"this is no TLS record, whatever it is")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    async with server, asyncio.timeout(IN_TIME):
        port = server.sockets[0].getsockname()[1]
        settings = KafkaSettings(f"127.0.0.1:{port}", KafkaSecurity("SSL"), patience_s=3)
        with pytest.raises(WorldError, match="no TLS connection") as caught:
            await KafkaLease(settings, "p").start()
    assert type(caught.value) is WorldError
