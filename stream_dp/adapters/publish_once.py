"""The rule of every sink: what is visible already is skipped, and never written in another version.

This file knows no file, topic or memory.
"""

from collections.abc import Sequence

from stream_dp.errors import FailClosed
from stream_dp.runtime.commit import Release
from stream_dp.runtime.release import read_head


def after(body: bytes, beyond: int, sink: str) -> bool:
    """Say whether a visible body comes after the sequence `beyond`; `sink` names the place in errors.

    Raises:
        FailClosed: it is no release.
    """
    return beyond < 0 or read_head(body, f"{sink}: what is visible").sequence > beyond


def not_yet_visible(releases: Sequence[Release], last: bytes | None, sink: str) -> list[Release]:
    """Return those of `releases` that come after the body `last`; `sink` names the place in errors.

    Raises:
        FailClosed: `last` is not a release, or visible already with other bytes; out of order.
    """
    visible = -1 if last is None else read_head(last, f"{sink}: what comes last").sequence
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
