"""The operator's key, and the tokens made from it: the operator's own, and analysts' (`stream-dp token`).

Rules: a flag overrides the environment, and a token overrides a key. Neither is ever an argument or the value of a
variable.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from stream_dp.broker.jars import state_dir
from stream_dp.engine.messages.issued_tokens import IssuedToken, IssuedTokens
from stream_dp.errors import UsageError
from stream_dp.journal.keys import Sealer, make_key, read_key, read_token
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load, load_as
from stream_dp.records.endpoints import SqliteJournalSpec
from stream_dp.server.access import OPEN, Access

KEY_VARIABLE = "STREAM_DP_KEY_FILE"


def key_at(path: Path) -> bool:
    """Make a key at `path` unless one is there already; return whether a key was made."""
    if path.exists():
        read_key(path)
        return False
    make_key(path)
    return True


def sealer_for(spec: PipelineSpec, key_file: Path | None) -> Sealer:
    """Return the sealer with the operator's key: from `key_file`, else from the file that STREAM_DP_KEY_FILE names.

    For public data a key is made if neither is given. Raises UsageError if there is no key, or others can read it.
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
    """Return the token in a file, or else the operator's token for the pipeline of `spec`."""
    if key_file is not None and token_file is not None:
        raise UsageError("--key-file and --token-file: name one of them")
    variable = None if key_file is not None else os.environ.get(TOKEN_VARIABLE)
    named = token_file or (Path(variable) if variable else None)
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
    """Return an analyst's token ("": the operator's) made from the key."""
    known = [person.name for person in spec.privacy.analysts]
    if analyst and analyst not in known:
        raise UsageError(
            f"--analyst: {spec.name} has no analyst of this name; `privacy.analysts` of its file names "
            f"{', '.join(known) or 'none'}"
        )
    return sealer_for(spec, key_file).query_token(analyst)


def issued_for(spec: PipelineSpec, sealer: Sealer | None) -> IssuedTokens:
    """Return the list of tokens that the operator has made for the analysts and readers of this pipeline.

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
    return IssuedTokens(path, sealer, [analyst.name for analyst in spec.privacy.analysts])


def access_of(file: Path | None, names: Iterable[str]) -> Access:
    """Return who may read by a file of access (None: everyone), and further host names."""
    access = OPEN if file is None else load_as(file, Access)
    return access.model_copy(update={"names": access.names.union(names)})


def require_analysts(access: Access, spec: PipelineSpec) -> None:
    """Raise UsageError if a user of the proxy is to be an analyst whom the pipeline does not name."""
    known = [analyst.name for analyst in spec.privacy.analysts]
    named = {} if access.proxy is None else access.proxy.analysts
    if unknown := sorted({*named.values()} - {*known}):
        raise UsageError(
            f"--access: proxy.analysts names {', '.join(unknown)}, but `privacy.analysts` of {spec.name} names "
            f"{', '.join(known) or 'none'}"
        )


class HandedToken(NamedTuple):
    """A token and its `state`; `secret` is its text, only when just made; `named_in` is the list's file."""

    id: str
    analyst: str
    made: str
    expires: str
    state: str
    named_in: Path
    secret: str = ""
    reader: str = ""


def hand_out(pipeline: Path, key_file: Path | None, analyst: str, days: int) -> HandedToken:
    """Make a token for an analyst; on return its entry in the list is durable."""
    tokens, now = _tokens(pipeline, key_file)
    made, secret = tokens.make(analyst, days, now)
    return _handed(tokens, made, now, secret)


def hand_out_reading(pipeline: Path, key_file: Path | None, reader: str, days: int) -> HandedToken:
    """Make a token with which a reader reads and never asks; on return its entry in the list is durable."""
    tokens, now = _tokens(pipeline, key_file)
    made, secret = tokens.make_reading(reader, days, now)
    return _handed(tokens, made, now, secret)


def take_back(pipeline: Path, key_file: Path | None, id_: str) -> HandedToken:
    """Revoke a token; durable on return."""
    tokens, now = _tokens(pipeline, key_file)
    return _handed(tokens, tokens.revoke(id_, now), now)


def handed_out(pipeline: Path, key_file: Path | None) -> list[HandedToken]:
    """Return all issued tokens in order of issue, without their secrets."""
    tokens, now = _tokens(pipeline, key_file)
    return [_handed(tokens, token, now) for token in tokens.all().values()]


def _handed(tokens: IssuedTokens, token: IssuedToken, now: int, secret: str = "") -> HandedToken:
    return HandedToken(
        token.id, token.analyst, token.made, token.expires, token.state(now), tokens.path, secret,
        token.reader,
    )  # fmt: skip


def _tokens(pipeline: Path, key_file: Path | None) -> tuple[IssuedTokens, int]:
    """Return the list of tokens, and the time now (ms)."""
    spec = load(pipeline)
    return issued_for(spec, sealer_for(spec, key_file)), time.time_ns() // 1_000_000
