"""A journal as it is read: every change lies at the tick that it names, and what is public last must be met in it."""

from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
import pytest
from unit.journal.runtime_worlds import SEALER

from stream_dp.core.time import TickGrid
from stream_dp.engine.history import Heads, unsealed
from stream_dp.engine.messages.conversation import body_of
from stream_dp.errors import FailClosed
from stream_dp.journal.answer_body import AnswerCut
from stream_dp.journal.commit import (
    Answer,
    Asked,
    Change,
    Commit,
    Created,
    Halted,
    Header,
    Unwatched,
    Watched,
    digest,
    encode,
)

HEADER = Header("shop", "print", "source", (0,), 0, private=False, key_id="key")
CHANGES: list[Callable[[int], Change]] = [
    lambda tick: Created(1, b"{}", tick, 0),
    lambda tick: Halted(1, tick),
    lambda tick: Asked(1, b"{}", tick, 1),
    lambda tick: Watched(1, b"{}", 0, tick),
    lambda tick: Unwatched(1, "w", tick),
]


async def sealed(commits: Sequence[Commit]) -> AsyncIterator[bytes]:
    previous = b""
    for sequence, commit in enumerate(commits):
        placed = msgspec.structs.replace(commit, sequence=sequence, previous=previous)
        yield (blob := SEALER.seal(sequence, encode(placed)))
        previous = digest(blob)


async def read(*changes: Change, ticks: tuple[int, ...] = (0, 1, 2)) -> int:
    """Read a journal with these changes at the cut behind its `ticks`; how many commits it has."""
    commits = [Commit(0, b"", HEADER)] + [Commit(0, b"", ticks=ticks)] * bool(ticks)
    commits += [Commit(0, b"", changes=changes), Commit(0, b"", ticks=(len(ticks),))]
    return len([link async for _, link in unsealed(sealed(commits), SEALER, "shop")])


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_lies_at_the_tick_that_it_names(change: Callable[[int], Change]) -> None:
    assert await read(change(3)) == 4
    assert await read(change(0), ticks=()) == 3


async def test_what_is_read_from_a_change_on_is_judged_from_its_first_tick_on() -> None:
    """As where commits are added to an archive: nobody knows the tick of the cut at which it begins."""
    before = [Commit(0, b"", HEADER), Commit(0, b"", ticks=(0, 1, 2))]
    for wrong in (False, True):
        later = Created(2, b"{}", 5 if wrong else 4, 1)
        commits = [
            *before, Commit(0, b"", changes=(Created(1, b"{}", 3, 0),)), Commit(0, b"", ticks=(3,)),
            Commit(0, b"", changes=(later, Halted(1, 7 if wrong else 4))),
        ]  # fmt: skip
        blobs = [blob async for blob in sealed(commits)][2:]

        async def some(blobs: list[bytes] = blobs) -> AsyncIterator[bytes]:
            for blob in blobs:
                yield blob

        reading = unsealed(some(), SEALER, "shop", 2)
        if not wrong:
            assert len([link async for _, link in reading]) == 3
            continue
        with pytest.raises(FailClosed, match="does not add up at commit 4"):
            _ = [link async for _, link in reading]


@pytest.mark.parametrize("change", CHANGES)
async def test_what_begins_or_is_a_watch_may_lie_one_tick_later(
    change: Callable[[int], Change],
) -> None:
    if not isinstance(change(4), Halted | Asked):
        assert await read(change(4)) == 4
        return
    with pytest.raises(FailClosed, match="names another tick"):
        await read(change(4))
    if isinstance(halted := change(4), Halted):
        assert await read(Created(halted.number, b"{}", 4, 0), halted) == 4
        with pytest.raises(FailClosed, match="names another tick"):
            await read(Created(halted.number, b"{}", 4, 0), change(3))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("tick", [0, 2, 5])
async def test_a_change_that_names_another_tick_is_refused(
    change: Callable[[int], Change], tick: int
) -> None:
    right, wrong = Asked(1, b"{}", 3, 1), "names another tick than the tick of its commit"
    with pytest.raises(FailClosed, match=wrong):
        await read(change(tick))
    for changes in ((right, change(tick)), (change(tick), right)):
        with pytest.raises(FailClosed, match="at commit 2"):
            await read(*changes)


def answer(number: int, said: str = "list") -> Answer:
    body = body_of(number, f"m{number}", said, AnswerCut.before(0, TickGrid(0, 1000)), {})
    return Answer(number, f"m{number}", b"", 0, body)


THREE = [answer(1), answer(2), answer(3)]


def test_what_comes_behind_the_public_head_is_not_public() -> None:
    head, nothing = Heads.of(None, THREE[1].body).answers, Heads.of(None, None).answers
    assert head.beyond(THREE) == THREE[2:]
    assert head.met
    assert nothing.met
    assert nothing.beyond(THREE) == THREE


@pytest.mark.parametrize(
    ("body", "recorded"),
    [
        (answer(2, "halt").body, THREE),
        (answer(4).body, THREE),
        (THREE[1].body, [THREE[0], msgspec.structs.replace(THREE[1], number=3)]),
    ],
    ids=["another answer of its number", "newer than the journal", "under another number"],
)
def test_a_public_head_that_the_journal_lacks_is_not_met(
    body: bytes, recorded: list[Answer]
) -> None:
    head = Heads.of(None, body).answers
    head.beyond(recorded)
    assert not head.met
