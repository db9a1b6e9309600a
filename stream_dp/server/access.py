"""Who may read and ask over HTTP: tokens, a cookie for the page, users that a proxy names; and the log of who did what.

Rules: without a file of access everyone reads, and only holders of an analyst's token ask. A token is taken from the
header `Authorization` alone and compared in constant time. The page's cookie reads and never asks, so no page of
another site can ask with it. A user's name in a proxy's header counts only where the peer's own address is one of the
proxy's; from anywhere else, or twice, it refuses the request. Files of pages, the API's document and `/healthz` need no
right: they hold no release. The log is the operator's: it names people, and no token, no release and no exact count; if
it cannot be written, the server goes on.
"""

import errno
import hashlib
import hmac
import json
import logging
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from stream_dp.core.time import moment_text
from stream_dp.errors import StreamDPError
from stream_dp.noise import fresh_seed
from stream_dp.records.scalars import Frozen, LocalPath, Name
from stream_dp.server.broadcast import Overtaken
from stream_dp.server.view import VALID, PublicView, TokenHolder, TokenReader

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_log = logging.getLogger(__name__)
_Network: TypeAlias = IPv4Network | IPv6Network


def _network(text: object) -> _Network:
    try:
        found = ip_network(str(text))
    except ValueError:
        raise ValueError(
            "must be an address or a network, such as 10.1.2.3 or 10.1.0.0/16"
        ) from None
    if found.prefixlen == 0:
        raise ValueError("would trust every client; name the proxy's own addresses")
    return found


def _header(name: str) -> str:
    if name.lower() in {"authorization", "cookie", "host", "origin"}:
        raise ValueError(
            "is a header that browsers set themselves; name the header that the proxy sets, "
            "such as X-Forwarded-Email"
        )
    return name.lower()


def _user(text: str) -> str:
    return text.strip().lower()


_User: TypeAlias = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_user)]


class Proxy(Frozen):
    """A proxy that logs people in: the header with a user's name, believed `from` its own addresses alone.

    A user in `analysts` is that analyst of the pipeline file; one in `readers` reads. `"*@example.org"` are all with
    this end, `"*"` all whom the proxy lets through.
    """

    header: Annotated[str, Field(pattern="^[A-Za-z][A-Za-z0-9-]{0,63}$"), AfterValidator(_header)]
    from_: Annotated[
        tuple[Annotated[_Network, BeforeValidator(_network)], ...],
        Field(alias="from", min_length=1),
    ]
    analysts: dict[_User, Name] = Field(default_factory=dict)
    readers: tuple[_User, ...] = ()

    def believed(self, peer: str) -> bool:
        """Whether this address of a connection's other end is the proxy's."""
        with suppress(ValueError):
            address: IPv4Address | IPv6Address = ip_address(peer.partition("%")[0])
            if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
                address = address.ipv4_mapped
            return any(address in network for network in self.from_)
        return False

    def reads(self, user: str) -> bool:
        return any(
            user.endswith(name[1:]) if name.startswith("*") else user == name
            for name in self.readers
        )


class Access(Frozen):
    """Whom a server answers: further host `names` of its own, who `reads`, a login `proxy`, and the `log`'s place."""

    names: frozenset[str] = frozenset()
    reads: Literal["anyone", "known"] = "anyone"
    proxy: Proxy | None = None
    log: LocalPath | Literal["stderr"] | None = None

    @field_validator("log", mode="before")
    @classmethod
    def _stderr_or_path(cls, value: object) -> object:
        return value if value is None or value == "stderr" else Path(str(value))

    @property
    def asks_who(self) -> bool:
        """Whether it matters who reads."""
        return self.reads == "known" or self.proxy is not None or self.log is not None


OPEN = Access()


class Caller(NamedTuple):
    """Who sent a request, and by what: `shown` is the id of the token, or the user whom the proxy names."""

    kind: Literal["operator", "analyst", "reader"]
    name: str = ""
    shown: str = ""
    by: Literal["token", "cookie", "proxy"] = "token"

    @property
    def asks(self) -> bool:
        return self.kind != "reader" and self.by != "cookie"


