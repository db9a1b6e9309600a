"""README's examples are run: its pipeline, its release, its commands."""

import json
import re
import textwrap
from fractions import Fraction
from pathlib import Path

import pytest
from typer.main import get_command

from stream_dp.cli.main import app
from stream_dp.core.guarantee import PureDP
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load, load_series

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()
COMMANDS = (ROOT / "docs" / "commands.md").read_text()
LIVE = (ROOT / "docs" / "live_series.md").read_text()


def test_the_pipeline_of_the_readme_is_one(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    path = tmp_path / "orders.yaml"
    path.write_text(block)
    built = build(load(path))
    assert built.derivation.guarantee.measure == PureDP(Fraction(1))
    assert len(block.splitlines()) <= 20
    asked = re.search(r"^ {4}name: large\n(?: {4}.*\n)+", LIVE, re.MULTILINE)
    assert asked is not None
    large = load_series(textwrap.dedent(asked[0]).encode(), built.spec, "README")
    assert large.epsilon <= Fraction(2) - Fraction(1)


def test_the_release_of_the_readme_has_the_fields_of_the_contract() -> None:
    (line,) = re.findall(r'^ {4}(\{"v":1.*\})$', README, re.MULTILINE)
    fields = ["v", "sequence", "series", "tick", "end", "value", "band", "confidence"]
    assert list(json.loads(line)) == fields


def test_the_readme_is_read_in_two_screens() -> None:
    assert README[: README.index("## For developers")].count("\n") < 120


def commands() -> set[str]:
    context = get_command(app).make_context("stream-dp", ["--help"], resilient_parsing=True)
    return set(get_command(app).list_commands(context))  # type: ignore[attr-defined]


def test_the_page_on_commands_names_all_there_are() -> None:
    assert set(re.findall(r"^\| `stream-dp ([\w-]+)", COMMANDS, re.MULTILINE)) == commands()


def test_the_readme_names_no_command_that_is_not_there() -> None:
    named = set(re.findall(r"(?:`| {4})stream-dp ([\w-]+)", README))
    assert len(named) >= 10
    assert named <= commands()


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)\)", README))
def test_the_files_the_readme_shows_exist(link: str) -> None:
    assert (ROOT / link).is_file()


def test_there_is_a_line_for_each_make_target_of_the_promise() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^ {4}make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
