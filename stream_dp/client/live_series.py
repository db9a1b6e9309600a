"""A client of the HTTP API of a running engine, for `stream-dp query`.

Rules: the token is never sent to an engine of another pipeline.
"""

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from stream_dp.client.http_api import SECONDS, HttpApi, TokenRefused
from stream_dp.errors import UnknownMechanism, UsageError

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
        name = json.loads(api.send("GET", "/api/pipeline")).get("name")
        if name != self.pipeline:
            raise UsageError(
                f"--url: the engine at {self.url} does not run {self.pipeline} but another pipeline; "
                "`stream-dp run --serve` prints the address of its page when it starts"
            )
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            return api.send(method, path, body, headers)
        except TokenRefused:
            raise UsageError(
                "the engine refused this key's token; name the key it runs with (--key-file or STREAM_DP_KEY_FILE), or "
                "the analyst whose token it is (--analyst)"
            ) from None


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
