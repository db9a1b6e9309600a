"""How a client proves its identity and checks the broker's: TLS, certificate, password, token.

Rules: errors name the keys of `source.security`. A secret is read from its file whenever a client is made, a token at
each new connection. A secret that everybody on the machine may read is refused. No error, repr or log contains a
secret. `token` names code, which is imported: the author of the pipeline file is trusted.
"""

import asyncio
import importlib
import inspect
import re
import ssl
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from stream_dp.errors import UsageError, WorldError
from stream_dp.records.endpoints import Security

OPEN = Security(protocol="PLAINTEXT")  # no TLS and no login

_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)  # RFC 6750, b64token


def arguments(security: Security) -> dict[str, Any]:
    """Return the library's arguments for these settings.

    Raises `WorldError` (a file cannot be read, or does not hold what it should) or `UsageError` (everybody may read a
    secret, or `token` names no function).
    """
    given: dict[str, Any] = {"security_protocol": security.protocol}
    if security.protocol.endswith("SSL"):
        given["ssl_context"] = _tls(security)
    if security.mechanism is not None:
        given["sasl_mechanism"] = security.mechanism
    if security.mechanism == "OAUTHBEARER":
        given["sasl_oauth_token_provider"] = _tokens(security)
    elif security.password_file is not None:
        given["sasl_plain_username"] = security.username
        given["sasl_plain_password"] = secret("password_file", security.password_file)
    return given


def _tls(security: Security) -> ssl.SSLContext:
    authorities = security.ca_file
    if authorities is not None:
        readable("ca_file", authorities)
    try:
        context = ssl.create_default_context(cafile=authorities)
    except (ssl.SSLError, OSError):
        raise WorldError(f"security.ca_file {authorities} holds no certificate (PEM)") from None
    if security.certificate_file is not None:
        _show(context, security.certificate_file, security)
    return context


def _show(context: ssl.SSLContext, certificate: Path, security: Security) -> None:
    """Load the client's certificate and key."""
    readable("certificate_file", certificate)
    named, key = security.key_password_file, security.key_file
    hidden("key_file" if key else "certificate_file", key or certificate)
    password = "" if named is None else secret("key_password_file", named)
    try:  # an empty password too: without one the TLS library would ask on the terminal
        context.load_cert_chain(certificate, key, password)
    except (ssl.SSLError, OSError, ValueError):
        raise WorldError(
            f"security.certificate_file {certificate}: holds no certificate (PEM) that matches the key in "
            f"{key or certificate}, or the key "
            f"{'has another password' if named else 'needs a password'} (security.key_password_file)"
        ) from None


def _tokens(security: Security) -> "BearerTokens":
    if security.token_file is None:
        source = hook(security.token or "")
    else:
        source = partial(_token_in, security.token_file)
        source()
    importlib.import_module("aiokafka.abc").AbstractTokenProvider.register(BearerTokens)
    return BearerTokens(source)


class BearerTokens:
    """Returns a token for each new connection, from the function or coroutine function `source`."""

    def __init__(self, source: Callable[[], Any]) -> None:
        self._source = source

    async def token(self) -> str:
        """Return a fresh token; an `OSError` (there is none) counts as a failed connection in the library."""
        try:
            if inspect.iscoroutinefunction(self._source):
                token = await self._source()
            else:
                token = await asyncio.to_thread(self._source)
        except Exception as error:  # noqa: BLE001 - code of others; its text may hold the secret
            raise OSError(f"security.token failed ({type(error).__name__})") from None
        if not isinstance(token, str) or _BEARER.fullmatch(token) is None:
            raise OSError("security.token gave no bearer token (RFC 6750)")
        return token


def _token_in(path: Path) -> str:
    return secret("token_file", path).strip()


def hook(named: str) -> Callable[[], Any]:
    """Import and return the function named by `package.module:function`; `UsageError` if there is none."""
    module, _, function = named.partition(":")
    try:
        source = getattr(importlib.import_module(module), function, None)
    except Exception as error:  # noqa: BLE001 - code of others; its text may hold a secret
        raise UsageError(
            f"security.token: {module} cannot be imported ({type(error).__name__}). Install it "
            "in the environment of stream_dp, or add it to PYTHONPATH"
        ) from None
    if not callable(source):
        raise UsageError(f"security.token: {module} has no function {function}")
    return source  # type: ignore[no-any-return]


def secret(key: str, path: Path) -> str:
    """Return the one line of text in this file of `security.KEY`, without its line break."""
    content = readable(key, path)
    hidden(key, path)
    try:
        text = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        text = ""
    if not text:
        raise WorldError(f"security.{key} {path} holds no text")
    return text


def readable(key: str, path: Path) -> bytes:
    """Return the content of this file of `security.KEY`, or raise `WorldError`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise WorldError(f"security.{key} {path} cannot be read: {error.strerror}") from None


def hidden(key: str, path: Path) -> None:
    """Raise `UsageError` if everybody on this machine may read or change a secret; a group may, as mounts have it."""
    if stat.S_IMODE(path.stat().st_mode) & 0o007:
        raise UsageError(f"security.{key} {path} can be read by others; run `chmod o= {path}`")
