"""Folders of this package on the user's machine.

Files that can be downloaded again are in the cache folder, data that must survive in the state folder.
`STREAM_DP_HOME` overrides both. Nothing here makes a folder.
"""

import os
from pathlib import Path

import platformdirs

_APP = "stream-dp"


def cache_dir() -> Path:
    """Return the folder for files that can be downloaded again."""
    return _under_home("cache") or Path(platformdirs.user_cache_dir(_APP, appauthor=False))


def state_dir() -> Path:
    """Return the folder for broker and demo data."""
    return _under_home("state") or Path(platformdirs.user_state_dir(_APP, appauthor=False))


def _under_home(name: str) -> Path | None:
    home = os.environ.get("STREAM_DP_HOME")
    return Path(home).expanduser().absolute() / name if home else None
