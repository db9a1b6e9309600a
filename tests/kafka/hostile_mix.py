"""Producers at random, good and bad: plain batches of all sizes and packings, hostile ones, six transactions at once.

Rules: what is done is a function of the seed; when, and with which stamps, is the broker's affair and is read from its
log afterwards. Everything goes through raw requests, one after the other.
"""

import json
import random
import time
from collections.abc import Callable, Sequence
from functools import cache

from kafka.hostile_batches import HOSTILE
from kafka.hostile_records import BAD_VALUES, Hostile
from kafka.raw_batches import CODECS, RawBatch, plain
from kafka.raw_producer import RawTransactions
from kafka.raw_wire import Wire

CATEGORIES = ("red", "green", "blue", "grey", "")
PRODUCERS = 6
LARGE = 5_000
_OPEN_FOR_EVER_MS = 600_000
_HEAVY = 100_000
"""Bytes of a batch, from which on it is sent seldom."""
WORLDS = {
    "transactions": "small middling large within end",
    "all": "small middling large values hostile heavy within foul end give_up",
}
"""What is done in which mix."""


@cache
def accepted(dear: bool) -> tuple[tuple[str, bytes], ...]:
    """Names and bytes of the hostile batches that brokers take, the dear ones or the others."""
    made = [(one.name, one.encoded()) for one in HOSTILE if one.accepted and _cheap(one)]
    return tuple(one for one in made if (len(one[1]) > _HEAVY) == dear)


def _cheap(one: Hostile) -> bool:
    """Whether it is built within a second: a mix is no place for more."""
    return "20 MB" not in one.name


@cache
def _in_transactions() -> tuple[RawBatch, ...]:
    """Hostile batches that can be a part of a transaction: what a broker takes, by no producer in particular."""
    built = [one.build() for one in HOSTILE if one.accepted and _cheap(one)]
    return tuple(
        one
        for one in built
        if isinstance(one, RawBatch) and one.producer == one.epoch == -1 and len(one.records) < 10
    )


class Mix:
    """Random producers on a topic; `log` tells what was done, for a test that fails."""

    def __init__(
        self, address: str, topic: str, partitions: int, seed: int, world: str = "all"
    ) -> None:
        """Six transactional producers are registered at once; `world` is one of `WORLDS`."""
        self.log: list[str] = []
        self._world = WORLDS[world].split()
        self._chance = random.Random(seed)
        self._topic = topic
        self._partitions = partitions
        self._wire = Wire(address)
        self._producers = [
            RawTransactions(self._wire, f"{topic}-{number}", _OPEN_FOR_EVER_MS)
            for number in range(PRODUCERS)
        ]
        self._straggler = RawTransactions(self._wire, f"{topic}-straggler", _OPEN_FOR_EVER_MS)
        self._sending: set[int] = set()
        self._given_up: set[int] = set()

    def until(self, moment: float) -> None:
        """Do one thing after the other until this time, seconds since 1970; then close the connection.

        Where nobody gives up, the transactions that are open then are ended. One more is open from the middle of this
        time to its end.
        """
        deeds: dict[str, tuple[float, Callable[[], str]]] = {
            "small": (30, self._small),
            "middling": (10, self._middling),
            "large": (1, self._large),
            "values": (10, self._bad_value),
            "hostile": (15, self._hostile),
            "heavy": (0.5, self._heavy),
            "within": (30, self._within),
            "foul": (10, self._foul),
            "end": (18, self._end),
            "give_up": (0.3, self._give_up),
        }
        weights, chosen = zip(*(deeds[name] for name in self._world), strict=True)
        middle = (time.time() + moment) / 2
        with self._wire:
            self._until(middle, chosen, weights)
            self._straggler.send(self._topic, 0, plain(self._values(3)))
            self._until(moment, chosen, weights)
            self._straggler.end(commit=True)
            while self._sending and "give_up" not in self._world:
                self.log.append(self._end())

    def _until(
        self, moment: float, deeds: Sequence[Callable[[], str]], weights: Sequence[float]
    ) -> None:
        while time.time() < moment:
            (deed,) = self._chance.choices(deeds, weights)
            self.log.append(deed())
            if self._chance.random() < 0.05:
                time.sleep(self._chance.uniform(0, 0.1))

    def _values(self, number: int) -> list[bytes | None]:
        kinds = self._chance.choices(CATEGORIES, k=number)
        return [json.dumps({"kind": kind}).encode() for kind in kinds]

    def _sent(self, what: str, batch: bytes) -> str:
        at = self._chance.randrange(self._partitions)
        stored = self._wire.produce(self._topic, at, batch)
        return f"{what}: partition {at}, error {stored.error}, offset {stored.base}"

    def _codec(self) -> int:
        return self._chance.choice((0, *CODECS.values()))

    def _small(self) -> str:
        return self._sent("small", plain(self._values(1), self._codec()).encoded())

    def _middling(self) -> str:
        number = self._chance.randint(2, 60)
        return self._sent(f"{number}", plain(self._values(number), self._codec()).encoded())

    def _large(self) -> str:
        return self._sent("large", plain(self._values(LARGE), self._codec()).encoded())

    def _bad_value(self) -> str:
        number = self._chance.randint(1, 60)
        values = self._chance.choices((*BAD_VALUES, *self._values(5)), k=number)
        return self._sent(f"{number} with bad ones", plain(values, self._codec()).encoded())

    def _hostile(self) -> str:
        return self._sent(*self._chance.choice(accepted(dear=False)))

    def _heavy(self) -> str:
        return self._sent(*self._chance.choice(accepted(dear=True)))

    def _within(self) -> str:
        return self._transacted(plain(self._values(self._chance.randint(1, 20)), self._codec()))

    def _foul(self) -> str:
        return self._transacted(self._chance.choice(_in_transactions()))

    def _transacted(self, batch: RawBatch) -> str:
        number = self._chance.choice(sorted({*range(PRODUCERS)} - self._given_up))
        at = self._chance.randrange(self._partitions)
        stored = self._producers[number].send(self._topic, at, batch)
        self._sending.add(number)
        return f"producer {number}: partition {at}, error {stored.error}, offset {stored.base}"

    def _end(self) -> str:
        if not self._sending:
            return "none is open"
        number = self._chance.choice(sorted(self._sending))
        commit = self._chance.random() < 0.7
        self._producers[number].end(commit=commit)
        self._sending.remove(number)
        return f"producer {number}: commit={commit}"

    def _give_up(self) -> str:
        """A producer goes away for good, its transaction open; two of them stay."""
        if len(self._given_up) < PRODUCERS - 2 and self._sending:
            number = self._chance.choice(sorted(self._sending))
            self._sending.remove(number)
            self._given_up.add(number)
            return f"producer {number} gives up"
        return "nobody gives up"
