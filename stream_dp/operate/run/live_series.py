"""The live series of a running engine for the HTTP API: preview, create, halt, list and ask.

Rules: every request except a list becomes a message and is handled like all messages: executed at a cut, recorded
with its answer, public. Its id is the request's key, if it has one; the same request under the same key is the same
message. Errors are those of the engine.
"""

import asyncio
import json
import re
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import msgspec

from stream_dp.accounting.amounts import text
from stream_dp.accounting.situations import Alive
from stream_dp.accounting.subledgers import MAIN
from stream_dp.client.message_text import fresh_id
from stream_dp.core.derivation import Derivation
from stream_dp.core.relation import Claim
from stream_dp.core.row_relations import Stream
from stream_dp.engine.engine import Engine
from stream_dp.engine.messages.addressed import Addressed, Wanted
from stream_dp.engine.messages.conversation import LONGEST_MS, error_of, not_accepted
from stream_dp.errors import EngineEnded, NotYours, Outage, UsageError
from stream_dp.journal.answer_body import RefusalKind, RefusedMessage, read_answer
from stream_dp.live.analyst_messages import read_ask
from stream_dp.operate.query.series_words import SeriesWords
from stream_dp.pipeline.budget import target
from stream_dp.pipeline.builder import Built, Chosen
from stream_dp.pipeline.derivations import Part, whole
from stream_dp.pipeline.report import series_json
from stream_dp.server.view import BY_OPERATOR, Sender

STEPS = 24
_DIGITS, _LEAST, _LAST = 900, -6, 8 * 900
"""Number of three-digit decimals between two powers of ten; the smallest power of ten; the index of 100."""
_ERROR = re.compile(r"\d{1,12}(\.\d{1,6})?", re.ASCII)
_UNREACHABLE = (
    "error: no epsilon up to 100 makes the expected error this small; ask for a larger error, for another window or "
    "for another statistic"
)
_UNDER_WAY = "a search for an error of this analyst is still running; nothing was done. Ask again after its answer"

Predicted: TypeAlias = Callable[[bytes], Awaitable[float]]
"""Returns the expected half-width of a definition."""


class ErrorSearch:
    """Finds the least epsilon for a wanted expected error; runs the searches of all analysts one after the other.

    A definition with `error` instead of `epsilon` is priced from public facts (the pipeline file and the prediction);
    no noise is drawn. Candidates are exact decimals of three digits, so the result can be written and read without
    rounding. At most `STEPS` candidates are tried, on a thread, each followed by a pause of the same length. Each
    analyst has at most one search.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting: set[str] = set()

    async def priced(self, definition: bytes, payer: str, predicted: Predicted) -> bytes:
        """Return the definition with the epsilon that its `error` needs; a definition without `error` is unchanged.

        Raises UsageError (no epsilon reaches this error, or the definition is not valid), or NotAccepted (a search of
        the payer is running).
        """
        parts = _parts(definition)
        if "error" not in parts:
            return definition
        wanted = _error(parts)
        if payer in self._waiting:
            raise not_accepted(RefusalKind.RATE, _UNDER_WAY)
        self._waiting.add(payer)
        try:
            async with self._turn:
                return _with(parts, await _least(parts, wanted, predicted))
        finally:
            self._waiting.discard(payer)


def decimal(place: int) -> Fraction:
    """Return the three-digit decimal with this index in increasing order: 10^-6 at 0, 100 at the last.

    >>> [str(decimal(place)) for place in (0, 6 * 900, 6 * 900 + 1)]
    ['1/1000000', '1', '101/100']
    """
    tens, digits = divmod(place, _DIGITS)
    return Fraction(digits + 100, 100) * Fraction(10) ** (tens + _LEAST)


def place_of(amount: Fraction) -> int:
    """Return the index of the largest three-digit decimal up to this amount, or the nearest index if there is none.

    >>> str(decimal(place_of(Fraction(2, 3)))), place_of(Fraction(0)), decimal(place_of(Fraction(1000)))
    ('333/500', 0, Fraction(100, 1))
    """
    return max(0, bisect_right(range(_LAST + 1), amount, key=decimal) - 1)


async def _least(
    parts: Mapping[str, msgspec.Raw], wanted: Fraction, predicted: Predicted
) -> Fraction:
    """Return the least decimal whose expected error is at most `wanted`, or a slightly larger one if steps run out."""
    steps, loop = STEPS, asyncio.get_running_loop()

    async def at(place: int) -> Fraction:
        nonlocal steps
        steps, began = steps - 1, loop.time()
        error = Fraction(await predicted(_with(parts, decimal(place))))
        await asyncio.sleep(loop.time() - began)
        return error

    async def reached(place: int) -> bool:
        try:
            return await at(place) <= wanted
        except UsageError:
            return False  # epsilon is too small to draw its noise

    error = await at(place_of(Fraction(1)))  # refuses an invalid definition
    near = place_of(error / wanted) if wanted else _LAST  # error ~ 1 / epsilon
    high, step = min(_LAST, near + 9), 90
    while not await reached(high):
        if high == _LAST:
            raise UsageError(_UNREACHABLE)
        high, step = min(_LAST, high + step), 5 * step
    low, step = high - 1, 18
    while low >= 0 and steps > 0 and await reached(low):
        low, high, step = low - step, low, 5 * step
    low = max(low, -1)
    while high - low > 1 and steps > 0:
        middle = (low + high) // 2
        low, high = (low, middle) if await reached(middle) else (middle, high)
    return decimal(high)


def _parts(definition: bytes) -> dict[str, msgspec.Raw]:
    """Return the definition's values as JSON bytes, by key; empty if the engine will refuse it as no object."""
    try:
        return msgspec.json.decode(definition, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}


