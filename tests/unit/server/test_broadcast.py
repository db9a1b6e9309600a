"""The stream: after a position every later release, once, in order, as its exact bytes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest

from stream_dp.journal.commit import Release
from stream_dp.server.broadcast import Broadcast
from stream_dp.server.view import PublicView, ReleaseLog

MakeRelease = Callable[..., Release]


async def events(source: AsyncIterator[bytes], last: int) -> list[tuple[int, bytes]]:
    """Read (id, data) until the release `last`."""
    found: list[tuple[int, bytes]] = []
    async with asyncio.timeout(120):
        async for chunk in source:
            for block in chunk.split(b"\n\n"):
                if block.startswith(b"id: "):
                    name, data = block.split(b"\n", 1)
                    found.append((int(name[4:]), data.removeprefix(b"data: ")))
            if found and found[-1][0] >= last:
                break
    return found


async def test_it_opens_with_the_head(view: PublicView) -> None:
    opening = await anext(Broadcast(view).events(None))
    assert b"event: head\n" in opening
    data = opening.split(b"data: ")[1]
    assert json.loads(data) == {"sequence": 5, "fingerprint": "f1"}
    assert b"id:" not in opening


async def test_it_resumes_after_a_position(view: PublicView, log: ReleaseLog) -> None:
    found = await events(Broadcast(view).events(2), 5)
    assert found == [(release.sequence, release.body) for release in log.since(2)]


async def test_without_a_position_it_starts_with_the_next_release(
    view: PublicView, log: ReleaseLog, release: MakeRelease
) -> None:
    source = Broadcast(view).events(None)
    await anext(source)
    log.append(release(6))
    assert [name for name, _ in await events(source, 6)] == [6]


async def test_a_slow_client_misses_nothing_among_ten_thousand(
    view: PublicView, log: ReleaseLog, release: MakeRelease
) -> None:
    source = Broadcast(view).events(-1)
    await anext(source)
    await anext(source)  # and then it does not read for long
    for sequence in range(6, 10_000):
        log.append(release(sequence))
    found = await events(source, 9_999)
    assert [name for name, _ in found] == list(range(6, 10_000))


async def test_reconnecting_at_any_moment_makes_no_gap_and_no_repeat(
    view: PublicView, log: ReleaseLog, release: MakeRelease
) -> None:
    for sequence in range(6, 1_000):
        log.append(release(sequence))
    seen: list[int] = []
    broadcast = Broadcast(view)
    for cut in range(70, 1_000, 93):
        part = await events(broadcast.events(seen[-1] if seen else -1), cut)
        seen += [name for name, _ in part]
    assert seen == list(range(len(seen)))
    assert len(seen) > 900


async def test_silence_is_filled_with_comments(view: PublicView) -> None:
    source = Broadcast(view, heartbeat=0.001).events(None)
    await anext(source)
    comment = await anext(source)
    assert comment.startswith(b":")
    assert comment.endswith(b"\n\n")


async def test_a_position_that_was_forgotten_is_told(
    view: PublicView, release: MakeRelease
) -> None:
    log = ReleaseLog(keep=2)
    for sequence in range(10):
        log.append(release(sequence))
    source = Broadcast(PublicView(view.pipeline, view.plan, view.budget, log)).events(3)
    await anext(source)
    assert (await anext(source)).startswith(b"event: gap\n")
    assert [name for name, _ in await events(source, 9)] == [8, 9]


async def test_a_reader_that_is_overtaken_is_told_once_for_what_it_lost(
    view: PublicView, release: MakeRelease
) -> None:
    log = ReleaseLog(keep=70)
    for sequence in range(70):
        log.append(release(sequence))
    source = Broadcast(PublicView(view.pipeline, view.plan, view.budget, log)).events(-1)
    await anext(source)
    assert (await anext(source)).startswith(b"id: 0\n")
    for sequence in range(70, 300):
        log.append(release(sequence))
    assert (await anext(source)).startswith(b"event: gap\n")
    assert (await anext(source)).startswith(b"id: 230\n")
    for sequence in range(300, 310):
        log.append(release(sequence))
    assert (await anext(source)).startswith(b"id: 294\n"), "nothing is lost to this one"


async def test_close_ends_every_stream(view: PublicView) -> None:
    broadcast = Broadcast(view)

    async def read() -> None:
        async for _ in broadcast.events(None):
            pass

    readers = [asyncio.create_task(read()) for _ in range(20)]
    await asyncio.sleep(0)
    broadcast.close()
    async with asyncio.timeout(60):
        await asyncio.gather(*readers)


@pytest.mark.parametrize("limit", [1, 64, 65])
async def test_a_part_is_never_large(
    view: PublicView, log: ReleaseLog, release: MakeRelease, limit: int
) -> None:
    for sequence in range(6, 6 + limit):
        log.append(release(sequence))
    source = Broadcast(view).events(5)
    await anext(source)
    assert (await anext(source)).count(b"id: ") == min(limit, 64)
