"""`--log-format json`: stderr of a long-lived command as lines of JSON for programs."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from stream_dp.cli.main import BUG, bug_line
from stream_dp.errors import StreamDPError
from stream_dp.operate.observe.lifecycle_log import TellEvent, lifecycle_log, silent, warnings_told


class LogForm(StrEnum):
    """The format of stderr: text for people or JSON for programs."""

    TEXT = "text"
    JSON = "json"


LogFormat: TypeAlias = Annotated[
    LogForm,
    typer.Option(
        "--log-format",
        help="What stderr is for: text for people, json for programs (phases and ticks, a line each).",
    ),
]


@contextmanager
def logged(pipeline: Path, form: LogForm) -> Iterator[TellEvent]:
    """Yield a function that logs the phases of a command on this file, and log its end; in text form log nothing.

    Raises:
        typer.Exit: the command ended with an error, which was logged; in text form the error itself is raised.
    """
    if form is LogForm.TEXT:
        yield silent
        return
    tell = lifecycle_log(str(pipeline))
    with warnings_told(tell):
        try:
            yield tell
        except StreamDPError as error:
            tell("stopped", exit_code=error.exit_code, error=str(error))
            raise typer.Exit(error.exit_code) from None
        except Exception as error:  # noqa: BLE001 - the last resort; its text may carry data
            tell("stopped", exit_code=BUG, error=bug_line(error))
            raise typer.Exit(BUG) from None
        tell("stopped", exit_code=0)
