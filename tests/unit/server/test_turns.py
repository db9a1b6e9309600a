"""However many ask, and whatever they ask for, most of the loop's time stays the engine's.

Rules: no assertion has an upper bound in seconds; that a pause is at least as long as it must be holds on any machine.
"""

import asyncio
import socket
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import pytest

from stream_dp.server.broadcast import SHARE, Turns
from stream_dp.server.connections import BoundedProtocol
from stream_dp.server.server import PageServer
from stream_dp.server.view import PublicView

BURNT_S = 0.004
LONGEST_S = 1.0
EARLY_S = 0.002  # the loop's clock may be read a moment before a turn begins
ASKED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Span(NamedTuple):
    """When a piece of work began and ended, by the loop's clock."""

    began: float
    ended: float


def burn(seconds: float) -> Span:
    """Keep the loop busy."""
    now = asyncio.get_running_loop().time
    began = now()
    while now() < began + seconds:
        pass
    return Span(began, now())


def owed(spans: list[Span]) -> list[float]:
    """By how much each pause falls short of what the work before it took; above EARLY_S is too short.

    No pause is longer than LONGEST_S, which a machine that stands still for a moment would call for.
    """
    pauses = ((two.began - one.ended, one.ended - one.began) for one, two in pairwise(spans))
    return [min(took * (1 / SHARE - 1), LONGEST_S) - pause for pause, took in pauses]


async def flood(server: PageServer, clients: int, requests: int) -> None:
    """Ask so often over so many connections, all at once and without waiting for answers."""
    port = int(server.url.rstrip("/").rpartition(":")[2])

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(ASKED * requests)
        for _ in range(requests):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            await reader.readuntil(b"}")
        writer.close()

    await asyncio.gather(*(one() for _ in range(clients)))


async def spans_of_a_flood(view: PublicView) -> list[Span]:
    """The work of requests that cost some milliseconds each, from clients who do not wait."""
    spans: list[Span] = []

    def catching_up() -> bool:
        spans.append(burn(BURNT_S))
        return False

    server = PageServer(replace(view, catching_up=catching_up))
    await server.start(port=0)
    await flood(server, clients=5, requests=6)
    await server.stop()
    return spans


async def test_a_flood_of_requests_leaves_the_loop_to_the_engine(view: PublicView) -> None:
    spans = await spans_of_a_flood(view)
    assert len(spans) == 30
    assert max(owed(spans)) < EARLY_S


async def test_without_turns_it_would_not(
    view: PublicView, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(self: BoundedProtocol, *asked: object) -> None:
        await self._answer(*asked)

    monkeypatch.setattr(BoundedProtocol, "_in_turn", at_once)
    assert max(owed(await spans_of_a_flood(view))) > EARLY_S


async def test_turns_are_taken_in_order_one_at_a_time() -> None:
    turns, order = Turns(), []

    async def one(number: int) -> None:
        turn = await turns.take(lambda: True)
        assert turn is not None
        order.append(number)
        await asyncio.sleep(0)
        order.append(number)
        turn.end()
        turn.end()

    await asyncio.gather(*map(one, range(5)))
    assert order == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


async def test_one_that_waits_for_something_else_holds_up_nobody() -> None:
    turns = Turns()
    assert await turns.take(lambda: True) is not None
    assert await turns.take(lambda: True) is not None  # the first one never ended


async def test_whoever_is_gone_takes_no_turn() -> None:
    turns = Turns()
    assert await turns.take(lambda: False) is None
    first = await turns.take(lambda: True)
    assert first is not None
    waiting = asyncio.create_task(turns.take(lambda: True))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    first.end()
    last = await turns.take(lambda: True)
    assert last is not None
    last.end()


async def test_requests_of_clients_that_left_are_not_answered(view: PublicView) -> None:
    asked = 0

    def catching_up() -> bool:
        nonlocal asked
        asked += 1
        burn(BURNT_S)
        return False

    server = PageServer(replace(view, catching_up=catching_up))
    await server.start(port=0)
    port = int(server.url.rstrip("/").rpartition(":")[2])
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(ASKED)
    await flood(server, clients=1, requests=1)
    await server.stop()
    assert asked < 20
