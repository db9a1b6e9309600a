"""Checks of journals, public sequences (releases and answers) and message queues, for adapters of ours and others.

Rules: `make` returns a new, unopened adapter over the same storage each time; the storage is empty at first. A check
raises an AssertionError that names the broken rule, and closes what it opened. It uses only the ports. `samples(first,
stop)` makes the durable entries `first`..`stop`-1. For a queue, `put` adds a record with this value to the storage from
outside, and returns once it is stored.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Answers, Journal, PublicPort, Question, Questions, Sink
from stream_dp.errors import FailClosed
from stream_dp.journal.answer_body import VERSION as ANSWER_VERSION
from stream_dp.journal.answer_body import Answered, write_answer
from stream_dp.journal.checkpoint import (
    KIND,
    PIECE_BYTES,
    Checkpoint,
    Places,
    Standing,
    Totals,
    pieces_of,
)
from stream_dp.journal.commit import Answer, Commit, DeadLetter, Release
from stream_dp.journal.release import VERSION, Released, write

MANY = 150
"""More entries than an adapter reads at a time."""
_D = TypeVar("_D", bound=Release | Answer)


_Opened = TypeVar("_Opened", bound=Journal | PublicPort[Any] | Questions)


def require_equal(got: object, wanted: object, rule: str) -> None:
    """Raise AssertionError with the rule unless the two are equal."""
    if got != wanted:
        raise AssertionError(rule)


@asynccontextmanager
async def opened_port(make: Callable[[], _Opened]) -> AsyncIterator[_Opened]:
    """Open a new adapter, yield it, and close it."""
    port = make()
    try:
        await port.open()
        yield port
    finally:
        await port.close()


async def check_sequence(
    make: Callable[[], PublicPort[_D]], samples: Callable[[int, int], Sequence[_D]], first: int
) -> None:
    """Check that published entries become visible once, in order, unchanged, also after a partial publication."""
    async with opened_port(make) as port:
        require_equal(await port.last(), None, "of a new sequence nothing is visible last")
        require_equal(await _all(port.read()), [], "a new sequence is empty")
        await port.publish([])
        await port.publish(samples(first, 4))
        await _check_visible(port, samples(first, 4))
    async with opened_port(make) as port:
        await _check_visible(port, samples(first, 4))
        await port.publish(samples(first, 4))
        await _check_visible(port, samples(first, 4))
        await port.publish(samples(first + 1, 7))
        await _check_visible(port, samples(first, 7))
    async with opened_port(make) as port:
        await port.publish(samples(6, MANY))
        await _check_visible(port, samples(first, MANY))
        beyond = [entry.body for entry in samples(101, MANY)]
        require_equal(await _all(port.read(100)), beyond, "reading begins behind a number")


async def check_one_version(
    make: Callable[[], PublicPort[_D]],
    samples: Callable[[int, int], Sequence[_D]],
    first: int,
    other: _D,
) -> None:
    """Check that the last visible entry is never published in another version; `other` has number 3."""
    async with opened_port(make) as port:
        await port.publish(samples(first, 4))
        try:
            await port.publish([other, *samples(4, 5)])
        except FailClosed:
            await _check_visible(port, samples(first, 4))
        else:
            raise AssertionError("a second version of what is visible is refused")


async def _check_visible(port: PublicPort[_D], durable: Sequence[_D]) -> None:
    bodies = [entry.body for entry in durable]
    require_equal(await port.last(), bodies[-1], "`last` is what is visible last")
    require_equal(await _all(port.read()), bodies, "each is visible once, in order, unchanged")


_PATIENCE_S = 60.0


def sample_answer(number: int, said: str = "") -> Answer:
    """Return an answer with its body as the engine writes it; every third one has no id."""
    name = None if number % 3 == 0 else f"id-{number}"
    body = write_answer(
        Answered(
            v=ANSWER_VERSION, number=number, id=name, do="list", tick=number,
            end=TickGrid(0, 1000).end_text(number), answer={"said": said or f"answer {number}"},
        )
    )  # fmt: skip
    return Answer(number, name, bytes(32), 10**15, body)


def sample_answers(first: int, stop: int) -> list[Answer]:
    return [sample_answer(number) for number in range(first, stop)]


async def check_answers(make: Callable[[], Answers]) -> None:
    """Check that answers become visible once, in order, with the same bytes, also after a partial publication."""
    await check_sequence(make, sample_answers, 1)


async def check_answers_versions(make: Callable[[], Answers]) -> None:
    """Check that the last visible answer is never published in another version."""
    await check_one_version(make, sample_answers, 1, sample_answer(3, "something else"))


async def check_questions(
    make: Callable[[], Questions], put: Callable[[bytes], Awaitable[None]]
) -> None:
    """Check that messages come in one order, at growing places, and again after every seek."""
    async with opened_port(make):  # makes the storage
        pass
    values = [b"%d" % number for number in range(MANY)]
    for value in values:
        await put(value)
    async with opened_port(make) as questions:
        every = await _taken(questions, -1, MANY)
        taken = [question.value for question in every]
        require_equal(taken, values, "messages come unchanged, in their order")
        places = [question.place for question in every]
        require_equal(places, sorted(set(places)), "each message has a place behind the one before")
        early = [question for question in every if question.stamp <= 0]
        require_equal(early, [], "each message has its time of arrival")
    for at in (0, 1, MANY // 2, MANY - 1):
        async with opened_port(make) as questions:
            again = await _taken(questions, places[at], MANY - at)
            require_equal(again, every[at:], "what was read is read again, as it was")
    async with opened_port(make) as questions:
        await questions.seek(places[-1] + 1)
        waiting = asyncio.create_task(_taken(questions, None, 1))
        await put(b"late")
        require_equal((await waiting)[0].value, b"late", "reading waits for what comes")


async def check_questions_hostile(
    make: Callable[[], Questions], put: Callable[[bytes], Awaitable[None]]
) -> None:
    """Check that no value stops the reader, and that every value comes back unchanged or empty."""
    async with opened_port(make):
        pass
    values = [b"", b"\xff\xfe", b"\0" * 1000, b"[" * 10_000, b"m" * 200_000, b"{}\n{}", b"last"]
    for value in values:
        await put(value)
    async with opened_port(make) as questions:
        taken = [question.value for question in await _taken(questions, -1, len(values))]
        right = [put if value else b"" for value, put in zip(taken, values, strict=True)]
        require_equal(taken, right, "what came is what was put, or nothing")
        require_equal(taken[-1], b"last", "what follows is read")


async def _taken(questions: Questions, place: int | None, number: int) -> Sequence[Question]:
    """Return the next `number` messages, after a seek to `place` unless it is None."""
    if place is not None:
        await questions.seek(place)
    taken: list[Question] = []
    async with asyncio.timeout(_PATIENCE_S):
        while len(taken) < number:
            taken += await questions.read()
    return taken


def sample_commit(sequence: int) -> tuple[Commit, bytes]:
    """Return a commit with positions and dead letters, and bytes in place of its sealed form."""
    letters = (DeadLetter(0, "missing_field", "time", 1, ((sequence, sequence),)),)
    positions = {0: 2 * sequence, 1: 3}
    commit = Commit(sequence=sequence, previous=b"", positions=positions, dead_letters=letters)
    return commit, b"\x00sealed\n" + sequence.to_bytes(8, "big") + bytes(200)


def sample_release(
    sequence: int, series: str = "clicks", tick: int | None = None, **content: Any
) -> Release:
    """Return a release with its body as the engine writes it; its tick is its sequence unless given.

    `content` is one of value, values, fired, ranks and windows (default: the sequence's square), and may override
    the band 7, the confidence 0.95 and the end, `tick` + 1 seconds after 1970 began.
    """
    tick = sequence if tick is None else tick
    content.setdefault("end", TickGrid(0, 1000).end_text(tick))
    content.setdefault("confidence", 0.95)
    if not {"value", "values", "fired", "ranks", "windows"} & content.keys():
        content["value"] = sequence * sequence
    if "windows" not in content:
        content.setdefault("band", 7)
    released = Released(v=VERSION, sequence=sequence, series=series, tick=tick, **content)
    return Release(sequence, series, tick, write(released))


def sample_releases(first: int, stop: int) -> list[Release]:
    return [sample_release(sequence) for sequence in range(first, stop)]


async def check_journal(make: Callable[[], Journal]) -> None:
    """Check that appended commits are read in order, now and by the next engine, and that there is one writer."""
    async with opened_port(make) as journal:
        await _check_commits(journal, 0, "a new journal is empty")
        await _append(journal, 0, 3)
        await _check_commits(journal, 3, "a journal reads what it appended")
    async with opened_port(make) as journal:
        await _check_commits(journal, 3, "commits outlive the engine")
        await _append(journal, 3, MANY)
        await _check_commits(journal, MANY, "a long journal is whole and in order")
    await _check_one_writer(make)
    async with opened_port(make) as journal:
        await _check_commits(journal, MANY + 1, "one history, whoever wrote it")


async def check_journal_checkpoints(make: Callable[[], Journal]) -> None:
    """Check that a journal knows its last checkpoints once they are whole, now and later, and reads on from them; and
    that it deletes what is before one.
    """
    users = {"users": bytes(3 * PIECE_BYTES // 2)}
    checkpoint = Checkpoint(Commit(0, b""), Standing(), (), (), users, (0, b""), Totals(), Places())
    commits = dict[int, tuple[Commit, bytes]]()
    for sequence in range(10):
        commit, sealed = sample_commit(sequence)
        after = sequence - sequence % 2
        piece = pieces_of(checkpoint, after)[sequence - after] if 2 <= sequence <= 7 else b""
        parts = {KIND: piece} if piece else {}
        commits[sequence] = msgspec.structs.replace(commit, parts=parts), sealed
    known = [(), (), (), (2,), (2,), (4, 2), (4, 2), (6, 4), (6, 4), (6, 4)]
    async with opened_port(make) as journal:
        for sequence, expected in enumerate(known):
            await journal.append(*commits[sequence])
            require_equal(tuple(journal.checkpoints()), expected, "two whole ones, newest first")
    async with opened_port(make) as journal:
        require_equal(tuple(journal.checkpoints()), known[-1], "checkpoints outlive the engine")
        for begin in (*known[-1], 0):
            later = [commits[sequence][1] for sequence in range(begin, 10)]
            require_equal(await _all(journal.read(begin)), later, "reading begins at a checkpoint")
        await journal.append(*sample_commit(10))
        await journal.prune(4)
    async with opened_port(make) as journal:
        require_equal(journal.begin, 4, "a pruned journal knows where it begins")
        require_equal(tuple(journal.checkpoints()), known[-1], "pruning leaves two checkpoints")
        left = [*(commits[sequence][1] for sequence in range(4, 10)), sample_commit(10)[1]]
        require_equal(await _all(journal.read()), left, "pruning deletes what is before, no more")
        require_equal(await _all(journal.read(6)), left[2:], "and reading begins at a checkpoint")
        await journal.append(*sample_commit(11))


async def check_journal_order(make: Callable[[], Journal]) -> None:
    """Check that a commit that is not the next one is refused and leaves nothing behind."""
    async with opened_port(make) as journal:
        await _append(journal, 0, 2)
        for wrong in (0, 1, 3):
            await _check_refused(journal, wrong, "a journal takes the next commit only")
        await _append(journal, 2, 3)
        await _check_commits(journal, 3, "a refused commit leaves nothing behind")


async def check_sink(make: Callable[[], Sink]) -> None:
    """Check that releases become visible once, in order, with the same bytes, also after a partial publication."""
    await check_sequence(make, sample_releases, 0)


async def check_sink_versions(make: Callable[[], Sink]) -> None:
    """Check that the last visible release is never published in another version."""
    await check_one_version(make, sample_releases, 0, sample_release(3, value=-1))


async def _check_one_writer(make: Callable[[], Journal]) -> None:
    """Check that the second engine is kept out or fences the first, and that one of the two can continue."""
    first, second = make(), make()
    try:
        await first.open()
        try:
            await second.open()
        except FailClosed:
            await _append(first, MANY, MANY + 1)
            return
        await _check_refused(first, MANY, "a journal has one writer")
        await _append(second, MANY, MANY + 1)
    finally:
        await second.close()
        await first.close()


async def _check_refused(journal: Journal, sequence: int, rule: str) -> None:
    try:
        await _append(journal, sequence, sequence + 1)
    except FailClosed:
        return
    raise AssertionError(rule)


async def _append(journal: Journal, first: int, stop: int) -> None:
    for sequence in range(first, stop):
        await journal.append(*sample_commit(sequence))


async def _all(blobs: AsyncIterator[bytes]) -> list[bytes]:
    return [blob async for blob in blobs]


async def _check_commits(journal: Journal, stop: int, rule: str) -> None:
    sealed = [sample_commit(sequence)[1] for sequence in range(stop)]
    require_equal(await _all(journal.read()), sealed, rule)
