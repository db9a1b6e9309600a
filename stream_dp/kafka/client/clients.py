"""Kafka settings, clients, and the one place where the client library's errors are translated.

Rules: the library is imported on first use, and silenced: its loggers write offsets and group names. Its exceptions
never leave this package: `speaking` turns each into one line that names the topic or broker and the remedy, without
offsets, counts or contents. An error that may pass by itself is an `Outage`; only look-ups are repeated (`patiently`).
"""

import asyncio
import importlib
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from stream_dp.errors import FailClosed, Outage, StreamDPError, WorldError
from stream_dp.kafka.client.security import OPEN, arguments
from stream_dp.records.endpoints import Security

_T = TypeVar("_T")
_SILENT = logging.CRITICAL + 1

# the configuration of the pipeline's own topics
KEPT: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
}
RECORD_BYTES = 8 * 1024 * 1024  # the largest record that this program writes
_CLOSING_S, _CLOSER_S, _CLOSERS = 5.0, 1.0, 3
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0
_COORDINATOR_MOVES = (14, 15, 16)  # it loads, is not there yet, or is another one
_UNKNOWN_USER = ("Authentication", "Sasl")
_CUT_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError)  # as a stopping broker does
# errors of brokers that are stopping or starting, besides the errors that the library calls retriable
_PASSING = (
    "KafkaTimeoutError", "KafkaUnavailableError", "BrokerNotAvailableError", "ReplicaNotAvailableError",
    "UnknownError", "RebalanceInProgressError", "ReassignmentInProgress", "InvalidReplicationFactorError",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach a cluster; secrets stay in files.

    `patience_s` limits each wait for an answer, `retry_s` the repetition of a look-up without an answer.
    """

    bootstrap: str
    security: Security = OPEN
    transaction_timeout_ms: int = 10_000
    retry_backoff_ms: int = 5
    patience_s: float = 10.0
    retry_s: float = 30.0

    def client(self) -> dict[str, Any]:
        """Return the arguments of every client of the library; secrets are read again. Errors as of `arguments`."""
        library()
        return {
            "bootstrap_servers": self.bootstrap,
            "client_id": "stream-dp",
            "request_timeout_ms": int(self.patience_s * 1000),
            "retry_backoff_ms": self.retry_backoff_ms,
            **arguments(self.security),
        }


def library(part: str = "") -> Any:
    """Return the client library (or its submodule `part`), silenced."""
    module = importlib.import_module(f"aiokafka{part}")
    logger = logging.getLogger("aiokafka")
    if logger.level != _SILENT:  # a new level empties the caches of all loggers
        logger.setLevel(_SILENT)
    logger.propagate = False
    return module


@contextmanager
def speaking(settings: KafkaSettings, about: str) -> Iterator[None]:
    """Translate the library's exceptions while it talks to the cluster about `about`."""
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
    return FailClosed(
        f"{about}: records the journal has not seen were deleted, or the topic was made anew; what "
        "remains would be counted wrongly. Give the topic a longer retention; a new start needs a "
        "new pipeline name"
    )


def damaged(topic: str, partition: int) -> Outage:
    """Return the error for bytes that arrived damaged; reading them again may help."""
    return Outage(
        f"topic {topic!r}: what its broker sends of partition {partition} is damaged; if it "
        "stays so, look at the broker's disk and the network"
    )


def refused(settings: KafkaSettings, about: str, error: BaseException) -> WorldError:
    """Return the error for a missing or negative answer: an `Outage` if it may pass by itself."""
    name, where, kind = type(error).__name__, f"Kafka at {settings.bootstrap}", WorldError
    if "Authorization" in name:
        says = f"{where} denies access; grant this user the rights (ACL)"
    elif any(part in name for part in _UNKNOWN_USER):
        says = f"{where} does not accept this user: check mechanism, user name and password"
    elif isinstance(error, ssl.SSLError) and not isinstance(error, _CUT_OFF):
        why = getattr(error, "verify_message", "") or getattr(error, "reason", "") or "failed"
        says = (
            f"no TLS connection to {where} ({str(why).lower().replace('_', ' ')}); check that this listener speaks "
            "TLS, the ca_file, and that its certificate names this host"
        )
    elif isinstance(error, socket.gaierror):
        kind, at = Outage, settings.bootstrap
        says = f"the name of no Kafka broker at {at} can be resolved; check its spelling, and the name server"
    else:
        kind = Outage if passing(error) else WorldError
        says = (
            f"{where} did not answer or refused ({name}); check that its brokers run and that their "
            "advertised.listeners can be reached from here"
        )
    return kind(f"{about}: {says}")


def passing(error: BaseException) -> bool:
    """Return whether an error of the library may pass by itself; a plain `KafkaError` remains when brokers go away."""
    nameless = type(error) is library(".errors").KafkaError
    retriable = nameless or bool(getattr(error, "retriable", False))
    return retriable or isinstance(error, OSError) or type(error).__name__ in _PASSING


async def patiently(
    settings: KafkaSettings, about: str, look_up: Callable[[], Awaitable[_T]]
) -> _T:
    """Return the answer of `look_up`, which changes nothing; repeat it for `settings.retry_s` without an answer.

    Raises `Outage` if no answer came in that time, and `FailClosed` or another `WorldError` at once.
    """
    deadline, waits = time.monotonic() + settings.retry_s, backing_off()
    while True:
        wait = next(waits)
        try:
            with speaking(settings, about):
                return await look_up()
        except Outage:
            if time.monotonic() + wait > deadline:
                raise
        await asyncio.sleep(wait)


def backing_off(longest: float = _LONGEST_WAIT_S) -> Iterator[float]:
    """Yield the seconds to wait before each next attempt for ever: doubled each time, up to `longest`."""
    wait = _FIRST_WAIT_S
    while True:
        yield wait
        wait = min(2 * wait, longest)


async def connect(settings: KafkaSettings, client: Any) -> None:
    """Start a client of the library, or close it; `WorldError` if no broker answers or accepts these credentials."""
    errors = library(".errors")
    try:
        async with asyncio.timeout(settings.patience_s):
            await client.start()
    except (errors.KafkaError, OSError, TimeoutError, AssertionError) as error:
        # an assertion: the library does not notice that a bearer token was refused, and goes on
        await disconnect(client)
        raise await _why_not(settings, error) from None
    except BaseException:
        await disconnect(client)
        raise


async def _why_not(settings: KafkaSettings, error: BaseException) -> WorldError:
    """Return why no client could be started: the library hides the causes, so each address is tried again."""
    causes = [error] if "Authorization" in type(error).__name__ else await _causes(settings)
    reasons = [refused(settings, "no connection", cause) for cause in causes]
    for reason in reasons:
        if not isinstance(reason, Outage):
            return reason
    if causes and all(isinstance(cause, socket.gaierror) for cause in causes):
        return reasons[0]
    return Outage(
        f"no Kafka broker answers at {settings.bootstrap}: check that it runs there, and "
        "source.security; `stream-dp doctor` says which of it is wrong"
    )


async def _causes(settings: KafkaSettings) -> list[BaseException]:
    """Return the error of each broker address that cannot be reached; takes some seconds at most."""
    options = settings.client()
    del options["bootstrap_servers"], options["retry_backoff_ms"]
    options["request_timeout_ms"] = min(options["request_timeout_ms"], 2000)
    connecting = library(".conn")

    async def attempt(host: str, port: int) -> BaseException | None:
        try:
            (await connecting.create_conn(host, port, **options)).close()
        except (library(".errors").KafkaError, OSError, TimeoutError, AssertionError) as error:
            return error
        return None

    hosts = connecting.collect_hosts(settings.bootstrap)
    causes = await asyncio.gather(*(attempt(host, port) for host, port, _ in hosts))
    return [cause for cause in causes if cause is not None]


async def some_broker(client: Any) -> Any:
    """Return the id of a broker that a low-level client of the library can ask: a random one of those that answer.

    Brokers that have just begun, or are shut out for a moment, name no broker; the library would not ask again. It
    would also ask one that is away, which stays in the list for seconds.
    """
    if (first := client.get_random_node()) is None:
        await client.force_metadata_update()
        first = client.get_random_node()
    others = (broker.nodeId for broker in client.cluster.brokers() if broker.nodeId != first)
    for node in () if first is None else (first, *others):
        if await client.ready(node):
            return node
    raise library(".errors").KafkaConnectionError("no known broker answers")


async def coordinated(
    client: Any, kind: str, key: str, request: Any, code: Callable[[Any], int], patience_s: float
) -> Any:
    """Return the answer of the coordinator of a `GROUP` or `TRANSACTION`; ask again while it loads or moves.

    `code` gives an answer's error code. The library's own calls cannot distinguish a coordinator that is still loading
    from a group without offsets. A cluster without groups so far first makes a topic for them. Raises the library's
    errors.
    """
    errors, deadline = library(".errors"), time.monotonic() + patience_s
    kinds = library(".client").CoordinationType
    while True:
        late = time.monotonic() > deadline
        try:
            await some_broker(client)  # else an assertion of the library fails
            place = await client.coordinator_lookup(getattr(kinds, kind), key)
            answer = await client.send(place, request)
        except errors.KafkaError as error:
            if late or not _moves(error):
                raise
        else:
            if late or not _moves(errors.for_code(code(answer))):
                return answer
        await asyncio.sleep(_FIRST_WAIT_S)


def _moves(error: Any) -> bool:
    """Return whether a coordinator that gives this error, or class of errors, may answer later."""
    return error.retriable or getattr(error, "errno", 0) in _COORDINATOR_MOVES


def request_class(
    key: int, version: int, asked: Sequence[Any], answered: Sequence[Any], *, flexible: bool = False
) -> Any:
    """Return a class of requests that the library lacks, by the schemas of request and answer.

    A request is made from the values of `asked`, in this order.
    """
    api, schema = library(".protocol.api"), library(".protocol.types").Schema

    class Answer(api.Response):  # type: ignore[misc, name-defined]
        API_KEY, API_VERSION, SCHEMA = key, version, schema(*answered)

    class Asked(api.RequestStruct):  # type: ignore[misc, name-defined]
        API_KEY, API_VERSION, RESPONSE_TYPE = key, version, Answer
        FLEXIBLE_VERSION, SCHEMA = flexible, schema(*asked)

    class Request(api.Request[Asked]):  # type: ignore[misc, name-defined]
        API_KEY = key

        def __init__(self, *values: Any) -> None:
            self._values = values

        def build(self, request_struct_class: Any) -> Any:
            return request_struct_class(*self._values)

    return Request


@asynccontextmanager
async def connected(settings: KafkaSettings, *clients: Any) -> AsyncIterator[None]:
    """Start clients of the library, and close them at the end."""
    try:
        for client in clients:
            await connect(settings, client)
        yield
    finally:
        for client in clients:
            await disconnect(client)


async def disconnect(client: Any) -> None:
    """Close a client of the library in any state, within some seconds.

    A separate task closes it: the library cancels its own tasks in `stop` and lets the CancelledError out.
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
    """Close the client, then the parts that it left open; after a cancellation, continue with the next part."""
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
