"""How a client proves its identity and checks the broker's: TLS, certificate, password, token.

Rules: names are those of `source.security` in a pipeline file, so an error names the exact key. A secret is read from
its file whenever a client is made, a token at each new connection. A secret that everybody on the machine may read is
refused. No error, repr or log contains a secret. `token` names code, which is imported: the author of the pipeline file
is trusted.
"""

import asyncio
import importlib
import inspect
import re
import ssl
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stream_dp.errors import UsageError, WorldError

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS = (*_PASSWORDS, "OAUTHBEARER")
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)  # RFC 6750, b64token


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """The keys of `source.security`; `arguments` reads the files."""

    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    username: str | None = None
    password_file: Path | None = None
    token_file: Path | None = None
    token: str | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    key_password_file: Path | None = None

    def __post_init__(self) -> None:
        if self.protocol not in _PROTOCOLS:
            raise UsageError(f"security.protocol must be one of {', '.join(_PROTOCOLS)}")
        if not self._sasl:
            return
        if self.mechanism not in _MECHANISMS:
            raise UsageError(f"security.mechanism must be one of {', '.join(_MECHANISMS)}")
        if self.mechanism in _PASSWORDS and (self.username is None or self.password_file is None):
            raise UsageError(f"{self.mechanism} needs security.username and security.password_file")
        if self.mechanism == "OAUTHBEARER" and (self.token_file is None) == (self.token is None):
            raise UsageError("OAUTHBEARER needs either security.token_file or security.token")

    @property
    def _sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    def arguments(self) -> dict[str, Any]:
        """Return the library's arguments for these settings.

        Raises `WorldError` (a file cannot be read, or does not hold what it should) or `UsageError` (everybody may read
        a secret, or `token` names no function).
        """
        arguments: dict[str, Any] = {"security_protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            arguments["ssl_context"] = self._tls()
        if self._sasl:
            arguments["sasl_mechanism"] = self.mechanism
        if self._sasl and self.mechanism == "OAUTHBEARER":
            arguments["sasl_oauth_token_provider"] = self._tokens()
        elif self._sasl and self.password_file is not None:
            arguments["sasl_plain_username"] = self.username
            arguments["sasl_plain_password"] = secret("password_file", self.password_file)
        return arguments

    def _tls(self) -> ssl.SSLContext:
        if self.ca_file is not None:
            readable("ca_file", self.ca_file)
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (ssl.SSLError, OSError):
            raise WorldError(
                f"security.ca_file {self.ca_file} holds no certificate (PEM)"
            ) from None
        if self.certificate_file is not None:
            self._show(context, self.certificate_file)
        return context

    def _show(self, context: ssl.SSLContext, certificate: Path) -> None:
        """Load the client's certificate and key."""
        readable("certificate_file", certificate)
        guarded = (
            ("key_file", self.key_file) if self.key_file else ("certificate_file", certificate)
        )
        hidden(*guarded)
        named = self.key_password_file
        password = "" if named is None else secret("key_password_file", named)
        try:  # an empty password too: without one the TLS library would ask on the terminal
            context.load_cert_chain(certificate, self.key_file, password)
        except (ssl.SSLError, OSError, ValueError):
            raise WorldError(
                f"security.certificate_file {certificate}: no certificate (PEM) whose key is in "
                f"{guarded[1]}, or that key has {'another' if named else 'a'} password "
                "(security.key_password_file)"
            ) from None

    def _tokens(self) -> "BearerTokens":
        if self.token_file is not None:
            source: Callable[[], Any] = TokenFile(self.token_file)
            source()
        else:
            source = hook(self.token or "")
        provider = importlib.import_module("aiokafka.abc").AbstractTokenProvider
        provider.register(BearerTokens)
        return BearerTokens(source)


OPEN = KafkaSecurity()
"""No TLS and no login."""


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


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file with a token, read at each call; to renew the token, replace the file."""

    path: Path

    def __call__(self) -> str:
        return secret("token_file", self.path).strip()


def hook(named: str) -> Callable[[], Any]:
    """Import and return the function named by `package.module:function`; `UsageError` if there is none."""
    module, _, function = named.partition(":")
    try:
        source = getattr(importlib.import_module(module), function, None)
    except Exception as error:  # noqa: BLE001 - code of others; its text may hold a secret
        raise UsageError(
            f"security.token: {module} cannot be imported ({type(error).__name__}); it must be installed "
            "beside stream_dp, or be on PYTHONPATH"
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
    """Raise `UsageError` if everybody on this machine may read or change a secret; a group may, as secrets are mounted
    so.
    """
    if stat.S_IMODE(path.stat().st_mode) & 0o007:
        raise UsageError(f"security.{key} {path} is open to others; run `chmod o= {path}`")
