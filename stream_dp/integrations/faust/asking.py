"""The messages of docs/messages.md as awaitable calls, from any worker of an app, with typed answers.

Rules: a message is signed here and sent by Kafka, so the engine answers wherever it runs, also after it took over
from a killed worker. The same message with the same id gets its former answer: a caller that keeps the id across a
crash learns the outcome, and nothing is done twice. Messages are sent one after the other.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from msgspec import UNSET

from stream_dp.client.kafka_messages import SECONDS, KafkaMessages
from stream_dp.client.message_text import fresh_id, message_text
from stream_dp.errors import FailClosed, WorldError
from stream_dp.journal.answer_body import read_answer
from stream_dp.kafka.client.clients import KafkaSettings, backing_off
from stream_dp.server.models.asked import Created, Halted, Preview, Query, QueryList

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """The answer to a message: `number` counts a pipeline's answers from 1, `tick` is the last tick before the cut.

    `body` is the exact public line in the topic `NAME.answers`.
    """

    number: int
    id: str
    tick: int | None
    end: str
    content: T
    body: bytes = field(repr=False)


class FaustQueries:
    """The engine of the pipeline `name`, asked by `analyst` ("": the operator) with `token`.

    Every method takes `message_id`, the caller's own id (default: a fresh one), and `seconds`, the longest wait.

    Raises, in every method:
        NotAccepted: for example, the id was used for another message; nothing has changed.
        UsageError, BudgetRefused: raised by the engine; nothing has changed.
        WorldError: no engine answered in time, or no brokers; a repeated message with the same id is done once.
    """

    def __init__(self, settings: KafkaSettings, name: str, token: str, analyst: str = "") -> None:
        self._settings, self._name, self._token = settings, name, token
        self._analyst = analyst
        self._messages: KafkaMessages | None = None
        self._opening = asyncio.Lock()

    async def ask(
        self, series: str, *, message_id: str = "", seconds: float = SECONDS, **parameters: Any
    ) -> Reply[Mapping[str, Any]]:
        """Ask a series: `keys`, or `from_` and `to`, `window`; for a monitor `watch`, `threshold`."""
        given = {key.removesuffix("_"): value for key, value in parameters.items()}
        return await self._ask("ask", {"series": series, **given}, message_id, seconds)

    async def create(
        self,
        series: Mapping[str, Any],
        *,
        accept_noise: bool = False,
        message_id: str = "",
        seconds: float = SECONDS,
    ) -> Reply[Created]:
        """Charge and start a series, an entry of `series:`, at the next cut between two ticks.

        A series that fires mostly by noise is refused unless `accept_noise` is set.
        """
        content = {"series": series, **_accepting(accept_noise)}
        return await self._ask("create", content, message_id, seconds, Created.documented)

    async def preview(
        self, series: Mapping[str, Any], *, message_id: str = "", seconds: float = SECONDS
    ) -> Reply[Preview]:
        """Return what creating the series would cost; changes nothing."""
        form = Preview.documented
        return await self._ask("preview", {"series": series}, message_id, seconds, form)

    async def halt(
        self, series: str, *, message_id: str = "", seconds: float = SECONDS
    ) -> Reply[Halted]:
        """End a series that was created."""
        return await self._ask("halt", {"series": series}, message_id, seconds, Halted.documented)

    async def list(self, *, message_id: str = "", seconds: float = SECONDS) -> Reply[QueryList]:
        """Return all series, including halted ones."""
        return await self._ask("list", {}, message_id, seconds, _listed)

    async def watch(
        self,
        series: str,
        watch: Mapping[str, Any],
        *,
        accept_noise: bool = False,
        message_id: str = "",
        seconds: float = SECONDS,
    ) -> Reply[Mapping[str, Any]]:
        """Add a watch, an entry of `watch:`, to a monitor; `accept_noise` as in `create`."""
        content = {"series": series, "watch": watch, **_accepting(accept_noise)}
        return await self._ask("watch", content, message_id, seconds)

    async def unwatch(
        self, series: str, watch: str, *, message_id: str = "", seconds: float = SECONDS
    ) -> Reply[Mapping[str, Any]]:
        """End a watch of a monitor."""
        return await self._ask("unwatch", {"series": series, "watch": watch}, message_id, seconds)

    async def close(self) -> None:
        """Close the connections; the next message opens them again."""
        messages, self._messages = self._messages, None
        if messages is not None:
            await messages.close()

    async def _ask(
        self,
        do: str,
        content: Mapping[str, Any],
        name: str,
        seconds: float,
        form: Callable[[Mapping[str, Any]], Any] = dict,
    ) -> Reply[Any]:
        """Return the typed answer to a message; `form` makes its content from the answer's keys."""
        name = name or fresh_id()
        deadline = time.monotonic() + seconds
        messages = await self._opened(deadline)
        text = message_text(do, content, name, self._analyst)
        try:
            body = await messages.answer(text, name, max(0.0, deadline - time.monotonic()))
        except WorldError:
            await self.close()
            raise
        read = read_answer(body)
        if read.answer is UNSET or read.id is None:
            raise FailClosed("an answer in the topic of answers is empty; restore the topic")
        return Reply(read.number, read.id, read.tick, read.end, form(read.answer), body)

    async def _opened(self, deadline: float) -> KafkaMessages:
        """Return the connections; wait until the engine has made its topics at its start."""
        waits = backing_off()
        async with self._opening:
            while self._messages is None:
                messages = KafkaMessages(self._settings, self._name, self._token)
                try:
                    await messages.open()
                except BaseException as error:
                    await messages.close()
                    wait = next(waits)
                    if not isinstance(error, WorldError) or time.monotonic() + wait > deadline:
                        raise
                    await asyncio.sleep(wait)
                else:
                    self._messages = messages
            return self._messages


def _accepting(accept_noise: bool) -> dict[str, bool]:
    return {"accept_noise": True} if accept_noise else {}


def _listed(answer: Mapping[str, Any]) -> QueryList:
    return QueryList(queries=tuple(map(Query.documented, answer["queries"])))
