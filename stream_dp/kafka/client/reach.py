"""Why a broker cannot be reached, for each address: its name, its port, TLS, the login.

Rules: the client library hides these causes (it tries the next address and reports at the end that none answers),
so each address is tried here separately. Nothing is changed at the brokers, and no text contains a secret.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Any, NamedTuple

from stream_dp.kafka.client.clients import KafkaSettings, library

_PATIENCE_S = 5.0
_EXPIRED, _HOST = (9, 10), (62, 64)  # X509_V_ERR_CERT_NOT_YET_VALID and so on
_CLIENT_ALERTS = ("CERTIFICATE_", "BAD_CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE")
_BAD_LOGIN = ("SaslAuthenticationFailed", "AuthenticationFailedError")


class Reached(NamedTuple):
    """The result for one address: `cause` is empty if it works, `mend` says what to check."""

    address: str
    cause: str = ""
    mend: str = ""


async def reach(settings: KafkaSettings) -> list[Reached]:
    """Try every address of `settings.bootstrap`, then every address that the brokers name.

    Raises:
        WorldError, UsageError: a file of `security` cannot be used.
    """
    options = settings.client()
    del options["bootstrap_servers"], options["retry_backoff_ms"]
    options["request_timeout_ms"] = int(1000 * min(settings.patience_s, _PATIENCE_S))
    hosts = [
        (host, port) for host, port, _ in library(".conn").collect_hosts(settings.bootstrap, False)
    ]
    found, named = await _each(hosts, options)
    others = sorted(set(named) - set(hosts))
    told, _ = await _each(others, options)
    hint = "the brokers name this address (advertised.listeners), so it must be reachable from here"
    return found + [one._replace(mend=f"{one.mend}; {hint}") if one.cause else one for one in told]


async def _each(
    hosts: Sequence[tuple[str, int]], options: dict[str, Any]
) -> tuple[list[Reached], list[tuple[str, int]]]:
    """Return the result for each address, and the addresses that the brokers named."""
    outcomes = await asyncio.gather(*(_one(host, port, options) for host, port in hosts))
    return [one for one, _ in outcomes], [at for _, named in outcomes for at in named]


async def _one(
    host: str, port: int, options: dict[str, Any]
) -> tuple[Reached, list[tuple[str, int]]]:
    errors, connection = library(".errors"), None
    address = f"{host}:{port}"
    try:
        connection = await library(".conn").create_conn(host, port, **options)
        async with asyncio.timeout(_PATIENCE_S):
            answer = await connection.send(library(".protocol.metadata").MetadataRequest([]))
    except (errors.KafkaError, OSError, TimeoutError, ValueError, AssertionError) as error:
        return Reached(address, *why(error, options)), []
    finally:
        if connection is not None:
            connection.close()
    if (
        not answer.brokers
    ):  # after a refused token the library goes on and reads the refusal as an answer
        return Reached(address, *_TOKEN), []
    return Reached(address), [(broker[1], broker[2]) for broker in answer.brokers]


_TOKEN = ("the broker refuses the bearer token", "source.security.token_file: is it still valid?")


def why(error: BaseException, options: dict[str, Any]) -> tuple[str, str]:
    """Return the cause of a failed connection in words, and what to check; `options` are the client's."""
    cause = error.__cause__
    if isinstance(cause, ssl.SSLError):
        error = cause
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
    """Return the TLS error: the broker's certificate, this client's certificate, or a port without TLS."""
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
