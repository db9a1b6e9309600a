"""What is about to come is waited for: brokers that do not answer yet, a page that nobody serves yet.

Nothing sleeps until some time: what is waited for comes when the one who waits says that he does.
"""

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest
from free_ports import free_port

from stream_dp.errors import Outage, WorldError
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.operate.query import remote_series
from stream_dp.operate.run import settings

SETTINGS = KafkaSettings("127.0.0.1:9")
WAITS = "Waiting for Kafka at 127.0.0.1:9, for 60 s at most"


class Brokers:
    """A cluster that answers each look as it was told: with an error, or with the brokers it names."""

    def __init__(self, *answers: Exception | list[str]) -> None:
        self.answers = [*answers]

    @asynccontextmanager
    async def administering(self, *_: Any) -> AsyncIterator["Brokers"]:
        if isinstance(answer := self.answers.pop(0), Exception):
            raise answer
        self.named = answer
        yield self

    async def describe_cluster(self) -> dict[str, Any]:
        return {"brokers": self.named}


def said_while(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that whoever waits for these brokers will say."""
    monkeypatch.setattr(settings, "administering", brokers.administering)
    monkeypatch.setattr(settings, "_AGAIN_S", 0.0)
    return []


async def test_brokers_that_come_later_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(Outage("nobody"), Outage("nobody"), [], ["one"])
    said = said_while(brokers, monkeypatch)
    await settings.brokers_there(SETTINGS, said.append)
    assert (said, brokers.answers) == ([WAITS], [])


async def test_brokers_that_are_there_are_not_talked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    said = said_while(brokers := Brokers(["one"]), monkeypatch)
    await settings.brokers_there(SETTINGS, said.append)
    assert (said, brokers.answers) == ([], [])


async def test_what_waiting_would_not_help_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said = said_while(Brokers(WorldError("wrong password")), monkeypatch)
    with pytest.raises(WorldError, match="wrong password"):
        await settings.brokers_there(SETTINGS, said.append)
    assert said == []


async def test_brokers_that_never_come_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said = said_while(Brokers(Outage("nobody")), monkeypatch)
    monkeypatch.setattr(settings, "WAIT_S", 0.0)
    with pytest.raises(Outage, match="nobody"):
        await settings.brokers_there(SETTINGS, said.append)


@pytest.fixture
def later() -> Iterator[socket.socket]:
    """A socket that is not open yet."""
    with closing(socket.socket()) as made:
        yield made


def test_a_page_that_comes_later_is_waited_for(later: socket.socket) -> None:
    port, said = free_port(), []

    def tell(line: str) -> None:
        said.append(line)
        later.bind(("127.0.0.1", port))
        later.listen()

    remote_series.page_there(f"http://127.0.0.1:{port}", tell)
    assert said == [
        f"Waiting for the page of an engine at http://127.0.0.1:{port}, for 60 s at most"
    ]


def test_a_page_that_never_comes_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_series, "WAIT_S", 0.0)
    remote_series.page_there(f"http://127.0.0.1:{free_port()}", pytest.fail)


def test_a_page_that_is_there_is_not_talked_about(later: socket.socket) -> None:
    later.bind(("127.0.0.1", 0))
    later.listen()
    remote_series.page_there(f"http://127.0.0.1:{later.getsockname()[1]}", pytest.fail)
