"""Long answers in parts: what waits to be sent to a client is one of them, however slowly it reads.

Rules: bytes leave as they were published. A part is `LARGEST_PART` bytes, or one release where that is more.
"""

from collections.abc import AsyncIterator, Sequence

import msgspec

from stream_dp.journal.commit import Release
from stream_dp.server.view import ReleaseLog

LARGEST_PART = 1 << 16  # bytes
_LOOKED_AT = 1024  # releases


class Overtaken(Exception):
    """What comes next of an answer that has begun is kept no longer: the client is slower than the series."""


def first_part(releases: Sequence[Release]) -> Sequence[Release]:
    """Return the first of these releases: as many as fit, and one at least."""
    size = 0
    for place, release in enumerate(releases):
        size += len(release.body)
        if place and size > LARGEST_PART:
            return releases[:place]
    return releases


def in_one_part(log: ReleaseLog, name: str, places: range) -> Sequence[Release] | None:
    """Return what a series released at these places of `log` where it is one part; None where it is more."""
    part = _part(log, name, places)
    return part if len(part) == len(places) else None


async def history(log: ReleaseLog, name: str, places: range) -> AsyncIterator[bytes]:
    """Yield the JSON of what a series released at these places of `log`, part by part.

    Raises:
        Overtaken: `log` has forgotten a release before its turn came; what was yielded is not whole.
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
