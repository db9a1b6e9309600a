"""The entry point of `stream-dp` and of `python -m stream_dp`: it handles signals before anything else is imported.

Rules: the imports of this module take no time. For commands other than `run` signals have their default effect.
"""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType


def end_early(arguments: Sequence[str]) -> None:
    """Let Ctrl-C and SIGTERM end a `run` with 0 until its engine handles them: before, there is nothing to finish."""
    if arguments[:1] == ["run"]:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: nothing is open that needs closing, and an import in progress cannot be unwound quietly."""
    os._exit(0)


def start() -> None:
    end_early(sys.argv[1:])
    from stream_dp.cli.main import main

    main()


if __name__ == "__main__":
    start()
