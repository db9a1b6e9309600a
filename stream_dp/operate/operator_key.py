"""The operator's key of a pipeline: named by a flag, then by the environment; one is made for public data only."""

import os
from pathlib import Path

from stream_dp.broker.places import state_dir
from stream_dp.errors import UsageError
from stream_dp.journal.keys import Sealer, make_key, read_key
from stream_dp.pipeline.file.spec import PipelineSpec

KEY_VARIABLE = "STREAM_DP_KEY_FILE"


def key_at(path: Path) -> bool:
    """Make a key there, and return whether it was made: one that is there stays.

    Raises:
        UsageError: something else is there.
        WorldError: none can be made there.
    """
    if path.exists():
        read_key(path)
        return False
    make_key(path)
    return True


def sealer_for(spec: PipelineSpec, key_file: Path | None) -> Sealer:
    """The operator's key: flag, then STREAM_DP_KEY_FILE; a public source may have one made for it.

    Raises:
        UsageError: no key, or one that others can read.
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
