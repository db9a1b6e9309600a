"""The systemd unit: systemd knows every directive, exit codes are those of stream_dp.errors, there is time to end.

Rules: `systemd-analyze` judges the text; no unit is started. Where it is missing that test is skipped, unless
STREAM_DP_REQUIRE names systemd. Every check is shown a unit that is broken on purpose.
"""

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from deploy.deploy_files import DEPLOY, ENDS_WITHIN_S, mutated, unknown_words

from stream_dp import errors
from stream_dp.operate.run.running import INTERRUPTED
from stream_dp.testing.kafka import missing

NAME = "stream-dp@.service"
UNIT = (DEPLOY / "systemd" / NAME).read_text()
AGAIN = {errors.WorldError.exit_code}
"""What may be other the next time, with nobody doing anything."""


def said_by_systemd(unit: str, folder: Path) -> str:
    """What `systemd-analyze verify` says of it; its program is one that this machine has."""
    if shutil.which("systemd-analyze") is None:
        missing("systemd", "no systemd-analyze")
    file = folder / NAME
    file.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit, flags=re.MULTILINE))
    command = ["systemd-analyze", "verify", "--man=no", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr or ("" if ended.returncode == 0 else "refused")


def test_systemd_knows_it_all(tmp_path: Path) -> None:
    assert said_by_systemd(UNIT, tmp_path) == ""
    broken = mutated(UNIT, "RestartPreventExitStatus=", "RestartPreventExitStatuses=")
    assert said_by_systemd(broken, tmp_path) != ""


def values(unit: str, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit, re.MULTILINE)


def codes() -> set[int]:
    """Every exit code that an engine ends with, but for success."""
    found, every = set(), [errors.StreamDPError]
    while every:
        kind = every.pop()
        found.add(kind.exit_code)
        every += kind.__subclasses__()
    return found | {INTERRUPTED}


def restarts(unit: str) -> str:
    kept = {int(code) for code in " ".join(values(unit, "RestartPreventExitStatus")).split()}
    if values(unit, "Restart") != ["on-failure"]:
        return "it is not tried again after a failure, or also after a success"
    if codes() - kept != AGAIN or kept - codes():
        return f"it is tried again on {sorted(codes() - kept)}"
    return "" if values(unit, "StartLimitIntervalSec") == ["0"] else "it gives up in an outage"


def ends(unit: str) -> str:
    (seconds,) = values(unit, "TimeoutStopSec")
    if float(seconds) < ENDS_WITHIN_S:
        return "it is killed before it has ended"
    return "" if values(unit, "KillSignal") == ["SIGTERM"] else "no signal that ends it"


def environment(unit: str) -> list[str]:
    return [word for line in values(unit, "Environment") for word in shlex.split(line)]


def starts(unit: str) -> str:
    (line,) = values(unit, "ExecStart")
    (options,) = (one.split("=", 1)[1] for one in environment(unit) if "OPTIONS" in one)
    words = shlex.split(line.replace("$STREAM_DP_OPTIONS", options))
    unknown = unknown_words(words[1:])
    if not words[0].endswith("/stream-dp") or words[1] != "run" or unknown:
        return f"run has no {unknown}"
    if "json" not in words:
        return "it logs for people"
    return "" if "--standby" in words else "it takes over from an engine that runs"


def keys(unit: str) -> str:
    """What is wrong with how it gets its key: its path may be in the environment, the key may not."""
    named = [one.split("=", 1) for one in environment(unit)]
    wrong = [name for name, value in named if "KEY" in name and not value.startswith("/")]
    return f"a key as a value: {wrong}" if wrong else ""


@pytest.mark.parametrize("check", [restarts, ends, starts, keys])
def test_it_does_what_the_engine_needs(check: Callable[[str], str]) -> None:
    assert check(UNIT) == ""


@pytest.mark.parametrize(
    ("check", "old", "new"),
    [
        (restarts, "=1 2 3 4 130", "=1 2 3 130"),
        (restarts, "=1 2 3 4 130", "=1 2 3 4 5 130"),
        (restarts, "StartLimitIntervalSec=0", "StartLimitIntervalSec=60"),
        (ends, "TimeoutStopSec=20", "TimeoutStopSec=5"),
        (ends, "KillSignal=SIGTERM", "KillSignal=SIGQUIT"),
        (starts, "--standby ", ""),
        (starts, "--standby --serve", "--standby --serve --hosts 0.0.0.0"),
        (keys, "KEY_FILE=/etc/stream-dp/%i.key", "KEY=0123456789abcdef"),
    ],
)
def test_a_broken_unit_is_noticed(check: Callable[[str], str], old: str, new: str) -> None:
    assert check(mutated(UNIT, old, new)) != ""
