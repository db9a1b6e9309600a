"""The hooks before a commit are what `make lint` runs, from the same environment, and none comes from elsewhere."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml


def hooks(text: str) -> list[dict[str, Any]]:
    """Return the hooks of a configuration.

    Raises:
        ValueError: one is not local.
    """
    repos = yaml.safe_load(text)["repos"]
    if any(repo["repo"] != "local" for repo in repos):
        raise ValueError("a hook comes from elsewhere")
    return [hook for repo in repos for hook in repo["hooks"]]


def linted(makefile: str) -> set[str]:
    """Return the tools of `make lint`."""
    target = re.search(r"^lint:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    return set() if target is None else set(re.findall(r"check,([\w-]+)", target[1]))


def test_the_hooks_are_those_of_make_lint(root: Path) -> None:
    found = hooks((root / ".pre-commit-config.yaml").read_text())
    tools = {hook["entry"].split()[0] for hook in found}
    assert tools == {f".venv/bin/{tool}" for tool in linted((root / "Makefile").read_text())}
    assert len(found) == 4
    assert {hook["language"] for hook in found} == {"system"}


def test_a_hook_from_elsewhere_is_found() -> None:
    with pytest.raises(ValueError, match="elsewhere"):
        hooks("repos: [{repo: 'https://example.org/hooks', hooks: []}]")
