"""Messages to an engine over Kafka; an analyst needs a token, the brokers' addresses and the pipeline's name.

Rules: a message is signed here and sent once; the token never leaves this process. Its answer is searched among the
records of the public topic from before the sending on. The right answer names the place of the message, so an answer
to another message with the same id is never mistaken for it. A message may be executed after its caller stopped
waiting; its answer is then found by its id.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from stream_dp.client.message_text import good_answer
from stream_dp.errors import WorldError
from stream_dp.journal.answer_body import RefusalKind, read_answer
from stream_dp.kafka.client.clients import (
    KafkaSettings,
    connect,
    disconnect,
    library,
    patiently,
    speaking,
)
from stream_dp.kafka.log.reader import reading
from stream_dp.live.envelope import write_envelope

SECONDS = 60.0
_SLICE_MS = 200


@asynccontextmanager
async def talking(
    settings: KafkaSettings, pipeline: str, token: str
) -> AsyncIterator["KafkaMessages"]:
    """Connect to the topics of a pipeline; errors as of `KafkaMessages.open`."""
    messages = KafkaMessages(settings, pipeline, token)
    try:
        await messages.open()
        yield messages
    finally:
        await messages.close()


class KafkaMessages:
    """The messages of the holder of `token`, sent one after the other."""

    def __init__(self, settings: KafkaSettings, pipeline: str, token: str) -> None:
        self._settings, self._pipeline, self._token = settings, pipeline, token
        self._queries, self._answers = f"{pipeline}.queries", f"{pipeline}.answers"
        self._clients: list[Any] = []
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Connect, and read answers from now on; WorldError without brokers, topics or access."""
        settings = self._settings
        self._reader = library().AIOKafkaConsumer(
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=_SLICE_MS,
            **settings.client(),
        )
        self._producer = library().AIOKafkaProducer(
            acks="all", enable_idempotence=True, max_request_size=2**20, **settings.client()
        )
        for client in (self._reader, self._producer):
            self._clients.append(client)
            await connect(settings, client)
        for topic in (self._queries, self._answers):
            await self._there(topic)
        self._reader.assign([self._place])
        about = f"topic {self._answers!r}"
        ends = await patiently(settings, about, lambda: self._reader.end_offsets([self._place]))
        self._reader.seek(self._place, ends[self._place])

    async def close(self) -> None:
        clients, self._clients = self._clients, []
        for client in clients:
            await disconnect(client)

    async def answer(self, text: str, name: str, seconds: float = SECONDS) -> bytes:
        """Send the message with this text and id, and return the exact bytes of its answer.

        If an earlier message has the same id and the same text (apart from `until`), its answer is returned.

        Raises:
            NotAccepted: for example, the id was used for another message; nothing has changed.
            UsageError, BudgetRefused: raised by the engine; nothing has changed.
            WorldError: no answer in time; the message may still be executed.
        """
        envelope = write_envelope(self._token, self._pipeline, text)
        async with self._turn:
            with speaking(self._settings, f"topic {self._queries!r}"):
                sent = await self._producer.send_and_wait(self._queries, envelope, partition=0)
            body = await self._awaited(name, sent.offset, seconds)
        refusal = read_answer(body).refusal(sent.offset)
        if refusal is not None and refusal.kind == RefusalKind.REPEATED:
            body = await self.recorded(name) or body
        return good_answer(body, sent.offset)

    async def recorded(self, name: str) -> bytes | None:
        """Return the bytes of the newest answer to this id in the public topic, or None."""
        body = None
        async with reading(self._settings, self._answers) as log:
            decided, _ = await log.ends()  # a killed engine may leave one open
            async with aclosing(log.records(0, decided)) as groups:
                async for group in groups:
                    for record in group:
                        if record.key == name.encode():
                            body = bytes(record.value)
        return body

    @property
    def _place(self) -> Any:
        return library().TopicPartition(self._answers, 0)

    async def _awaited(self, name: str, place: int, seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        with speaking(self._settings, f"topic {self._answers!r}"):
            while time.monotonic() < deadline:
                fetched = await self._reader.getmany(self._place, timeout_ms=_SLICE_MS)
                for record in fetched.get(self._place, ()):
                    if read_answer(body := bytes(record.value)).names(place):
                        return body
        raise WorldError(
            f"no engine of {self._pipeline} answered within {seconds:g} s. It may still execute "
            f"the message: the answer will be in {self._answers} under the id {name}. The same "
            "message sent again with this id gets the same answer"
        )

    async def _there(self, topic: str) -> None:
        with speaking(self._settings, f"topic {topic!r}"):
            metadata = await self._producer.client.fetch_all_metadata()
        if not metadata.partitions_for_topic(topic):
            raise WorldError(
                f"topic {topic!r} does not exist at {self._settings.bootstrap}, or this user may not "
                f"use it. The engine of {self._pipeline} creates the topic when it starts; check the "
                "name and this user's rights (ACL)"
            )
