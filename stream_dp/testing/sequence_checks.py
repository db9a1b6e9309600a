"""Checks of public sequences (releases and answers) and of message queues, and common parts of the checks.

Rules: those of port_checks.py. `samples(first, stop)` makes the durable entries `first`..`stop`-1. For a queue, `put`
adds a record with this value to the storage from outside, and returns once it is stored.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Answers, Journal, PublicPort, Question, Questions
from stream_dp.errors import FailClosed
from stream_dp.journal.answer_body import VERSION, Answered, write_answer
from stream_dp.journal.commit import Answer, Release

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
        require_equal(await _read(port), [], "a new sequence is empty")
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
        require_equal(await _read(port, 100), beyond, "reading begins behind a number")


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
    require_equal(await _read(port), bodies, "each is visible once, in order, unchanged")


async def _read(port: PublicPort[_D], beyond: int = -1) -> list[bytes]:
    return [body async for body in port.read(beyond)]


_PATIENCE_S = 60.0


def sample_answer(number: int, said: str = "") -> Answer:
    """Return an answer with its body as the engine writes it; every third one has no id."""
    name = None if number % 3 == 0 else f"id-{number}"
    body = write_answer(
        Answered(
            v=VERSION, number=number, id=name, do="list", tick=number,
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
