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
        "demo": "Show real flight departures, live and private, in the browser. Ctrl-C stops; a new start continues.",
        "init": "Look at a sample of your records and write a first pipeline file; it marks what you have to declare.",
        "key": "Make the operator's key in FILE, which nobody else can read (mode 0600); rotate it.",
        "schema": "Print the JSON Schema of a pipeline file, with which an editor completes its keys and marks "
        "mistakes.",
        "plan": "Show what PIPELINE.yaml guarantees, why, and how large its errors will be.",
        "check": "Show which records of a sample PIPELINE.yaml could not use, and why, before any budget is spent. NOT "
        "PRIVATE.",
        "simulate": "Say how large PIPELINE.yaml's errors are at several budgets, on data that you may look at. "
        "NOT PRIVATE.",
        "audit": "Attack PIPELINE.yaml's mechanisms, alone and together: do they reveal one event too well?",
        "run": "Run PIPELINE.yaml until stopped; a restart continues at the end of the journal.",
        "worker": "Read a part of PIPELINE.yaml's topic for its engine, on this machine or any other; start as many as "
        "you like.",
        "flink": "Print the Flink SQL for a cluster that reads the lanes of PIPELINE.yaml, as workers do.",
        "replay": "Send FILE (CSV, JSON lines or Parquet, .gz or not) to a topic, by time, with a mark for each tick.",
        "apply": "Make the running engine use the changed PIPELINE.yaml: it adds and ends series, in one commit.",
        "ledger": "Show what was charged to PIPELINE.yaml's budget and check its journal from end to end.",
        "journal": "Keep in an archive what `journal: keep` deletes from PIPELINE.yaml's journal.",
        "dead-letters": "List the records that PIPELINE.yaml could not use: why, how many, where. NOT PRIVATE.",
        "doctor": "Check brokers, login, rights, topics, clocks, key and disk for PIPELINE.yaml; say how to fix them.",
        "rows": "Check the rows that workers, or an engine of your own, wrote for a pipeline.",
        "export": "Write the releases of PIPELINE.yaml into PostgreSQL, DuckDB, Parquet or CSV, one row per number.",
        "page": "Serve the page of PIPELINE.yaml, or of all files in DIR, from published releases, without the engine.",
        "broker": "Start a real, local Apache Kafka; needs neither Docker nor an installed Java.",
        "send": "Send the records of FILE (CSV or JSON lines, - for standard input) into a topic, which stamps them as "
        "they come.",
        "topic": "Create topic NAME, ready for the events of a pipeline.",
        "token": "Make, list and revoke tokens: PIPELINE.yaml's analysts ask with theirs, on the page, over HTTP or by "
        "Kafka; readers read where the operator closed reading (`--access`).",
        "query": "Preview, create, halt, list and ask the series of a running engine, and watch in its monitors.",
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
    what = f"a bug of ours ({type(error).__name__}); nothing uncommitted was released"
    return f"stream-dp: {what}. Please report:\n{trail}"
