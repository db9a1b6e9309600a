"""The rule of every sink, of releases or of answers: what is visible is skipped, and never written in another version.

This file knows no file, topic or memory.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from stream_dp.errors import FailClosed
from stream_dp.runtime.answer_body import answer_head
from stream_dp.runtime.commit import Answer, Release
from stream_dp.runtime.release import read_head

_P = TypeVar("_P", Release, Answer)


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
    return _fresh(releases, lambda release: release.sequence, visible, last, sink)


def answer_after(body: bytes, beyond: int, place: str) -> bool:
    """Say whether a visible answer comes after the number `beyond`; errors as of `after`."""
    return beyond < 0 or answer_head(body, f"{place}: what is visible").number > beyond


def answers_not_yet_visible(
    answers: Sequence[Answer], last: bytes | None, place: str
) -> list[Answer]:
    """Return those of `answers` that come after the body `last`; errors as of `not_yet_visible`."""
    visible = -1
    if last is not None:
        visible = answer_head(last, f"{place}: what comes last").number
    return _fresh(answers, lambda answer: answer.number, visible, last, place)


def _fresh(
    those: Sequence[_P], number: Callable[[_P], int], visible: int, last: bytes | None, place: str
) -> list[_P]:
    fresh: list[_P] = []
    for each in those:
        if number(each) == visible and not fresh and each.body != last:
            raise FailClosed(
                f"{place}: what it shows last was published before with other content, by another journal: "
                "bring back the newest journal, or use another sink"
            )
        if fresh and number(each) <= number(fresh[-1]):
            raise FailClosed(f"{place}: out of order; nothing was published")
        if number(each) > visible:
            fresh.append(each)
    return fresh
