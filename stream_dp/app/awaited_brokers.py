"""Waiting for brokers that are about to come, so that lines which start one and use it can be pasted at once.

Rules: only what may pass by itself is waited for; a wrong login or certificate is told at once. Whoever waits is told
so, once. Nothing of what is in a topic is looked at.
"""

import asyncio
import time
from collections.abc import Callable

from stream_dp.adapters.kafka_client import KafkaSettings
from stream_dp.adapters.kafka_topics import administering
from stream_dp.errors import Outage

WAIT_S = 60.0
_AGAIN_S = 0.3


async def brokers_there(
    settings: KafkaSettings, tell: Callable[[str], None], seconds: float = WAIT_S
) -> None:
    """Return when a broker answers; look again for so many `seconds` where none does, and `tell` so.

    Raises:
        Outage: none answered in all that time.
        WorldError: at once, where waiting would not help.
    """
    deadline, told = time.monotonic() + seconds, False
    while True:
        try:
            async with administering(settings, "no connection"):
                return
        except Outage:
            if time.monotonic() >= deadline:
                raise
        if not told:
            tell(f"Waiting for Kafka at {settings.bootstrap}, for {seconds:.0f} s at most")
            told = True
        await asyncio.sleep(_AGAIN_S)
