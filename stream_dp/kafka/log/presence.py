"""Whether an engine of a pipeline is alive: a living engine is a member of the group `NAME.lease`.

Rules: safety never depends on presence; the lease is for safety. Presence only shows when no engine is there, so
that a standby may try. A process that dies leaves the group when its session ends, `SESSION_S` later. The group
commits nothing. An error of the brokers is not an answer: a standby goes on waiting. This file knows no journal and
no engine.
"""

import asyncio
from typing import Any

from stream_dp.errors import Outage
from stream_dp.kafka.client.clients import (
    KEPT,
    KafkaSettings,
    backing_off,
    connect,
    disconnect,
    library,
    patiently,
    speaking,
)
from stream_dp.kafka.client.topics import administering, ensure
from stream_dp.noise import fresh_seed

SESSION_S = 6.0
"""The shortest session that brokers allow by default."""
_LOOK_S = 0.5
_NEVER_MS = 2**31 - 1


class Presence:
    """A pipeline's group of running engines; `join` enters it, `leave` leaves it."""

    def __init__(self, settings: KafkaSettings, pipeline: str) -> None:
        self._settings = settings
        self._topic = f"{pipeline}.private.lease"
        self._group = f"{pipeline}.lease"
        self._member: Any = None

    async def join(self) -> None:
        """Join the group and make what that needs; a second call does nothing.

        Raises:
            WorldError: the brokers do not answer, or deny access.
            FailClosed: the lease's topic could lose its records.
        """
        if self._member is not None:
            return
        settings = self._settings
        await ensure(settings, self._topic, KEPT)
        joined = _Joined()
        member = library().AIOKafkaConsumer(
            group_id=self._group,
            session_timeout_ms=int(SESSION_S * 1000),
            heartbeat_interval_ms=1000,
            max_poll_interval_ms=_NEVER_MS,
            enable_auto_commit=False,
            auto_offset_reset="latest",
            **settings.client(),
        )
        member.subscribe([self._topic], listener=joined.listener())
        try:
            with speaking(settings, f"group {self._group!r}"):
                await connect(settings, member)
                async with asyncio.timeout(settings.patience_s):
                    await joined.event.wait()
        except BaseException:
            await disconnect(member)
            raise
        self._member = member

    async def members(self) -> int:
        """Return the present number of members, including this one.

        Raises:
            WorldError: the brokers do not answer, or deny access.
        """
        about = f"group {self._group!r}"
        async with administering(self._settings, about) as admin:

            async def asked() -> int:
                (answer,) = await admin.describe_consumer_groups([self._group])
                ((code, _, _, _, _, members, *_),) = answer.groups
                if code:
                    raise library(".errors").for_code(code)
                return len(members)

            return await patiently(self._settings, about, asked)

    async def alone(self) -> None:
        """Join once nobody else is there; if several wait, only one returns.

        Raises:
            WorldError: access is denied; a silent broker is waited for.
        """
        waits = backing_off()
        while True:
            try:
                if await self.members() == 0:
                    await self.join()
                    if await self.members() == 1:
                        return
                    await self.leave()
                    await asyncio.sleep(fresh_seed()[0] / 128)  # not all at once
                waits = backing_off()
                await asyncio.sleep(_LOOK_S)
            except Outage:
                await asyncio.sleep(next(waits))

    async def leave(self) -> None:
        """Leave the group; may be called again."""
        member, self._member = self._member, None
        if member is not None:
            await disconnect(member)


class _Joined:
    """Sets an event once the brokers have accepted the member."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def listener(self) -> Any:
        event = self.event

        class Listener(library(".abc").ConsumerRebalanceListener):  # type: ignore[misc]  # of no known type
            def on_partitions_revoked(self, revoked: Any) -> None:
                """Do nothing."""

            def on_partitions_assigned(self, assigned: Any) -> None:
                event.set()

        return Listener()
