"""Waits for brokers that are about to start, so that lines for starting and using them can be pasted at once.

Rules: only errors that can pass by themselves are waited for; a wrong login or certificate is reported at once. The
user is told once that the program waits. No content of a topic is read.
"""

import asyncio
import time
from collections.abc import Callable

from stream_dp.errors import Outage
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.topics import administering
from stream_dp.operate.run.settings import settings_for
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.records.endpoints import KafkaSourceSpec

WAIT_S = 60.0
"""How long to wait until a broker answers."""
_AGAIN_S = 0.3


async def source_there(spec: PipelineSpec, tell: Callable[[str], None]) -> None:
    """Wait for the brokers of a pipeline's source, if it has any; see `brokers_there`."""
    if isinstance(spec.source, KafkaSourceSpec):
        await brokers_there(settings_for(spec.source), tell)


async def brokers_there(settings: KafkaSettings, tell: Callable[[str], None]) -> None:
    """Return when a broker answers; try for `WAIT_S` seconds and `tell` once that the program waits.

    Raises:
        Outage: no broker answered in that time.
        WorldError: at once, if waiting would not help.
    """
    deadline, told = time.monotonic() + WAIT_S, False
    while True:
        try:
            return await _looked(settings)
        except Outage:
            if time.monotonic() >= deadline:
                raise
        if not told:
            tell(f"Waiting for Kafka at {settings.bootstrap}, for {WAIT_S:.0f} s at most")
            told = True
        await asyncio.sleep(_AGAIN_S)


async def _looked(settings: KafkaSettings) -> None:
    """Return if a broker answers and names a usable broker: a starting broker may name none for a moment."""
    async with administering(settings, "no connection") as admin:
        found = (await admin.describe_cluster())["brokers"]
    if not found:
        raise Outage(f"Kafka at {settings.bootstrap} has begun, and names no broker yet")