CALLER, BODY = "stream_dp.caller", "stream_dp.body"
"""Keys of a request's scope, which no client can set."""
OPERATOR = ""
NEEDED = (
    "needs `Authorization: Bearer TOKEN` with a token of this pipeline: the operator makes an analyst's with "
    "`stream-dp token PIPELINE.yaml --analyst NAME`, and prints the own one with `stream-dp query token PIPELINE.yaml`"
)
_CLOSED = (
    "reading is not open to everyone here: log in on the page, or send `Authorization: Bearer TOKEN`; the operator "
    "makes a reader's token with `stream-dp token PIPELINE.yaml --reader NAME`"
)
_UNKNOWN = "this is no token of this pipeline: see that it was copied whole, or ask the operator for another one"
_OVER: Mapping[str, str] = {
    "expired": "this token has expired; ask the operator for another one",
    "revoked": "this token was revoked; ask the operator for another one",
}
ONLY_READS = (
    "may read here and not ask: asking takes an analyst's token, or a user who is an analyst's"
)
_FORGED = (
    "a user's name came from an address that is not the proxy's, or more than once; the operator lists the proxy's "
    "addresses under proxy.from, and a proxy sets its header once"
)
_UNLISTED = "the proxy knows you, and this server does not: ask the operator to list you under proxy.readers"


class Refused(Exception):
    """A request that the server refuses itself, without an error of the engine."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def bearer(headers: list[str]) -> str:
    """Return the token that these `Authorization` headers show; empty unless there is one, of the kind `Bearer`."""
    scheme, _, token = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else ""


def is_same(shown: str, token: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(shown.encode(), token.encode())


class Tokens:
    """The tokens of one pipeline: the operator's, those made from its key, and issued ones."""

    def __init__(self, view: PublicView) -> None:
        made = {OPERATOR: view.token, **view.analysts}
        self._made = {name: token for name, token in made.items() if token}
        self._view = view

    def holder(self, shown: str) -> TokenHolder:
        """Return who may ask with this token. Raises Refused, or WorldError if issued tokens cannot be looked up."""
        known = [name for name, token in self._made.items() if is_same(shown, token)]
        holder = TokenHolder(known[0]) if known else self._view.issued(shown)
        if holder is None:
            reads = self._reader(shown) is not None
            raise Refused(403, f"this token {ONLY_READS}") if reads else Refused(401, _UNKNOWN)
        if holder.state != VALID:
            raise Refused(401, _OVER[holder.state])
        return holder

    def caller(self, shown: str) -> Caller:
        """Return who reads with this token; raises as `holder`."""
        if reader := self._reader(shown):
            return Caller("reader", reader.name, reader.token)
        holder = self.holder(shown)
        return Caller("analyst" if holder.analyst else "operator", holder.analyst, holder.token)

    def _reader(self, shown: str) -> TokenReader | None:
        reader = self._view.readers(shown)
        if reader is not None and reader.state != VALID:
            raise Refused(401, _OVER[reader.state])
        return reader


REPEATED_S = 600.0
"""Within so many seconds the same reading of the same caller is logged once."""
MOST = 10_000
"""So many readings are logged within `REPEATED_S`, and as many requests that ask of each caller; so many cookies let
somebody in, the newest ones.
"""
_KEPT = ("do", "series", "name", "statistic", "epsilon", "error")
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,62}", re.ASCII)  # shorter than any token
_DID: Mapping[str, str] = {
    "POST /api/queries": "create",
    "POST /api/queries/preview": "preview",
    "GET /api/queries/{name}/halt": "preview halt",
    "DELETE /api/queries/{name}": "halt",
    "POST /api/messages": "message",
    "POST /api/series/{name}/ask": "ask",
    "POST /api/login": "log in",
    "DELETE /api/login": "log out",
}
"""What requests do, by route; all others read."""


