"""Pipelines over a slice of the flights, and running them as processes of their own."""

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from faults.checker import Expected, SeriesRule, findings
from faults.evidence import Event, Evidence, Letter, csv_events, embedded, milliseconds
from faults.forked import Forked, Run, pace

FLIGHTS = Path(__file__).parents[2] / "examples" / "01_flights" / "flights.csv.gz"
START = "2013-01-01T10:00:00Z"
HOUR = 3_600_000
AIRLINES = ("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX")
DESTINATIONS = ("ATL", "BOS", "CLT", "FLL", "LAX", "MCO", "MIA", "ORD", "RDU", "SFO", "TPA")
SERIES = (
    SeriesRule("departures", "count"),
    SeriesRule("by_airline", "histogram", by="airline"),
    SeriesRule("by_destination", "hss", by="destination"),
    SeriesRule("busiest", "maximum", by="destination"),
    SeriesRule("late", "alerts", by="airline", at_least=("delay", 60), threshold=20),
)
EPSILON = 4
TEST_KIT = "stream_dp.testing"
PRODUCT = "stream_dp.__main__"


class Ended(NamedTuple):
    """What a run ended with."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Case:
    """A pipeline in a folder of its own, with its key and what is expected of a run to its end."""

    folder: Path
    expected: Expected
    events: tuple[Event, ...]
    patch: str = ""
    """Python source executed at the start of each forked run."""

    @property
    def pipeline(self) -> Path:
        return self.folder / "pipeline.yaml"

    @property
    def key(self) -> bytes:
        return (self.folder / "operator.key").read_bytes()

    @property
    def journal(self) -> Path:
        return self.folder / "pipeline.journal"

    @property
    def releases(self) -> Path:
        return self.folder / "releases.jsonl"

    def environment(self) -> dict[str, str]:
        """The environment of its runs: the key, and no state outside of the folder."""
        own = {"STREAM_DP_HOME": str(self.folder / "state"), "PYTHONUNBUFFERED": "1"}
        return {**os.environ, **own, "STREAM_DP_KEY_FILE": str(self.folder / "operator.key")}

    def command(self, *options: str, kit: bool = True) -> list[str]:
        """The command line of a run in a new interpreter."""
        start = [sys.executable, "-m", TEST_KIT] if kit else _PRODUCT
        return [*start, "run", str(self.pipeline), *options]

    def start(
        self,
        *options: str,
        kit: bool = True,
        anew: bool = False,
        patch: str = "",
        paced: bool = False,
    ) -> Run:
        """Start it, by default with the test kit, forked; stdout can be read.

        `anew` starts it by exec, in a new interpreter; `patch` breaks a forked run; `paced` keeps it from being far
        ahead of who reads what it prints.
        """
        if not anew:
            arguments = ("run", str(self.pipeline), *options)
            patch = self.patch + patch
            return Forked(arguments, self.environment(), kit=kit, patch=patch, paced=paced)
        return subprocess.Popen(
            self.command(*options, kit=kit),
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=pace if paced else None,
        )

    def run(self, *options: str, kit: bool = True, anew: bool = False, patch: str = "") -> Ended:
        run = self.start(*options, kit=kit, anew=anew, patch=patch)
        try:
            out, errors = run.communicate()
        finally:
            run.kill()
        assert run.returncode is not None
        return Ended(run.returncode, out, without_progress(errors))

    def finish(self, *options: str) -> None:
        """Run it to its end, which must be a good one."""
        done = self.run("--until-end", *options)
        assert done.returncode == 0, done.stderr

    def left(self) -> Evidence:
        return embedded(self.journal, self.releases, self.key, self.expected.pipeline)

    def findings(self) -> list[str]:
        """What the checker has to say about the embedded run."""
        return findings(self.expected, self.events, self.left())

    def expecting(self, **changes: Any) -> "Case":
        return replace(self, expected=replace(self.expected, **changes))


def without_progress(errors: str) -> str:
    """What was said on stderr, without how far it was: on a slow machine, a line of that comes every ten seconds."""
    return re.sub(r"^[A-Z][^:\n]*: (?:[^:\n]+, )?\d+ s\n", "", errors, flags=re.MULTILINE)


def broken_command(case: Case, patch: str, *options: str) -> list[str]:
    """The command line of the test kit's run with `patch` applied before the engine is imported."""
    start = f"from {TEST_KIT}.__main__ import app, code_of\nraise SystemExit(code_of(commands=app))"
    return [sys.executable, "-c", f"{patch}\n{start}", "run", str(case.pipeline), *options]


