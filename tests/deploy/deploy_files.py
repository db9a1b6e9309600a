"""Where deploy/ lies, the linters that come from the lock, and what our own commands take."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer
import typer.main

from stream_dp.cli.commands.broker import topic
from stream_dp.cli.commands.export import page
from stream_dp.cli.commands.run import run, worker
from stream_dp.operate.run.running import GIVING_BACK_S, STOPPING_S

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def mutated(text: str, old: str, new: str) -> str:
    assert old in text, old
    return text.replace(old, new, 1)


def worktree(folder: Path) -> str:
    """Return git's name of the tree as it is now, with what is not committed; its index lies in `folder`."""
    environment = {**os.environ, "GIT_INDEX_FILE": str(folder / "git.index")}
    for command in (["read-tree", "HEAD"], ["add", "--all"], ["write-tree"]):
        ended = subprocess.run(
            ["git", *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
    return ended.stdout.strip()


ENDS_WITHIN_S = STOPPING_S + GIVING_BACK_S + 5
"""A supervisor waits at least so long before it kills an engine."""
COMMANDS: dict[str, Callable[..., Any]] = {
    "run": run,
    "worker": worker,
    "topic": topic,
    "page": page,
}


def said_by(tool: str, *arguments: str | Path) -> str:
    """What a linter finds; empty where it is content."""
    program = Path(sys.executable).parent / tool
    ended = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr or ("" if ended.returncode == 0 else "refused")


def unknown_words(line: Iterable[str]) -> list[str]:
    """What is wrong in a command line of ours, behind `stream-dp`: no command, or options that it does not have."""
    command, *words = line
    if command not in COMMANDS:
        return [command]
    app = typer.Typer()
    app.command()(COMMANDS[command])
    known = {name for each in typer.main.get_command(app).params for name in each.opts}
    return [word for word in words if word.startswith("--") and word not in known]
