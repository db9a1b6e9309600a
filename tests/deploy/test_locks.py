"""Installs from a lock resolve nothing.

Why: pip looks for the newest `coverage[toml]` although the lock pins `coverage`, and refuses its hash; so a release of
a stranger's package would break README's commands on every new machine.
"""

import re
from pathlib import Path

import pytest

PLACES = ("Makefile", "deploy/Dockerfile", "docs/operations.md")


def installs(text: str) -> list[str]:
    """Return the part of each line that installs from a lock."""
    return re.findall(r"--require-hashes[^\n`]*requirements[\w-]*\.lock", text)


@pytest.mark.parametrize("place", PLACES)
def test_installs_from_a_lock_resolve_nothing(place: str) -> None:
    lines = installs((Path(__file__).parents[2] / place).read_text())
    assert lines
    assert [line for line in lines if "--no-deps" not in line] == []
