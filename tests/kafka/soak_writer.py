"""Producers of a soak: good and hostile batches, floods of junk and transactions, while brokers come and go.

Rules: nothing is repaired. What a broker refuses or does not answer may or may not lie in the log: the log is asked in
the end. A transaction in which anything failed is left as it is. It runs in a thread of its own until told to end.
"""

import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle, islice
from typing import TypeVar

from kafka.hostile_batches import HOSTILE
from kafka.hostile_mix import CATEGORIES
from kafka.hostile_records import BAD_VALUES
from kafka.raw_batches import CODECS, RawBatch, plain
from kafka.raw_producer import RawTransactions
from kafka.raw_wire import Refused, Stored, Wire

PRODUCERS = 6
Found = TypeVar("Found")
FLOOD_BATCHES, IN_A_BATCH = 10, 5_000
_ANSWER_SECONDS = 5.0
_TIMEOUTS_MS = (2_000, 20_000, 600_000)
_DEAR = (" MB ", "4,000,000")
_LONGEST_JUNK = 100


class Leaders:
    """Connections to the leaders of a topic's partitions, found anew when one fails."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._seeds = bootstrap.split(",")
        self._topic = topic
        self._wires: dict[str, Wire] = {}
        self._leaders: dict[int, str] = {}

    def partitions(self) -> list[int]:
        """The partitions that have a leader, looked up now."""
        self._leaders = self.ask(lambda wire: wire.leaders(self._topic))
        return sorted(self._leaders)

    def produce(self, topic: str, partition: int, batch: bytes, name: str | None = None) -> Stored:
        """Send to the leader of a partition.

        Raises:
            OSError, Refused: it has none, or does not answer.
        """
        if partition not in self._leaders:
            self.partitions()
        address = self._leaders.get(partition)
        if address is None:
            raise Refused(f"partition {partition} has no leader", 5)
        try:
            stored = self.wire(address).produce(topic, partition, batch, name)
        except OSError:
            self.forget(address)
            raise
        if stored.error:
            self._leaders.clear()
        return stored

    def wire(self, address: str) -> Wire:
        """A connection to an address; one at most."""
        if address not in self._wires:
            self._wires[address] = Wire(address, _ANSWER_SECONDS, leader_seconds=0)
        return self._wires[address]

    def forget(self, address: str) -> None:
        """Close the connection to an address, and look for leaders anew."""
        self._leaders.clear()
        if (wire := self._wires.pop(address, None)) is not None:
            wire.close()

    def ask(self, question: Callable[[Wire], Found]) -> Found:
        """Ask the first node that answers.

        Raises:
            OSError: none does.
        """
        for address in self._seeds:
            try:
                return question(self.wire(address))
            except OSError:
                self.forget(address)
        raise OSError("no broker answers")

    def close(self) -> None:
        for address in list(self._wires):
            self.forget(address)


class SoakWriter(threading.Thread):
    """Writes until `stop`; `deeds` counts what was done, `failures` what was not answered with a success."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.deeds: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._topic = topic
        self._chance = random.Random(seed)
        self._leaders = Leaders(bootstrap, topic)
        self._over = threading.Event()
        self._open: dict[int, RawTransactions] = {}
        self._hostile = [
            one.encoded()
            for one in HOSTILE
            if one.accepted and not any(word in one.name for word in _DEAR)
        ]
        junk = cycle(one for one in BAD_VALUES if len(one or b"") < _LONGEST_JUNK)
        self._junk = [
            plain(list(islice(junk, IN_A_BATCH)), codec).encoded()
            for codec in (0, *CODECS.values())
        ]

    def stop(self) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        deeds: dict[str, tuple[float, Callable[[], None]]] = {
            "good": (30, lambda: self._send(self._batch().encoded())),
            "bad values": (
                10,
                lambda: self._send(plain(self._chance.choices(BAD_VALUES, k=10)).encoded()),
            ),
            "hostile batch": (15, lambda: self._send(self._chance.choice(self._hostile))),
            "flood": (0.1, self._flood),
            "within a transaction": (20, self._within),
            "end of a transaction": (12, self._end),
        }
        weights = [weight for weight, _ in deeds.values()]
        while not self._over.is_set():
            (name,) = self._chance.choices(list(deeds), weights)
            try:
                deeds[name][1]()
                self.deeds[name] += 1
            except (OSError, Refused):
                self.failures[name] += 1
                self._over.wait(0.2)
            self._over.wait(self._chance.uniform(0, 0.05))
        self._leaders.close()

    def _send(self, batch: bytes) -> None:
        partitions = self._leaders.partitions()
        if not partitions:
            raise Refused("no partition has a leader", 5)
        stored = self._leaders.produce(self._topic, self._chance.choice(partitions), batch)
        if stored.error:
            raise Refused("a batch", stored.error)

    def _batch(self) -> RawBatch:
        codec = self._chance.choice((0, *CODECS.values()))
        kinds = self._chance.choices(CATEGORIES, k=self._chance.choice((1, 5, 40)))
        return plain([json.dumps({"kind": kind}).encode() for kind in kinds], codec)

    def _flood(self) -> None:
        for _ in range(FLOOD_BATCHES):
            self._send(self._chance.choice(self._junk))

    def _within(self) -> None:
        number = self._chance.randrange(PRODUCERS)
        if number not in self._open:
            self._open[number] = self._transactions(f"{self._topic}-{number}")
        partition = self._chance.choice(self._leaders.partitions())
        try:
            stored = self._open[number].send(self._topic, partition, self._batch())
        except (OSError, Refused):
            del self._open[number]
            raise
        if stored.error:
            del self._open[number]
            raise Refused("a batch of a transaction", stored.error)

    def _transactions(self, name: str) -> RawTransactions:
        address = self._leaders.ask(lambda wire: wire.coordinator(name))
        timeout = self._chance.choice(_TIMEOUTS_MS)
        try:
            wire = self._leaders.wire(address)
            return RawTransactions(wire, name, timeout, self._leaders.produce)
        except OSError:
            self._leaders.forget(address)
            raise

    def _end(self) -> None:
        if not self._open:
            return
        number = self._chance.choice(sorted(self._open))
        try:
            self._open[number].end(commit=self._chance.random() < 0.7)
        except (OSError, Refused):
            del self._open[number]
            raise
        if self._chance.random() < 0.2:
            with suppress(KeyError):
                del self._open[number]
