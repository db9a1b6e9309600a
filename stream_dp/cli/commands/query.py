"""`stream-dp query`: preview, create, halt, list, ask and watch the series of a running engine.

Rules: the engine decides and charges. These commands send messages over HTTP or Kafka, with a token made from the
operator's key or with an analyst's own token.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.markup import escape
from typer import Argument, Option

from stream_dp.cli.main import WholeHelpGroup
from stream_dp.cli.options import KeyFile, PipelineFile, Proof, say_on_stderr, with_groups
from stream_dp.cli.printing import (
    answer_text,
    change_lines,
    derivation_tree,
    folding_table,
    given_back,
    name_text,
    promise_text,
    tick_text,
    watch_end_text,
    watch_text,
    wide_console,
)
from stream_dp.cli.progress_line import progress
from stream_dp.core.wording import how_many
from stream_dp.errors import BudgetRefused, MostlyNoise
from stream_dp.operate.query.remote_series import RemoteSeries, noise_lines, told_in, verdict_lines

if TYPE_CHECKING:
    from stream_dp.operate.query.remote_messages import RemoteMessages

_T = TypeVar("_T")
query = typer.Typer(
    cls=WholeHelpGroup,
    help="Preview, create, halt, list and ask the series of a running engine, and add or end watches of its monitors.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Series = Annotated[
    str,
    Option(
        metavar="JSON|@FILE",
        help="The series, as JSON or YAML in the form of an entry of `series:` in the pipeline file. Or @FILE, a "
        "file that holds it.",
    ),
]


class Via(StrEnum):
    HTTP = "http"
    KAFKA = "kafka"


Analyst = Annotated[
    str, Option(metavar="NAME", help="The analyst whose quota pays for the series.")
]
Id = Annotated[
    str,
    Option(
        "--id",
        metavar="ID",
        help="Id of the message. The same message with the same id gets the same answer. Default: a new id.",
    ),
]
Yes = Annotated[
    bool,
    Option(
        "--yes",
        help="Create the series or watch without asking, even if it would fire mostly because of noise.",
    ),
]
HERE = "http://127.0.0.1:8765"


@dataclass(frozen=True, slots=True)
class Asking:
    """Options: the engine, the analyst, and the form in which the answer is printed."""

    analyst: Analyst = ""
    via: Annotated[
        Via,
        Option(
            "--via",
            help="How to reach the engine: over HTTP (run --serve) or by Kafka. By Kafka, the pipeline's name can "
            "take the place of PIPELINE.yaml.",
        ),
    ] = Via.HTTP
    url: Annotated[
        str, Option(help="The engine's address, which the engine prints when it starts.")
    ] = HERE
    bootstrap: Annotated[
        str, Option(metavar="HOST:PORT", help="With --via kafka: the addresses of the brokers.")
    ] = ""
    key_file: KeyFile = None
    token_file: Annotated[
        Path | None,
        Option(
            "--token-file",
            help="The file of an analyst's token (mode 0600), instead of the operator's key.",
        ),
    ] = None
    as_json: Annotated[bool, Option("--json", help="Print the answer as one line of JSON.")] = False

    def engine(self, pipeline: Path) -> "RemoteSeries | RemoteMessages":
        keys = (self.key_file, self.token_file, self.analyst)
        if self.via is Via.HTTP:
            return RemoteSeries(pipeline, self.url, *keys, say_on_stderr)
        from stream_dp.operate.query.remote_messages import RemoteMessages  # not without Kafka

        return RemoteMessages(pipeline, self.bootstrap, *keys, say_on_stderr)

    def say(self, answer: Mapping[str, Any], text: str) -> None:
        """Print an answer as JSON if the options say so, else `text`."""
        typer.echo(json.dumps(answer) if self.as_json else text.format_map(_shown(answer)))


@query.command()
@with_groups
def create(pipeline: PipelineFile, *, series: Series, asking: Asking, yes: Yes = False) -> None:
    """Charge a new series to the budget, and start it at the next tick. Exit code 3: the series does not fit into the
    budget.

    A series that would fire mostly because of noise needs your confirmation.
    """
    engine = asking.engine(pipeline)
    asking.say(
        _confirmed(lambda accept: engine.create(series, accept_noise=accept), yes),
        "{name}: created, charged epsilon {epsilon}, left {left}. " + _START + _ERROR,
    )


@with_groups
def apply(pipeline: PipelineFile, *, asking: Asking, message: Id = "") -> None:
    """Make the running engine use the changed PIPELINE.yaml: the engine adds and ends series in one commit."""
    engine = asking.engine(pipeline)
    answer = _answered(lambda: engine.apply(pipeline, message))
    lines = json.dumps(answer) if asking.as_json else "\n".join(change_lines(answer))
    typer.echo(lines)


@query.command()
@with_groups
def preview(
    pipeline: PipelineFile, *, series: Series, asking: Asking, proof: Proof = False
) -> None:
    """Show the price, guarantee and errors of a series, without any change. Exit code 3: the series would not fit."""
    engine = asking.engine(pipeline)
    answer = _answered(lambda: engine.preview(series))
    asking.say(
        answer,
        "The series {fits} into the budget: it asks for epsilon {asked}; spent {spent}{unit}, left {left}; the "
        "largest epsilon that fits is {largest}. " + _ERROR,
    )
    if not asking.as_json:
        if "start" in answer:
            typer.echo(f"Start: tick {tick_text(answer, 'start')} at the earliest.")
        for line in (*verdict_lines(answer), *noise_lines(answer)):
            typer.echo(line)
        if "derivation" in answer:
            why = "" if proof else "; `--proof` shows why"
            typer.echo(
                f"Guarantee of this series alone: {promise_text(answer['derivation'])}{why}."
            )
            if proof:
                wide_console().print(derivation_tree(answer["derivation"]), highlight=False)
    if not answer.get("fits"):
        raise typer.Exit(BudgetRefused.exit_code)


@query.command()
@with_groups
def halt(
    pipeline: PipelineFile,
    name: Annotated[str, Argument(metavar="NAME", show_default=False)],
    *,
    asking: Asking,
    preview: Annotated[
        bool, Option("--preview", help="Show how much budget a halt would free, without halting.")
    ] = False,
) -> None:
    """End a series for good. Its budget becomes free again for later ticks (docs/filters.md)."""
    engine = asking.engine(pipeline)
    if preview:
        asking.say(
            _answered(lambda: engine.preview_halt(name)),
            "{name}: a halt gives back {back}. Left then: {left}.",
        )
    else:
        halted = _answered(lambda: engine.halt(name))
        back = ", gives back {back}" if "freed" in halted else ""
        end = "End: tick {end}, the first tick that the series does not see."
        asking.say(halted, f"{{name}}: halted{back}, left {{left}}. {end}")


@query.command("list")
@with_groups
def list_(pipeline: PipelineFile, *, asking: Asking) -> None:
    """Show every running series, from the file or created later, and the last twenty halted series of each ledger.

    `ledger` shows all series that ever ran. Over HTTP, this command needs no key. A series, or a watch of a monitor,
    sees the ticks from `start` up to, but not including, `end`.
    """
    queries = _answered(asking.engine(pipeline).queries)
    if asking.as_json:
        typer.echo(json.dumps({"queries": queries}))
        return
    columns = ("series", "statistic", "analyst", "epsilon", "start", "end")
    table = folding_table(*columns, right=("epsilon",))
    for series in queries:
        cells = [str(series.get(key) or "") for key in ("statistic", "analyst", "epsilon")]
        start, end = tick_text(series, "start"), tick_text(series, "end")
        table.add_row(*map(escape, [name_text(series), *cells, start, end]))
        for watch in series.get("watches") or ():
            start, end = tick_text(watch, "start"), watch_end_text(watch)
            cells = [f"  {watch['name']}", watch_text(watch), watch["analyst"], "", start, end]
            table.add_row(*map(escape, cells))
        if more := series.get("more_watches"):
            table.add_row(f"  and {how_many(more, 'older watch', 'older watches')}")
    wide_console().print(table)


@dataclass(frozen=True, slots=True)
class Selection:
    """Options: the part of the last release to ask for; without any, all of it."""

    keys: Annotated[str, Option(metavar="A,B", help="Only these keys of a histogram.")] = ""
    first: Annotated[str, Option("--from", help="The first key of a range of keys.")] = ""
    last: Annotated[str, Option("--to", help="The last key of a range of keys.")] = ""
    window: Annotated[str, Option(help="Only this window of a series with windows.")] = ""
    watch: Annotated[str, Option(help="With --threshold: the watch of a monitor.")] = ""
    threshold: Annotated[
        int | None,
        Option(help="With --watch: the threshold with which the watch's count is compared."),
    ] = None

    @property
    def parameters(self) -> dict[str, Any]:
        options = {
            "keys": self.keys.split(",") if self.keys else "",
            "from": self.first,
            "to": self.last,
            "window": self.window,
            "watch": self.watch,
            "threshold": self.threshold,
        }
        return {key: value for key, value in options.items() if value not in ("", None)}


@query.command()
@with_groups
def ask(
    pipeline: PipelineFile,
    series: Annotated[str, Argument(metavar="SERIES", show_default=False)],
    *,
    selection: Selection,
    name: Id = "",
    asking: Asking,
) -> None:
    """Ask a series for its last release, for all keys or some, or compare a monitor's watch with a threshold.

    --json prints exactly the bytes of the published answer.
    """
    engine = asking.engine(pipeline)
    line = _answered(lambda: engine.ask(series, selection.parameters, name))
    typer.echo(line.decode() if asking.as_json else answer_text(series, *told_in(line)))


_Monitor = Annotated[str, Argument(metavar="SERIES", show_default=False)]


@query.command()
@with_groups
def watch(
    pipeline: PipelineFile,
    series: _Monitor,
    *,
    watch: Annotated[
        str,
        Option(
            metavar="JSON|@FILE",
            help="The watch, as JSON or YAML in the form of an entry of a monitor's `watch:`. Or @FILE, a file that "
            "holds it.",
        ),
    ],
    name: Id = "",
    asking: Asking,
    yes: Yes = False,
) -> None:
    """Add a watch to a running monitor. A watch counts whole ticks, and costs no further budget.

    A watch that would fire mostly because of noise needs your confirmation.
    """
    engine = asking.engine(pipeline)
    asking.say(
        _confirmed(lambda accept: engine.watch(series, watch, name, accept_noise=accept), yes),
        "{watch}: added to {series}. Start: tick {start}, the first tick that the watch sees.",
    )


@query.command()
@with_groups
def unwatch(
    pipeline: PipelineFile,
    series: _Monitor,
    watch: Annotated[str, Argument(metavar="WATCH", show_default=False)],
    *,
    name: Id = "",
    asking: Asking,
) -> None:
    """End a watch of a monitor. The releases of the watch stay."""
    engine = asking.engine(pipeline)
    asking.say(
        _answered(lambda: engine.unwatch(series, watch, name)),
        "{watch}: ended in {series}. End: tick {end}, the first tick that the watch does not see.",
    )


@query.command("token")
def own_token(pipeline: PipelineFile, *, analyst: Analyst = "", key_file: KeyFile = None) -> None:
    """Print the operator's token, or an analyst's token. Who holds the token can spend the budget: protect it like the
    key.
    """
    typer.echo(RemoteSeries(pipeline, key_file=key_file, analyst=analyst).token())


_START = "Start: tick {start}, the first tick that the series sees. "
_ERROR = "Expected error: ± {error} at tick {error_tick} with {confidence} confidence{supposing}."
_AMOUNTS = (
    "name", "epsilon", "start", "end", "asked", "spent", "left", "largest", "error", "error_tick", "confidence",
    "series", "watch", "back",
)  # fmt: skip


def _answered(asking: Callable[[], _T]) -> _T:
    """Return the engine's answer and show progress: the engine executes a message at a tick's end."""
    with progress("Waiting for the engine's answer"):
        return asking()


def _confirmed(asking: Callable[[bool], _T], yes: bool) -> _T:
    """Return the engine's answer; with --yes, or if a person confirms it, also for a series of mostly noise."""
    try:
        return _answered(lambda: asking(yes))
    except MostlyNoise as refusal:
        if not sys.stdin.isatty():
            raise MostlyNoise(f"{refusal} (--yes)") from None
        typer.echo(str(refusal), err=True)
        if not typer.confirm("Create it all the same?", err=True):
            raise
    return _answered(lambda: asking(True))


def _shown(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer for the texts: "?" for a missing amount, and a unit if that is not epsilon."""
    shown: dict[str, Any] = {**dict.fromkeys(_AMOUNTS, "?"), **answer}
    shown |= {key: tick_text(answer, key) for key in ("start", "end") if key in answer}
    if "freed" in answer:
        shown["back"] = given_back(answer)
    shown["supposing"] = f", {answer['supposing']}" if answer.get("supposing") else ""
    shown["fits"] = "fits" if answer.get("fits") else "does not fit"
    unit = answer.get("unit", "epsilon")
    shown["unit"] = "" if unit == "epsilon" else f" {unit}"
    if "confidence" in answer:
        shown["confidence"] = f"{answer['confidence'] * 100:g}%"
    return shown