def _error(parts: dict[str, msgspec.Raw]) -> Fraction:
    if "epsilon" in parts:
        raise UsageError("error: name either an epsilon or the error that you want, not both")
    wanted = bytes(parts.pop("error")).decode().strip('"')
    if _ERROR.fullmatch(wanted) is None:
        raise UsageError("error: must be a number of at least 0, such as 25 or 0.5")
    return Fraction(wanted)


def _with(parts: Mapping[str, msgspec.Raw], epsilon: Fraction) -> bytes:
    priced = {**parts, "epsilon": msgspec.Raw(json.dumps(text(epsilon)).encode())}
    return msgspec.json.encode(priced)


def series_claim(chosen: Chosen, start: int = 0) -> Claim | None:
    """Return the claim of a series' creation query ([HSV] Def 4.1) if its mechanism is made for another relation.

    None: its own guarantee holds. `start` is the first tick of the series.
    """
    mechanism, guarantee = chosen.mechanism, chosen.derivation.guarantee
    if guarantee == mechanism.guarantee:
        return None
    relation, users = guarantee.neighbors, guarantee.users
    law = mechanism.rows
    rows = law.relation(relation) if users is None else law.of_users(relation, users, start)
    return Claim(guarantee.measure, Stream(rows))


CATCHING_UP = (
    "the engine has lost its brokers and is catching up; nothing was done, ask again when it runs"
)


class Attempt(NamedTuple):
    """One attempt of a run: its engine, and what makes answers about its series."""

    engine: Engine
    words: SeriesWords


