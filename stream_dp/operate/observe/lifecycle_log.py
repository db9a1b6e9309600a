"""What a program says of its life in lines of JSON on stderr: every event and every field that may stand there.

Rules: what is not in `EVENTS` is not logged, it is a bug, and raises. An event says what phase begins, and of numbers
only what is public: the tick that was published, how many releases were exported, an address, an exit code. No content
of a record, no count of records, no offset, no lag, no duration. `error` and `warning` are our own texts, which keep to
the same (`errors`); of what another library logs only its name is told, for its text can carry data. Times are whole
seconds.
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
    """Takes an event of `EVENTS` with fields of it."""

    def __call__(self, event: str, /, **fields: str | int) -> None:
        """Take it."""
        ...


def silent(_event: str, /, **_fields: str | int) -> None:
    """Tell nobody."""


class UnlistedEvent(StreamDPError):
    """An event or a field that is on no list was to be logged: a bug of ours; it was not."""


def require_listed(_logger: object, _method: str, line: _Line) -> _Line:
    """Return the line as it is.

    Raises:
        UnlistedEvent: the event, or one of its fields, is not in `EVENTS`.
    """
    _, fields = EVENTS.get(line["event"], ("", None))
    if fields is None or line.keys() - fields - ALWAYS:
        raise UnlistedEvent("an event or a field that is not in `EVENTS` is not logged")
    return line


def lifecycle_log(file: str, out: TextIO | None = None) -> TellEvent:
    """Return what writes a line of JSON for each event of a program that was given this pipeline file, to stderr.

    Raises:
        UsageError: structlog is not installed.
    """
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
    """Tells our own warnings, and of those of libraries which of them has one."""

    def __init__(self, tell: TellEvent) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        """Tell it."""
        name = record.name.partition(".")[0]
        if name == _OWN:
            self._tell("warning", warning=record.getMessage())
        else:
            self._tell("warning", library=name)


@contextmanager
def warnings_told(tell: TellEvent) -> Iterator[None]:
    """While the context is open, what this process logs goes to `tell` and nowhere else."""
    root, handler = logging.getLogger(), _Warnings(tell)
    before: list[logging.Handler] = root.handlers[:]
    root.handlers[:] = [handler]
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.handlers[:] = before
