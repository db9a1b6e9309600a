"""README's shell lines, word for word, in terminals: the first block at once, from `stream-dp broker` to the ledger.

Only the broker's port is another, and the pipeline's step is shorter: a reader waits for a minute, a test does not. The
lines of docs/live_series.md and docs/messages.md are typed one by one. What must fail is typed there too: lines
that were changed.
"""

import asyncio
import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from free_ports import free_port
from kafka.kafka_worlds import visible
from kafka.talking_worlds import producing

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
    main = "import sys; from stream_dp.__main__ import start; sys.argv[0] = 'stream-dp'; start()"
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


NAME = "orders"
CHANGED = (
    ("--keys DE,FR", "--keys DE,XX"),
    ("ask orders busy", "ask orders bussy"),
    ("--analyst ann", "--analyst anne"),
    ("--via kafka", "--via kafke"),
)


class Reader:
    """Somebody who does what the pages say, in a folder."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._environment = environment(folder)
        self.port = free_port()
        self.page = Page("README.md", self.port)
        self.live = Page("docs/live_series.md", self.port)
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.first = self.page.block("stream-dp broker --port")

    def terminal(self, name: str) -> Terminal:
        made = Terminal(self.folder, name, self._environment)
        self._stack.callback(made.close)
        return made

    def writes(self) -> None:
        pipeline = self.page.fenced("yaml").replace("step: 1m", "step: 1s")
        analysts = self.live.said(r"\n    (analysts: .*?) +#")
        (self.folder / "orders.yaml").write_text(
            pipeline.replace("epsilon: 2}", f"epsilon: 2, {analysts}}}")
        )
        (self.folder / "large.yaml").write_text(self.live.file("name: large"))

    def begins(self) -> PastedTerminal:
        """Paste the first block; `run` then runs in the terminal that is returned, and the broker in its background."""
        self.writes()
        mine = PastedTerminal(self.folder, "engine", self._environment)
        self._stack.callback(mine.close)
        mine.paste(self.first)
        mine.until("The page is at")
        assert "Waiting for Kafka at" in mine.log
        return mine

    def ends(self, engine: PastedTerminal) -> None:
        engine.interrupted()
        engine.paste(self.page.block("stream-dp ledger"))
        engine.until(r"The journal is complete, and its charges add up(?s:.*)\[ended: 0\]")
        assert engine.codes == [0] * (len(self.first) + 2), engine.log

    def operates(self, engine: PastedTerminal) -> None:
        """Type the operator's lines while the engine runs, in a terminal of their own."""
        mine = self.terminal("operator")
        mine.does(line_with(self.first, "export STREAM_DP_KEY_FILE"))
        url = engine.until(r"The page is at (\S+)")
        elsewhere = (
            "" if url.endswith(":8765") else f" --url {url}"
        )  # where another server has the port
        for line in self.live.block("stream-dp query preview"):
            command, hash_, comment = line.partition("  #")
            mine.does(command + elsewhere + hash_ + comment)
        mine.does(self.live.file("umask 077"))
        (self.folder / "ann.token").unlink()
        mine.does(Page("docs/messages.md", self.port).file("umask 077"))

    def asks(self, page: Page, name: str, changed: Sequence[tuple[str, str]] = ()) -> None:
        """Type an analyst's lines, in a terminal that has no key; asks wait for the first tick.

        Before the line that asks, it is typed with each of the changes, and each time it is wrong.
        """
        mine = self.terminal(name)
        asks = page.block(f"stream-dp query ask orders {name}")
        for line in [*page.block("export STREAM_DP_TOKEN_FILE"), *asks]:
            if "query ask" in line:
                asyncio.run(self.released(name))
                for old, new in changed:
                    assert old in line
                    assert mine.tries(line.replace(old, new))[0] == 2, mine.log
            said = mine.does(line)
            assert "query ask" not in line or "fired" in said

    async def released(self, series: str) -> None:
        async with asyncio.timeout(60):
            while True:
                if series in {one["series"] for one in await self.releases()}:
                    return
                await asyncio.sleep(0.1)

    async def releases(self) -> list[dict[str, object]]:
        found = await visible(self.bootstrap, f"{NAME}.releases")
        return [json.loads(one.value) for one in found]


@contextmanager
def reader(folder: Path) -> Iterator[Reader]:
    """A reader, whose terminals are closed at the end, the broker's last."""
    with ExitStack() as stack:
        yield Reader(folder, stack)


@asynccontextmanager
async def fed(one: Reader) -> AsyncIterator[None]:
    event = one.page.said(r"echo '(.*?)' \| stream-dp send").encode()

    async def feed() -> None:
        async with producing(one.bootstrap) as producer:
            while True:
                await producer.send_and_wait(NAME, event)
                await asyncio.sleep(0.02)

    feeding = asyncio.create_task(feed())
    try:
        yield
    finally:
        feeding.cancel()
        await asyncio.wait({feeding})


async def test_a_reader_who_types_the_lines_gets_what_they_promise(tmp_path: Path) -> None:
    with reader(tmp_path) as one:
        engine = await asyncio.to_thread(one.begins)
        async with fed(one):
            await asyncio.to_thread(one.operates, engine)
            await asyncio.to_thread(one.asks, one.live, "busy", CHANGED)
            await asyncio.to_thread(one.asks, Page("docs/messages.md", one.port), "often")
        await asyncio.to_thread(one.ends, engine)
        (shown,) = re.findall(r'^ {4}(\{"v":1.*\})$', one.page.text, re.MULTILINE)
        released = await one.releases()
        assert [*json.loads(shown)] == [*next(r for r in released if r["series"] == "orders")]
