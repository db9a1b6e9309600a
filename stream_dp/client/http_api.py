"""Requests to the HTTP API of a running engine; a refusal is raised as the engine's error, in the server's words.

Rules: a request goes to the named address only: no proxies, no redirects, and no plain http beyond this machine where a
token is shown. The token of live series is never sent to an engine of another pipeline, unless reading is closed there:
then only the holder of a token learns which pipeline it is.
"""

import json
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlsplit

from stream_dp.errors import (
    BudgetRefused,
    FailClosed,
    MostlyNoise,
    StreamDPError,
    UnknownMechanism,
    UsageError,
    WorldError,
)

SECONDS = 60.0
_HERE = frozenset({"127.0.0.1", "localhost", "::1"})
_KINDS = (StreamDPError, UsageError, BudgetRefused, FailClosed, WorldError)
_ERRORS = {kind.exit_code: kind for kind in _KINDS}


class TokenRefused(UsageError):
    """No token was shown where one is needed, or it is none of this pipeline's, or no longer."""


_BY_STATUS = {401: TokenRefused, 404: UnknownMechanism, 428: MostlyNoise}


@dataclass(frozen=True, slots=True)
class HttpApi:
    """The API at `url`; errors call the address `named`, and what should answer there `engine`.

    With `secret`, plain http reaches this machine only, for the token must not be read on the way.
    """

    url: str
    engine: str = "engine"
    named: str = "url"
    secret: bool = True
    seconds: float = SECONDS

    def connection(self) -> HTTPConnection:
        """Return a connection that is not open yet; raise UsageError if the address is not an engine's."""
        parts = urlsplit(self.url)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        path = parts.path.strip("/") or parts.query
        if parts.scheme not in {"http", "https"} or not host or path:
            raise UsageError(f"{self.named}: must be like http://127.0.0.1:8765")
        if parts.scheme == "https":
            return HTTPSConnection(host, port, timeout=self.seconds)
        if self.secret and host not in _HERE:
            raise UsageError(
                f"{self.named}: http is allowed only to this machine, because others could read the "
                "token on the way. Use https or a tunnel"
            )
        return HTTPConnection(host, port, timeout=self.seconds)

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> bytes:
        """Return the body of the answer, or of a recorded refusal.

        Raises:
            UsageError, BudgetRefused, FailClosed: the engine's refusal, in its words.
            WorldError: no engine answers there, or not in time, or the answer is not whole.
        """
        connection = self.connection()
        kind = {} if body is None else {"Content-Type": "application/json"}
        try:
            connection.request(method, path, body, {**(headers or {}), **kind})
            answer = connection.getresponse()
            return self.content(answer)
        except TimeoutError:
            raise WorldError(
                f"the engine at {self.url} did not answer within {self.seconds:g} s. It may still "
                "execute the request: look with `stream-dp query list`"
            ) from None
        except (OSError, HTTPException):
            raise self.gone() from None
        finally:
            connection.close()

    def read(self, path: str, token: str) -> bytes:
        """Return the body of what `send` gets; the token (if any) is shown only where reading takes one."""
        try:
            return self.send("GET", path)
        except TokenRefused:
            if not token:
                raise
            return self.send("GET", path, headers=bearer(token))

    def content(self, answer: HTTPResponse) -> bytes:
        """Return the body of an answer, a JSON object, or of a recorded refusal; raise other refusals."""
        body, status = answer.read(), answer.status
        try:
            content: Any = json.loads(body)
        except ValueError:
            content = None
        if isinstance(content, dict):
            if status < 300 or "refused" in content:
                return body  # a recorded answer, which may be a refusal
            if content.get("exit_code") in _ERRORS:
                kind = _BY_STATUS.get(status, _ERRORS[content["exit_code"]])
                raise kind(str(content.get("detail", "refused")))
        if status in {404, 405}:
            raise UsageError(f"the engine at {self.url} accepts no queries")
        raise WorldError(
            f"{self.url} does not answer like a stream_dp engine (status {status}); is "
            f"{self.named} right?"
        )

    def gone(self) -> WorldError:
        """Return the error for an address at which no engine answers."""
        return WorldError(
            f"no {self.engine} answers at {self.url}: start one with `stream-dp run PIPELINE.yaml --serve`, and give "
            f"the address that it prints ({self.named})"
        )