class AccessLog:
    """Lines of JSON about who asked and read what, appended to a file that anyone may move away, or to stderr.

    Each line opens the file anew, so a rotation needs no signal. While it cannot be written, one warning says so.
    """

    def __init__(self, to: Path | Literal["stderr"], now: Callable[[], float] = time.time) -> None:
        self._to, self._now = to, now
        self._since, self._seen, self._many = 0.0, set[tuple[str, ...]](), Counter[str]()
        self._failed = self._torn = False

    def note(self, entry: Mapping[str, str | int]) -> None:
        """Log an entry; a reading that was logged a moment ago is left out."""
        now = self._now()
        if not 0 <= now - self._since < REPEATED_S:
            self._since = now
            self._seen.clear()
            self._many.clear()
        asks = entry["did"] != "read" and entry["status"] not in (401, 403)
        lane = str(entry.get("who", "")) if asks else ""
        if self._many[lane] > MOST:
            return
        if not asks:
            same = tuple(map(str, entry.values()))
            if same in self._seen:
                return
            self._seen.add(same)
        self._many[lane] += 1
        if self._many[lane] > MOST:
            entry = {"who": lane, "did": f"more than {MOST} in ten minutes; the rest is left out"}
        line = {"event": "access", "time": moment_text(int(now) * 1000), **entry}
        self._write(json.dumps(line) + "\n")

    def _write(self, text: str) -> None:
        try:
            if self._to == "stderr":
                sys.stderr.write(text)
            else:
                self._append(self._to, f"\n{text}" if self._torn else text)
        except OSError as error:
            if not self._failed:
                _log.warning(
                    "The log of accesses %s cannot be written (%s). Until it can be written, requests are not "
                    "recorded", self._to, error.strerror or error,
                )  # fmt: skip
            self._failed = True
        else:
            self._failed = False

    def _append(self, path: Path, text: str) -> None:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._torn = os.write(file, text.encode()) < len(text)
        finally:
            os.close(file)
        if self._torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _asked(body: bytes) -> dict[str, str]:
    """Return the names and prices in the body of a request; no text that could be more than that."""
    try:
        content = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    parts = content if isinstance(content, dict) else {}
    if isinstance(inner := parts.get("series"), dict):
        parts = {**parts, **inner, "series": inner.get("name")}
    kept = {key: str(parts[key]) for key in _KEPT if isinstance(parts.get(key), str | int | float)}
    return {key: text for key, text in kept.items() if _PLAIN.fullmatch(text)}


_OPEN_PATHS = frozenset({"/healthz", "/api/openapi.json", "/api/access", "/api/login"})
_LOOK_AGAIN_S = 30.0
_REFUSED = 400


