"""Makes, lists and revokes analysts' tokens by the operator's key: the work of `stream-dp token`."""

import time
from pathlib import Path
from typing import NamedTuple

from stream_dp.engine.messages.issued_tokens import IssuedToken, IssuedTokens
from stream_dp.operate.operator_key import sealer_for
from stream_dp.operate.query.query_token import issued_for
from stream_dp.pipeline.file.yaml import load


class HandedToken(NamedTuple):
    """A token and its `state`; `secret` is its text, only when just made; `named_in` is the list's file."""

    id: str
    analyst: str
    made: str
    expires: str
    state: str
    named_in: Path
    secret: str = ""


def hand_out(pipeline: Path, key_file: Path | None, analyst: str, days: int) -> HandedToken:
    """Make a token for an analyst; on return its entry in the list is durable.

    Raises:
        UsageError: the analyst is unknown, or the number of days is not allowed.
        FailClosed, WorldError: the list is damaged, or cannot be written.
    """
    tokens, now = _tokens(pipeline, key_file), _now()
    made, secret = tokens.make(analyst, days, now)
    return _handed(tokens, made, now, secret)


def take_back(pipeline: Path, key_file: Path | None, id_: str) -> HandedToken:
    """Revoke a token; durable on return.

    Raises:
        UsageError: no token has this id, or it was revoked before.
        FailClosed, WorldError: see `hand_out`.
    """
    tokens, now = _tokens(pipeline, key_file), _now()
    return _handed(tokens, tokens.revoke(id_, now), now)


def handed_out(pipeline: Path, key_file: Path | None) -> list[HandedToken]:
    """Return all issued tokens in order of issue, without their secrets; raises as `hand_out`."""
    tokens, now = _tokens(pipeline, key_file), _now()
    return [_handed(tokens, one, now) for one in tokens.all().values()]


def _handed(tokens: IssuedTokens, one: IssuedToken, now: int, secret: str = "") -> HandedToken:
    return HandedToken(
        one.id, one.analyst, one.made, one.expires, one.state(now), tokens.path, secret
    )


def _tokens(pipeline: Path, key_file: Path | None) -> IssuedTokens:
    spec = load(pipeline)
    return issued_for(spec, sealer_for(spec, key_file))


def _now() -> int:
    return time.time_ns() // 1_000_000
