"""The operator's key, and the tokens made from it: the operator's own, and analysts' (`stream-dp token`).

Rules: a flag overrides the environment, and a token overrides a key. Neither is ever an argument or the value of a
variable.
"""

import os
import time
from pathlib import Path
from typing import NamedTuple

from stream_dp.broker.jars import state_dir
from stream_dp.engine.messages.issued_tokens import IssuedToken, IssuedTokens
from stream_dp.errors import UsageError
from stream_dp.journal.keys import Sealer, make_key, read_key, read_token
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.records.endpoints import SqliteJournalSpec

KEY_VARIABLE = "STREAM_DP_KEY_FILE"


def key_at(path: Path) -> bool:
    """Make a key at `path` unless one is there already; return whether a key was made.

    Raises:
        UsageError: the file at `path` is not a key.
        WorldError: the key cannot be written.
    """
    if path.exists():
        read_key(path)
        return False
    make_key(path)
    return True


def sealer_for(spec: PipelineSpec, key_file: Path | None) -> Sealer:
    """Return the sealer with the operator's key: from `key_file`, else from the file that STREAM_DP_KEY_FILE names.

    For public data a key is made if neither is given.

    Raises:
        UsageError: there is no key, or other users can read it.
    """
    named = key_file or (Path(os.environ[KEY_VARIABLE]) if os.environ.get(KEY_VARIABLE) else None)
    if named is not None:
        return Sealer(read_key(named), spec.name)
    if not spec.public_data:
        raise UsageError(
            f"{spec.name} needs an operator key: make one with `stream-dp key`, and name it with --key-file or "
            f"{KEY_VARIABLE}"
        )
    made = state_dir() / "keys" / f"{spec.name}.key"
    return Sealer(read_key(made) if made.exists() else make_key(made), spec.name)


LIST_VARIABLE = "STREAM_DP_TOKEN_LIST"
TOKEN_VARIABLE = "STREAM_DP_TOKEN_FILE"  # noqa: S105 - the name of a file


def token_for(spec: PipelineSpec | None, key_file: Path | None, token_file: Path | None) -> str:
    """Return the token in a file, or else the operator's token for the pipeline of `spec`.

    Raises:
        UsageError: there is neither token nor key, or others can read it.
    """
    if key_file is not None and token_file is not None:
        raise UsageError("--key-file and --token-file: name one of them")
    told = None if key_file is not None else os.environ.get(TOKEN_VARIABLE)
    named = token_file or (Path(told) if told else None)
    if named is not None:
        return read_token(named)
    if spec is None:
        raise UsageError(
            f"without the pipeline file an analyst's token is needed: --token-file or {TOKEN_VARIABLE}"
        )
    try:
        return sealer_for(spec, key_file).query_token()
    except UsageError as error:
        raise UsageError(
            f"{error}. An engine that runs takes no key but the one it was started with"
        ) from None


def token_of(spec: PipelineSpec, key_file: Path | None, analyst: str) -> str:
    """Return an analyst's token ("": the operator's) made from the key; raise UsageError if either is missing."""
    known = [one.name for one in spec.privacy.analysts]
    if analyst and analyst not in known:
        raise UsageError(
            f"--analyst: {spec.name} has no analyst of this name; `privacy.analysts` of its file names "
            f"{', '.join(known) or 'none'}"
        )
    return sealer_for(spec, key_file).query_token(analyst)


def issued_for(spec: PipelineSpec, sealer: Sealer) -> IssuedTokens:
    """Return the list of tokens that the operator has made for the analysts of this pipeline.

    It lies beside a journal file, else in the user's state folder. `STREAM_DP_TOKEN_LIST` names another place, which
    engine, standby and operator must share.
    """
    named = os.environ.get(LIST_VARIABLE)
    if named:
        path = Path(named)
    elif isinstance(spec.journal, SqliteJournalSpec):
        path = spec.journal.path.with_name(f"{spec.journal.path.name}.tokens")
    else:
        path = state_dir() / "tokens" / f"{spec.name}.tokens"
    return IssuedTokens(path, sealer, [one.name for one in spec.privacy.analysts])


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
