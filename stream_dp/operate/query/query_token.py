"""The token for asking an engine: an analyst's from a file, the operator's made from the key.

Rules: a flag overrides the environment, and a token overrides a key. Neither is ever an argument or the value of a
variable. The list of tokens made for analysts lies beside a journal file, else in the user's state folder;
`STREAM_DP_TOKEN_LIST` names another place, which engine, standby and operator must share.
"""

import os
from pathlib import Path

from stream_dp.broker.places import state_dir
from stream_dp.engine.messages.issued_tokens import IssuedTokens
from stream_dp.errors import UsageError
from stream_dp.journal.keys import Sealer, read_token
from stream_dp.operate.operator_key import sealer_for
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.records.endpoints import SqliteJournalSpec

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
    """Return the token of an analyst of this pipeline ("": the operator), made from the key.

    Raises:
        UsageError: there is no key, or the analyst is unknown.
    """
    known = [one.name for one in spec.privacy.analysts]
    if analyst and analyst not in known:
        raise UsageError(
            f"--analyst: {spec.name} has no analyst of this name; `privacy.analysts` of its file names "
            f"{', '.join(known) or 'none'}"
        )
    return sealer_for(spec, key_file).query_token(analyst)


def issued_for(spec: PipelineSpec, sealer: Sealer) -> IssuedTokens:
    """Return the list of tokens that the operator has made for the analysts of this pipeline."""
    named = os.environ.get(LIST_VARIABLE)
    if named:
        path = Path(named)
    elif isinstance(spec.journal, SqliteJournalSpec):
        path = spec.journal.path.with_name(f"{spec.journal.path.name}.tokens")
    else:
        path = state_dir() / "tokens" / f"{spec.name}.tokens"
    return IssuedTokens(path, sealer, [one.name for one in spec.privacy.analysts])
