"""The live series of a running engine: what the HTTP API may preview, create, halt, list and ask, as public values.

Rules: every request that is not a list becomes a message, and goes the way of all messages: executed at a cut, on
record with its answer, public. Its id is the request's key, where it has one; the same request under the same key is
the same message. Errors are those of the engine.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from stream_dp.accounting.situations import Alive
from stream_dp.accounting.subledgers import MAIN
from stream_dp.client.message_text import fresh_id
from stream_dp.core.derivation import Derivation
from stream_dp.engine.engine import Engine
from stream_dp.engine.messages.addressed import Addressed, Wanted
from stream_dp.engine.messages.answer_words import error_of
from stream_dp.engine.messages.conversation import LONGEST_MS
from stream_dp.errors import NotYours
from stream_dp.journal.answer_body import RefusedMessage, read_answer
from stream_dp.live.analyst_messages import read_ask
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.operate.query.series_words import SeriesWords
from stream_dp.operate.query.target_error import ErrorSearch
from stream_dp.pipeline.budget import target
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.derivations import whole
from stream_dp.pipeline.report import series_json
from stream_dp.server.live_series import BY_OPERATOR, Sender


class EngineLiveSeries:
    """Creates, halts, lists and asks the series of `engine`; `words` says what is answered."""

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
        """Return the exact bytes of the answer to a message; `signer` is whose token was shown.

        Raises:
            NotAccepted, UsageError: nothing has changed; see `Engine.answer`.
        """
        return await self._engine.tell(text, signer)

    async def ask(self, name: str, parameters: bytes, sender: Sender = BY_OPERATOR) -> bytes:
        """Return the exact bytes of the answer of a series to `parameters`, a JSON object; errors as of `message`."""
        wanted = asked_of(name, parameters)
        return await self._engine.answer(self._from(sender, wanted, sender.signer, parameters))

    async def create(
        self, definition: bytes, analyst: str = MAIN, sender: Sender = BY_OPERATOR
    ) -> Mapping[str, Any]:
        """Create a series; charged, durable and running on return.

        Raises:
            UsageError, BudgetRefused: nothing has changed; see `Engine.answer`.
        """
        wanted = Wanted("create", definition=definition, accept_noise=sender.accept_noise)
        return await self._told(sender, wanted, paying(sender, analyst), definition)

    async def halt(self, name: str, sender: Sender = BY_OPERATOR) -> Mapping[str, Any]:
        """Halt a series that was created.

        Raises:
            UnknownMechanism: none of this name was created and runs.
            NotYours: another ledger paid for it.
        """
        return await self._told(sender, Wanted("halt", name), sender.signer, name.encode())

    async def preview(
        self, definition: bytes, analyst: str = MAIN, sender: Sender = BY_OPERATOR
    ) -> Mapping[str, Any]:
        """Return what creating the series would do; changes nothing.

        A definition with `error` in place of `epsilon` has the least epsilon that is expected to be off by no more.

        Raises:
            UsageError, BudgetRefused: see `create`; that it does not fit is an answer, and no error.
        """
        payer = paying(sender, analyst)

        async def predicted(priced: bytes) -> float:
            proposal = await self._engine.propose(priced, payer)
            self._engine.admission.preview(proposal, payer)  # refuses now what the message would be
            return proposal.predicted()[1]

        definition = await self._search.priced(definition, payer, predicted)
        wanted = Wanted("preview", definition=definition)
        return await self._told(sender, wanted, payer, definition)

    def queries(self) -> Sequence[Mapping[str, Any]]:
        """Return every series that runs, those of the file first, then the last halted ones.

        `end` is None while it lives. Nobody's token is needed, so what an analyst's own series count in detail is not
        told.
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
        """The message of a request; two of one key are the same if they say the same."""
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
        """Return what holds for everything, derived with the live series that run now."""
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
        """Return for each live series that runs what `plan_json` says of one of the file, with one predicted error."""
        return [
            series_json(planned.chosen, [planned.predicted()], self._confidence, planned.start)
            for planned in self._planner.running.values()
        ]


def paying(sender: Sender, analyst: str) -> str:
    """Return whose ledger pays: that of `analyst`, and where none is named the sender's own.

    Raises:
        NotYours: an analyst names another one.
    """
    if sender.signer not in (MAIN, analyst or sender.signer):
        raise NotYours("analyst: your token pays from your own ledger only")
    return analyst or sender.signer


def asked_of(name: str, parameters: bytes) -> Wanted:
    """Return what a JSON object of parameters asks of a series.

    Raises:
        UsageError: it is none, or has what cannot be asked.
    """
    message = read_ask(name, parameters)
    return Wanted("ask", message.series, parameters=message.parameters)
