"""Refusals of questions repeat nothing of what stands there, whatever quotes and line breaks it holds."""

import json
from typing import Any

import pytest
from unit.pipeline.question_worlds import PIPELINE, World

from stream_dp.errors import UsageError
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load_series

GOOD = {"name": "q", "statistic": "count", "epsilon": "0.5"}


@pytest.mark.parametrize(
    "change",
    [
        {"where": [{"field": "amount", "at_least": "x'SECRET"}]},
        {"where": [{"field": "amount", "at_least": "x'\nSECRET\n'"}]},
        {"where": [{"field": "SECRET'", "at_least": "5"}]},
        {"statistic": "x'SECRET"},
        {"by": "x'SECRET", "statistic": "histogram", "method": "tree"},
    ],
)
def test_no_value_is_repeated(change: dict[str, object]) -> None:
    spec = World().built.spec
    with pytest.raises(UsageError) as caught:
        load_series(json.dumps(GOOD | change).encode(), spec)
    assert "SECRET" not in str(caught.value)
    assert str(caught.value).startswith("question:1:")


def test_nor_a_tag_or_an_alias() -> None:
    spec = World().built.spec
    for text in (b"{name: !SECRET q, statistic: count, epsilon: 1}", b"{name: *SECRET }"):
        with pytest.raises(UsageError) as caught:
            load_series(text, spec)
        assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '{"name":"SECRET\\ud83d"}',
            "1:9: name: holds half of a pair of escapes, such as \\ud83d without \\ude00; write both halves, or the "
            "character itself",
        ),
        (
            '{"SECRET\\ude00":"q"}',
            "1:2: [key]: holds half of a pair of escapes, such as \\ud83d without \\ude00; write both halves, or the "
            "character itself",
        ),
        (
            '{"name":"SECRET😀","epsilon":1,"statistic":"count"}',
            "1:9: name: must be a lower-case letter or a digit, then at most 62 of those or of _ . -",
        ),
        (
            '{"name":"SECRET\x7f"}',
            '1:16: not valid YAML: holds a control character; write it in double quotes as an escape such as "\\u0007"',
        ),
        (
            '{"name":"SECRET"',
            "1:17: not valid JSON or YAML here; look for a comma, a quote or a bracket that is missing",
        ),
        (
            '{"name":"q","epsilon":1,"statistic":"count","where":[{"field":"kind","equals":"SECRET"}]}',
            "1:79: where[0].equals: what stands there is not in the domain of the field",
        ),
    ],
)
def test_a_refusal_says_where_and_what_to_do(text: str, told: str) -> None:
    schema = PIPELINE["schema"] | {"kind": {"type": "category", "domain": ["a", "b"]}}
    spec = World(pipeline=PIPELINE | {"schema": schema}).built.spec
    with pytest.raises(UsageError) as caught:
        load_series(text.encode(), spec)
    assert f"question:{told}" in str(caught.value).splitlines()
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("text", ["😀", "a😀b", "\\", "\\\\", "\\ud83d", "é", "\\😀"])
def test_json_from_any_client_says_what_it_says(data: dict[str, Any], text: str) -> None:
    """`json.dumps` writes a character beyond U+FFFF as a pair of escapes."""
    series = {
        "name": "asked", "statistic": "count", "epsilon": "0.1", "where": [{"field": "note", "equals": text}],
    }  # fmt: skip
    spec = PipelineSpec.model_validate(data)
    for ascii_only in (True, False):
        asked = load_series(json.dumps(series, ensure_ascii=ascii_only).encode(), spec)
        assert asked.where[0].texts == (text,)
