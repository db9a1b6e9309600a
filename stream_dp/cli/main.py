"""The command line `stream-dp`: one file per command, errors for people, the exit codes of README.

Rules: a `StreamDPError` prints its message and exits with its code; anything else is a bug of ours and prints where
it happened but not what it held, because exception texts can carry data.
"""

import sys
import traceback

import typer

from stream_dp import __version__
from stream_dp.cli.audit import audit
from stream_dp.cli.broker import broker
from stream_dp.cli.demo import demo
from stream_dp.cli.ledger import ledger
from stream_dp.cli.plan import plan
from stream_dp.cli.query import query
from stream_dp.cli.replay import replay
from stream_dp.cli.run import run
from stream_dp.cli.topic import topic
from stream_dp.errors import StreamDPError

BUG, INTERRUPTED = 1, 130

app = typer.Typer(
    help="Live, differentially private statistics from event topics.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (demo, plan, audit, run, replay, ledger, broker, topic):
    app.command()(command)
app.add_typer(query, name="query")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    *,
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Live, differentially private statistics from event topics."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(code_of(arguments))


def code_of(arguments: list[str] | None = None, commands: typer.Typer = app) -> int:
    """Run the command line and return its exit code."""
    try:
        commands(arguments)
    except StreamDPError as error:
        typer.echo(f"stream-dp: {error}", err=True)
        return error.exit_code
    except SystemExit as end:  # typer has said what there was to say
        return INTERRUPTED if isinstance(end.__context__, typer.Abort) else int(end.code or 0)
    except Exception as error:  # noqa: BLE001 - the last resort; its text may carry data
        typer.echo(_bug(error), err=True)
        return BUG
    return 0


def _bug(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    trail = "\n".join(f"  {f.filename}:{f.lineno} in {f.name}" for f in frames[-8:])
    what = f"a bug of ours ({type(error).__name__}); nothing uncommitted was released"
    return f"stream-dp: {what}. Please report:\n{trail}"
