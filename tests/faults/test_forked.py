"""Forked runs: from a warm process without noise, threads or loops; killed, stopped and read like any other."""

import os
import signal
import time
from pathlib import Path

import pytest

from faults.forked import AHEAD, Forked

WARM = "import sys; sys.exit(10 + ('stream_dp.cli.commands.run' in sys.modules))"
CLEAN = """
import asyncio, gc, sys, threading
from stream_dp.noise.bits import BitStream
from stream_dp.noise.stream import NoiseStream
found = [o for o in gc.get_objects() if isinstance(o, (NoiseStream, BitStream, asyncio.BaseEventLoop))]
sys.exit(len(found) + threading.active_count())
"""
WAITS = "import time; print('here', flush=True); time.sleep(1000)"
PRINTS = """
import os, sys
os.set_blocking(1, False)
for number in range(200):
    try:
        os.write(1, b"line\\n")
    except BlockingIOError:
        sys.exit(number)
sys.exit(200)
"""
SHOWS = "import os; print(os.getcwd(), sorted(os.environ)); raise SystemExit(3)"


@pytest.mark.parametrize(("patch", "code"), [(WARM, 11), (CLEAN, 1)], ids=["imports", "no more"])
def test_the_imports_and_nothing_else_are_done_before_the_fork(patch: str, code: int) -> None:
    run = Forked((), {}, patch=patch)
    assert run.communicate() == ("", "")
    assert run.returncode == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_signals_end_it(number: signal.Signals) -> None:
    run = Forked((), {}, patch=WAITS)
    assert run.stdout.readline() == "here\n"
    assert (run.poll(), run.pid != os.getpid()) == (None, True)
    run.send_signal(number)
    assert run.communicate() == ("", "")
    assert run.returncode == -number
    run.send_signal(number)  # nobody is there, and nobody else is hit


def test_it_has_its_own_environment_and_our_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Forked((), {"A": "1"}, patch=SHOWS)
    assert run.communicate() == (f"{tmp_path} ['A']\n", "")
    assert run.returncode == 3


@pytest.mark.parametrize(("paced", "lines"), [(True, AHEAD), (False, 200)])
def test_a_paced_run_is_some_lines_ahead_of_its_reader(paced: bool, lines: int) -> None:
    run = Forked((), {}, patch=PRINTS, paced=paced)
    while run.poll() is None:
        time.sleep(0.01)
    out, _ = run.communicate()
    assert (run.returncode, out) == (lines, "line\n" * lines)
