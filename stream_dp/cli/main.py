"""The command line `stream-dp`: one file for commands of one kind, errors for people, the exit codes of README.

Rules: a `StreamDPError` prints its message and exits with its code. Any other exception is a bug: its place is
printed but not its text, because exception texts can contain data. The command NAME is the attribute NAME (with _ for
-) of the module `stream_dp.cli.commands.NAME`, a function or a group, which is imported when it is invoked. `--help`
lists the texts of the table; a test compares these with the docstrings. A command of `HOMES` lives in another module.
"""

import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer import Option
from typer.core import TyperGroup
from typer.main import get_command

from stream_dp import __version__
from stream_dp.errors import StreamDPError

BUG, INTERRUPTED = 1, 130
HOMES = {
    "simulate": "check",
    "apply": "query",
    "worker": "run",
    "flink": "run",
    "rows": "doctor",
    "token": "key",
    "journal": "ledger",
    "dead-letters": "ledger",
    "replay": "broker",
    "page": "export",
    "schema": "init",
    "topic": "broker",
    "send": "broker",
}  # each command beside those that do the same kind of work


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
        module = import_module(f"stream_dp.cli.commands.{HOMES.get(cmd_name, attribute)}")
        command = getattr(module, attribute)
        if not isinstance(command, typer.Typer):
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            alone.command(cmd_name)(command)
            command = alone
        made = get_command(command)
        made.name = cmd_name
        return made


class Commands(LazyGroup):
    """All commands of `stream-dp`."""

    table: ClassVar[Mapping[str, str]] = {
        "demo": "Show real flight departures, live and private, in the browser. Ctrl-C stops the demo; the next start "
        "continues it.",
        "init": "Write a first pipeline file from a sample of your records. The file marks what you must declare.",
        "key": "Make or rotate the operator's key, in a file that only its owner can read (mode 0600).",
        "schema": "Print the JSON Schema of a pipeline file. With it, an editor completes keys and marks mistakes.",
        "plan": "Show what PIPELINE.yaml guarantees, why, and how large its errors will be.",
        "check": "Show which records of a sample cannot be used, and why, before PIPELINE.yaml spends any budget. NOT "
        "PRIVATE.",
        "simulate": "Show how large PIPELINE.yaml's errors are at several budgets, on data that you may look at. "
        "NOT PRIVATE.",
        "audit": "Attack PIPELINE.yaml's mechanisms, one by one and together: do they reveal more about an event than "
        "claimed?",
        "run": "Run PIPELINE.yaml until it is stopped. A restart continues where the journal ends.",
        "worker": "Read a part of PIPELINE.yaml's topic for its engine. Start any number of workers, on any machines.",
        "flink": "Print Flink SQL with which a Flink cluster reads the lanes of PIPELINE.yaml, instead of workers.",
        "replay": "Send the records of FILE (CSV, JSON lines or Parquet) to a topic in order of time, and mark the "
        "end of each tick.",
        "apply": "Make the running engine use the changed PIPELINE.yaml: the engine adds and ends series in one "
        "commit.",
        "ledger": "Show what was charged to PIPELINE.yaml's budget and check its journal from end to end.",
        "journal": "Copy PIPELINE.yaml's journal to an archive before `journal: keep` deletes its old commits.",
        "dead-letters": "List the records that PIPELINE.yaml could not use: how many, where, and why. NOT PRIVATE.",
        "doctor": "Check brokers, login, rights, topics, clocks, key and disk for PIPELINE.yaml, and say how to fix "
        "each problem.",
        "rows": "Check the rows that workers, or an engine of your own, wrote for a pipeline.",
        "export": "Write the releases of PIPELINE.yaml into PostgreSQL, DuckDB, Parquet or CSV, one row per number.",
        "page": "Serve the page of PIPELINE.yaml, or of all pipeline files in DIR. It reads published releases and "
        "needs no engine.",
        "broker": "Start a real, local Apache Kafka. Neither Docker nor an installed Java is needed.",
        "send": "Send the records of FILE (CSV or JSON lines; - is standard input) to a topic, whose brokers stamp "
        "them on arrival.",
        "topic": "Create topic NAME, ready for the events of a pipeline.",
        "token": "Make, list and revoke tokens. With a token, an analyst of PIPELINE.yaml asks on the page, over "
        "HTTP or by Kafka, and a reader reads what the operator has closed to the public (`--access`).",
        "query": "Preview, create, halt, list and ask the series of a running engine, and add or end watches of its "
        "monitors.",
    }


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    *,
    version: bool = Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Live, differentially private statistics from event topics."""


def main(arguments: list[str] | None = None) -> None:
    sys.exit(code_of(arguments))


def code_of(arguments: list[str] | None = None, commands: typer.Typer = app) -> int:
    try:
        commands(arguments)
    except StreamDPError as error:
        typer.echo(f"stream-dp: {error}", err=True)
        return error.exit_code
    except SystemExit as end:  # typer has printed the message
        return INTERRUPTED if isinstance(end.__context__, typer.Abort) else int(end.code or 0)
    except Exception as error:  # noqa: BLE001 - the last resort; its text may carry data
        typer.echo(bug_line(error), err=True)
        return BUG
    return 0


def bug_line(error: Exception) -> str:
    """Return the place of a bug, without the exception's text."""
    frames = traceback.extract_tb(error.__traceback__)
    trail = "\n".join(f"  {f.filename}:{f.lineno} in {f.name}" for f in frames[-8:])
    what = (
        f"a bug in stream_dp ({type(error).__name__}). Nothing that was not committed was released"
    )
    return f"stream-dp: {what}. Please report:\n{trail}"
