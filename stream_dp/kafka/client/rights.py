"""What doctor asks a cluster: why an address cannot be reached, and this user's rights (ACLs); changes nothing.

Rules: brokers list the operations that they allow on a topic or a group, whether it exists or not. They do not for a
transactional id: there an impossible step of a transaction is tried, with a producer id that nobody has. It is always
refused, and the kind of refusal shows the right. The right to make a topic is asked with `validate_only`. The client
library hides why no broker answers, so each address is tried separately. No text contains a secret. Source: the Kafka
protocol, Metadata version 8 and DescribeGroups version 3.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from stream_dp.kafka.client.clients import KafkaSettings, coordinated, library, request_class

_REACH_PATIENCE_S = 5.0
_EXPIRED, _HOST = (9, 10), (62, 64)  # X509_V_ERR_CERT_NOT_YET_VALID and so on
_CLIENT_ALERTS = ("CERTIFICATE_", "BAD_CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE")
_BAD_LOGIN = ("SaslAuthenticationFailed", "AuthenticationFailedError")
_TOKEN = ("the broker refuses the bearer token", "source.security.token_file: is it still valid?")
READ, WRITE, CREATE, DELETE, DESCRIBE = "Read", "Write", "Create", "Delete", "Describe"
DESCRIBE_CONFIGS = "DescribeConfigs"
_BITS: Mapping[str, int] = {
    READ: 3,
    WRITE: 4,
    CREATE: 5,
    DELETE: 6,
    DESCRIBE: 8,
    DESCRIBE_CONFIGS: 10,
}
_NOBODY, _DENIED_ID = -2, 53  # no producer has this id; TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_DENIED_TOPIC, _DENIED_CLUSTER = 29, 31
_UNKNOWN_TOPIC = 3
_PATIENCE_S = 10.0


class Reached(NamedTuple):
    """The result for one address: `cause` is empty if it works, `mend` says what to check."""

    address: str
    cause: str = ""
    mend: str = ""


async def reach(settings: KafkaSettings) -> list[Reached]:
    """Try every address of `settings.bootstrap`, then every address that the brokers name."""
    options = settings.client()
    del options["bootstrap_servers"], options["retry_backoff_ms"]
    options["request_timeout_ms"] = int(1000 * min(settings.patience_s, _REACH_PATIENCE_S))
    collected = library(".conn").collect_hosts(settings.bootstrap, False)
    hosts = [(host, port) for host, port, _ in collected]
    first = await asyncio.gather(*(_attempt(*at, options) for at in hosts))
    others = sorted({at for _, named in first for at in named} - set(hosts))
    second = await asyncio.gather(*(_attempt(*at, options) for at in others))
    hint = "the brokers name this address (advertised.listeners), so it must be reachable from here"
    return [reached for reached, _ in first] + [
        reached._replace(mend=f"{reached.mend}; {hint}") if reached.cause else reached
        for reached, _ in second
    ]


async def _attempt(
    host: str, port: int, options: dict[str, Any]
) -> tuple[Reached, list[tuple[str, int]]]:
    """Return the result for an address, and the addresses that the broker there names."""
    errors, connection, address = library(".errors"), None, f"{host}:{port}"
    try:
        connection = await library(".conn").create_conn(host, port, **options)
        async with asyncio.timeout(_REACH_PATIENCE_S):
            answer = await connection.send(library(".protocol.metadata").MetadataRequest([]))
    except (errors.KafkaError, OSError, TimeoutError, ValueError, AssertionError) as error:
        return Reached(address, *why(error, options)), []
    finally:
        if connection is not None:
            connection.close()
    if not answer.brokers:  # the library reads the refusal of a token as an answer
        return Reached(address, *_TOKEN), []
    return Reached(address), [(broker[1], broker[2]) for broker in answer.brokers]


def why(error: BaseException, options: dict[str, Any]) -> tuple[str, str]:
    """Return the cause of a failed connection in words, and what to check; `options` are the client's."""
    if isinstance(error.__cause__, ssl.SSLError):
        error = error.__cause__
    if isinstance(error, socket.gaierror):
        return "the name is not known", "check its spelling and this machine's name server"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there", "check host and port, and that the broker runs"
    if isinstance(error, ssl.SSLError):
        return _tls(error)
    if type(error).__name__ in _BAD_LOGIN:
        return (
            "the broker refuses this login",
            "source.security: username, password_file, mechanism",
        )
    if "Sasl" in type(error).__name__:
        return (
            "this listener does not take this mechanism",
            "source.security.mechanism, or the port",
        )
    if str(error).startswith("security."):
        return str(error), "source.security.token_file or token"
    if options.get("sasl_mechanism") == "OAUTHBEARER" and not isinstance(error, TimeoutError):
        return _TOKEN
    if isinstance(error, TimeoutError):
        return "no answer", "check host and port, firewalls, and source.security.protocol"
    return (
        "the broker ended the connection",
        "this port may want another source.security.protocol, or source.security at all",
    )


