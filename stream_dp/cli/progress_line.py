"""The progress of a command in one line on stderr, once the command takes long.

On a terminal the line appears after two seconds, is redrawn in place and is removed at the end. A log gets a line
every ten seconds. Rules: only this file shows progress. Nothing goes to stdout. `say` prints messages during
progress and moves the line out of the way.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import TextIO

from stream_dp.core.wording import how_many

QUIET_S, EVERY_S, LOOK_S = 2.0, 10.0, 0.2
_WIDTH = 80
_EMPTY = "\r\x1b[K"


class Line:
    """A `Progress` on `out`: `look` shows it if it is due; `now` returns seconds."""

    def __init__(
        self, out: TextIO, now: Callable[[], float] = time.monotonic, *, silent: bool = False
    ) -> None:
        self._out, self._now, self._silent = out, now, silent
        self._redrawn = out.isatty() and os.environ.get("TERM") != "dumb"
        self._what, self._amount, self._began = "", "", now()
        self._quiet = QUIET_S if self._redrawn else EVERY_S
        self._first = self._due = self._began + self._quiet
        self._status: Callable[[], str | None] = lambda: None
        self._shown = ""
        self._lock = Lock()

    def __call__(self, what: str, done: int = 0, of: int = 0, unit: str = "", /) -> None:
        """Set the present activity and its progress; "" if there is nothing to wait for."""
        if what != self._what:
            self._what, self._began = what, self._now()
        self._amount = amount_text(done, of, unit)

    def follow(self, status: Callable[[], str | None]) -> None:
        """From now on show the result of `status`, on a terminal only; while it is None, show the activity."""
        self._status = status

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if not self._silent:
            self._draw(f"{text}\n")

    def look(self) -> None:
        now, status = self._now(), self._status()
        if self._silent or now < self._first:
            return
        if status is not None:
            self._due = now + self._quiet
            self._redraw(status)
        elif self._redrawn:
            self._redraw(self._text(now))
        elif self._what and now >= self._due:
            self.say(self._text(now))
            self._due = now + self._quiet

    def hide(self) -> None:
        """Clear the line on a terminal until the next `look`."""
        self._draw("")

    def _text(self, now: float) -> str:
        if not self._what:
            return ""
        parts = (self._amount, f"{now - self._began:.0f} s")
        return f"{self._what}: {', '.join(filter(None, parts))}"

    def _redraw(self, text: str) -> None:
        text = text[: _width(self._out) - 1]
        if self._redrawn and text != self._shown:
            self._draw(text, shown=text)

    def _draw(self, text: str, shown: str = "") -> None:
        """Write `text` in place of the line; `shown` is the new line, if it is one."""
        with self._lock:
            self._out.write(f"{_EMPTY if self._shown or shown else ''}{text}")
            self._out.flush()
            self._shown = shown


def amount_text(done: int, of: int, unit: str) -> str:
    """Return the progress in words.

    >>> amount_text(31, 100, "%"), amount_text(1200, 40000, "tick"), amount_text(7, 0, "file"), amount_text(0, 0, "")
    ('31 %', '1,200 of 40,000 ticks', '7 files', '')
    """
    if not unit:
        return ""
    if unit == "%":
        return f"{done} %"
    return f"{done:,} of {how_many(of, unit)}" if of else how_many(done, unit)


@contextmanager
def progress(what: str, *, silent: bool = False) -> Iterator[Line]:
    """Show the progress on stderr while the context is open; `what` is the first activity."""
    line, ended = Line(sys.stderr, silent=silent), Event()
    line(what)

    def looking() -> None:
        while not ended.wait(LOOK_S):
            line.look()

    thread = Thread(target=looking, name="stream-dp-progress", daemon=True)
    thread.start()
    try:
        yield line
    finally:
        ended.set()
        thread.join()
        line.hide()


def _width(out: TextIO) -> int:
    try:
        return os.get_terminal_size(out.fileno()).columns or _WIDTH
    except (OSError, ValueError):
        return _WIDTH
