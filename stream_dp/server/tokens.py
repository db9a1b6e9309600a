"""Who may write: holders of the operator's token, or of an analyst's.

Rules: a token is compared with the known ones in constant time, before a byte of the body is read, and is never
repeated in an answer. That a token is expired or revoked is told only to requests with this token.
"""

import hmac
from collections.abc import Callable, Mapping

from fastapi.requests import HTTPConnection
from fastapi.security import HTTPBearer

from stream_dp.server.refusals import Refused
from stream_dp.server.view import VALID, PublicView, TokenHolder

OPERATOR = ""
_NEEDED = (
    "needs `Authorization: Bearer TOKEN` with a token of this pipeline: the operator makes an analyst's with "
    "`stream-dp token PIPELINE.yaml --analyst NAME`, and prints the own one with `stream-dp query token PIPELINE.yaml`"
)
_UNKNOWN = "this is no token of this pipeline: see that it was copied whole, or ask the operator for another one"
_OVER: Mapping[str, str] = {
    "expired": "this token has expired; ask the operator for another one",
    "revoked": "this token was revoked; ask the operator for another one",
}


def bearer(request: HTTPConnection) -> str:
    """Return the token that a request shows; empty unless it has one `Authorization` header, of the kind `Bearer`."""
    given = request.headers.getlist("authorization")
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else ""


def is_same(shown: str, token: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(shown.encode(), token.encode())


class Token(HTTPBearer):
    """Accepts requests with a token of `view`, and returns the token's holder."""

    def __init__(self, view: PublicView) -> None:
        super().__init__(
            scheme_name="token",
            description="An analyst's token, which `stream-dp token PIPELINE.yaml --analyst NAME` makes for a time and "
            "`--revoke` takes back; she pays from her own ledger. Or the operator's, which `stream-dp query token "
            "PIPELINE.yaml` prints for the holder of the operator key.",
        )
        self._tokens = {OPERATOR: view.token, **view.analysts}
        self._issued: Callable[[str], TokenHolder | None] = view.issued

    async def __call__(self, request: HTTPConnection) -> TokenHolder:  # type: ignore[override]
        """Return the holder of the request's token; WorldError if the issued tokens cannot be looked up."""
        shown = bearer(request)
        if not shown:
            raise Refused(401, _NEEDED)
        known = [name for name, token in self._tokens.items() if is_same(shown, token)]
        holder = TokenHolder(known[0]) if known else self._issued(shown)
        if holder is None:
            raise Refused(401, _UNKNOWN)
        if holder.state != VALID:
            raise Refused(401, _OVER[holder.state])
        return holder
