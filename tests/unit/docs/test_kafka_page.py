"""docs/kafka.md says what the code does: its pipelines load, its keys and its rights are those of the code."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from stream_dp.operate.doctor import NEEDED
from stream_dp.pipeline.yaml import load
from stream_dp.records.endpoints import KafkaSourceSpec, Security

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "kafka.md").read_text()
REST = """
version: 1
name: orders
schema: {country: {type: category, domain: [DE]}}
privacy: {epsilon: 1}
clock: {kind: wall, step: 1m}
series: [{name: n, statistic: count, epsilon: 1}]
"""


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_the_pages_sources_are_sources(block: str, tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(block + REST)
    source = load(file).source
    assert isinstance(source, KafkaSourceSpec)
    assert source.security is not None
    named = yaml.safe_load(block)["source"]["security"]
    assert {key for key, value in source.security if value is not None} == set(named)


def test_the_table_of_keys_is_the_codes() -> None:
    table = PAGE.split("| key | what it is |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == list(Security.model_fields)


def test_the_commands_grant_what_the_doctor_asks_for() -> None:
    told: dict[str, tuple[str, ...]] = {}
    for line in re.findall(r"^acl (.*)$", PAGE, re.MULTILINE):
        words = shlex.split(line)
        rights = [words[at + 1] for at, word in enumerate(words) if word == "--operation"]
        told[" ".join(words[2 * len(rights) :])] = tuple(rights)
    assert told == {
        resource.format(name="orders", topic="orders-events"): rights
        for resource, rights in NEEDED.items()
    }