def _tls(error: ssl.SSLError) -> tuple[str, str]:
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        code = error.verify_code
        if code in _EXPIRED:
            return "its certificate is not valid now (TLS)", "renew it, or set this machine's clock"
        if code in _HOST:
            return (
                "its certificate is for another name (TLS)",
                "source.bootstrap and advertised.listeners must use a name that the certificate holds",
            )
        return (
            "its certificate is signed by an authority that is not trusted here (TLS)",
            "source.security.ca_file must hold the certificate of that authority",
        )
    if any(alert in reason for alert in _CLIENT_ALERTS):
        return (
            "the broker does not take this client's certificate (TLS)",
            "source.security.certificate_file and key_file: there, not expired, signed by whom the broker trusts",
        )
    if "WRONG_VERSION" in reason or "RECORD_LAYER" in reason:
        return "this port speaks no TLS", "source.security.protocol, or the port"
    return (
        f"no TLS ({reason.lower().replace('_', ' ') or 'cut off'})",
        "source.security, or the port",
    )


@dataclass(frozen=True, slots=True)
class TopicRights:
    """A topic as this user sees it; `exists` is None (unknown) if the user may not see it."""

    name: str
    exists: bool | None
    rights: frozenset[str]
    copies: int
    partitions: int


async def topics_seen(client: Any, names: Sequence[str]) -> dict[str, TopicRights]:
    """Return how this user sees these topics; creates none."""
    request = _rights_on_topics()(list(names), False, False, True)
    answer = await client.send(client.get_random_node(), request)
    seen = {}
    for code, name, _, partitions, bits in answer.topics:
        exists = None if code == _DENIED_TOPIC else code != _UNKNOWN_TOPIC
        copies = min((len(partition[4]) for partition in partitions), default=0)
        rights = frozenset() if exists is None else _rights(bits)
        seen[name] = TopicRights(name, exists, rights, copies, len(partitions))
    return seen


async def group_rights(client: Any, group: str) -> frozenset[str]:
    request = _rights_on_groups()([group], True)
    answer = await _coordinated(client, "GROUP", group, request, lambda reply: reply.groups[0][0])
    return frozenset() if answer is None or answer.groups[0][0] else _rights(answer.groups[0][6])


async def may_transact(client: Any, name: str, group: str) -> bool:
    """Return whether this user may use this transactional id."""
    request = library(".protocol.transaction").AddOffsetsToTxnRequest(name, _NOBODY, 0, group)
    answer = await _coordinated(
        client, "TRANSACTION", name, request, lambda reply: reply.error_code
    )
    return answer is not None and answer.error_code != _DENIED_ID


async def may_create(admin: Any, topic: str) -> bool:
    """Return whether this user may make this topic; does not make it."""
    new = library(".admin").NewTopic(topic, 1, 1)
    answer = await admin.create_topics([new], validate_only=True)
    return bool(answer.topic_errors[0][1] not in (_DENIED_TOPIC, _DENIED_CLUSTER))


async def _coordinated(
    client: Any, kind: str, key: str, request: Any, code: Callable[[Any], int]
) -> Any:
    """Return the coordinator's answer; None if this user may not know the coordinator."""
    try:
        return await coordinated(client, kind, key, request, code, _PATIENCE_S)
    except library(".errors").KafkaError as error:
        if "Authorization" not in type(error).__name__:
            raise
        return None


def _rights(bits: int) -> frozenset[str]:
    return frozenset(right for right, bit in _BITS.items() if bits >> bit & 1)


@cache
def _rights_on_topics() -> Any:
    """Return a class of requests that the library lacks."""
    types = library(".protocol.types")
    text, int16, int32, many = types.String("utf-8"), types.Int16, types.Int32, types.Array
    broker = (("id", int32), ("host", text), ("port", int32), ("rack", text))
    partition = (
        ("error_code", int16), ("partition", int32), ("leader", int32), ("epoch", int32),
        ("replicas", many(int32)), ("isr", many(int32)), ("offline", many(int32)),
    )  # fmt: skip
    topic = (
        ("error_code", int16), ("name", text), ("internal", types.Boolean),
        ("partitions", many(*partition)), ("operations", int32),
    )  # fmt: skip
    asked = (
        ("topics", many(text)), ("create", types.Boolean),
        ("cluster_operations", types.Boolean), ("operations", types.Boolean),
    )  # fmt: skip
    answered = (
        ("throttle_time_ms", int32), ("brokers", many(*broker)), ("cluster_id", text),
        ("controller_id", int32), ("topics", many(*topic)), ("cluster_operations", int32),
    )  # fmt: skip
    return request_class(3, 8, asked, answered)


@cache
def _rights_on_groups() -> Any:
    """Return a class of requests that the library implements wrongly."""
    types = library(".protocol.types")
    text, many = types.String("utf-8"), types.Array
    member = (
        ("member", text), ("client", text), ("host", text), ("metadata", types.Bytes),
        ("assignment", types.Bytes),
    )  # fmt: skip
    group = (
        ("error_code", types.Int16), ("group", text), ("state", text), ("kind", text),
        ("protocol", text), ("members", many(*member)), ("operations", types.Int32),
    )  # fmt: skip
    answered = (("throttle_time_ms", types.Int32), ("groups", many(*group)))
    return request_class(15, 3, (("groups", many(text)), ("operations", types.Boolean)), answered)
