"""How the tests of a run are shared between its workers (`pytest -n`), and which of them `make test` runs.

Hypothesis draws the same cases in every run, remembers none, and is not hurried: `--hypothesis-profile=default` looks
for new ones. Noise is the same in every run too: `--fresh-noise` looks for tests that hang on it.

Rules: a file stays together, and what shares something dear besides its file is one group: a Chromium, the certified
rules. The groups that took longest go first, by `tests/durations.json`, in which `--record-durations` writes the groups
that ran. A test that carries `full`, by its own mark or by its file in `tests/full.txt`, runs in `make test-all` and in
CI only.
"""

import gc
import json
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from fixed_noise import FixedNoise
from hypothesis import settings

settings.load_profile("ci")

HERE = Path(__file__).parent
DURATIONS = HERE / "durations.json"
FULL = HERE / "full.txt"
UNKNOWN_SECONDS = 1.0
CERTIFIED = (
    "tests/unit/verify/test_exact_checks.py",
    "tests/unit/verify/exact_checks/test_exact_instances.py",
    "tests/unit/cli/test_audit_rules.py",
)


def group_of(name: str) -> str:
    """Return what a test shares with others, from its name: a Chromium, the certified rules, else its file."""
    if name.startswith("tests/browser/"):
        return "browser"
    return "certified" if name.startswith(CERTIFIED) else name.split("::")[0]


def full_files() -> list[str]:
    """Return the files, and single tests, that `make test` leaves out; not the empty lines and comments."""
    lines = FULL.read_text(encoding="ascii").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


class Stopwatch:
    """Adds up how long each group's tests take, and writes it down at the end."""

    def __init__(self) -> None:
        self._seconds = defaultdict[str, float](float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[group_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Groups of other runs keep their seconds while their file is there."""
        before = json.loads(DURATIONS.read_text(encoding="ascii"))
        kept = {g: s for g, s in before.items() if "/" not in g or (HERE.parent / g).exists()}
        found = kept | {group: round(seconds) for group, seconds in self._seconds.items()}
        longest = sorted(found.items(), key=lambda one: -one[1])
        written = {group: seconds for group, seconds in longest if seconds}
        DURATIONS.write_text(json.dumps(written, indent=1) + "\n", encoding="ascii")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fresh-noise",
        action="store_true",
        help="noise from the operating system, as in production: look for tests that hang on it",
    )
    parser.addoption(
        "--record-durations",
        action="store_true",
        help="write down how long each group of tests takes, for the order of later runs",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make noise the same in every run."""
    if not config.getoption("--fresh-noise"):
        config.pluginmanager.register(FixedNoise(), "fixed-noise")
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Stopwatch(), "stopwatch")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search for garbage after the collection only, and never again among what it made: half a million objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_unconfigure() -> None:
    """Let libraries find what they made when the interpreter ends."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for no doctests in tests: each worker would import and search 300 files without any."""
    collectors = yield
    return [each for each in collectors if not isinstance(each, DoctestModule)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what only a full run has, and put the groups that take longest first."""
    left_out = set(full_files())
    for item in items:
        path, _, name = item.nodeid.partition("::")
        if left_out & {path, f"{path}::{name.partition('[')[0]}"}:
            item.add_marker(pytest.mark.full)
    seconds = json.loads(DURATIONS.read_text(encoding="ascii"))
    items.sort(key=lambda item: -seconds.get(group_of(item.nodeid), UNKNOWN_SECONDS))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return a scheduler that keeps groups together; `--dist loadgroup` does not, with pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Groups(config, log)
