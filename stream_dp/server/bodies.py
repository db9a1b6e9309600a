"""Request bodies, and the keys that make requests safe to repeat.

Rules: a body is JSON of at most 64 KiB. Reading stops at that limit. The body is passed on unchanged and never
repeated in an answer.
"""

import re
from typing import Annotated

from fastapi import Header, Request

from stream_dp.server.live_series import LARGEST_DEFINITION
from stream_dp.server.refusals import Refused

_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


async def json_body(request: Request) -> bytes:
    """Return the body unchanged.

    Raises:
        Refused: its content type is not JSON, or it is too large; reading stops at the limit.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, "the body must be a JSON object, with Content-Type: application/json")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_DEFINITION:
            raise Refused(413, f"the body must not be larger than {LARGEST_DEFINITION} bytes")
    return bytes(body)


def request_key(
    idempotency_key: Annotated[
        str,
        Header(
            description="Makes the request safe to repeat: under the same key it is done once, for a day. 1 to 64 of "
            "the characters A-Z a-z 0-9 _ . -"
        ),
    ] = "",
) -> str:
    """Return the key of a request; empty if it has none.

    Raises:
        Refused: the key is not valid.
    """
    if idempotency_key and _KEY.fullmatch(idempotency_key) is None:
        raise Refused(422, "Idempotency-Key: must be 1 to 64 of the characters A-Z a-z 0-9 _ . -")
    return idempotency_key
