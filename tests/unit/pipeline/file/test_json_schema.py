"""The JSON Schema of a pipeline file: it takes what the reader takes, and refuses what an editor should mark."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from stream_dp.operate.init import pipeline_schema

ROOT = Path(__file__).resolve().parents[4]
EXAMPLES = sorted((ROOT / "examples").glob("*/*.yaml"))
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*/*.md")]
COPY = ROOT / "docs" / "pipeline.schema.json"
SCHEMA = pipeline_schema()


class Core(yaml.SafeLoader):
    """YAML as editors read it: the core schema of version 1.2, in which times are texts and NO is no truth."""


Core.yaml_implicit_resolvers = {}
for _tag, _form, _first in (
    ("bool", "true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", "[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("null", "~|null|Null|NULL|", "~nN"),
):
    Core.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_form})$"), [*_first, ""]
    )


def read(text: str) -> Any:
    return yaml.load(text, Loader=Core)  # noqa: S506 - a safe loader


def problems(data: Any, schema: Mapping[str, Any] = SCHEMA) -> list[str]:
    checker = jsonschema.Draft202012Validator(schema)
    return [f"{error.json_path}: {error.message}" for error in checker.iter_errors(data)]


def blocks() -> Iterator[Any]:
    for path in EXAMPLES:
        yield pytest.param(path.read_text(), id=f"{path.parent.name}/{path.name}")
    for path in PAGES:
        for number, block in enumerate(
            re.findall(r"```yaml\n(.*?)```", path.read_text(), re.DOTALL)
        ):
            others = path.name == "metrics.md" or block.startswith("# access.yaml")
            if not others:  # for Prometheus, and for `--access`
                yield pytest.param(block, id=f"{path.name}-{number}")


def problems_of_parts(data: Mapping[str, Any]) -> list[str]:
    found = []
    for name, part in data.items():
        schema = {**SCHEMA["properties"][name], "$defs": SCHEMA["$defs"]}
        found += [f"{name}: {each}" for each in problems(part, schema)]
    return found


@pytest.mark.parametrize("text", list(blocks()))
def test_every_file_that_is_shown_is_taken(text: str) -> None:
    shown = read(text)
    data = {"series": shown} if isinstance(shown, list) else shown
    assert (problems if "version" in data else problems_of_parts)(data) == []


def test_it_is_a_schema_and_every_model_of_it_can_be_reached() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    text = json.dumps(SCHEMA)
    assert [name for name in SCHEMA["$defs"] if f'"#/$defs/{name}"' not in text] == []
    assert "{}" not in text


FILE = (ROOT / "examples" / "01_flights" / "pipeline.yaml").read_text()
SMALL = """\
version: 1
name: orders
source: {kind: kafka, topic: orders, bootstrap: "127.0.0.1:9092"}
schema:
  country: {type: category, domain: [DE, NO, 42]}
  time: {type: time, zone: Europe/Berlin}
  amount: {type: number, nullable: true}
privacy: {unit: event, neighbors: add_remove, epsilon: 1/3}
clock: {kind: wall, step: 1m, delay: 2s}
series:
  - {name: orders, statistic: count, epsilon: 1e-3, windows: [1h, ever], where: [{field: amount, at_least: 3}]}
  - {name: by_both, statistic: histogram, by: [country, {tick: hour}], epsilon: "0.1"}
  - {name: bins, statistic: histogram, by: {field: amount, edges: [0, 1/2]}, epsilon: 0.1}
  - {name: share, statistic: ratio, of: orders, over: orders}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("version: 1", "version: 2"),
        ("name: orders\n", "name: Orders\n"),
        ("kind: kafka", "kind: kafak"),
        ("{kind: kafka, ", "{"),
        ("[DE, NO, 42]", "[]"),
        ("[DE, NO, 42]", "DE"),
        ("nullable: true", "nullable: maybe"),
        ("epsilon: 1/3", "epsilon: one"),
        ("epsilon: 1/3", "epsilon: true"),
        (", epsilon: 1/3", ""),
        ("add_remove", "replace_any_tick"),
        ("step: 1m", "step: 60"),
        ("statistic: count", "statistic: coutn"),
        ("windows: [1h, ever]", "windows: [1h, forever]"),
        ("windows: [1h, ever]", "windows: 1h"),
        ("[{field: amount, at_least: 3}]", "{field: amount, at_least: 3}"),
        (", at_least: 3}", ", at_least: 3, at_most: 4}"),
        ("by: [country, {tick: hour}]", "by: [country]"),
        ("tick: hour", "tick: month"),
        ("edges: [0, 1/2]", "edges: []"),
        ("over: orders", "over: orders, epsilon: 1"),
    ],
)
def test_wrong_files_are_marked(old: str, new: str) -> None:
    assert problems(read(SMALL)) == []
    assert old in SMALL
    assert problems(read(SMALL.replace(old, new))) != []


def test_the_copy_for_editors_is_what_the_command_prints() -> None:
    assert json.loads(COPY.read_text()) == SCHEMA, "stream-dp schema > docs/pipeline.schema.json"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_every_example_names_the_schema_in_its_first_line(path: Path) -> None:
    found = re.match(r"# yaml-language-server: \$schema=(\S+)\n", path.read_text())
    assert found is not None
    assert (path.parent / found[1]).resolve() == COPY
