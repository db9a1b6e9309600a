"""Arguments and options that several commands share, alone and in groups."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

PipelineFile = Annotated[
    Path,
    typer.Argument(metavar="PIPELINE.yaml", show_default=False, help="The pipeline file."),
]
KeyFile = Annotated[
    Path | None, typer.Option("--key-file", help="The operator's 32-byte key (mode 0600).")
]
Bootstrap = Annotated[
    str, typer.Option(help="Address of Kafka (host:port), as `stream-dp broker` prints it.")
]
Host = Annotated[
    str,
    typer.Option(
        "--host", help="Address to serve the page on; 0.0.0.0 for all, behind a proxy with TLS."
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        metavar="NAME",
        show_default=False,
        help="A further name by which clients may call the page; may be given several times.",
    ),
]
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="Port of the page; the next free one if taken.")
]


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the fields of its dataclass parameters as options: typer has no option groups."""
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
    """Print a line on stderr."""
    typer.echo(line, err=True)
