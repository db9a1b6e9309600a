"""Ports for servers that a test starts, stops and starts again at the same place."""

import random
import socket

BELOW_OUTGOING = range(20_000, 32_000)


def free_port() -> int:
    """A port that is free and stays so: connections get theirs from higher numbers (Linux: from 32,768 on)."""
    for port in random.SystemRandom().sample(BELOW_OUTGOING, 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("none of 200 ports is free")
