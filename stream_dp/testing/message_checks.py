"""What every queue of messages and every sequence of answers must do: checks for adapters, ours and other people's.

Rules: those of port_checks.py. For a queue, `put` adds one record with this value to the storage, from outside, and
returns once it is there.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from stream_dp.core.tick_grid import TickGrid
from stream_dp.errors import FailClosed
from stream_dp.runtime.answer_body import VERSION, Answered, write_answer
from stream_dp.runtime.commit import Answer
from stream_dp.runtime.ports import Answers, Question, Questions

_Port = TypeVar("_Port", Answers, Questions)
_ALL = 150  # more than an adapter reads at a time
_PATIENCE_S = 60.0


def sample_answer(number: int, said: str = "") -> Answer:
    """An answer with its body as it leaves the engine; every third one has no id."""
    name = None if number % 3 == 0 else f"id-{number}"
    body = write_answer(
        Answered(
            v=VERSION, number=number, id=name, do="list", tick=number,
            end=TickGrid(0, 1000).end_text(number), answer={"said": said or f"answer {number}"},
        )
    )  # fmt: skip
    return Answer(number, name, bytes(32), 10**15, body)


def sample_answers(first: int, stop: int) -> list[Answer]:
    """Answers `first`..`stop`-1."""
    return [sample_answer(number) for number in range(first, stop)]


async def check_answers(make: Callable[[], Answers]) -> None:
    """Answers become visible once, in order, with the same bytes, also after a partial publication."""
    async with _opened(make) as answers:
        _same(await answers.last(), None, "a new sequence has no last answer")
        _same(await _read(answers), [], "a new sequence is empty")
        await answers.publish([])
        await answers.publish(sample_answers(1, 4))
        await _check_visible(answers, 4)
    async with _opened(make) as answers:
        await _check_visible(answers, 4)
        await answers.publish(sample_answers(1, 4))
        await _check_visible(answers, 4)
        await answers.publish(sample_answers(2, 7))
        await _check_visible(answers, 7)
    async with _opened(make) as answers:
        await answers.publish(sample_answers(6, _ALL))
        await _check_visible(answers, _ALL)
        beyond = [body async for body in answers.read(100)]
        _same(beyond, _bodies(101, _ALL), "reading begins behind a number")


async def check_answers_versions(make: Callable[[], Answers]) -> None:
    """The last visible answer is never published in another version."""
    async with _opened(make) as answers:
        await answers.publish(sample_answers(1, 4))
        try:
            await answers.publish([sample_answer(3, "something else"), *sample_answers(4, 5)])
        except FailClosed:
            await _check_visible(answers, 4)
        else:
            raise AssertionError("a second version of an answer is refused")


async def check_questions(
    make: Callable[[], Questions], put: Callable[[bytes], Awaitable[None]]
) -> None:
    """Messages come in one order, each with a place behind the one before, and again after every seek."""
    async with _opened(make):  # makes the storage
        pass
    values = [b"%d" % number for number in range(_ALL)]
    for value in values:
        await put(value)
    async with _opened(make) as questions:
        every = await _taken(questions, -1, _ALL)
        _same([each.value for each in every], values, "messages come unchanged, in their order")
        places = [each.place for each in every]
        _same(places, sorted(set(places)), "each message has a place behind the one before")
        stamps = [each.stamp for each in every]
        _same(all(stamp > 0 for stamp in stamps), True, "each message has its time of arrival")
    for at in (0, 1, _ALL // 2, _ALL - 1):
        async with _opened(make) as questions:
            again = await _taken(questions, places[at], _ALL - at)
            _same(again, every[at:], "what was read is read again, as it was")
    async with _opened(make) as questions:
        await questions.seek(places[-1] + 1)
        waiting = asyncio.create_task(_taken(questions, None, 1))
        await put(b"late")
        _same((await waiting)[0].value, b"late", "reading waits for what comes")


async def check_questions_hostile(
    make: Callable[[], Questions], put: Callable[[bytes], Awaitable[None]]
) -> None:
    """No value stops the reader, and none is changed but to nothing."""
    async with _opened(make):
        pass
    values = [b"", b"\xff\xfe", b"\0" * 1000, b"[" * 10_000, b"m" * 200_000, b"{}\n{}", b"last"]
    for value in values:
        await put(value)
    async with _opened(make) as questions:
        found = await _taken(questions, -1, len(values))
        _same(
            all(each.value in (value, b"") for each, value in zip(found, values, strict=True)),
            True, "what came is what was put, or nothing",
        )  # fmt: skip
        _same(found[-1].value, b"last", "what follows is read")


async def _taken(questions: Questions, place: int | None, number: int) -> Sequence[Question]:
    """The next `number` messages, after a seek to `place` unless it is None."""
    if place is not None:
        await questions.seek(place)
    found: list[Question] = []
    async with asyncio.timeout(_PATIENCE_S):
        while len(found) < number:
            found += await questions.read()
    return found


async def _check_visible(answers: Answers, stop: int) -> None:
    bodies = _bodies(1, stop)
    _same(await answers.last(), bodies[-1], "`last` is the last visible answer")
    _same(await _read(answers), bodies, "each answer is visible once, in order, unchanged")


async def _read(answers: Answers) -> list[bytes]:
    return [each async for each in answers.read()]


def _bodies(first: int, stop: int) -> list[bytes]:
    return [answer.body for answer in sample_answers(first, stop)]


def _same(found: object, wanted: object, rule: str) -> None:
    if found != wanted:
        raise AssertionError(rule)


@asynccontextmanager
async def _opened(make: Callable[[], _Port]) -> AsyncIterator[_Port]:
    port = make()
    try:
        await port.open()
        yield port
    finally:
        await port.close()
