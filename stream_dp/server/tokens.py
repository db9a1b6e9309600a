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


class Token(HTTPBearer):
    """Accepts requests with a token of `view`, and returns the token's holder."""

    def __init__(self, view: PublicView) -> None:
        super().__init__(
            scheme_name="token",
            description="An analyst's token, which `stream-dp token PIPELINE.yaml --analyst NAME` makes for a time and "
            "`--revoke` takes back; she pays from her own ledger. Or the operator's, which `stream-dp query token "
            "PIPELINE.yaml` prints for the holder of the operator key.",
        )
        self._tokens = {OPERATOR: view.token.encode()}
        self._tokens |= {name: each.encode() for name, each in view.analysts.items()}
        self._issued: Callable[[str], TokenHolder | None] = view.issued

    async def __call__(self, request: HTTPConnection) -> TokenHolder:  # type: ignore[override]
        """Return the holder of the request's token.

        Raises:
            Refused: the token is unknown, expired or revoked.
            WorldError: the issued tokens cannot be looked up.
        """
        given = request.headers.getlist("authorization")
        scheme, _, said = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        holder = self._holder(said.strip()) if scheme.lower() == "bearer" else None
        if holder is None:
            raise Refused(401, _UNKNOWN if said else _NEEDED)
        if holder.state != VALID:
            raise Refused(401, _OVER[holder.state])
        return holder

    def _holder(self, said: str) -> TokenHolder | None:
        shown = said.encode()
        whose = [name for name, token in self._tokens.items() if hmac.compare_digest(shown, token)]
        return TokenHolder(whose[0]) if whose else self._issued(said)
