"""The live stream: releases as Server-Sent Events, each client at its own pace.

Rules: the id of an event is the release's sequence number, its data the exact published bytes. After a position
come all later releases, each once, in order. A client's only state is its position: the next part is read from the
log when the client has taken the last one (back pressure is the socket's), so nothing queues up, and at most one
part waits for any client. Each stream opens with a `head` event {sequence, fingerprint}. A `gap` event says that
the log no longer reaches back to the client's position, also if the client fell behind while it read. Silence is
filled with comments, at a fixed period.
"""

import asyncio
from collections.abc import AsyncIterator

import msgspec

from stream_dp.journal.commit import Release
from stream_dp.server.parts import first_part
from stream_dp.server.view import PublicView

HEARTBEAT_SECONDS = 15.0
RETRY_MILLISECONDS = 1000
RELEASES_PER_CHUNK = 64


class Broadcast:
    """The streams of one server, which can all be ended at once."""

    def __init__(self, view: PublicView, heartbeat: float = HEARTBEAT_SECONDS) -> None:
        """Stream the log of `view`; `heartbeat` is the longest silence in seconds."""
        self._log = view.log
        self._pipeline = view.pipeline
        self._heartbeat = heartbeat
        self._closed = False

    def close(self) -> None:
        """End every stream; clients reconnect by themselves and resume at their positions."""
        self._closed = True
        self._log.wake()

    async def events(self, after: int | None) -> AsyncIterator[bytes]:
        """Yield all releases after `after` (None: after the newest), for ever."""
        position = self._log.last_sequence if after is None else after
        yield self._opening()
        told = position
        while not self._closed:
            if max(told, position) < self._log.forgotten:
                told = self._log.forgotten
                yield b"event: gap\ndata: {}\n\n"
            releases = self._log.since(position, limit=RELEASES_PER_CHUNK)
            if releases:
                part = first_part(releases)
                position = part[-1].sequence
                yield b"".join(map(_event, part))
                await asyncio.sleep(0)  # a client far behind does not keep the engine waiting
            else:
                await self._log.wait_beyond(position, self._heartbeat)
                if self._log.last_sequence <= position:
                    yield b": still here\n\n"

    def _opening(self) -> bytes:
        fingerprint = self._pipeline().get("fingerprint")
        head = {"sequence": self._log.last_sequence, "fingerprint": fingerprint}
        return b"retry: %d\nevent: head\ndata: %s\n\n" % (
            RETRY_MILLISECONDS,
            msgspec.json.encode(head),
        )


def _event(release: Release) -> bytes:
    return b"id: %d\ndata: %s\n\n" % (release.sequence, release.body)
