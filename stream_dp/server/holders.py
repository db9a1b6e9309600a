"""The holder of a token, as routes see it. This file knows neither HTTP nor the engine."""

from typing import NamedTuple

VALID = "valid"


class TokenHolder(NamedTuple):
    """An analyst ("": the operator), and id and expiry (RFC 3339 in UTC) of an issued token.

    `state` is "valid", "expired" or "revoked".
    """

    analyst: str
    token: str = ""
    expires: str = ""
    state: str = VALID
