"""The release log, its stream and long histories: published bytes, in order, a part at a time, in bounded memory."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from unit.server.conftest import connected, listening

from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Release
from stream_dp.journal.release import release_of
from stream_dp.server import api
from stream_dp.server.broadcast import (
    LARGEST_PART,
    Broadcast,
    Overtaken,
    Turns,
    first_part,
    history,
    in_one_part,
)
from stream_dp.server.connections import BoundedProtocol
from stream_dp.server.view import PublicView, ReleaseLog

MakeRelease = Callable[..., Release]
WIDE, TICKS = 8_000, 2_500  # 20 MB
LARGEST_SHARE = 1 / 8
ASKED = b"GET /api/series/total HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def long_log(release: MakeRelease, ticks: int = TICKS, keep: int | None = None) -> ReleaseLog:
    """A log of one series that was released so often, each time in `WIDE` bytes or so."""
    log = ReleaseLog(keep)
    for tick in range(ticks):
        log.append(release(tick, value=tick, padding="x" * WIDE))
    return log


def joined(log: ReleaseLog) -> bytes:
    return b'{"series":"total","releases":[%s]}' % b",".join(one.body for one in log.since(-1))


@pytest.mark.parametrize("ticks", [0, 7, 8, 9, 100])
async def test_histories_are_bytes(view: PublicView, release: MakeRelease, ticks: int) -> None:
    log = long_log(release, ticks)
    async with connected(replace(view, log=log)) as client:
        answer = await client.get("/api/series/total")
    assert answer.content == joined(log)
    assert answer.headers["content-type"] == "application/json"
    assert ("content-length" in answer.headers) == (ticks * WIDE < LARGEST_PART)


async def test_parts_are_bounded_and_one_release_at_least(release: MakeRelease) -> None:
    log = long_log(release, 100)
    parts = [part async for part in history(log, "total", range(100))]
    assert b"".join(parts) == joined(log)
    assert max(map(len, parts)) < LARGEST_PART + WIDE
    assert len(parts) > 100 * WIDE // LARGEST_PART
    wide = release(0, padding="x" * 2 * LARGEST_PART)
    assert first_part([wide, wide]) == [wide]
    assert first_part([]) == []


async def test_what_is_released_meanwhile_is_not_in_it(release: MakeRelease) -> None:
    log = long_log(release, 20)
    before, parts = joined(log), history(log, "total", log.places_between("total", 0, 99))
    found = await anext(parts)
    log.append(release(20))
    assert found + b"".join([part async for part in parts]) == before


async def test_a_client_that_is_too_slow_sees_it(release: MakeRelease) -> None:
    """A hole would look like a whole answer."""
    log = long_log(release, 25, keep=20)
    places = log.places_between("total", 0, 99)
    assert (places, in_one_part(log, "total", places)) == (range(5, 25), None)
    parts = history(log, "total", places)
    found = await anext(parts)
    for tick in range(25, 40):
        log.append(release(tick))
    assert b'"tick":5' in found.replace(b" ", b"")
    with pytest.raises(Overtaken):
        await anext(parts)


async def overtaken(view: PublicView, release: MakeRelease, version: str) -> str:
    """What a client over a real socket sees that reads too late: how its connection ends, and with what."""
    log = long_log(release, keep=TICKS)
    async with listening(replace(view, log=log)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(ASKED.replace(b"HTTP/1.1", version.encode()))
        found = await reader.readexactly(1000)
        assert b" 200 OK" in found
        for tick in range(TICKS, 2 * TICKS):
            log.append(release(tick))
        async with asyncio.timeout(60):
            try:
                while part := await reader.read(1 << 20):
                    found += part
            except ConnectionResetError:
                return "reset"
        writer.close()
        return "closed, with an end" if found.endswith(b"0\r\n\r\n") else "closed"


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
async def test_an_answer_that_was_overtaken_is_reset_and_nothing_is_logged(
    view: PublicView, release: MakeRelease, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without chunks (HTTP/1.0) a body ends with its connection: only a reset tells it from a whole one."""
    assert await overtaken(view, release, version) == "reset"
    assert caplog.records == []


@pytest.mark.parametrize(
    ("version", "seen"), [("HTTP/1.1", "closed, with an end"), ("HTTP/1.0", "closed")]
)
async def test_an_end_in_the_middle_is_caught(
    view: PublicView, release: MakeRelease, monkeypatch: pytest.MonkeyPatch, version: str, seen: str
) -> None:
    """Half of a JSON document in a whole answer: a client that stores it has no reason to ask again."""

    async def ending(*asked: Any) -> AsyncIterator[bytes]:
        with suppress(Overtaken):
            async for part in history(*asked):
                yield part

    monkeypatch.setattr(api, "history", ending)
    assert await overtaken(view, release, version) == seen


