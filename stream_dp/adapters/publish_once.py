"""The rule of every sink: what is visible already is skipped, and never written in another version.

This file knows no file, topic or memory.
"""

from collections.abc import Sequence

import msgspec

from stream_dp.errors import FailClosed
from stream_dp.runtime.commit import Release


class _Body(msgspec.Struct):
    sequence: int


def following(releases: Sequence[Release], last: bytes | None, sink: str) -> list[Release]:
    """Those of `releases` that come after the body `last`; `sink` names the place in errors.

    Raises:
        FailClosed: `last` is not a release, or visible already with other bytes; out of order.
    """
    visible = -1 if last is None else _sequence(last, sink)
    fresh: list[Release] = []
    for release in releases:
        if release.sequence == visible and not fresh and release.body != last:
            raise FailClosed(
                f"{sink}: a release was published before with other content, by another journal: "
                "bring back the newest journal, or use another sink"
            )
        if fresh and release.sequence <= fresh[-1].sequence:
            raise FailClosed(f"{sink}: releases out of order; nothing was published")
        if release.sequence > visible:
            fresh.append(release)
    return fresh


def _sequence(body: bytes, sink: str) -> int:
    try:
        return msgspec.json.decode(body, type=_Body).sequence
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise FailClosed(
            f"{sink}: what comes last is no release; name another sink, or bring this one back"
        ) from None
