"""The gate: a private commit first, then the outbox. The only way out for private data.

Rules: a release or an answer becomes visible only after the commit that holds its bytes is durable, and only as
exactly those bytes. An answer is published at once. Public blocks are cut by tick numbers, never by load: a block
of the declared number of ticks is published as a whole, and not before its hold is over. One commit is in flight at
a time and is never cancelled.
"""

from collections import deque
from collections.abc import Sequence

from stream_dp.core.tick_grid import TickGrid
from stream_dp.engine.ports import Ports, Published
from stream_dp.journal.commit import Answer, Commit, Release, digest, encode


class Gate:
    """Seals, commits and publishes; a public block has `block` ticks and waits for `hold` ms after its end."""

    def __init__(
        self,
        ports: Ports,
        grid: TickGrid,
        block: int = 1,
        hold: int | None = None,
        published: Published = lambda release: None,
    ) -> None:
        self._ports = ports
        self._grid = grid
        self._block = block
        self._hold = hold
        self._published = published
        self._waiting: deque[Release] = deque()
        self.durable = 0
        """How many commits this gate has made durable."""

    @property
    def unpublished(self) -> int | None:
        """The first durable tick that waits for the rest of its block; None if there is none."""
        return self._waiting[0].tick if self._waiting else None

    def seal(self, commit: Commit) -> tuple[bytes, bytes]:
        """Return the sealed bytes of a commit, and their digest, which the next commit holds as `previous`."""
        sealed = self._ports.sealer.seal(commit.sequence, encode(commit))
        return sealed, digest(sealed)

    async def commit(self, commit: Commit, sealed: bytes) -> None:
        """Make the commit durable, then publish its answers and the blocks it completes."""
        with self._ports.spans("commit"):
            await self._ports.journal.append(commit, sealed)
        self.durable += 1
        await self.tell(commit.answers)
        await self.publish(commit.releases)

    async def tell(self, durable: Sequence[Answer]) -> None:
        """Publish answers of a durable commit."""
        if durable and self._ports.answers is not None:
            with self._ports.spans("answer"):
                await self._ports.answers.publish(durable)

    async def publish(self, durable: Sequence[Release]) -> None:
        """Queue releases of durable commits and publish every complete block."""
        self._waiting.extend(durable)
        while self._waiting and self._waiting[-1].tick >= self._end_of_block(self._waiting[0].tick):
            last = self._end_of_block(self._waiting[0].tick)
            block = self._waiting_until(last)
            if not block:
                raise ValueError(
                    "releases must come in the order of their ticks, within the horizon"
                )
            if self._hold is not None:
                await self._ports.clock.sleep_until(self._grid.end(last) + self._hold)
            with self._ports.spans("publish", tick=last):
                await self._ports.sink.publish(block)
            for _ in block:
                self._waiting.popleft()
            for release in block:
                self._published(release)

    def _waiting_until(self, last: int) -> list[Release]:
        """Return the queued releases of the ticks up to `last`."""
        found = []
        for release in self._waiting:
            if release.tick > last:
                break
            found.append(release)
        return found

    def _end_of_block(self, tick: int) -> int:
        return end_of_block(tick, self._block, self._grid.horizon)


def end_of_block(tick: int, block: int, horizon: int | None) -> int:
    """Return the last tick of the public block that contains `tick`."""
    end = (tick // block + 1) * block - 1
    return end if horizon is None else min(end, horizon - 1)


def due(durable: Sequence[Release], block: int, horizon: int | None) -> bool:
    """Return whether durable releases, sorted by tick, hold a whole block, which should be public by now."""
    return bool(durable) and durable[-1].tick >= end_of_block(durable[0].tick, block, horizon)