class EngineLiveSeries:
    """Creates, halts, lists and asks the series of a run; it implements `server.view.LiveSeriesService`.

    `shown` returns the attempt that ran last. A command goes once to an engine that runs; while none runs, or while
    `catching_up`, it raises Outage, and nothing was done.
    """

    def __init__(
        self, built: Built, shown: Callable[[], Attempt], catching_up: Callable[[], bool]
    ) -> None:
        self._built, self._shown, self._catching_up = built, shown, catching_up
        self._search = ErrorSearch()
        self._halting = asyncio.Lock()

    async def message(self, text: bytes, signer: str) -> bytes:
        with self._running() as engine:
            return await engine.tell(text, signer)

    async def ask(self, name: str, parameters: bytes, sender: Sender = BY_OPERATOR) -> bytes:
        with self._running() as engine:
            asked = read_ask(name, parameters)
            wanted = Wanted("ask", asked.series, parameters=asked.parameters)
            message = _addressed(engine, sender, wanted, sender.signer, parameters)
            return await engine.answer(message)

    async def create(
        self, definition: bytes, analyst: str = MAIN, sender: Sender = BY_OPERATOR
    ) -> Mapping[str, Any]:
        wanted = Wanted("create", definition=definition, accept_noise=sender.accept_noise)
        with self._running() as engine:
            return await _content(engine, sender, wanted, paying(sender, analyst), definition)

    async def halt(self, name: str, sender: Sender = BY_OPERATOR) -> Mapping[str, Any]:
        with self._running() as engine:
            return await _content(
                engine, sender, Wanted("halt", name), sender.signer, name.encode()
            )

    async def preview(
        self, definition: bytes, analyst: str = MAIN, sender: Sender = BY_OPERATOR
    ) -> Mapping[str, Any]:
        """Return what creating the series would do; changes nothing. A price that does not fit is an answer.

        A definition with `error` instead of `epsilon` gets the least epsilon whose expected error is at most that.
        """
        with self._running() as engine:
            payer = paying(sender, analyst)

            async def predicted(priced: bytes) -> float:
                proposal = await engine.propose(priced, payer)
                engine.admission.preview(proposal, payer)  # may refuse already
                return proposal.predicted()[1]

            definition = await self._search.priced(definition, payer, predicted)
            wanted = Wanted("preview", definition=definition)
            return await _content(engine, sender, wanted, payer, definition)

    async def preview_halt(self, name: str, sender: Sender = BY_OPERATOR) -> Mapping[str, Any]:
        """Return what halting a series would give back, to which records and from when; changes nothing.

        The ledgers are values, so a thread computes it while ticks go on, for one sender at a time.
        """
        with self._running() as engine:
            async with self._halting:
                halting = engine.halting(name)
                if sender.signer not in (MAIN, halting.analyst):
                    raise NotYours(
                        "series: was paid from another ledger; you may halt only a series that your own "
                        "ledger paid for"
                    )
                return await asyncio.to_thread(self._shown().words.halting, halting)

    def queries(self) -> Sequence[Mapping[str, Any]]:
        """Return all series as the last running engine knows them.

        The list needs no token, so it does not show the filters of analysts' own series.
        """
        engine, words = self._shown()
        return words.listed(engine.admission, (MAIN,))

    @contextmanager
    def _running(self) -> Iterator[Engine]:
        """Yield the engine for one command; raise Outage if it does not run, or ends and is begun again."""
        if self._catching_up():
            raise Outage(CATCHING_UP)
        try:
            yield self._shown().engine
        except EngineEnded:
            if self._catching_up():
                raise Outage(CATCHING_UP) from None
            raise

    def promise(self) -> Derivation:
        """Return the guarantee of everything, derived with the live series that run now."""
        engine, words = self._shown()
        admission, built = engine.admission, self._built
        planned = words.planner.running
        running = [
            (planned[live.number], Alive(live.start, None))
            for live in admission.registry.live
            if live.created and admission.subledgers.running[live.series.name][0] == MAIN
        ]
        parts = [*built.frozen, *(Part(p.derivation, alive, p.box) for p, alive in running)]
        return whole(
            built.spec.name, admission.subledgers.main.filter, parts, target(built.spec.privacy)
        )

    def planned(self) -> list[dict[str, Any]]:
        """Return the entries of running live series in the form of `plan_json`, each with one predicted error."""
        confidence = float(self._built.spec.confidence)
        return [
            {
                **series_json(planned.chosen, [planned.predicted()], confidence, planned.start),
                **({"verdicts": verdicts} if (verdicts := planned.verdicts) else {}),
            }
            for planned in self._shown().words.planner.running.values()
        ]


async def _content(
    engine: Engine, sender: Sender, wanted: Wanted, analyst: str, content: bytes
) -> Mapping[str, Any]:
    """Return the content of the engine's answer to a request; raise its refusal."""
    answer = read_answer(await engine.answer(_addressed(engine, sender, wanted, analyst, content)))
    if isinstance(answer.refused, RefusedMessage):
        raise error_of(answer.refused)
    return answer.answer or {}


def _addressed(
    engine: Engine, sender: Sender, wanted: Wanted, analyst: str, content: bytes
) -> Addressed:
    """Return the message of a request; with the same key and the same content it is the same message."""
    parts = [wanted.do.encode(), wanted.series.encode(), analyst.encode(), content]
    if wanted.accept_noise:
        parts.append(b"accept_noise")
    return Addressed(
        sender.key or fresh_id(),
        analyst,
        operator=sender.signer == MAIN,
        until=engine.now + LONGEST_MS,
        do=wanted.do,
        text=b"\n".join(parts),
        wanted=wanted,
    )


def paying(sender: Sender, analyst: str) -> str:
    """Return the ledger that pays: that of `analyst`, else the sender's; raise NotYours if an analyst names another."""
    if sender.signer not in (MAIN, analyst or sender.signer):
        raise NotYours("analyst: your token can pay only from your own ledger")
    return analyst or sender.signer
