"""The public sequences of a pipeline, releases and answers: numbered, with each body visible in one version.

Rules: a body that is visible already is skipped, and never written in another version.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from stream_dp.errors import FailClosed
from stream_dp.journal.answer_body import answer_head
from stream_dp.journal.commit import Answer, Release
from stream_dp.journal.release import read_head

P = TypeVar("P", bound=Release | Answer)


@dataclass(frozen=True, slots=True)
class PublicSequence(Generic[P]):
    """The sequence called `name`; `number` gives the number of a durable entry, `number_of` that of a body.

    `number_of` takes a body and its name in errors, and raises `FailClosed` if the body is not of this sequence.
    """

    name: str
    number: Callable[[P], int]
    number_of: Callable[[bytes, str], int]

    def after(self, body: bytes, beyond: int, place: str) -> bool:
        """Return whether a visible body comes after the number `beyond`; errors name its `place`."""
        return beyond < 0 or self.number_of(body, f"{place}: what is visible") > beyond

    def not_yet_visible(self, durable: Sequence[P], last: bytes | None, place: str) -> list[P]:
        """Return the entries of `durable` that come after `last`, the last body visible at this `place`.

        Raises `FailClosed`: `last` is not of this sequence or visible with other bytes, or entries are out of order.
        """
        visible = -1 if last is None else self.number_of(last, f"{place}: what comes last")
        fresh: list[P] = []
        for entry in durable:
            if self.number(entry) == visible and not fresh and entry.body != last:
                raise FailClosed(
                    f"{place}: its last release was published before with other content, by another "
                    "journal. Bring back the newest journal, or use another sink"
                )
            if fresh and self.number(entry) <= self.number(fresh[-1]):
                raise FailClosed(f"{place}: the releases are out of order; nothing was published")
            if self.number(entry) > visible:
                fresh.append(entry)
        return fresh


RELEASES: PublicSequence[Release] = PublicSequence(
    "releases", lambda entry: entry.sequence, lambda body, what: read_head(body, what).sequence
)
ANSWERS: PublicSequence[Answer] = PublicSequence(
    "answers", lambda entry: entry.number, lambda body, what: answer_head(body, what).number
)
