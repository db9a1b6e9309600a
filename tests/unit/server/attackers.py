"""Clients that attack a server: those that never finish a request, and those that never read what they asked for."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice

SLOW = (
    b"",
    b"GET /api/series HTTP/1.1\r\nHost: localhost\r\nX-Never: ",
    b"POST /api/queries HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n{",
    b"no request at all",
)
DEAF = (b"GET /api/stream?after=-1 HTTP/1.1\r\nHost: localhost\r\n\r\n",)


@contextmanager
def attacking(port: int, what: Sequence[bytes], number: int) -> Iterator[list[socket.socket]]:
    """Connect so often, say the beginnings in turn, and then neither write nor read nor leave.

    A server that takes no more has been hit already.
    """
    found: list[socket.socket] = []
    try:
        for said in islice(cycle(what), number):
            try:
                client = socket.create_connection(("127.0.0.1", port), timeout=5)
            except TimeoutError:
                break
            found.append(client)
            if said:
                _say(client, said)
        yield found
    finally:
        for client in found:
            client.close()


def _say(client: socket.socket, said: bytes) -> None:
    """The server may have dropped it before: that is its own answer."""
    try:
        client.sendall(said)
    except OSError:
        return
