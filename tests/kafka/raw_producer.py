"""A producer without a client: raw batches to partitions, plain or inside transactions, each request by itself.

Rules: one connection a producer. A transaction is left to whoever drives it: nothing is ended, retried or numbered
behind one's back, so six of them can be interleaved at will and one can be left open for ever.
"""

import struct
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from kafka.raw_batches import TRANSACTIONAL, RawBatch
from kafka.raw_wire import (
    ADD_PARTITIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER,
    LEADERLESS,
    Refused,
    Stored,
    Wire,
    text,
)

_BUSY = LEADERLESS | {14, 15, 16, 51}
# coordinator loading, absent or moved; the last transaction still ends
Produce: TypeAlias = Callable[[str, int, bytes, str | None], Stored]
_TRIES = 200
_PAUSE = 0.05


class RawTransactions:
    """Transactions of one transactional id; `wire` leads to its coordinator."""

    def __init__(
        self, wire: Wire, name: str, timeout_ms: int = 60_000, produce: Produce | None = None
    ) -> None:
        """Get a producer id under this name; whoever had it before is fenced.

        `produce` sends to the leaders where they are not where the coordinator is.

        Raises:
            Refused: the broker wants another timeout, or does not get ready.
        """
        self._wire = wire
        self._produce = produce or wire.produce
        self._name = name
        self._sequences: dict[tuple[str, int], int] = {}
        self._joined: set[tuple[str, int]] = set()
        _patiently("a coordinator", self._find)
        _patiently("a producer id", lambda: self._init(timeout_ms))

    def send(self, topic: str, partition: int, batch: RawBatch) -> Stored:
        """Send a batch as a part of the open transaction, which begins with the first one.

        The batch's number of records is what the next sequence number goes by.
        """
        at = (topic, partition)
        if at not in self._joined:
            _patiently(f"{topic}-{partition} in a transaction", lambda: self._join(at))
            self._joined.add(at)
        sequence = self._sequences.get(at, 0)
        own = replace(
            batch,
            attributes=batch.attributes | TRANSACTIONAL,
            producer=self._producer,
            epoch=self._epoch,
            sequence=sequence,
        )
        stored = self._produce(topic, partition, own.encoded(), self._name)
        if stored.error == 0:
            last = batch.last_delta if batch.last_delta is not None else len(batch.records) - 1
            self._sequences[at] = sequence + last + 1
        return stored

    def end(self, *, commit: bool) -> None:
        """End the open transaction; nothing where none is open."""
        if self._joined:
            _patiently("the end of a transaction", lambda: self._end(commit))
            self._joined.clear()

    def _find(self) -> int:
        body = text(self._name) + struct.pack(">b", 1)
        answer = self._wire.call(FIND_COORDINATOR, 1, body)
        answer.take("i")
        return answer.take("h")

    def _init(self, timeout_ms: int) -> int:
        body = text(self._name) + struct.pack(">i", timeout_ms)
        answer = self._wire.call(INIT_PRODUCER, 0, body)
        answer.take("i")
        code = answer.take("h")
        self._producer, self._epoch = answer.take("q"), answer.take("h")
        return code

    def _who(self) -> bytes:
        return text(self._name) + struct.pack(">qh", self._producer, self._epoch)

    def _join(self, at: tuple[str, int]) -> int:
        body = self._who() + struct.pack(">i", 1) + text(at[0]) + struct.pack(">ii", 1, at[1])
        answer = self._wire.call(ADD_PARTITIONS, 0, body)
        answer.take("i")
        answer.take("i")
        answer.text()
        answer.take("i")
        answer.take("i")
        return answer.take("h")

    def _end(self, commit: bool) -> int:
        answer = self._wire.call(END_TXN, 0, self._who() + struct.pack(">b", commit))
        answer.take("i")
        return answer.take("h")


def _patiently(what: str, ask: Callable[[], int]) -> None:
    """Ask until the answer is no error, or one that does not pass."""
    for _ in range(_TRIES):
        code = ask()
        if code == 0:
            return
        if code not in _BUSY:
            break
        time.sleep(_PAUSE)
    raise Refused(what, code)
