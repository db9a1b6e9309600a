"""Long answers in parts: only one part waits to be sent to a client, however slowly it reads.

Rules: bytes are sent as they were published. A part is `LARGEST_PART` bytes at most, or one larger release.
"""

from collections.abc import AsyncIterator, Sequence

import msgspec

from stream_dp.journal.commit import Release
from stream_dp.server.view import ReleaseLog

LARGEST_PART = 1 << 16  # bytes
_LOOKED_AT = 1024  # releases


class Overtaken(Exception):
    """The next releases of a begun answer were dropped from memory: the client is slower than the series."""


def first_part(releases: Sequence[Release]) -> Sequence[Release]:
    """Return the first of these releases, as many as fit into a part, and at least one."""
    size = 0
    for place, release in enumerate(releases):
        size += len(release.body)
        if place and size > LARGEST_PART:
            return releases[:place]
    return releases


def in_one_part(log: ReleaseLog, name: str, places: range) -> Sequence[Release] | None:
    """Return a series' releases at these places of `log` if they fit into one part; else None."""
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
