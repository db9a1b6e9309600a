"""The log of a program's phases as lines of JSON on stderr: the list of all events and their fields.

Rules: an event that is not in `EVENTS` is not logged; it is a bug and raises. An event names the phase that begins.
Its only numbers are public ones: the published tick, how many releases were exported, an address, an exit code. It
contains no content of a record, no count of records, no offset, no lag and no duration. `error` and `warning` are
our own texts, which follow the same rule (`errors`). Of another library's log message only the library's name is
logged, because the text can contain data. Times are whole seconds.
"""

import logging
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, Protocol, TextIO, TypeAlias

from stream_dp.errors import StreamDPError, UsageError

ALWAYS = frozenset({"event", "level", "file", "time"})
"""The fields of every line."""
EVENTS: Mapping[str, tuple[str, frozenset[str]]] = {
    "starting": ("info", frozenset({"pipeline", "version"})),
    "standing by": ("info", frozenset()),
    "ledger": ("info", frozenset({"ledger", "origin", "tick"})),
    "running": ("info", frozenset()),
    "ready": ("info", frozenset({"url"})),
    "operator port": ("info", frozenset({"url"})),
    "traces": ("info", frozenset({"url"})),
    "tick published": ("info", frozenset({"tick"})),
    "exported": ("info", frozenset({"releases"})),
    "catching up": ("warning", frozenset()),
    "taken over": ("warning", frozenset()),
    "warning": ("warning", frozenset({"warning", "library"})),
    "stopping": ("info", frozenset()),
    "stopped": ("info", frozenset({"exit_code", "error"})),
}
"""Each event with its level and the fields that it may have."""
_OWN = "stream_dp"
_Line: TypeAlias = MutableMapping[str, Any]


class TellEvent(Protocol):
    """A function that logs an event of `EVENTS` with its fields."""

    def __call__(self, event: str, /, **fields: str | int) -> None: ...


def silent(_event: str, /, **_fields: str | int) -> None: ...


class UnlistedEvent(StreamDPError):
    """A bug: the program tried to log an event or a field that is not on the list. Nothing was logged."""


def require_listed(_logger: object, _method: str, line: _Line) -> _Line:
    """Return the line unchanged; raise UnlistedEvent if the event, or one of its fields, is not in `EVENTS`."""
    _, fields = EVENTS.get(line["event"], ("", None))
    if fields is None or line.keys() - fields - ALWAYS:
        raise UnlistedEvent("an event or a field that is not in `EVENTS` is not logged")
    return line


def lifecycle_log(file: str, out: TextIO | None = None) -> TellEvent:
    """Return a function that writes each event to stderr as a line of JSON; raise UsageError without structlog."""
    try:
        import structlog
    except ImportError:
        raise UsageError("logs in JSON need structlog: pip install 'stream_dp[serve]'") from None
    stamp = structlog.processors.TimeStamper(fmt="%Y-%m-%dT%H:%M:%SZ", utc=True, key="time")
    log = structlog.wrap_logger(
        structlog.WriteLogger(out or sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            stamp,
            require_listed,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
        wrapper_class=structlog.BoundLogger,
        file=file,
    )

    def tell(event: str, /, **fields: str | int) -> None:
        level, _ = EVENTS.get(event, ("error", None))
        if fields.get("exit_code"):
            level = "error"
        getattr(log, level)(event, **fields)

    return tell


class _Warnings(logging.Handler):
    """Reports our own warnings with their text, and other libraries' warnings with the library's name only."""

    def __init__(self, tell: TellEvent) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        name = record.name.partition(".")[0]
        if name == _OWN:
            self._tell("warning", warning=record.getMessage())
        else:
            self._tell("warning", library=name)


@contextmanager
def warnings_told(tell: TellEvent) -> Iterator[None]:
    """While the context is open, send the log records of this process to `tell` and nowhere else."""
    root, handler = logging.getLogger(), _Warnings(tell)
    before: list[logging.Handler] = root.handlers[:]
    root.handlers[:] = [handler]
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.handlers[:] = before
