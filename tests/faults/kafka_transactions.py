"""Waiting for the ends of transactions: brokers answer a commit, or an abort, before its markers stand in the log.

Rules: nothing of the engine is imported here. Who reads what was committed just now waits for `decided` first; what a
killed program has left open is not waited for.
"""

import asyncio

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

ENDING = ["PrepareCommit", "PrepareAbort"]
"""Decided, and the markers are on their way."""
_LIST_TRANSACTIONS = 66
_TEXT = CompactString("utf-8")


class _Listed(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = _LIST_TRANSACTIONS
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("unknown_state_filters", CompactArray(_TEXT)),
        (
            "transaction_states",
            CompactArray(
                ("transactional_id", _TEXT),
                ("producer_id", Int64),
                ("transaction_state", _TEXT),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _ListV0(RequestStruct):  # type: ignore[misc]  # aiokafka has no types
    FLEXIBLE_VERSION = True
    API_KEY = _LIST_TRANSACTIONS
    API_VERSION = 0
    RESPONSE_TYPE = _Listed
    SCHEMA = Schema(
        ("state_filters", CompactArray(_TEXT)),
        ("producer_id_filters", CompactArray(Int64)),
        ("tags", TaggedFields),
    )


class _List(Request[_ListV0]):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = _LIST_TRANSACTIONS

    def build(self, request_struct_class: type[_ListV0]) -> _ListV0:
        return request_struct_class(ENDING, [], {})


async def decided(bootstrap: str) -> None:
    """Wait until the markers of every commit and every abort that was answered by now stand in the log."""
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    try:
        async with asyncio.timeout(60):
            left = await _ending(client)
            while left:
                await asyncio.sleep(0.01)
                left &= await _ending(client)
    finally:
        await client.close()


async def _ending(client: AIOKafkaClient) -> set[str]:
    """The transactional ids whose transactions have an end without all its markers, as every coordinator says."""
    while True:
        try:
            answers = [await client.send(node.nodeId, _List()) for node in client.cluster.brokers()]
        except KafkaError:  # a broker that went away: the others take over what it coordinated
            answers = []
        if answers and not any(one.error_code for one in answers):
            return {name for one in answers for name, *_ in one.transaction_states}
        await asyncio.sleep(0.1)
        await client.force_metadata_update()
