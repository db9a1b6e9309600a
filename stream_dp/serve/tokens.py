"""Who may write: holders of the operator's token, or of an analyst's.

Rules: a token is compared with every one there is, in a time that says nothing of where they differ, before a byte of
the body is read. It is never repeated.
"""

import hmac
from collections.abc import Mapping

from fastapi.requests import HTTPConnection
from fastapi.security import HTTPBearer

from stream_dp.serve.refusals import Refused

OPERATOR = ""


class Token(HTTPBearer):
    """Lets those through who hold a token, and says whose it is: the operator's ("") or the analyst's name."""

    def __init__(self, token: str, analysts: Mapping[str, str]) -> None:
        super().__init__(
            scheme_name="token",
            description="What `stream-dp query token PIPELINE.yaml` prints for the holder of the operator key, or what "
            "it prints for an analyst (`--analyst NAME`), who pays from her own ledger.",
        )
        self._tokens = {OPERATOR: token.encode()}
        self._tokens |= {name: each.encode() for name, each in analysts.items()}

    async def __call__(self, request: HTTPConnection) -> str:  # type: ignore[override]
        """Return whose token the request has.

        Raises:
            Refused: nobody's.
        """
        given = request.headers.getlist("authorization")
        scheme, _, secret = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        said = secret.strip().encode()
        whose = [name for name, token in self._tokens.items() if hmac.compare_digest(said, token)]
        if scheme.lower() != "bearer" or not whose:
            raise Refused(
                401,
                "needs `Authorization: Bearer TOKEN`; `stream-dp query token PIPELINE.yaml` prints it for the holder "
                "of the operator key",
            )
        return whose[0]
