"""The release log: exact bytes, order, positions, waiting readers."""

import asyncio
from collections.abc import Callable

import pytest

from stream_dp.errors import FailClosed, UsageError
from stream_dp.journal.commit import Release
from stream_dp.journal.release import release_of
from stream_dp.server.view import ReleaseLog

MakeRelease = Callable[..., Release]


def test_bytes_leave_as_they_came(log: ReleaseLog) -> None:
    odd = b'{"end":"1970-01-01T00:00:01.0Z","v":1,"sequence":6 ,"series":"odd","tick":0,"unknown":[1,  2]}'
    log.append(release_of(odd))
    assert log.latest()["odd"].body == odd
    assert log.since(5)[0].body == odd


def test_series_between_is_inclusive_and_empty_for_the_unknown(log: ReleaseLog) -> None:
    assert [release.tick for release in log.series_between("total", 1, 3)] == [1, 2, 3]
    assert log.series_between("total", 9, 12) == []
    assert log.series_between("nobody", 0, 99) == []


def test_since_merges_series_in_order_of_publication(log: ReleaseLog) -> None:
    assert [release.sequence for release in log.since(2)] == [3, 4, 5]
    assert [release.sequence for release in log.since(-1, limit=4)] == [0, 1, 2, 3]
    assert log.since(5) == []


def test_the_same_release_again_changes_nothing(log: ReleaseLog, release: MakeRelease) -> None:
    log.append(release(3))
    assert [one.sequence for one in log.since(-1)] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "body",
    [
        b'{"v":1,"sequence":3,"series":"total","tick":3,"end":"2013-01-18T06:00:00Z","value":31}',
        b'{"v":1,"sequence":7,"series":"total","tick":1,"end":"2013-01-18T06:00:00Z","value":31}',
        b'{"v":1,"sequence":8,"series":"total","tick":8,"end":"2013-01-18T06:00:00Z",\n"value":31}',
        b'{"v":1,"sequence":-1,"series":"total","tick":8,"end":"2013-01-18T06:00:00Z"}',
        b'{"v":1,"sequence":"9","series":"total","tick":8,"end":"2013-01-18T06:00:00Z"}',
        b'{"v":2,"sequence":9,"series":"total","tick":8,"end":"2013-01-18T06:00:00Z"}',
        b"not JSON 31",
    ],
    ids=["other bytes", "back in time", "two lines", "negative", "a text", "a later form", "junk"],
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


def test_the_last_series_that_ended_are_kept_and_no_others(
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


def test_no_series_ends_while_a_tick_is_under_way(
    release: MakeRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.server.view.ENDED", 1)
    log = ReleaseLog(keep=3)
    for sequence in range(50):
        log.append(release(sequence, f"s{sequence % 10}", sequence // 10))
    assert len(log.names()) == 10


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> int:
    """Little room, in bytes."""
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


def test_each_series_keeps_its_newest(release: MakeRelease, room: int) -> None:
    log = ReleaseLog(keep=1000)
    for sequence in range(160):
        log.append(release(sequence, f"s{sequence % 80}", sequence // 80, value=10**900))
    assert taken(log) > room
    assert [one.sequence for one in log.since(-1)] == [*range(80, 160)]
    assert log.forgotten == 79


def test_a_log_that_keeps_all_keeps_all(release: MakeRelease, room: int) -> None:
    log = ReleaseLog()
    for sequence in range(100):
        log.append(release(sequence, value=10**900))
    assert taken(log) > room
    assert (len(log.since(-1)), log.forgotten) == (100, -1)


def test_series_that_ended_give_their_room_back(
    release: MakeRelease, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else less and less would be left for the others."""
    monkeypatch.setattr("stream_dp.server.view.ENDED", 1)
    log = ReleaseLog(keep=10)
    for tick in range(200):
        log.append(release(2 * tick, "runs", tick))
        log.append(release(2 * tick + 1, f"short_{tick}", tick, value=10**900))
    assert len(log.series_between("runs", 0, 999)) == 10
    assert taken(log) < room


def test_keep_must_keep_something() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        ReleaseLog(keep=0)


async def test_a_waiting_reader_is_woken_by_the_next_release(
    log: ReleaseLog, release: MakeRelease
) -> None:
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


def test_ten_thousand_releases_are_found_quickly(release: MakeRelease) -> None:
    log = ReleaseLog()
    made = [release(sequence, f"s{sequence % 4}", sequence // 4) for sequence in range(10_000)]
    for one in made:
        log.append(one)
    position, seen = -1, list[Release]()
    while part := log.since(position, limit=64):
        seen += part
        position = part[-1].sequence
    assert seen == made
