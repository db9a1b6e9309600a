"""Long answers in parts, turns of requests, and the live stream of releases as Server-Sent Events.

Rules: releases are sent as their exact published bytes. A client's only state is its position: the next part is read
from the log when the client has taken the last one (back pressure is the socket's), so nothing queues up. Requests
take at most a share of the event loop in which the engine runs.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from stream_dp.journal.commit import Release
from stream_dp.server.view import PublicView, ReleaseLog

LARGEST_PART = 1 << 16  # bytes
_LOOKED_AT = 1024  # releases


class Overtaken(Exception):
    """A client read an answer so slowly that its next releases were dropped from memory."""


def first_part(releases: Sequence[Release]) -> Sequence[Release]:
    """Return the first of these releases, as many as `LARGEST_PART` allows, and at least one."""
    size = 0
    for place, release in enumerate(releases):
        size += len(release.body)
        if place and size > LARGEST_PART:
            return releases[:place]
    return releases


def in_one_part(log: ReleaseLog, name: str, places: range) -> Sequence[Release] | None:
    """Return a series' releases at these places, or None if they do not fit into one part."""
    part = _part(log, name, places)
    return part if len(part) == len(places) else None


async def history(log: ReleaseLog, name: str, places: range) -> AsyncIterator[bytes]:
    """Yield the JSON of a series' releases at these places of `log`, part by part.

    Raises:
        Overtaken: `log` has dropped a release before it was sent; the yielded JSON is incomplete.
    """
    before = b'{"series":%s,"releases":[' % msgspec.json.encode(name)
    while places:
        part = _part(log, name, places)
        if not part:
            raise Overtaken
        yield before + b",".join(release.body for release in part)
        before, places = b",", places[len(part) :]
    yield b"]}"


def _part(log: ReleaseLog, name: str, places: range) -> Sequence[Release]:
    return first_part(log.at(name, places[:_LOOKED_AT]))


SHARE = 0.2
HEALTH_SHARE = 0.1
LONGEST_S = 0.05
_LONGEST_PAUSE_S = 1.0


def pause_after(took: float, share: float = SHARE) -> float:
    """Return the pause in seconds after work of `took` seconds that keeps the work within its share."""
    return min(took * (1 / share - 1), _LONGEST_PAUSE_S)


class Turn:
    """A request's turn, until its answer begins, at most `LONGEST_S`: one that waits or streams delays no other.

    `done` receives its duration in seconds.
    """

    def __init__(self, done: Callable[[float], None]) -> None:
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(LONGEST_S, self.end)

    def end(self) -> None:
        """Let the next turn begin, after a pause; a second call does nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._done(self._loop.time() - self._began)


class Turns:
    """One lane of a server: turns in order of arrival, which take at most `share` of the event loop's time.

    After each request there is a pause in proportion to its duration. Health has a lane of its own, so that no
    reader delays it.
    """

    def __init__(self, share: float = SHARE) -> None:
        self._share = share
        self._taken = asyncio.Lock()
        self._next = 0.0

    async def take(self, wanted: Callable[[], bool]) -> Turn | None:
        """Wait for a turn; return None if it is no longer `wanted`: the client is gone."""
        await self._taken.acquire()
        try:
            if wanted():
                await asyncio.sleep(self._next - asyncio.get_running_loop().time())
        except asyncio.CancelledError:
            self._taken.release()
            raise
        if not wanted():
            self._taken.release()
            return None
        return Turn(self._give_back)

    def _give_back(self, took: float) -> None:
        self._next = asyncio.get_running_loop().time() + pause_after(took, self._share)
        self._taken.release()


HEARTBEAT_SECONDS = 15.0
RETRY_MILLISECONDS = 1000
RELEASES_PER_CHUNK = 64


class Broadcast:
    """The streams of one server; the longest silence is `heartbeat` seconds.

    A stream opens with a `head` event {sequence, fingerprint}. The id of a release's event is its sequence number. A
    `gap` event says that the log no longer reaches back to the client's position, also if the client fell behind
    while it read. Silence is filled with comments, at a fixed period.
    """

    def __init__(self, view: PublicView, heartbeat: float = HEARTBEAT_SECONDS) -> None:
        self._log, self._pipeline = view.log, view.pipeline
        self._heartbeat, self._closed = heartbeat, False

    def close(self) -> None:
        """End every stream; clients reconnect by themselves and resume at their positions."""
        self._closed = True
        self._log.wake()

    async def events(self, after: int | None) -> AsyncIterator[bytes]:
        """Yield all releases after `after` (None: after the newest), each once, in order, for ever."""
        position = self._log.last_sequence if after is None else after
        yield self._opening()
        reported = position
        while not self._closed:
            if max(reported, position) < self._log.forgotten:
                reported = self._log.forgotten
                yield b"event: gap\ndata: {}\n\n"
            releases = self._log.since(position, limit=RELEASES_PER_CHUNK)
            if releases:
                part = first_part(releases)
                position = part[-1].sequence
                yield b"".join(b"id: %d\ndata: %s\n\n" % (r.sequence, r.body) for r in part)
                await asyncio.sleep(0)  # a client far behind does not keep the engine waiting
            else:
                await self._log.wait_beyond(position, self._heartbeat)
                if self._log.last_sequence <= position:
                    yield b": still here\n\n"

    def _opening(self) -> bytes:
        fingerprint = self._pipeline().get("fingerprint")
        head = {"sequence": self._log.last_sequence, "fingerprint": fingerprint}
        data = msgspec.json.encode(head)
        return b"retry: %d\nevent: head\ndata: %s\n\n" % (RETRY_MILLISECONDS, data)
