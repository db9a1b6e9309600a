"""Whether what a stream delivers is the releases of a pipeline: each once, none missing, none in two versions.

Rules: releases are numbered from 1 without gaps, and a body never changes. So a number that was handed out is a repeat
(dropped, if its body is the one that was seen), the next one is fresh, and any other is a gap. Sans I/O.
"""

import hashlib
from collections import OrderedDict
from collections.abc import MutableMapping
from typing import Any

from stream_dp.errors import FailClosed
from stream_dp.python.public_release import PublicRelease

REMEMBERED = 10_000
"""Of how many releases the body is remembered, to know another version of one."""


class ReleaseCheck:
    """The releases of `pipeline`, the ones after what `seen` holds under this name: [last number, digest of its body].

    `seen` may be a dict, or what outlives the process, such as a Faust table.
    """

    def __init__(self, pipeline: str, seen: MutableMapping[str, Any] | None = None) -> None:
        self._pipeline = pipeline
        self._seen: MutableMapping[str, Any] = {} if seen is None else seen
        self._digests: OrderedDict[int, str] = OrderedDict()

    def fresh(self, body: bytes) -> PublicRelease | None:
        """Return the release, or None for a repeat.

        Raises:
            FailClosed: no release, a gap, or another body under a number that was seen.
        """
        release, found = PublicRelease.of(body), _digest(body)
        number, known = release.sequence, self._seen.get(self._pipeline)
        if known is not None:
            last, digest = known
            self._remember(last, digest)
            if number <= last:
                if self._digests.get(number, found) != found:
                    raise FailClosed(self._wrong("one was published in two versions"))
                return None
            if number != last + 1:
                raise FailClosed(self._wrong("one or more are missing before the one that came"))
        return release

    def done(self, release: PublicRelease) -> None:
        """Note that a release was handed out and dealt with: it is a repeat from now on."""
        digest = _digest(release.body)
        self._remember(release.sequence, digest)
        self._seen[self._pipeline] = [release.sequence, digest]

    def _remember(self, number: int, digest: str) -> None:
        self._digests[number] = digest
        while len(self._digests) > REMEMBERED:
            self._digests.popitem(last=False)

    def _wrong(self, what: str) -> str:
        return (
            f"releases of {self._pipeline}: {what}; nothing after it may be acted on. Look at the topic "
            f"{self._pipeline}.releases: only its engine may write there, and it must keep everything"
        )


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
