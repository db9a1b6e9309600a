"""Talking to an engine by Kafka: an analyst with a token, the brokers' addresses and the pipeline's name needs no more.

Rules: a message is signed here and sent once; its answer is looked for in what comes into the public topic from before
the message was sent, and is the one that names the place where the message lies: an answer to another message of the
same id is never taken for it. Whoever waits in vain has not undone anything: the message may be executed later, and its
answer is found by its id. A refusal comes back as the error that the engine raised. The token leaves this process in no
form.
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
    """Connect to the topics of a pipeline.

    Raises:
        WorldError: no answer, no such topics, or access denied.
    """
    messages = KafkaMessages(settings, pipeline, token)
    try:
        await messages.open()
        yield messages
    finally:
        await messages.close()


class KafkaMessages:
    """The messages of one who holds `token`, one after the other."""

    def __init__(self, settings: KafkaSettings, pipeline: str, token: str) -> None:
        self._settings = settings
        self._pipeline = pipeline
        self._token = token
        self._queries, self._answers = f"{pipeline}.queries", f"{pipeline}.answers"
        self._clients: list[Any] = []
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Connect, and read answers from now on.

        Raises:
            WorldError: no answer, no such topics, or access denied.
        """
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
        found = await patiently(settings, about, lambda: self._reader.end_offsets([self._place]))
        self._reader.seek(self._place, found[self._place])

    async def close(self) -> None:
        """Give the connections back; may be called again."""
        clients, self._clients = self._clients, []
        for client in clients:
            await disconnect(client)

    async def answer(self, text: str, name: str, seconds: float = SECONDS) -> bytes:
        """Send the message of this text and id, and return the exact bytes of its answer.

        A message that came before, with this id and this text but for its `until`, has its answer already: that one is
        returned.

        Raises:
            NotAccepted: the id was used for another message, among others; nothing has changed.
            UsageError, BudgetRefused: what the engine says of it; nothing has changed.
            WorldError: no answer in time; the message may still be executed.
        """
        envelope = write_envelope(self._token, self._pipeline, text)
        async with self._turn:
            with speaking(self._settings, f"topic {self._queries!r}"):
                sent = await self._producer.send_and_wait(self._queries, envelope, partition=0)
            body = await self._awaited(name, sent.offset, seconds)
        found = read_answer(body).refusal(sent.offset)
        if found is not None and found.kind == RefusalKind.REPEATED:
            body = await self.recorded(name) or body
        return good_answer(body, sent.offset)

    async def recorded(self, name: str) -> bytes | None:
        """The bytes of the newest answer to a message of this id, if there is one in the public topic."""
        found = None
        async with reading(self._settings, self._answers) as log:
            decided, _ = await log.ends()  # an engine that was killed may have left more open
            async with aclosing(log.records(0, decided)) as groups:
                async for group in groups:
                    for record in group:
                        if record.key == name.encode():
                            found = bytes(record.value)
        return found

    @property
    def _place(self) -> Any:
        return library().TopicPartition(self._answers, 0)

    async def _awaited(self, name: str, place: int, seconds: float) -> bytes:
        """The answer to the message of this id that lies at this place."""
        deadline = time.monotonic() + seconds
        with speaking(self._settings, f"topic {self._answers!r}"):
            while time.monotonic() < deadline:
                fetched = await self._reader.getmany(self._place, timeout_ms=_SLICE_MS)
                bodies = [bytes(record.value) for record in fetched.get(self._place, ())]
                for body in bodies:
                    if read_answer(body).names(place):
                        return body
        raise WorldError(
            f"no engine of {self._pipeline} answered within {seconds:g} s; the message may still be executed: its "
            f"answer will be in {self._answers} under the id {name}, and the same, asked again with it, gets that one"
        )

    async def _there(self, topic: str) -> None:
        """Make sure that the topic is there, and may be seen."""
        with speaking(self._settings, f"topic {topic!r}"):
            found = await self._producer.client.fetch_all_metadata()
        if not found.partitions_for_topic(topic):
            raise WorldError(
                f"topic {topic!r} does not exist at {self._settings.bootstrap}, or may not be used: the engine of "
                f"{self._pipeline} makes it when it starts; check the name and this user's rights (ACL)"
            )