_PRODUCT = [sys.executable, "-c", f"from {PRODUCT} import start; start()"]


def sliced(path: Path, ticks: int) -> None:
    """Write the flights of the first `ticks` hours; the data is in time order."""
    end = milliseconds(START) + ticks * HOUR
    with gzip.open(FLIGHTS, "rt") as file, path.open("w") as out:
        out.write(next(file))
        for line in file:
            if milliseconds(line.partition(",")[0]) >= end:
                return
            out.write(line)


def make_key(folder: Path) -> None:
    """An operator's key, readable by its owner only."""
    path = folder / "operator.key"
    path.touch(mode=0o600)
    path.write_bytes(os.urandom(32))


def document(
    name: str,
    horizon: int,
    block: int,
    source: dict[str, Any],
    series: Sequence[SeriesRule] = SERIES,
) -> dict[str, Any]:
    """A pipeline file; JSON is YAML too."""
    embedded_ports = {
        "journal": {"kind": "sqlite", "path": "pipeline.journal"},
        "releases": {"path": "releases.jsonl"},
    }
    return {
        "version": 1,
        "name": name,
        "source": source,
        "schema": {
            "time": {"type": "time"},
            "airline": {"type": "category", "domain": list(AIRLINES)},
            "destination": {"type": "category", "domain": list(DESTINATIONS)},
            "delay": {"type": "integer", "nullable": True},
        },
        "privacy": {"unit": "event", "neighbors": "add_remove", "epsilon": EPSILON * len(series)},
        "clock": {
            "kind": "replay",
            "field": "time",
            "start": START,
            "step": "1h",
            "horizon": horizon,
            "block": block,
        },
        **(embedded_ports if source["kind"] == "file" else {}),
        "series": [_series(rule) for rule in series],
    }


def _series(rule: SeriesRule) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": rule.name, "epsilon": EPSILON}
    match rule.statistic:
        case "hss":
            shown |= {"statistic": "histogram", "method": "hss", "expected_events": 20_000}
        case "maximum":
            shown |= {"statistic": "maximum", "method": "hss", "expected_events": 20_000}
        case "histogram":
            shown |= {"statistic": "histogram", "method": "tree"}
        case "alerts":
            shown |= {"statistic": "alerts", "threshold": rule.threshold}
        case other:
            shown |= {"statistic": other}
    if rule.by is not None:
        shown["by"] = rule.by
    if rule.at_least is not None:
        shown["where"] = [{"field": rule.at_least[0], "at_least": rule.at_least[1]}]
    return shown


def expectation(
    name: str, horizon: int, series: Sequence[SeriesRule] = SERIES, letters: Sequence[Letter] = ()
) -> Expected:
    return Expected(
        name,
        milliseconds(START),
        HOUR,
        horizon,
        {"airline": AIRLINES, "destination": DESTINATIONS},
        tuple(series),
        ((f"{name}: series of the first start", EPSILON * len(series) * 10**12),),
        letters=tuple(letters),
    )


def write(folder: Path, shown: dict[str, Any]) -> None:
    (folder / "pipeline.yaml").write_text(json.dumps(shown, indent=1))
    if not (folder / "operator.key").exists():
        make_key(folder)


def flights(folder: Path, ticks: int, block: int = 6, name: str = "flights") -> Case:
    """The embedded pipeline over the first hours of the year."""
    folder.mkdir(parents=True, exist_ok=True)
    sliced(folder / "slice.csv", ticks)
    write(folder, document(name, ticks, block, {"kind": "file", "path": "slice.csv"}))
    events = csv_events(folder / "slice.csv", milliseconds(START), HOUR)
    return Case(folder, expectation(name, ticks), tuple(events))


def seen(run: Run, lines: int) -> int:
    """Read up to `lines` lines of a traced run; how many came before it ended."""
    assert run.stdout is not None
    for count in range(lines):
        if not run.stdout.readline():
            return count
    return lines
