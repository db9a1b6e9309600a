"""Another node leads, and nothing else happens: no node is down, none is slow, every copy is in sync.

Rules: what aiokafka's admin client has no request for is sent over a plain socket; brokers hand it to their controller.
Synchronous, like the cluster it is for.
"""

import asyncio
import struct
import time
from collections.abc import Iterable
from typing import NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from kafka.raw_wire import Answer, Refused, Wire, text

ELECT_LEADERS, REASSIGN = 43, 45
_PREFERRED = 0
_ALREADY = 84  # the preferred copy leads already
_WAIT_MS = 30_000
_READY_S = 60


class Copies(NamedTuple):
    """A partition, the node that leads it, and the nodes that hold it, the preferred one first."""

    topic: str
    partition: int
    leader: int
    nodes: tuple[int, ...]


def copies(bootstrap: str, *, internal: bool) -> list[Copies]:
    """All partitions of a cluster: of the brokers' own topics, which hold what coordinators know, or all others."""

    async def asked() -> list[Copies]:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            return [
                Copies(one["topic"], each["partition"], each["leader"], tuple(each["replicas"]))
                for one in await admin.describe_topics()
                if one["topic"].startswith("__") == internal
                for each in one["partitions"]
            ]
        finally:
            await admin.close()

    return asyncio.run(asked())


def move_leaders(bootstrap: str, *, internal: bool) -> int:
    """Let the next copy lead, of every partition of one kind; return how many there are, once the brokers say so.

    Raises:
        Refused: the cluster does not do it.
    """
    before = copies(bootstrap, internal=internal)
    assert before
    assert all(len(one.nodes) > 1 for one in before), "one copy has nobody to hand over to"
    with Wire(bootstrap.partition(",")[0]) as wire:
        _prefer(wire, [(one, (*one.nodes[1:], one.nodes[0])) for one in before])
        _elect(wire, before)
    wanted = {(one.topic, one.partition): one.nodes[1] for one in before}
    end = time.monotonic() + _READY_S
    while {
        (one.topic, one.partition): one.leader for one in copies(bootstrap, internal=internal)
    } != wanted:
        assert time.monotonic() < end, "some partitions kept their leader"
        time.sleep(0.1)
    return len(wanted)


def _prefer(wire: Wire, orders: Iterable[tuple[Copies, tuple[int, ...]]]) -> None:
    """Change the order of copies, which moves nothing by itself."""
    topics = b""
    number = 0
    for one, nodes in orders:
        number += 1
        held = _varint(len(nodes) + 1) + b"".join(struct.pack(">i", node) for node in nodes)
        topics += _varint(len(one.topic.encode()) + 1) + one.topic.encode()
        topics += _varint(2) + struct.pack(">i", one.partition) + held + b"\0\0"
    body = b"\0" + struct.pack(">i", _WAIT_MS) + _varint(number + 1) + topics + b"\0"
    answer = wire.call(REASSIGN, 0, body)
    answer.take("b")  # tags of the header
    answer.take("i")
    if code := answer.take("h"):
        raise Refused("another order of copies", code)


def _elect(wire: Wire, partitions: Iterable[Copies]) -> None:
    """Let each partition's preferred copy lead."""
    named = [text(one.topic) + struct.pack(">ii", 1, one.partition) for one in partitions]
    body = struct.pack(">bi", _PREFERRED, len(named)) + b"".join(named)
    answer = wire.call(ELECT_LEADERS, 1, body + struct.pack(">i", _WAIT_MS))
    answer.take("i")
    for code in (answer.take("h"), *_codes(answer)):
        if code not in (0, _ALREADY):
            raise Refused("another leader", code)


def _codes(answer: Answer) -> list[int]:
    codes = []
    for _ in answer.items():
        answer.text()
        for _ in answer.items():
            answer.take("i")
            codes.append(answer.take("h"))
            answer.text()
    return codes


def _varint(number: int) -> bytes:
    """An unsigned number, seven bits a byte."""
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])
