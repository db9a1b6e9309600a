"""A few requests of Kafka's protocol over a plain socket: whatever bytes are given are what the broker gets.

Rules: no Kafka client is used, so nothing is repaired, refused or hidden on the way: batches go out and come back as
they are. One connection, one request at a time; a broker that is gone is `OSError`. As a client does, a request
waits for a partition that has no leader yet, and for nothing else. Blocking: call it in a thread.
"""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

PRODUCE, FETCH, METADATA = 0, 1, 3
FIND_COORDINATOR, INIT_PRODUCER, ADD_PARTITIONS, END_TXN = 10, 22, 24, 26
WAIT_MS = 30_000
_FETCH_BYTES = 8 * 2**20
_SECONDS = 60.0
LEADERLESS = frozenset({3, 5, 6})
"""A broker knows no such partition, none that leads it, or does not lead it itself: nothing was written or read."""
_LEADER_S = 30.0
_PAUSE_S = 0.05
Asked = TypeVar("Asked")


def once_led(ask: Callable[[], Asked], error: Callable[[Asked], int], seconds: float) -> Asked:
    """Ask until the answer's error is none of `LEADERLESS`, or for so many seconds; return the last answer."""
    end = time.monotonic() + seconds
    while error(found := ask()) in LEADERLESS and time.monotonic() < end:
        time.sleep(_PAUSE_S)
    return found


class Stored(NamedTuple):
    """The answer to a produce request: an error code (0: accepted) and its words, first offset and append stamp."""

    error: int
    base: int
    stamp: int
    message: str


class Refused(Exception):
    """A request that the broker answered with an error code."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: error {code}")
        self.code = code


def text(shown: str | None) -> bytes:
    if shown is None:
        return struct.pack(">h", -1)
    return struct.pack(">h", len(shown.encode())) + shown.encode()


class Answer:
    """The body of an answer, read from its front."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def take(self, form: str) -> int:
        """The next number, of a form that `struct` knows."""
        (shown,) = struct.unpack_from(f">{form}", self._body, self._at)
        self._at += struct.calcsize(f">{form}")
        return int(shown)

    def text(self) -> str:
        """The next string; empty where it is null."""
        return self._bytes(self.take("h")).decode()

    def data(self) -> bytes:
        """The next bytes; empty where they are null."""
        return self._bytes(self.take("i"))

    def items(self) -> Iterator[int]:
        """As many numbers as the next array has elements."""
        return iter(range(self.take("i")))

    def _bytes(self, length: int) -> bytes:
        start = self._at
        self._at += max(0, length)
        return self._body[start : self._at]


class Wire:
    """A connection to one broker, "HOST:PORT"."""

    def __init__(
        self, address: str, seconds: float = _SECONDS, leader_seconds: float = _LEADER_S
    ) -> None:
        """Connect; who answers nothing for so many seconds is taken for gone, and so long a leader is waited for."""
        self._leader_seconds = leader_seconds
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), seconds)
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, api: int, version: int, body: bytes) -> Answer:
        self._number += 1
        head = struct.pack(">hhi", api, version, self._number) + text("raw")
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        answer = self._exactly(struct.unpack(">i", self._exactly(4))[0])
        if struct.unpack_from(">i", answer)[0] != self._number:
            raise OSError("an answer to another request")
        return Answer(answer[4:])

    def _exactly(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            more = self._socket.recv(min(size - len(got), 2**20))
            if not more:
                raise OSError("the broker closed the connection")
            got += more
        return bytes(got)

    def produce(self, topic: str, partition: int, batch: bytes, name: str | None = None) -> Stored:
        """Send these bytes as the records of a partition; `name` is the transactional id, if any."""
        body = text(name) + struct.pack(">hii", -1, WAIT_MS, 1) + text(topic)
        body += struct.pack(">iii", 1, partition, len(batch)) + batch
        return once_led(lambda: self._stored(body), lambda one: one.error, self._leader_seconds)

    def _stored(self, body: bytes) -> Stored:
        answer = self.call(PRODUCE, 8, body)
        answer.take("i")
        answer.text()
        answer.take("i")
        answer.take("i")
        error, base, stamp, _ = (answer.take(form) for form in "hqqq")
        words = [(answer.take("i"), answer.text())[1] for _ in answer.items()]
        return Stored(error, base, stamp, "; ".join([answer.text(), *words]))

    def fetch(self, topic: str, partition: int, offset: int) -> tuple[bytes, int]:
        """The stored batches from an offset on, read uncommitted, and the offset behind the last.

        Raises:
            Refused: no such partition or offset here.
        """
        body = struct.pack(">iiiibiii", -1, 0, 0, _FETCH_BYTES, 0, 0, -1, 1) + text(topic)
        body += struct.pack(">iiiqqii", 1, partition, -1, offset, -1, _FETCH_BYTES, 0)
        data, end, error = once_led(
            lambda: self._fetched(body, offset), lambda one: one[2], self._leader_seconds
        )
        if error:
            raise Refused(f"fetch of {topic}-{partition} at {offset}", error)
        return data, end

    def _fetched(self, body: bytes, offset: int) -> tuple[bytes, int, int]:
        answer = self.call(FETCH, 10, body)
        for form in "ihi":  # throttled, error, session
            answer.take(form)
        if answer.take("i") == 0:
            return b"", offset, 0
        answer.text()
        answer.take("i")
        answer.take("i")
        error, end, _, _ = (answer.take(form) for form in "hqqq")
        if error:
            return b"", end, error
        for _ in answer.items():  # aborted transactions
            answer.take("q")
            answer.take("q")
        return answer.data(), end, 0

    def coordinator(self, name: str) -> str:
        """The address of the coordinator of a transactional id.

        Raises:
            Refused: there is none now.
        """
        answer = self.call(FIND_COORDINATOR, 1, text(name) + struct.pack(">b", 1))
        answer.take("i")
        code = answer.take("h")
        answer.text()
        answer.take("i")
        host, port = answer.text(), answer.take("i")
        if code:
            raise Refused(f"the coordinator of {name}", code)
        return f"{host}:{port}"

    def leaders(self, topic: str) -> dict[int, str]:
        """The address of the leader of each partition of a topic; after a while, of each that has one."""
        found, _ = once_led(lambda: self._leaders(topic), lambda one: one[1], self._leader_seconds)
        return found

    def _leaders(self, topic: str) -> tuple[dict[int, str], int]:
        """The leaders, and an error of the topic or of a partition."""
        answer = self.call(METADATA, 1, struct.pack(">i", 1) + text(topic))
        nodes = {}
        for _ in answer.items():
            node, host, port = answer.take("i"), answer.text(), answer.take("i")
            answer.text()  # rack
            nodes[node] = f"{host}:{port}"
        answer.take("i")  # controller
        found: dict[int, str] = {}
        errors = {0}
        for _ in answer.items():
            errors.add(answer.take("h"))
            answer.text()
            answer.take("b")
            for _ in answer.items():
                errors.add(answer.take("h"))
                number, leader = answer.take("i"), answer.take("i")
                for _ in "replicas", "in sync":
                    for _ in answer.items():
                        answer.take("i")
                found[number] = nodes.get(leader, "")
        return {number: address for number, address in found.items() if address}, max(errors)
