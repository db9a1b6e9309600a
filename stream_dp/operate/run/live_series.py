"""The live series of a running engine for the HTTP API: preview, create, halt, list and ask.

Rules: every request except a list becomes a message and is handled like all messages: executed at a cut, recorded
with its answer, public. Its id is the request's key, if it has one; the same request under the same key is the same
message. Errors are those of the engine.
"""

import asyncio
import json
import re
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias, TypeVar

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
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.operate.query.series_words import SeriesWords
from stream_dp.pipeline.budget import target
from stream_dp.pipeline.builder import Built, Chosen
from stream_dp.pipeline.derivations import whole
from stream_dp.pipeline.report import series_json
from stream_dp.server.live_series import BY_OPERATOR, Sender

STEPS = 24
_DIGITS, _LEAST, _LAST = 900, -6, 8 * 900
"""Number of three-digit decimals between two powers of ten; the smallest power of ten; the index of 100."""
_ERROR = re.compile(r"\d{1,12}(\.\d{1,6})?", re.ASCII)
_UNREACHABLE = (
    "error: no epsilon up to 100 makes the expected error this small; ask for a larger error, for another window or "
    "for another statistic"
)
_UNDER_WAY = "a search for an error of this analyst is under way; nothing was done, ask again when it has its answer"

Predicted: TypeAlias = Callable[[bytes], Awaitable[float]]
"""Returns the expected half-width of a definition."""


@dataclass(slots=True)
class ErrorSearch:
    """Finds the least epsilon for a wanted expected error; runs the searches of all analysts one after the other.

    A definition with `error` instead of `epsilon` is priced from public facts (the pipeline file and the prediction);
    no noise is drawn. Candidates are exact decimals of three digits, so the result can be written and read without
    rounding. At most `STEPS` candidates are tried, on a thread, each followed by a pause of the same length. Each
    analyst has at most one search.
    """

    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _waiting: set[str] = field(default_factory=set)

    async def priced(self, definition: bytes, payer: str, predicted: Predicted) -> bytes:
        """Return the definition with the epsilon that its `error` needs; a definition without `error` is unchanged.

        Raises:
            UsageError: no epsilon reaches this error, or the definition is not valid.
            NotAccepted: a search of the payer is running.
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
    """Return the least decimal whose expected error is at most `wanted`, or a slightly larger one if steps run out.

    Raises:
        UsageError: the definition is not valid, or no decimal is large enough.
    """
    steps, loop = STEPS, asyncio.get_running_loop()

    async def at(place: int) -> Fraction:
        nonlocal steps
        steps, began = steps - 1, loop.time()
        found = Fraction(await predicted(_with(parts, decimal(place))))
        await asyncio.sleep(loop.time() - began)
        return found

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
    said = bytes(parts.pop("error")).decode().strip('"')
    if _ERROR.fullmatch(said) is None:
        raise UsageError("error: must be a number of at least 0, such as 25 or 0.5")
    return Fraction(said)


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


class EngineLiveSeries:
    """Creates, halts, lists and asks the series of `engine`; `words` makes the answers."""

    def __init__(
        self, built: Built, engine: Engine, planner: LiveSeriesPlanner, words: SeriesWords
    ) -> None:
        self._built = built
        self._engine = engine
        self._planner = planner
        self._words = words
        self._confidence = float(built.spec.confidence)
        self._search = ErrorSearch()

    async def message(self, text: bytes, signer: str) -> bytes:
        """Return the exact bytes of the answer to a message; `signer` is the owner of the token that was shown.

        Raises:
            NotAccepted, UsageError: nothing has changed; see `Engine.answer`.
        """
        return await self._engine.tell(text, signer)

    async def ask(self, name: str, parameters: bytes, sender: Sender = BY_OPERATOR) -> bytes:
        """Return the exact bytes of a series' answer to `parameters`, a JSON object; raises as `message`."""
        wanted = asked_of(name, parameters)
        return await self._engine.answer(self._from(sender, wanted, sender.signer, parameters))

    async def create(
        self, definition: bytes, analyst: str = MAIN, sender: Sender = BY_OPERATOR
    ) -> Mapping[str, Any]:
        """Create a series; it is charged, durable and running on return.

        Raises:
            UsageError, BudgetRefused: nothing has changed; see `Engine.answer`.
        """
        wanted = Wanted("create", definition=definition, accept_noise=sender.accept_noise)
        return await self._told(sender, wanted, paying(sender, analyst), definition)

    async def halt(self, name: str, sender: Sender = BY_OPERATOR) -> Mapping[str, Any]:
        """Halt a created series; raise UnknownMechanism if none of this name runs, NotYours if another ledger paid."""
        return await self._told(sender, Wanted("halt", name), sender.signer, name.encode())

    async def preview(
        self, definition: bytes, analyst: str = MAIN, sender: Sender = BY_OPERATOR
    ) -> Mapping[str, Any]:
        """Return what creating the series would do; changes nothing.

        A definition with `error` instead of `epsilon` gets the least epsilon whose expected error is at most that.

        Raises:
            UsageError, BudgetRefused: see `create`; a price that does not fit is an answer, not an error.
        """
        payer = paying(sender, analyst)

        async def predicted(priced: bytes) -> float:
            proposal = await self._engine.propose(priced, payer)
            self._engine.admission.preview(proposal, payer)  # may refuse already
            return proposal.predicted()[1]

        definition = await self._search.priced(definition, payer, predicted)
        wanted = Wanted("preview", definition=definition)
        return await self._told(sender, wanted, payer, definition)

    def queries(self) -> Sequence[Mapping[str, Any]]:
        """Return the running series, the file's first, then the last halted ones; `end` is None while one runs.

        The list needs no token, so it does not show the filters of analysts' own series.
        """
        return self._words.listed(self._engine.admission, (MAIN,))

    async def _told(
        self, sender: Sender, wanted: Wanted, analyst: str, said: bytes
    ) -> Mapping[str, Any]:
        answer = read_answer(await self._engine.answer(self._from(sender, wanted, analyst, said)))
        if isinstance(answer.refused, RefusedMessage):
            raise error_of(answer.refused)
        return answer.answer or {}

    def _from(self, sender: Sender, wanted: Wanted, analyst: str, said: bytes) -> Addressed:
        """Return the message of a request; with the same key and the same content it is the same message."""
        parts = [wanted.do.encode(), wanted.series.encode(), analyst.encode(), said]
        if wanted.accept_noise:
            parts.append(b"accept_noise")
        return Addressed(
            sender.key or fresh_id(),
            analyst,
            operator=sender.signer == MAIN,
            until=self._engine.now + LONGEST_MS,
            do=wanted.do,
            text=b"\n".join(parts),
            wanted=wanted,
        )

    def promise(self) -> Derivation:
        """Return the guarantee of everything, derived with the live series that run now."""
        admission, built = self._engine.admission, self._built
        mine = [
            (self._planner.running[live.number].derivation, Alive(live.start, None))
            for live in admission.registry.live
            if live.created and admission.subledgers.running[live.series.name][0] == MAIN
        ]
        parts = [*built.frozen, *mine]
        return whole(
            built.spec.name, admission.subledgers.main.filter, parts, target(built.spec.privacy)
        )

    def planned(self) -> list[dict[str, Any]]:
        """Return the entries of running live series in the form of `plan_json`, each with one predicted error."""
        return [
            series_json(planned.chosen, [planned.predicted()], self._confidence, planned.start)
            for planned in self._planner.running.values()
        ]


