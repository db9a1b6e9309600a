"""Kafka settings, clients, and the one place where the client library's errors are translated.

Rules: the library is imported on first use only, and its loggers are silenced there, for they write offsets
and group names. Its exceptions never leave: `speaking` turns them into one line that names the topic or
broker and what to do, without offsets, counts or contents. `KEPT` is what topics of ours are set to.
This file knows no commit and no tick.
"""

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from stream_dp.adapters.kafka_security import OPEN, KafkaSecurity
from stream_dp.errors import FailClosed, StreamDPError, UsageError, WorldError

KEPT: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
}
_CLOSING_S, _CLOSER_S, _CLOSERS = 5.0, 1.0, 3


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach a cluster; secrets stay in files. `patience_s` bounds every wait for an answer."""

    bootstrap: str
    security: KafkaSecurity = OPEN
    transaction_timeout_ms: int = 10_000
    retry_backoff_ms: int = 5
    patience_s: float = 10.0

    def client(self) -> dict[str, Any]:
        """The arguments that every client of the library takes; files of secrets are read anew.

        Raises:
            WorldError, UsageError: a file with a secret or certificate cannot be used; names its key.
        """
        library()
        return {
            "bootstrap_servers": self.bootstrap,
            "client_id": "stream-dp",
            "request_timeout_ms": int(self.patience_s * 1000),
            "retry_backoff_ms": self.retry_backoff_ms,
            **self.security.arguments(),
        }


def library(part: str = "") -> Any:
    """The client library (or its submodule `part`), silenced.

    Raises:
        UsageError: it is not installed.
    """
    try:
        module = importlib.import_module(f"aiokafka{part}")
    except ImportError:
        raise UsageError("Kafka needs an extra package: pip install 'stream_dp[kafka]'") from None
    logger = logging.getLogger("aiokafka")
    logger.setLevel(logging.CRITICAL + 1)
    logger.propagate = False
    return module


@contextmanager
def speaking(settings: KafkaSettings, about: str) -> Iterator[None]:
    """Translate what the library raises while it speaks to the cluster about `about`."""
    errors = library(".errors")
    try:
        yield
    except StreamDPError:
        raise
    except errors.OffsetOutOfRangeError:
        raise deleted(about) from None
    except (errors.KafkaError, errors.IllegalOperation, OSError, TimeoutError) as error:
        raise refused(settings, about, error) from None


def deleted(about: str) -> FailClosed:
    """The error for a source or journal that lost records."""
    return FailClosed(
        f"{about}: records the journal has not seen were deleted, or the topic was made anew; what "
        "remains would be counted wrongly. Give the topic a longer retention; a new start needs a "
        "new pipeline name"
    )


def refused(settings: KafkaSettings, about: str, error: BaseException) -> WorldError:
    """The error for an answer that did not come or said no."""
    name = type(error).__name__
    if "Authorization" in name:
        return WorldError(
            f"{about}: Kafka at {settings.bootstrap} denies access; grant this user the rights (ACL)"
        )
    return WorldError(
        f"{about}: Kafka at {settings.bootstrap} did not answer or refused ({name}); check that its "
        "brokers run and that their advertised.listeners can be reached from here"
    )


async def connect(settings: KafkaSettings, client: Any) -> None:
    """Start a client of the library; gives it back if that fails.

    Raises:
        WorldError: no broker answers, or none accepts these credentials.
    """
    errors = library(".errors")
    try:
        async with asyncio.timeout(settings.patience_s):
            await client.start()
    except (errors.KafkaError, OSError, TimeoutError, AssertionError):
        # an assertion: the library does not notice that a bearer token was refused, and goes on
        await disconnect(client)
        raise WorldError(
            f"no Kafka broker answers at {settings.bootstrap}: check that it runs there, and "
            "source.security; `stream-dp doctor` says which of it is wrong"
        ) from None
    except BaseException:
        await disconnect(client)
        raise


async def disconnect(client: Any) -> None:
    """Close a client of the library, whatever state it is in, within some seconds.

    In a task of its own: the library cancels tasks of its own in `stop` and lets that out, as if it were ours.
    """
    closing = asyncio.create_task(_close(client))
    try:
        await asyncio.wait({closing}, timeout=_CLOSING_S)
    finally:
        for _ in range(_CLOSERS):
            if not closing.done():
                await asyncio.wait({closing}, timeout=_CLOSER_S)
                closing.cancel()


async def _close(client: Any) -> None:
    """Close the client, then the parts that it left open; a cancellation goes on with the next part."""
    await _quietly(client.close if hasattr(client, "close") else client.stop)
    fetcher = getattr(client, "_fetcher", None)
    if fetcher is not None:
        await _quietly(fetcher.close)
        for task in tuple(getattr(fetcher, "_pending_tasks", ())):
            task.cancel()
    inner = getattr(client, "_client", None) or getattr(client, "client", None)
    if inner is not None:
        await _quietly(inner.close)


async def _quietly(close: Callable[[], Awaitable[None]]) -> None:
    with suppress(Exception, asyncio.CancelledError):
        await close()
