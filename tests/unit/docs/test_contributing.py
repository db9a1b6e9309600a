"""CONTRIBUTING names files that are there, and its contents are its recipes. (The first recipe: tests/architecture.)"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
MADE = ("heartbeat", "tick_noise", "rate", "NAME")  # by whoever follows a recipe


def missing(text: str) -> list[str]:
    """Files and folders that stand in backquotes and are not there."""
    named = re.findall(r"`((?:stream_dp|tests|docs)/[\w/.-]*)`", text)
    there = (each for each in named if Path(each).stem not in MADE and "NAME" not in each)
    return [each for each in there if not (ROOT / each).exists()]


def anchor(heading: str) -> str:
    """The link to a heading."""
    return "#" + heading.lower().replace(" ", "-")


def test_the_files_it_names_are_there() -> None:
    assert TEXT.count("`stream_dp/") > 10
    assert missing(TEXT) == []


@pytest.mark.parametrize("gone", ["tests/unit/gone", "stream_dp/gone.py", "docs/gone.md"])
def test_a_file_that_is_gone_is_found(gone: str) -> None:
    assert missing(f"`{gone}` and `stream_dp/cli/NAME.py`") == [gone]


def test_its_contents_are_its_recipes() -> None:
    headings = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
    assert re.findall(r"^- \[([^]]+)\]\((#[^)]+)\)$", TEXT, re.MULTILINE) == [
        (heading, anchor(heading)) for heading in headings
    ]
