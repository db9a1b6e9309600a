"""Arguments and options that several commands share, alone and in groups."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_type_hints

import typer
from typer import Argument, Option

from stream_dp.cli.main import BUG, bug_line
from stream_dp.errors import StreamDPError
from stream_dp.operate.observe.lifecycle_log import TellEvent, lifecycle_log, silent, warnings_told


class LogForm(StrEnum):
    """The format of a long-lived command's stderr: text for people, or lines of JSON for programs."""

    TEXT = "text"
    JSON = "json"


LogFormat: TypeAlias = Annotated[
    LogForm,
    Option(
        "--log-format",
        help="Format of the messages on stderr: text for people, or json for programs (one line for each phase or "
        "tick).",
    ),
]


@contextmanager
def logged(pipeline: Path, form: LogForm) -> Iterator[TellEvent]:
    """Yield a function that logs the phases of a command on this file, and log its end; in text form log nothing."""
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


AsJson = Annotated[bool, Option("--json", help="Print one JSON object.")]
Proof = Annotated[
    bool,
    Option(
        "--proof", help="Show also why the guarantee holds: the derivation, as a tree of theorems."
    ),
]
UntilEnd = Annotated[bool, Option("--until-end", help="Stop at the horizon of a replay clock.")]
PipelineFile = Annotated[
    Path, Argument(metavar="PIPELINE.yaml", show_default=False, help="The pipeline file.")
]
KeyFile = Annotated[
    Path | None, Option("--key-file", help="The operator's 32-byte key (mode 0600).")
]
Bootstrap = Annotated[
    str, Option(help="Address of Kafka (host:port), as `stream-dp broker` prints it.")
]
Encoding = Annotated[
    str, Option(help="The encoding of a CSV file, such as utf-8, latin-1 or cp1252.")
]
Host = Annotated[
    str,
    Option(
        "--host",
        help="The address on which the page is served. For all addresses: 0.0.0.0, behind a proxy with TLS.",
    ),
]
AllowHost = Annotated[
    list[str] | None,
    Option(
        "--allow-host",
        metavar="NAME",
        show_default=False,
        help="Another host name under which clients may open the page. Can be given several times.",
    ),
]
AccessFile = Annotated[
    Path | None,
    Option(
        "--access",
        metavar="ACCESS.yaml",
        show_default=False,
        help="A file that states who may read the page and the API, which proxy names users, and where accesses are "
        "logged.",
    ),
]
Port = Annotated[
    int,
    Option(min=0, max=65535, help="Port of the page. If the port is in use, the next free port."),
]
Processes = Annotated[
    int | None,
    Option(
        "--processes",
        min=0,
        show_default=False,
        help="How many processes read a topic of several partitions. 0: one per processor. Default: as in the file.",
    ),
]


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose dataclass parameters became options, one per field: typer has no option groups."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    taken = list[inspect.Parameter]()
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            types = get_type_hints(groups[name], include_extras=True)
            taken += [_option(field.name, field.default, types) for field in fields(groups[name])]
        else:
            taken.append(parameter.replace(annotation=hints[name]))

    @wraps(command)
    def flat(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in taken}
    flat.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    return flat


def _option(name: str, default: Any, types: dict[str, Any]) -> inspect.Parameter:
    default = inspect.Parameter.empty if default is MISSING else default
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=types[name])


def say_on_stderr(line: str) -> None:
    typer.echo(line, err=True)
