"""Where `stream-dp` begins: signals are answered before anything else is imported.

Rules: what is imported here takes no time. `run` ends well at any moment: before its engine is there to be told, there
is nothing to finish. Other commands are ended by signals as the system does it.
"""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType


def end_early(arguments: Sequence[str]) -> None:
    """From now on, until an engine takes the signals over, let Ctrl-C and SIGTERM end a `run` with 0."""
    if arguments[:1] == ["run"]:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    """Nothing is open that would want to be closed, and an import in progress cannot be unwound quietly."""
    os._exit(0)


def start() -> None:
    """Answer signals, then run the command line and leave with its exit code."""
    end_early(sys.argv[1:])
    from stream_dp.cli.main import main

    main()
