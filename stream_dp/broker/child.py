"""Run a program that cannot outlive its parent: `python child.py PARENT_PID PROGRAM ARGUMENT...`

This process becomes PROGRAM (same pid) after it has asked Linux to kill it when the thread that started it ends,
for whatever reason. On other systems it only becomes PROGRAM. This file is a script, not imported: it must start in
milliseconds and without this package, and a `preexec_fn` would run Python in a forked child of a threaded process.
"""

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def become(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before prctl
            sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 (no shell wanted)


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2:])
