"""Ctrl-C: the first one ends a run after its commit, exit 0; a second one at once, 130; both can be continued."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from faults.cases import Case, flights, seen, without_progress
from faults.forked import Run

BLOCK = 6
ENTRY = "from stream_dp.__main__ import start; start()"
HANG = """
import asyncio
from stream_dp.files.highwater import HighWater
from stream_dp.operate.run import running
running.STOPPING_S = 1.0
open, append = HighWater.open, HighWater.append
async def hang():
    print('hangs', flush=True)
    await asyncio.Event().wait()
async def recovery(journal):
    await hang()
async def commit(journal, commit, sealed):
    await (hang() if commit.sequence else append(journal, commit, sealed))
"""
HANGS = {"recovery": "HighWater.open = recovery", "commit": "HighWater.append = commit"}


def started(case: Case, anew: bool = False) -> Run:
    """A run that is at work and waits for its reader, so that it is not over before it is interrupted."""
    run = case.start("--until-end", "--zero-noise", "--trace", anew=anew, paced=True)
    assert seen(run, 30) == 30
    return run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_ends_after_the_commit_in_flight(tmp_path: Path, number: signal.Signals) -> None:
    case = flights(tmp_path, ticks=200, block=BLOCK)
    run = started(case, anew=number == signal.SIGINT)
    run.send_signal(number)
    _, errors = run.communicate()
    assert run.returncode == 0
    begun, done, hint = without_progress(errors).splitlines()
    assert begun.startswith("flights: a new ledger; counts the records of slice.csv from ")
    assert re.fullmatch(r"flights: [\d,]+ ticks?, [\d,]+ releases?", done)
    assert "shows how many records were counted, late or unusable" in hint
    ticks = sum(len(commit["ticks"]) for commit in case.left().commits)
    held_back = {"published"} if ticks % BLOCK else set()  # only whole blocks become public
    rules = {line.partition(":")[0] for line in case.findings()}
    assert rules == {"ticks", "rows", "sequences", *held_back}
    case.finish("--zero-noise")
    assert case.findings() == []


def test_the_second_ends_at_once(tmp_path: Path) -> None:
    """Both wait for a stopped process, so that no time passes between them (two SIGINT would be one)."""
    case = flights(tmp_path, ticks=200)
    run = started(case)
    for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
        run.send_signal(number)
    run.communicate()
    assert run.returncode == 130
    case.finish("--zero-noise")
    assert case.findings() == []


def until_it_listens(pid: int) -> None:
    """Wait until a process has a handler for SIGTERM: before that, only the interpreter runs."""
    while True:
        status = Path(f"/proc/{pid}/status").read_text()
        (caught,) = re.findall(r"SigCgt:\s+([0-9a-f]+)", status)
        if int(caught, 16) >> (signal.SIGTERM - 1) & 1:
            return


@pytest.mark.parametrize("after_ms", [0, 300, 1200])
def test_a_run_ends_well_from_the_first_moment_on(tmp_path: Path, after_ms: int) -> None:
    """While it imports, plans, recovers or runs: exit 0, not a word but its own."""
    case = flights(tmp_path, ticks=300, block=BLOCK)
    run = subprocess.Popen(
        [sys.executable, "-c", ENTRY, "run", str(case.pipeline)],
        env=case.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until_it_listens(run.pid)
    time.sleep(after_ms / 1000)
    run.send_signal(signal.SIGTERM)
    out, errors = run.communicate()
    assert (run.returncode, out) == (0, "")
    own = ("flights: ", "`stream-dp dead-letters ", f"All ticks of {case.pipeline} are released. ")
    lines = without_progress(errors).splitlines()
    assert [line for line in lines if not line.startswith(own)] == []


@pytest.mark.parametrize(("where", "code"), [("recovery", 0), ("commit", 5)])
def test_what_hangs_does_not_hold_the_end(tmp_path: Path, where: str, code: int) -> None:
    """A recovery without end is given up with 0, nothing was in flight; a commit without an answer is told, 5."""
    case = flights(tmp_path, ticks=50, block=BLOCK)
    run = case.start("--until-end", patch=HANG + HANGS[where])
    assert run.stdout is not None
    assert run.stdout.readline() == "hangs\n"
    run.send_signal(signal.SIGTERM)
    _, errors = run.communicate()
    assert run.returncode == code, errors
    assert ("was told to stop" in errors) == (code == 5)
    case.finish("--zero-noise")
