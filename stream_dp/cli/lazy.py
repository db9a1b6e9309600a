"""Groups of commands with complete help texts; one group imports a command only when it is invoked.

Rules: the command NAME is the attribute NAME (with _ for -) of the module `stream_dp.cli.commands.NAME`, a function
or a group. `--help` lists the texts of the table; a test compares these with the docstrings.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup
from typer.main import get_command


class WholeHelpGroup(TyperGroup):
    """A group whose help shows the text of each command in full, wrapped and not cut off."""

    def helps(self) -> Mapping[str, str]:
        texts = {name: command.help or "" for name, command in self.commands.items()}
        return {name: text.partition("\n\n")[0] for name, text in texts.items()}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.helps().items()))


class LazyGroup(WholeHelpGroup):
    """A group that takes the help texts of its commands from `table`, and imports a command when it is invoked."""

    table: ClassVar[Mapping[str, str]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Imported(self.table)

    def helps(self) -> Mapping[str, str]:
        return self.table

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.table)


class _Imported(Mapping[str, Any]):
    """A mapping from these names to commands; looking up a name imports its command."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        attribute = name.replace("-", "_")
        return _command(
            name, getattr(import_module(f"stream_dp.cli.commands.{attribute}"), attribute)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _command(name: str, found: Any) -> Any:
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name)(found)
        found = alone
    command = get_command(found)
    command.name = name
    return command