class Gate:
    """Finds out who calls, refuses readers who are not known where reads are closed, and logs; `before` an application.

    `refusal_of` makes an error an answer. A stream is looked at again every `_LOOK_AGAIN_S`, so it ends with its token.
    """

    def __init__(
        self,
        view: PublicView,
        access: Access,
        refusal_of: "Callable[[Exception], Response]",
        log: AccessLog | None = None,
    ) -> None:
        self._access, self._refusal_of, self._log = access, refusal_of, log
        self.tokens = Tokens(view)
        self._name = str(view.pipeline().get("name", ""))
        self._cookie = f"stream_dp_{self._name}"
        self._entered: dict[bytes, str] = {}

    def before(self, app: "ASGIApp") -> "ASGIApp":
        return partial(self._passed, app)

    async def _passed(
        self, app: "ASGIApp", scope: "Scope", receive: "Receive", send: "Send"
    ) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        free = path in _OPEN_PATHS or not path.startswith(("/api/", "/metrics"))
        refused, caller = None, None
        try:
            caller = self.caller(scope)
        except (Refused, StreamDPError) as error:
            refused = self._refusal_of(error)
        if caller is None and refused is None and not free and self._access.reads == "known":
            named = self._user(scope) is not None
            refused = self._refusal_of(Refused(403, _UNLISTED) if named else Refused(401, _CLOSED))
        if refused is not None:
            self._note(scope, None, refused.status_code)
            await refused(scope, receive, send)
            return
        scope[CALLER] = caller
        await app(scope, receive, self._sending(scope, send, caller, free=free))

    def admits(self, scope: "Scope") -> bool:
        try:
            return self._access.reads == "anyone" or self.caller(scope) is not None
        except (Refused, StreamDPError):
            return False

    def caller(self, scope: "Scope") -> Caller | None:
        """Return who sent a request, None if that is not known. Raises Refused where a claim does not hold, and
        WorldError if tokens cannot be looked up.
        """
        user = self._user(scope)
        if shown := bearer(_values(scope, b"authorization")):
            try:
                return self.tokens.caller(shown)
            except Refused:
                if self._access.reads == "known":
                    raise
        proxy = self._access.proxy
        if proxy is not None and user is not None:
            if analyst := proxy.analysts.get(user):
                return Caller("analyst", analyst, user, "proxy")
            if proxy.reads(user):
                return Caller("reader", user, "", "proxy")
        if text := self._entered.get(_digest(self._shown_cookie(scope))):
            with suppress(Refused):
                return self.tokens.caller(text)._replace(by="cookie")
        return None

    def enter(self, token: str, *, secure: bool) -> str:
        """Return the cookie with which the holder of this token, which is known, reads."""
        value = fresh_seed().hex()
        if len(self._entered) >= MOST:
            del self._entered[next(iter(self._entered))]
        self._entered[_digest(value)] = token
        return self._set_cookie(value, secure=secure)

    def leave(self, scope: "Scope", *, secure: bool) -> str:
        """End the session of a request's cookie; return the cookie that takes its place."""
        self._entered.pop(_digest(self._shown_cookie(scope)), None)
        return f"{self._set_cookie('', secure=secure)}; Max-Age=0"

    def _set_cookie(self, value: str, *, secure: bool) -> str:
        more = "; Secure" if secure else ""
        return f"{self._cookie}={value}; Path=/; HttpOnly; SameSite=Strict{more}"

    def _user(self, scope: "Scope") -> str | None:
        """Return the user whom the proxy names, None if it names none. Raises Refused where somebody else does."""
        proxy = self._access.proxy
        named = [] if proxy is None else _values(scope, proxy.header.encode())
        if proxy is None or not named:
            return None
        if len(named) != 1 or not proxy.believed(_peer(scope)):
            raise Refused(403, _FORGED)
        return _user(named[0]) or None

    def _shown_cookie(self, scope: "Scope") -> str:
        pairs = (pair.strip() for text in _values(scope, b"cookie") for pair in text.split(";"))
        mine = [pair.partition("=")[2] for pair in pairs if pair.startswith(f"{self._cookie}=")]
        return mine[0] if len(mine) == 1 else ""

    def _sending(
        self, scope: "Scope", send: "Send", caller: Caller | None, *, free: bool
    ) -> "Send":
        looked = time.monotonic()

        async def sending(message: "Message") -> None:
            nonlocal looked
            if message["type"] == "http.response.start":
                self._note(scope, caller, message["status"])
            elif not free and time.monotonic() - looked > _LOOK_AGAIN_S:
                looked = time.monotonic()
                if not self.admits(scope):
                    raise Overtaken
            await send(message)

        return sending

    def _note(self, scope: "Scope", caller: Caller | None, status: int) -> None:
        """Log a request that read or asked. What no route has taken is a path of the client's own, and not logged."""
        if self._log is None:
            return
        route = getattr(scope.get("route"), "path_format", "")
        if route and route != "/" and not route.startswith(("/api/", "/metrics")):
            return
        who: dict[str, str] = {}
        if caller is not None:
            who = {"who": caller.name or caller.kind, "as": caller.kind, "by": caller.by}
            if caller.shown:
                who["user" if caller.by == "proxy" else "token"] = caller.shown
        name = str(scope.get("path_params", {}).get("name", "")) if status < _REFUSED else ""
        self._log.note({
            "pipeline": self._name, "did": _DID.get(f"{scope['method']} {route}", "read"), **who,
            "from": _peer(scope), **({"route": route} if route else {}), **({"series": name} if name else {}),
            **_asked(scope.get(BODY, b"")), "status": status,
        })  # fmt: skip


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _values(scope: "Scope", wanted: bytes) -> list[str]:
    headers: Any = scope["headers"]
    return [value.decode("latin-1") for name, value in headers if name == wanted]


def _peer(scope: "Scope") -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""
