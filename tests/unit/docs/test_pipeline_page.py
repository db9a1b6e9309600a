"""docs/pipeline.md names every key of a pipeline file, and none that is not one."""

import re
from pathlib import Path
from typing import Any

import pytest

from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records.endpoints import (
    FileSourceSpec,
    KafkaSourceSpec,
    ReplayClock,
    WallClock,
)
from stream_dp.records.privacy import Privacy
from stream_dp.statistics import STATISTICS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "pipeline.md").read_text()
COMMON = {"statistic", "name", "epsilon", "where", "title", "description", "unit"}


def rows(head: str) -> dict[str, str]:
    """The rows of the table with this head, by the name in their first column."""
    (_, _, rest) = PAGE.partition(f"| {head} |")
    assert rest, f"no table of {head}"
    lines = rest.split("\n\n")[0].splitlines()[2:]
    return {re.findall(r"`(\w+)`", line)[0]: line for line in lines}


@pytest.mark.parametrize(
    ("head", "model"),
    [
        ("key of the file", PipelineSpec),
        ("key of a Kafka source", KafkaSourceSpec),
        ("key of a file source", FileSourceSpec),
        ("key of `privacy`", Privacy),
        ("key of a wall clock", WallClock),
        ("key of a replay clock", ReplayClock),
    ],
)
def test_every_key_has_its_row(head: str, model: Any) -> None:
    keys = {field.alias or name for name, field in model.model_fields.items()}
    assert set(rows(head)) == keys


def test_every_statistic_has_its_row_with_its_keys() -> None:
    listed = rows("statistic")
    found = {kind.model_fields["statistic"].default: kind for kind in STATISTICS}
    assert set(listed) == set(found)
    for name, kind in found.items():
        own = re.findall(r"`(\w+)`", listed[name].split("|")[2])
        assert sorted(own) == sorted(set(kind.model_fields) - COMMON), name


def test_required_keys_are_those_whose_absence_is_refused() -> None:
    for head, model in (("key of the file", PipelineSpec), ("key of `privacy`", Privacy)):
        refused = {name for name, line in rows(head).items() if line.endswith("| refused |")}
        needed = {f.alias or n for n, f in model.model_fields.items() if f.is_required()}
        assert refused == needed - {"journal"}  # which has a default for each source
