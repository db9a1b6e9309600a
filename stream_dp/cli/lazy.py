"""Groups of commands with complete help texts; one group imports a command only when it is invoked.

Rules: the command NAME is the attribute NAME (with _ for -) of the module `stream_dp.cli.commands.NAME`, a function
or a group. `--help` lists the texts of the table; a test compares these with the docstrings.
"""

from collections.abc import Mapping
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
        self.commands: Any = dict.fromkeys(self.table)  # only names, for help and suggestions

    def helps(self) -> Mapping[str, str]:
        return self.table

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.table:
            return None
        attribute = cmd_name.replace("-", "_")
        command = getattr(import_module(f"stream_dp.cli.commands.{attribute}"), attribute)
        if not isinstance(command, typer.Typer):
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            alone.command(cmd_name)(command)
            command = alone
        made = get_command(command)
        made.name = cmd_name
        return made
