"""Exit codes and messages of the command line: usage, help, errors of ours that show no data."""

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import typer

from stream_dp import __version__, errors
from stream_dp.cli.commands.plan import _fitting
from stream_dp.cli.main import HOMES, Commands, code_of, main
from stream_dp.journal.keys import make_key
from stream_dp.operate import budget_view
from stream_dp.operate.demo import flights_folder
from stream_dp.operate.init import pipeline_schema

Say = Callable[..., Any]
COMMANDS = (
    "demo", "init", "key", "schema", "plan", "check", "audit", "run", "replay", "ledger", "journal", "dead-letters",
    "worker", "rows", "flink", "apply", "token", "query", "doctor", "broker", "send", "topic", "export", "page",
    "simulate",
)  # fmt: skip


def test_the_package_runs_as_the_command() -> None:
    command = [sys.executable, "-m", "stream_dp", "plan"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")


def test_version_and_help(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    said = say("--version")
    assert (said.code, said.out.strip(), said.err) == (0, __version__, "")
    assert set(Commands.table) == set(COMMANDS)
    whole = " ".join(say("--help").out.split())
    assert all(f"{name} {text}" in whole for name, text in Commands.table.items())
    group = say("query", "--help").out
    names = ("create", "preview", "halt", "list", "ask", "watch", "unwatch", "token")
    assert all(f" {name} " in group for name in names)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_its_help_and_says_it_of_itself(say: Say, name: str) -> None:
    attribute = name.replace("-", "_")
    module = import_module(f"stream_dp.cli.commands.{HOMES.get(name, attribute)}")
    found = getattr(module, attribute)
    own = str(found.info.help) if isinstance(found, typer.Typer) else str(inspect.getdoc(found))
    assert " ".join(own.partition("\n\n")[0].split()) == Commands.table[name]
    said = say(name, "--help")
    assert (said.code, said.err) == (0, "")
    assert f"Usage: stream-dp {name}" in said.out or f"{name} [OPTIONS]" in said.out


@pytest.mark.parametrize(
    ("typed", "meant"), [(("plna",), "'plan', 'replay'"), (("query", "lst"), "'list'")]
)
def test_an_unknown_command_is_guessed(say: Say, typed: tuple[str, ...], meant: str) -> None:
    said = say(*typed)
    assert said.code == 2
    assert f"Did you mean {meant}?" in said.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("frobnicate",), "frobnicate"),
        (("plan",), "PIPELINE.yaml"),
        (("plan", "a.yaml", "--nope"), "--nope"),
        (("run", "a.yaml", "--port", "http"), "--port"),
        (("plan", "nowhere.yaml"), "nowhere.yaml: this file does not exist"),
        (("replay", "a.csv"), "--topic"),
        (("broker", "--nodes", "2"), "1 or 3 nodes, not 2"),
    ],
)
def test_bad_usage_is_2(say: Say, arguments: tuple[str, ...], named: str) -> None:
    said = say(*arguments)
    assert said.code == 2
    assert named in said.err
    assert "bug" not in said.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError("x"), 2),
        (errors.NotDerivable("x"), 2),
        (errors.BudgetRefused("x"), 3),
        (errors.FailClosed("x"), 4),
        (errors.WorldError("x"), 5),
        (errors.StreamDPError("x"), 1),
        (KeyboardInterrupt(), 130),
        (typer.Abort(), 130),
        (RuntimeError("x"), 1),
        (SystemExit(None), 0),
    ],
)
def test_exit_codes(error: BaseException, code: int) -> None:
    kit = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

    @kit.command()
    def fail() -> None:
        raise error

    assert code_of([], kit) == code


def test_a_bug_shows_its_place_and_no_data(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(secret: object) -> None:
        raise ValueError(f"row 123456 of {secret}") from KeyError("alice@example.org")

    monkeypatch.setattr(budget_view, "load", fail)
    said = say("plan", "secret.yaml")
    assert said.code == 1
    assert "a bug in stream_dp (ValueError)" in said.err
    assert "test_main.py" in said.err
    assert "in fail" in said.err
    assert not any(private in said.err for private in ("123456", "alice", "secret.yaml"))
    assert said.out == ""


REPLAY = """\
version: 1
name: views
source: {kind: kafka, topic: views, bootstrap: "127.0.0.1:9"}
schema: {time: {type: time}}
privacy: {epsilon: 1}
clock: CLOCK
series: [{name: views, statistic: count, epsilon: 1}]
"""
CLOCK = "{kind: replay, field: time, start: 2024-05-01T00:00:00Z, step: 1h, horizon: 6}"


@pytest.mark.parametrize(
    ("change", "arguments", "named"),
    [
        ((), ("--speed", "0"), "--speed"),
        ((), ("--speed", "nan"), "--speed"),
        ((), ("--create", "-1"), "--create"),
        ((), ("--pipeline", "none.yaml"), "none.yaml"),
        ((CLOCK, "{kind: wall, step: 1s}"), (), "clock: {kind: replay"),
        (('kafka, topic: views, bootstrap: "127.0.0.1:9"', "file, path: a.csv"), (), "kind: kafka"),
        ((), ("--key-file", "none.key"), "no operator key at none.key"),
        ((), ("--key-file", "KEY"), "events.csv: no such file"),
    ],
)
def test_replay_refuses(
    say: Say, tmp_path: Any, change: tuple[str, str], arguments: tuple[str, ...], named: str
) -> None:
    path = tmp_path / "views.yaml"
    text = REPLAY.replace("CLOCK", CLOCK)
    path.write_text(text.replace(*change) if change else text)
    make_key(tmp_path / "KEY")
    arguments = tuple(str(tmp_path / "KEY") if one == "KEY" else one for one in arguments)
    given = arguments if "--pipeline" in arguments else ("--pipeline", str(path), *arguments)
    said = say("replay", str(tmp_path / "events.csv"), "--topic", "views", *given)
    assert said.code == 2
    assert named in said.err


def test_json_is_one_line_of_stdout_and_nothing_else(say: Say) -> None:
    said = say("plan", str(flights_folder() / "pipeline.yaml"), "--json")
    assert (said.code, said.err, said.out.count("\n")) == (0, "", 1)
    assert json.loads(said.out)["epsilon"] == 2
    said = say("schema")
    assert (said.code, said.err, json.loads(said.out)) == (0, "", pipeline_schema())


def test_the_plan_says_what_analysts_have_of_what_is_spent(site: Any) -> None:
    """Else it is spent, and no series has it."""
    site.write("epsilon: 1}", "epsilon: 2, analysts: [{name: ann, epsilon: 0.1}]}")
    words = "the budgets of analysts count as spent: ann 0.1"
    assert words in site.command("plan").out
    site.write()
    assert "analysts" not in site.command("plan").out


def test_ticks_have_room_or_are_left_out_the_last_one_never() -> None:
    told = {0: ["7"], 3: ["8"], 10: ["9"], 335: ["1,234,567"]}
    found = [_fitting(told, room) for room in (100, 34, 21, 0)]
    assert found == [[0, 3, 10, 335], [0, 10, 335], [0, 335], [335]]
