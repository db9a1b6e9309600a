"""Ctrl-C: the first one ends a run after its commit, exit 0; a second one at once, 130; both can be continued."""

import signal
from pathlib import Path

import pytest

from faults.cases import Case, flights, seen
from faults.evidence import embedded
from faults.forked import Run

BLOCK = 6


def started(case: Case, anew: bool = False) -> Run:
    """A run that is at work, slowly."""
    run = case.start("--until-end", "--zero-noise", "--trace", "--dawdle", "20", anew=anew)
    assert seen(run, 30) == 30
    return run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_ends_after_the_commit_in_flight(tmp_path: Path, number: signal.Signals) -> None:
    case = flights(tmp_path, ticks=300, block=BLOCK)
    run = started(case, anew=number == signal.SIGINT)
    run.send_signal(number)
    _, errors = run.communicate()
    assert (run.returncode, errors.count("\n")) == (0, 1)
    assert "flights: " in errors
    left = embedded(case.journal, case.releases, case.key, case.expected.pipeline)
    ticks = sum(len(commit["ticks"]) for commit in left.commits)
    held_back = {"published"} if ticks % BLOCK else set()  # only whole blocks become public
    assert {line.partition(":")[0] for line in case.findings()} == {
        "ticks", "rows", "sequences", *held_back,
    }  # fmt: skip
    case.finish("--zero-noise")
    assert case.findings() == []


def test_the_second_ends_at_once(tmp_path: Path) -> None:
    """Both wait for a stopped process, so that no time passes between them (two SIGINT would be one)."""
    case = flights(tmp_path, ticks=300)
    run = started(case)
    for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
        run.send_signal(number)
    run.communicate()
    assert run.returncode == 130
    case.finish("--zero-noise")
    assert case.findings() == []
