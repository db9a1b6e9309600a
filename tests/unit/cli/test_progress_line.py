"""The one line of progress: nothing under two seconds, redrawn on a terminal, seldom in a log, never on stdout."""

import asyncio
import fcntl
import os
import re
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TextIO, cast

import pytest
from unit.cli.conftest import HORIZON, Site

import stream_dp.cli.progress_line as module
from stream_dp.broker.process import LocalKafka
from stream_dp.cli.commands import broker as command
from stream_dp.cli.progress_line import EVERY_S, QUIET_S, Line, progress
from stream_dp.core.wording import percent
from stream_dp.errors import WorldError

REDRAW = "\r\x1b[K"


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class Screen(StringIO):
    """What says that it is a terminal, of no known width."""

    def isatty(self) -> bool:
        return True


@contextmanager
def pseudo_terminal(columns: int = 0) -> Iterator[tuple[TextIO, Callable[[], str]]]:
    master, slave = os.openpty()
    if columns:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    os.set_blocking(master, False)

    def written() -> str:
        found = b""
        while True:
            try:
                found += os.read(master, 65536)
            except BlockingIOError:
                return found.decode().replace("\r\n", "\n")

    with os.fdopen(slave, "w") as terminal:
        try:
            yield terminal, written
        finally:
            os.close(master)


@pytest.mark.parametrize("out", [StringIO, Screen])
def test_nothing_is_said_under_two_seconds(out: Callable[[], StringIO]) -> None:
    clock, screen = Clock(), out()
    line = Line(screen, clock)
    for part in range(10):
        line("Reading", part, 10, "tick")
        line.look()
        clock.seconds += QUIET_S / 10 - 0.001
    line.hide()
    assert screen.getvalue() == ""


def test_a_log_has_a_line_now_and_then() -> None:
    clock, log = Clock(), StringIO()
    line = Line(log, clock)
    line("Reading the journal")
    for second in range(25):
        line("Reading the journal", *percent(second, 50))
        line.look()
        clock.seconds += 1
    assert log.getvalue().splitlines() == [
        f"Reading the journal: {2 * seconds} %, {seconds} s" for seconds in (10, 20)
    ]
    assert EVERY_S == 10


def test_a_terminal_has_one_line_that_is_gone_at_the_end() -> None:
    clock, screen = Clock(), Screen()
    line = Line(screen, clock)
    line("Opening")
    clock.seconds += 3
    line.look()
    line.look()  # nothing new
    line("Feeding clicks", 1200, 40_000, "tick")
    line.look()
    line.say("Warning")
    clock.seconds += 1
    line.look()
    line.hide()
    drawn = ["", "Opening: 3 s", "Feeding clicks: 1,200 of 40,000 ticks, 0 s", "Warning\n"]
    drawn += ["Feeding clicks: 1,200 of 40,000 ticks, 1 s", ""]
    assert screen.getvalue() == REDRAW.join(drawn)


def test_what_is_followed_is_for_terminals_and_the_step_after_it_is_quiet_first() -> None:
    for out in (StringIO(), Screen()):
        clock, status = Clock(), ["5 ticks"]
        line = Line(out, clock)
        line("Reading")
        line.follow(lambda status=status: status[0] if status else None)  # type: ignore[misc]
        clock.seconds += 60
        line.look()
        assert out.getvalue() == (f"{REDRAW}5 ticks" if out.isatty() else "")
        status.clear()
        line("Catching up")
        clock.seconds += 1
        line.look()
        if not out.isatty():
            assert out.getvalue() == ""
            clock.seconds += EVERY_S
            line.look()
            assert out.getvalue() == "Catching up: 11 s\n"


@pytest.mark.parametrize(
    ("out", "step", "silent"), [(Screen, "Reading", True), (StringIO, "", False)]
)
def test_lines_without_a_step_say_nothing(
    out: Callable[[], StringIO], step: str, silent: bool
) -> None:
    clock, screen = Clock(), out()
    line = Line(screen, clock, silent=silent)
    line(step)
    clock.seconds += 3600
    line.look()
    line.hide()
    assert screen.getvalue() == ""


def test_a_line_is_cut_to_its_terminal() -> None:
    with pseudo_terminal(columns=20) as (terminal, written):
        clock = Clock()
        line = Line(terminal, clock)
        line("A long name of a step that goes on")
        clock.seconds += 60
        line.look()
        assert written() == f"{REDRAW}A long name of a st"


@pytest.mark.parametrize("command", [("run", "--until-end"), ("dead-letters",)])
def test_no_step_of_a_run_tells_of_records(
    site: Site, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    site.command("run", "--until-end")
    told: list[tuple[object, ...]] = []
    called = Line.__call__

    def call(self: Line, *each: object) -> None:
        told.append(each)
        called(self, *each)  # type: ignore[arg-type]

    monkeypatch.setattr(Line, "__call__", call)
    site.command(*command)
    assert len(told) > 1
    records = 4 * HORIZON
    assert not any(records in each for each in told)
    assert {unit for _, _, _, unit in (each for each in told if len(each) == 4)} <= {"%", ""}


def test_an_error_leaves_the_terminal_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET_S", 0)

    def broken() -> None:
        with progress("Reading") as line:
            line.look()
            raise ValueError("broken")

    with pseudo_terminal() as (terminal, written):
        monkeypatch.setattr(sys, "stderr", terminal)
        with pytest.raises(ValueError, match="broken"):
            broken()
        assert written().endswith(REDRAW)


BEGINS = "Starting Kafka: "


class Slow:
    """A Kafka that is ready once `lines` lines were said, and then dies."""

    bootstrap = "127.0.0.1:1"

    def __init__(self, said: pytest.CaptureFixture[str], lines: int) -> None:
        self._said = said
        self._lines = lines
        self.errors = ""
        self.stopped = False

    async def start(self) -> None:
        async with asyncio.timeout(120):
            while self.errors.count(BEGINS) < self._lines:
                await asyncio.sleep(0)
                self.errors += self._said.readouterr().err

    async def watch(self) -> None:
        raise WorldError("died")

    async def stop(self) -> None:
        self.stopped = True


@pytest.mark.parametrize("lines", [0, 3])
async def test_a_slow_start_tells_its_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lines: int
) -> None:
    if lines:
        for name in ("QUIET_S", "EVERY_S", "LOOK_S"):
            monkeypatch.setattr(module, name, 0.001)
    slow = Slow(capsys, lines)
    with pytest.raises(WorldError, match="died"):
        await command._run(cast("LocalKafka", slow))
    out, last = capsys.readouterr()
    said = (slow.errors + last).splitlines()
    assert said[-1] == "Kafka is ready; Ctrl-C stops it"
    assert len(said) - 1 >= lines
    assert all(re.fullmatch(rf"{BEGINS}\d+ s", line) for line in said[:-1])
    assert (out, slow.stopped) == ("127.0.0.1:1\n", True)


def test_a_checkout_says_where_the_broker_of_before_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nowhere(_: object) -> None:
        raise WorldError("no network")

    monkeypatch.setattr(command, "resolve_jars", nowhere)
    monkeypatch.setattr(command, "local_dir", lambda: tmp_path / "own")
    monkeypatch.setattr(command, "state_dir", lambda: tmp_path)
    said = []
    for _ in range(2):
        with pytest.raises(WorldError, match="no network"):
            command.broker()
        said.append(capsys.readouterr().err)
        (tmp_path / "broker").mkdir(exist_ok=True)
    assert "--data-dir" not in said[0]
    assert f"--data-dir {tmp_path / 'broker'} continues the earlier one" in said[1]