async def bytes_read(port: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(ASKED)
    found = 0
    async with asyncio.timeout(120):
        while part := await reader.read(1 << 16):
            found += len(part)
    writer.close()
    return found


async def most_memory(view: PublicView, clients: int) -> int:
    async with listening(view) as port:
        await bytes_read(port)
        tracemalloc.start()
        try:
            size = len(joined(view.log))
            tracemalloc.reset_peak()
            assert min(await asyncio.gather(*(bytes_read(port) for _ in range(clients)))) > size
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


async def test_a_history_takes_a_part_of_memory(view: PublicView, release: MakeRelease) -> None:
    log = long_log(release)
    most = await most_memory(replace(view, log=log), clients=3)
    assert most < LARGEST_SHARE * len(joined(log))


async def test_all_at_once_would_not(
    view: PublicView, release: MakeRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "in_one_part", lambda log, name, places: log.at(name, places))
    log = long_log(release)
    most = await most_memory(replace(view, log=log), clients=1)
    assert most > len(joined(log))


@pytest.mark.parametrize("in_turn", [True, False])
async def test_each_part_has_its_turn(
    view: PublicView, release: MakeRelease, monkeypatch: pytest.MonkeyPatch, in_turn: bool
) -> None:
    """So many readers of histories leave the loop to the engine; the twin takes none for parts."""
    taken, taking = [], Turns.take

    async def counted(self: Turns, wanted: Callable[[], bool]) -> object:
        taken.append(1)
        return await taking(self, wanted)

    async def at_once(self: BoundedProtocol, message: object, send: Callable[..., object]) -> None:
        await send(message)  # type: ignore[misc]

    monkeypatch.setattr(Turns, "take", counted)
    if not in_turn:
        monkeypatch.setattr(BoundedProtocol, "_part_in_turn", at_once)
    await most_memory(replace(view, log=long_log(release, 100)), clients=1)
    assert (len(taken) > 2 * (100 * WIDE // LARGEST_PART)) == in_turn


def test_bytes_leave_as_they_came(log: ReleaseLog) -> None:
    odd = b'{"end":"1970-01-01T00:00:01.0Z","v":1,"sequence":6 ,"series":"odd","tick":0,"unknown":[1,  2]}'
    log.append(release_of(odd))
    assert log.latest()["odd"].body == odd
    assert log.since(5)[0].body == odd


def test_series_between_is_inclusive_and_empty_for_the_unknown(log: ReleaseLog) -> None:
    assert [release.tick for release in log.series_between("total", 1, 3)] == [1, 2, 3]
    assert log.series_between("total", 9, 12) == []
    assert log.series_between("nobody", 0, 99) == []


def test_the_same_release_again_changes_nothing(log: ReleaseLog, release: MakeRelease) -> None:
    log.append(release(3))
    assert [one.sequence for one in log.since(-1)] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "body",
    [
        b'{"v":1,"sequence":3,"series":"total","tick":3,"end":"2013-01-18T06:00:00Z","value":31}',
        b'{"v":1,"sequence":7,"series":"total","tick":1,"end":"2013-01-18T06:00:00Z","value":31}',
        b'{"v":1,"sequence":8,"series":"total","tick":8,"end":"2013-01-18T06:00:00Z",\n"value":31}',
        b'{"v":1,"sequence":"9","series":"total","tick":8,"end":"2013-01-18T06:00:00Z"}',
        b'{"v":2,"sequence":9,"series":"total","tick":8,"end":"2013-01-18T06:00:00Z"}',
        b"not JSON 31",
    ],
    ids=["other bytes", "back in time", "two lines", "a text", "a later form", "junk"],
)
def test_a_bad_release_is_refused_without_echo(log: ReleaseLog, body: bytes) -> None:
    before = log.since(-1)
    with pytest.raises(FailClosed) as refused:
        log.append(release_of(body))
    assert "value" not in str(refused.value)
    assert "31" not in str(refused.value)
    assert log.since(-1) == before


def test_keep_forgets_the_oldest_of_each_series(release: MakeRelease) -> None:
    log = ReleaseLog(keep=3)
    log.append(release(0, "rare"))
    for sequence in range(1, 10):
        log.append(release(sequence))
    assert [one.sequence for one in log.since(-1)] == [0, 7, 8, 9]
    assert log.forgotten == 6
    log.append(release(2))  # long forgotten, published before: still no news
    assert log.last_sequence == 9


def test_only_the_last_ended_series_stay(
    release: MakeRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that lives for a tick ends in each; the one that runs has all that `keep` says."""
    monkeypatch.setattr("stream_dp.server.view.ENDED", 2)
    log, whole = ReleaseLog(keep=3), ReleaseLog()
    for tick in range(6):
        for each in (log, whole):
            each.append(release(2 * tick, "runs", tick))
            each.append(release(2 * tick + 1, f"short_{tick}", tick))
    assert log.names() == ("runs", "short_2", "short_3", "short_4", "short_5")
    assert [one.sequence for one in log.since(-1)] == [5, 6, 7, 8, 9, 10, 11]
    assert log.forgotten == 4
    assert log.series_between("short_1", 0, 9) == []
    assert log.at("short_1", range(1)) == []
    log.append(release(3, "short_1", 1))  # published before: still no news
    assert (log.names()[1], log.last_sequence, log.ticks) == ("short_2", 11, 6)
    assert len(whole.names()) == 7


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("stream_dp.server.view.ROOM_BYTES", 60_000)
    return 60_000


def taken(log: ReleaseLog, name: str = "") -> int:
    """What the releases of a series, or all, take: 250 bytes beside their bodies."""
    found = log.since(-1) if not name else log.series_between(name, 0, 1 << 30)
    return sum(len(one.body) + 250 for one in found)


def test_a_large_series_takes_no_room_from_small_ones(release: MakeRelease, room: int) -> None:
    log, last = ReleaseLog(keep=1000), -1
    for tick in range(40):
        for name, bins in (("small", 1), ("large", 200), ("larger", 400)):
            last += 1
            log.append(release(last, name, tick, values=dict.fromkeys(map(str, range(bins)), 7)))
            assert taken(log) <= room
    assert [one.tick for one in log.series_between("small", 0, 99)] == [*range(40)]
    large, larger = (log.series_between(name, 0, 99) for name in ("large", "larger"))
    assert [one.tick for one in large] == [*range(40 - len(large), 40)]
    assert [one.tick for one in larger] == [*range(40 - len(larger), 40)]
    assert len(large) > len(larger) >= 1
    assert abs(taken(log, "large") - taken(log, "larger")) <= 6000, "what is left is shared evenly"
    assert log.forgotten == max(large[0].sequence, larger[0].sequence) - 3
    assert log.at("large", range(39 - len(large), 40)) == []
    assert log.at("large", range(39, 40)) == [large[-1]]


@pytest.mark.parametrize("seed", range(8))
def test_ticks_of_which_nothing_is_kept_need_not_be_read(
    seed: int, release: MakeRelease, room: int
) -> None:
    """Whatever the log keeps of all releases lies in the ticks that it says, if no body is smaller than the least."""
    random, ticks, sequence = Random(seed), 90, 0
    starts = {
        f"s{n}": random.choice([0, random.randrange(80)]) for n in range(random.randint(1, 9))
    }
    keys = {name: random.choice([1, 1, 9]) for name in starts}
    log = ReleaseLog(keep=random.choice([20, 1000]))
    for tick in range(ticks):
        for name in (name for name, start in starts.items() if start <= tick):
            values = dict.fromkeys(map(str, range(keys[name])), 7)
            log.append(release(sequence, name, tick, values=values))
            sequence += 1
    most = log.most_ticks(ticks - start for start in starts.values())
    assert most is not None
    assert min(one.tick for one in log.since(-1)) >= ticks - most
    assert ReleaseLog().most_ticks([1]) is None


def test_a_few_series_are_read_as_far_as_they_are_kept(room: int) -> None:
    log = ReleaseLog(keep=1000)
    assert [log.most_ticks([ticks]) for ticks in (90, 181, 182)] == [1000, 1000, 182]
    assert log.most_ticks([10**6] * 10) == 19
    assert log.most_ticks([10**6, *[1] * 9]) == 173


async def test_a_release_wakes_waiting_readers(log: ReleaseLog, release: MakeRelease) -> None:
    waiting = [asyncio.create_task(log.wait_beyond(5, 60)) for _ in range(50)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    log.append(release(6))
    async with asyncio.timeout(60):
        await asyncio.gather(*waiting)


async def test_waiting_ends_at_once_behind_and_in_time_at_the_head(log: ReleaseLog) -> None:
    async with asyncio.timeout(60):
        await log.wait_beyond(4, 60)
        await log.wait_beyond(5, 0.001)


async def events(source: AsyncIterator[bytes], last: int) -> list[tuple[int, bytes]]:
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


async def test_an_overtaken_reader_is_told_it_once(view: PublicView, release: MakeRelease) -> None:
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


@pytest.mark.parametrize("limit", [1, 65])
async def test_a_part_is_never_large(
    view: PublicView, log: ReleaseLog, release: MakeRelease, limit: int
) -> None:
    for sequence in range(6, 6 + limit):
        log.append(release(sequence))
    source = Broadcast(view).events(5)
    await anext(source)
    assert (await anext(source)).count(b"id: ") == min(limit, 64)
