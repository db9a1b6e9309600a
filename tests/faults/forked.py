"""Command lines run in processes forked from a warm one: the imports are paid once a session, a kill is as real.

The warm process is the standard library's fork server, one per pytest process. It imports every module of the
package and does nothing else: no thread, no event loop and no noise stream is there when it forks. What a
forked run spares is Python's start and the imports, so each file that kills also starts some runs by exec.
"""

import multiprocessing
import os
import pkgutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from fcntl import F_GETFL, F_SETFL, F_SETPIPE_SZ, fcntl
from io import TextIOWrapper
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Protocol

import stream_dp

AHEAD = 16
"""How many lines a run that is paced may be ahead of who reads them: some ticks, and more than a moment."""
_WARM = multiprocessing.get_context("forkserver")
_WARM.set_forkserver_preload(
    [module.name for module in pkgutil.walk_packages(stream_dp.__path__, "stream_dp.")]
)


class Run(Protocol):
    """What tests use of a process, forked or `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...
    @property
    def stdout(self) -> IO[str] | None: ...
    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...
    def communicate(self) -> tuple[str, str]: ...


class Forked:
    """A forked run of `stream-dp ARGUMENTS`, or of the test kit's command line, in the working directory of now.

    Args:
        arguments: what follows the program's name.
        environment: all of its environment.
        kit: the command line of `python -m stream_dp.testing`.
        patch: Python source that is executed first, to break the engine.
        paced: it stops where it has printed some lines (`AHEAD`) that nobody has read yet.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        kit: bool = False,
        patch: str = "",
        paced: bool = False,
    ) -> None:
        reader, writer = _WARM.Pipe(duplex=False)
        handle, name = tempfile.mkstemp(prefix="stream-dp-stderr-")
        os.close(handle)
        self._errors = Path(name)
        self._process = _WARM.Process(
            target=_work,
            args=(writer, name, tuple(arguments), dict(environment), kit, patch, paced),
            daemon=True,  # a test that fails leaves nothing behind
        )
        self._process.start()
        writer.close()
        self.stdout: IO[str] = TextIOWrapper(os.fdopen(os.dup(reader.fileno()), "rb"))
        reader.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code once it has ended, minus a signal's number where one killed it."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, sig: int) -> None:
        if self._process.exitcode is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self._process.kill()

    @property
    def errors(self) -> str:
        """What it has said on stderr so far."""
        return self._errors.read_text()

    def communicate(self) -> tuple[str, str]:
        """Wait for its end; what it printed and has not been read yet, on stdout and stderr."""
        with self.stdout:
            out = self.stdout.read()
        self._process.join()
        errors = self._errors.read_text()
        self._errors.unlink()
        return out, errors


def pace() -> None:
    """Let standard output, a pipe, hold so many lines only (`AHEAD`): each takes a page of it."""
    fcntl(1, F_SETFL, fcntl(1, F_GETFL) | os.O_DIRECT)
    fcntl(1, F_SETPIPE_SZ, AHEAD * os.sysconf("SC_PAGE_SIZE"))


def _work(
    out: Connection,
    errors: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    kit: bool,
    patch: str,
    paced: bool,
) -> None:
    """Be the command line: in the forked process."""
    os.dup2(out.fileno(), 1)
    out.close()
    if paced:
        pace()
    with Path(errors).open("ab") as file:
        os.dup2(file.fileno(), 2)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, closefd=False) for number in (1, 2))
    os.environ.clear()
    os.environ.update(environment)
    exec(patch, {"__name__": "patch"})  # noqa: S102 - a test's own words
    from stream_dp.cli.main import app, code_of
    from stream_dp.testing.__main__ import app as kit_app

    sys.exit(code_of(list(arguments), kit_app if kit else app))
