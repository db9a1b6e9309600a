"""The shell lines of README.md and docs/messages.md as they stand there, and terminals in which they are typed.

Rules: nothing of a line is changed but the broker's port, which is a free one; a line that is not found is an error. A
terminal is one bash, so exports and variables stay; Ctrl-C reaches what runs in it. Into a pasted one all lines go at
once, as from a clipboard: it is an interactive bash with job control.
"""

import fcntl
import os
import re
import shlex
import signal
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from stream_dp.broker.jars import cache_dir

ROOT = Path(__file__).resolve().parents[2]
_PORT = "9092"
_SECONDS = 120.0


class Page:
    """A page of the repository, with another port of the broker."""

    def __init__(self, name: str, port: int) -> None:
        self.text = (ROOT / name).read_text().replace(_PORT, str(port))

    def block(self, first: str) -> list[str]:
        """The indented lines from the one that begins so to the next empty one; what goes on after `\\` is one."""
        (found,) = re.findall(
            rf"^ {{4}}{re.escape(first)}.*\n(?: {{4}}.*\n)*", self.text, re.MULTILINE
        )
        return textwrap.dedent(found).replace("\\\n", "").splitlines()

    def file(self, first: str) -> str:
        return "\n".join(self.block(first)) + "\n"

    def fenced(self, language: str) -> str:
        (found,) = re.findall(rf"```{language}\n(.*?)```", self.text, re.DOTALL)
        return str(found)

    def said(self, pattern: str) -> str:
        """What the only group of a pattern matches."""
        found = re.search(pattern, self.text)
        assert found is not None, pattern
        return found[1]


def line_with(lines: list[str], word: str) -> str:
    (found,) = (line for line in lines if word in line)
    return found


def environment(folder: Path) -> Mapping[str, str]:
    """That of somebody who has nothing of ours but the command and what was downloaded."""
    home = folder / "home"
    home.mkdir()
    cache_dir().mkdir(parents=True, exist_ok=True)
    (home / "cache").symlink_to(cache_dir())
    own = {name: value for name, value in os.environ.items() if not name.startswith("STREAM_DP_")}
    path = os.pathsep.join([str(_commands(folder)), own["PATH"]])
    modules = os.pathsep.join([str(ROOT), own.get("PYTHONPATH", "")])
    return {
        **own, "HOME": str(folder), "STREAM_DP_HOME": str(home), "PATH": path, "PYTHONPATH": modules,
        "COLUMNS": "200", "PYTHONUNBUFFERED": "1",
    }  # fmt: skip


def _commands(folder: Path) -> Path:
    """A folder with this tree's `stream-dp`, as its entry point runs it."""
    commands = folder / "bin"
    commands.mkdir()
    main = "import sys; from stream_dp.cli.start import start; sys.argv[0] = 'stream-dp'; start()"
    command = commands / "stream-dp"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "{main}" "$@"\n')
    command.chmod(0o755)
    return commands


class Printed:
    """What a terminal prints, which lies in `name`.log."""

    def __init__(self, folder: Path, name: str) -> None:
        self._log = folder / f"{name}.log"

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def until(self, pattern: str) -> str:
        """Wait until it was printed; what its group matches, or all of it."""
        end = time.monotonic() + _SECONDS
        while not (found := re.search(pattern, self.log)):
            assert time.monotonic() < end, f"no {pattern} in:\n{self.log}"
            time.sleep(0.05)
        return found[found.re.groups]


class Terminal(Printed):
    """A bash in a folder, into which lines are typed one after the other."""

    def __init__(self, folder: Path, name: str, environment: Mapping[str, str]) -> None:
        super().__init__(folder, name)
        with self._log.open("w") as log:
            self._bash = subprocess.Popen(
                ["bash", "--norc"], stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT,
                cwd=folder, env=dict(environment), text=True, start_new_session=True,
            )  # fmt: skip
        self._lines = 0

    def type(self, line: str) -> None:
        """Type a line; what it starts may run on."""
        assert self._bash.stdin is not None
        self._lines += 1
        self._bash.stdin.write(f"{line}\nprintf '\\n[line {self._lines} ended: %s]\\n' $?\n")
        self._bash.stdin.flush()

    def ended(self) -> int:
        """Wait for the end of the line that was typed last; its exit code."""
        return int(self.until(rf"\[line {self._lines} ended: (\d+)\]"))

    def does(self, line: str) -> str:
        """Type a line that works; what it printed."""
        code, said = self.tries(line)
        assert code == 0, f"{line}\n{said}"
        return said

    def tries(self, line: str) -> tuple[int, str]:
        """Type a line; its exit code and what it printed."""
        before = len(self.log)
        self.type(line)
        return self.ended(), self.log[before:]

    def ctrl_c(self) -> None:
        os.killpg(self._bash.pid, signal.SIGINT)

    def close(self) -> None:
        """End the bash and what it has started, cleanly if that is possible."""
        os.killpg(self._bash.pid, signal.SIGTERM)
        try:
            self._bash.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(self._bash.pid, signal.SIGKILL)
            self._bash.communicate()


class PastedTerminal(Printed):
    """A bash at a terminal of its own, into which many lines are pasted at once."""

    def __init__(self, folder: Path, name: str, environment: Mapping[str, str]) -> None:
        super().__init__(folder, name)
        self._keys, screen = os.openpty()
        mode = termios.tcgetattr(screen)
        mode[3] &= ~termios.ECHO  # only what is printed is to be in the log
        termios.tcsetattr(screen, termios.TCSANOW, mode)
        own = {**environment, "PS1": "", "PROMPT_COMMAND": r"printf '\n[ended: %s]\n' $?"}
        with self._log.open("w") as log:
            self._bash = subprocess.Popen(
                ["bash", "--norc", "--noprofile", "--noediting", "-i"],
                stdin=screen, stdout=log, stderr=subprocess.STDOUT, cwd=folder, env=own, start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            )  # fmt: skip
        os.close(screen)

    def paste(self, lines: Iterable[str]) -> None:
        os.write(self._keys, "".join(f"{line}\n" for line in lines).encode())

    @property
    def codes(self) -> list[int]:
        """The exit codes of all lines that ended, the empty one before the first too."""
        return [int(code) for code in re.findall(r"\[ended: (\d+)\]", self.log)]

    def interrupted(self) -> None:
        """Press Ctrl-C, which drops what was pasted and is not read yet, and wait for the prompt."""
        before = len(self.codes)
        os.write(self._keys, b"\x03")
        self.until(rf"(?:\[ended: \d+\](?s:.*?)){{{before + 1}}}")

    def close(self) -> None:
        """End what runs, in the background too, and the bash."""
        self.interrupted()
        self.paste(["kill $(jobs -p)", "wait", "exit"])
        try:
            self._bash.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._bash.kill()
            self._bash.wait()
        os.close(self._keys)
