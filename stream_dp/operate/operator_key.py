"""The operator's key of a pipeline: from a flag, then from the environment; made only for public data."""

import os
from pathlib import Path

from stream_dp.broker.places import state_dir
from stream_dp.errors import UsageError
from stream_dp.journal.keys import Sealer, make_key, read_key
from stream_dp.pipeline.file.spec import PipelineSpec

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