_NAMED = "--url"


@dataclass(frozen=True, slots=True)
class LiveSeriesClient:
    """The engine of `pipeline` at `url`, asked with `token`.

    Raises, in every method:
        UsageError: the address is not valid, another pipeline's engine runs there, or the engine refuses the
        request.
        BudgetRefused, FailClosed: raised by the engine.
        WorldError: no engine answers there.
    """

    url: str
    pipeline: str
    token: str = field(repr=False)

    def create(
        self, definition: bytes, analyst: str, *, accept_noise: bool = False
    ) -> dict[str, Any]:
        """Create a series; `accept_noise` allows a series that fires mostly by noise."""
        accepted = "&accept_noise=true" if accept_noise else ""
        path = f"/api/queries?analyst={quote(analyst, safe='')}{accepted}"
        return self._ask("POST", path, definition)

    def preview(self, definition: bytes, analyst: str) -> dict[str, Any]:
        """Return what creating the series would cost; changes nothing."""
        path = f"/api/queries/preview?analyst={quote(analyst, safe='')}"
        return self._ask("POST", path, definition)

    def preview_halt(self, name: str) -> dict[str, Any]:
        """Return what halting a series would give back; changes nothing."""
        return self._named("GET", name, "/halt")

    def halt(self, name: str) -> dict[str, Any]:
        return self._named("DELETE", name)

    def _named(self, method: str, name: str, part: str = "") -> dict[str, Any]:
        try:
            return self._ask(method, f"/api/queries/{quote(name, safe='')}{part}")
        except UnknownMechanism as error:
            raise UnknownMechanism(f"{name}: {error}") from None

    def queries(self) -> list[dict[str, Any]]:
        """Return the running series and the last halted ones."""
        return list(self._ask("GET", "/api/queries")["queries"])

    def analyst(self) -> str:
        """Return the analyst for whom `stream-dp token` made the token; "" for other tokens."""
        from stream_dp.engine.messages.issued_tokens import id_of  # needed only to send messages

        return str(self._ask("GET", "/api/me")["analyst"]) if id_of(self.token) else ""

    def message(self, text: str) -> bytes:
        return self._asked("POST", "/api/messages", text.encode())

    def _ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        return dict(json.loads(self._asked(method, path, body)))

    def _asked(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Check that the engine runs this pipeline, and return the bytes of its answer."""
        api = HttpApi(self.url, f"engine of {self.pipeline}", _NAMED, seconds=SECONDS)
        try:
            name = json.loads(api.read("/api/pipeline", self.token)).get("name")
            if name != self.pipeline:
                raise UsageError(
                    f"--url: the engine at {self.url} does not run {self.pipeline} but another pipeline; "
                    "`stream-dp run --serve` prints the address of its page when it starts"
                )
            return api.send(method, path, body, bearer(self.token) if self.token else {})
        except TokenRefused:
            if not self.token:
                raise
            raise UsageError(
                "the engine refused the token of this key. Name the key that the engine runs with "
                "(--key-file or STREAM_DP_KEY_FILE), or name the analyst whose token it is "
                "(--analyst)"
            ) from None


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def nobody_listens(url: str) -> bool:
    """Return whether the port of this address is closed; raise UsageError if it is not an engine's address."""
    connection = HttpApi(url, named=_NAMED).connection()
    try:
        connection.connect()
    except OSError as error:
        return isinstance(error, ConnectionRefusedError)
    finally:
        connection.close()
    return False
