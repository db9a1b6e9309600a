"""How the tests of a run are shared between its workers (`pytest -n`): a file stays together, the longest go first.

Hypothesis draws the same cases in every run, remembers none, and is not hurried: `--hypothesis-profile=default` looks
for new ones. Noise is the same in every run too: `--fresh-noise` looks for tests that hang on it.

Rules: what shares something dear besides its file is one group: a Chromium, the certified rules. Groups are told from
the names of the tests, which is all that the process sees that hands them out.
"""

from typing import Any

import pytest
from fixed_noise import FixedNoise
from hypothesis import settings

settings.load_profile("ci")

CERTIFIED = (
    "tests/unit/audit/test_exact_checks.py",
    "tests/unit/audit/test_exact_instances.py",
    "tests/unit/cli/test_audit_rules.py",
)
LONGEST = ("tests/kafka/", "tests/faults/", "tests/browser/", *CERTIFIED, "tests/unit/cli/")


def group_of(name: str) -> str:
    """Return what a test shares with others, from its name: a Chromium, the certified rules, else its file."""
    if name.startswith("tests/browser/"):
        return "browser"
    return "certified" if name.startswith(CERTIFIED) else name.split("::")[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of fresh noise."""
    parser.addoption(
        "--fresh-noise",
        action="store_true",
        help="noise from the operating system, as in production: look for tests that hang on it",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make noise the same in every run."""
    if not config.getoption("--fresh-noise"):
        config.pluginmanager.register(FixedNoise(), "fixed-noise")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the folders that take longest first, so that no worker is left with them at the end."""
    places = {folder: place for place, folder in enumerate(LONGEST)}

    def place(item: pytest.Item) -> int:
        found = (places[folder] for folder in LONGEST if item.nodeid.startswith(folder))
        return next(found, len(LONGEST))

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return a scheduler that keeps groups together; `--dist loadgroup` does not, with pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
        """One group, one worker."""

        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Groups(config, log)