def paying(sender: Sender, analyst: str) -> str:
    """Return the ledger that pays: that of `analyst`, else the sender's; raise NotYours if an analyst names another."""
    if sender.signer not in (MAIN, analyst or sender.signer):
        raise NotYours("analyst: your token pays from your own ledger only")
    return analyst or sender.signer


def asked_of(name: str, parameters: bytes) -> Wanted:
    """Return the request that a JSON object of parameters describes; raise UsageError if it is no such object."""
    message = read_ask(name, parameters)
    return Wanted("ask", message.series, parameters=message.parameters)


_T = TypeVar("_T")
CATCHING_UP = (
    "the engine has lost its brokers and is catching up; nothing was done, ask again when it runs"
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a run: its engine, the planner of its live series, and the live series."""

    engine: Engine
    planner: LiveSeriesPlanner
    live_series: EngineLiveSeries


class CurrentLiveSeries:
    """The live series of the attempt that `shown` returns; the methods are those of `EngineLiveSeries`.

    A command goes once to an engine that runs. While no engine runs, or while `catching_up`, it raises Outage, and
    nothing was done.
    """

    def __init__(self, shown: Callable[[], Attempt], catching_up: Callable[[], bool]) -> None:
        self._shown = shown
        self._catching_up = catching_up

    async def create(
        self, definition: bytes, analyst: str = MAIN, sender: Sender = BY_OPERATOR
    ) -> Mapping[str, Any]:
        return await self._done(self._running().create(definition, analyst, sender))

    async def halt(self, name: str, sender: Sender = BY_OPERATOR) -> Mapping[str, Any]:
        return await self._done(self._running().halt(name, sender))

    async def preview(
        self, definition: bytes, analyst: str = MAIN, sender: Sender = BY_OPERATOR
    ) -> Mapping[str, Any]:
        return await self._done(self._running().preview(definition, analyst, sender))

    async def message(self, text: bytes, signer: str) -> bytes:
        return await self._done(self._running().message(text, signer))

    async def ask(self, name: str, parameters: bytes, sender: Sender = BY_OPERATOR) -> bytes:
        return await self._done(self._running().ask(name, parameters, sender))

    def queries(self) -> Sequence[Mapping[str, Any]]:
        """Return all series as the last running engine knows them."""
        return self._shown().live_series.queries()

    def _running(self) -> EngineLiveSeries:
        if self._catching_up():
            raise Outage(CATCHING_UP)
        return self._shown().live_series

    async def _done(self, work: Awaitable[_T]) -> _T:
        try:
            return await work
        except EngineEnded as ended:
            raise self._why(ended) from None

    def _why(self, ended: EngineEnded) -> EngineEnded | Outage:
        return Outage(CATCHING_UP) if self._catching_up() else ended
