"""The live series of a running engine for the HTTP API: preview, create, halt, list and ask.

Rules: every request except a list becomes a message and is handled like all messages: executed at a cut, recorded
with its answer, public. Its id is the request's key, if it has one; the same request under the same key is the same
message. Errors are those of the engine.
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
        """Halt a series that was created.

        Raises:
            UnknownMechanism: no created series with this name runs.
            NotYours: another ledger paid for it.
        """
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
    """Return the ledger that pays: that of `analyst`, or the sender's own if none is named.

    Raises:
        NotYours: an analyst names another analyst.
    """
    if sender.signer not in (MAIN, analyst or sender.signer):
        raise NotYours("analyst: your token pays from your own ledger only")
    return analyst or sender.signer


def asked_of(name: str, parameters: bytes) -> Wanted:
    """Return the request of a series that a JSON object of parameters describes.

    Raises:
        UsageError: it is not a JSON object, or has keys that cannot be asked.
    """
    message = read_ask(name, parameters)
    return Wanted("ask", message.series, parameters=message.parameters)
