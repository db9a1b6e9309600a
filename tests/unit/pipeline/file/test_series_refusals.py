"""Refusals of live series repeat nothing of what stands there, whatever quotes and line breaks it holds."""

import asyncio
import json
from typing import Any

import pytest
from live_acts import create_series, preview_series
from unit.live.live_series_worlds import HORIZON, PIPELINE, Stopping, World

from stream_dp.errors import UsageError
from stream_dp.live.planner import canonical_series
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import MOST, load_series

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
    assert str(caught.value).startswith("series, line 1, column ")


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
        (
            '{"name":"q","epsilon":1,"statistic":"count","where":[{"field":"kind","above":"SECRET"}]}',
            "1:70: where[0].above: is not a known key; known are field, at_least, at_most, equals, one_of, contains",
        ),
        (
            '{"name":"q","epsilon":1,"statistic":"count","bogus":"SECRET"}',
            "1:45: bogus: is not a known key; known are statistic, name, epsilon, where, title, description, "
            "unit, window, windows, method",
        ),
        (
            '{"name":"q","epsilon":1,"statistic":"count","release_every":5}',
            "1:45: release_every: is gone: every series is released at every tick; leave it out",
        ),
        (
            '{"name":"q","epsilon":1,"statistic":"SEC\'RET"}',
            "1:37: statistic: what stands there is none of count, sum, mean, gauge, distinct, cut_off, "
            "histogram, top, maximum, largest, columns_above, quantiles, alerts, monitor, ratio",
        ),
    ],
)
def test_a_refusal_says_where_and_what_to_do(text: str, told: str) -> None:
    schema = PIPELINE["schema"] | {"kind": {"type": "category", "domain": ["a", "b"]}}
    spec = World(pipeline=PIPELINE | {"schema": schema}).built.spec
    with pytest.raises(UsageError) as caught:
        load_series(text.encode(), spec)
    line, column, what = told.split(":", 2)
    where = f"series, line {line}, column {column}:"
    assert f"{where}{what}" in str(caught.value).splitlines()
    assert "SECRET" not in str(caught.value)


WRONG = "not valid YAML: holds an escape or a number that means nothing"
DEEP = "not valid YAML: nested too deeply"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (rb'{"name":"\U00110000"}', WRONG),
        (rb'{"name":"\UFFFFFFFF"}', WRONG),
        (b"%YAML 1." + b"1" * 5000 + b"\n---\n{}", WRONG),
        (b'{"name":' + b"[" * 400 + b"]" * 400 + b"}", DEEP),
        (b'{"name":' + b'{"a":' * 400 + b"1" + b"}" * 401, DEEP),
        (b"[" * 60_000, DEEP),
    ],
    ids=["beyond Unicode", "beyond a C int", "digits", "deep list", "deep mapping", "very deep"],
)
async def test_what_the_parsers_choke_on_is_refused_and_the_engine_goes_on(
    text: bytes, told: str
) -> None:
    """An error that is no refusal would end the engine, so one body would stop everybody's series."""
    world, source = World(), Stopping(2)
    engine = world.engine(source)
    run = asyncio.create_task(engine.run())
    await world.until(2)
    for asking in (create_series, preview_series):
        with pytest.raises(UsageError) as caught:
            await asking(engine, text)
        assert str(caught.value) == f"series: {told}"
    source.go(HORIZON)
    await run
    assert len(world.releases("orders")) == HORIZON


def test_a_live_series_has_no_aliases() -> None:
    """Written out, as its canonical bytes are, 60 KiB of them would be 40 MiB; a file may have them."""
    condition = "{field: amount, equals: &a 5}, {field: amount, equals: *a}"
    text = f"{{name: q, statistic: count, epsilon: 1, where: [{condition}]}}"
    with pytest.raises(UsageError) as caught:
        load_series(text.encode(), World().built.spec)
    assert str(caught.value) == (
        "series, line 1, column 73: where[1].equals: an alias is not allowed in a live series; write it out"
    )
    written = text.replace("&a ", "").replace("*a", "5")
    assert load_series(written.encode(), World().built.spec).where[1].texts == ("5",)


def test_a_refusal_lists_no_more_than_a_hundred_problems() -> None:
    """Looking up the place of each takes time in the length of the text; 60 KiB can hold thousands."""
    for number, more in ((50, False), (5000, True)):
        unknown = dict.fromkeys((f"k{i}" for i in range(number)), "1")
        with pytest.raises(UsageError) as caught:
            load_series(json.dumps(GOOD | unknown).encode(), World().built.spec)
        lines = str(caught.value).splitlines()
        last = f"series: at least {MOST} problems; the rest is not listed"
        assert (lines[-1] == last) == more
        assert len(lines) == (MOST + 1 if more else number)


@pytest.mark.parametrize(
    "text", ["😀", "a😀b", "\\", "\\\\", "\\ud83d", "é", "\\😀", "a\x85b", "\u2028 ", "\u2029"]
)
def test_json_from_any_client_says_what_it_says(data: dict[str, Any], text: str) -> None:
    """`json.dumps` writes a character beyond U+FFFF as a pair of escapes; YAML breaks lines where JSON does not."""
    series = {
        "name": "asked", "statistic": "count", "epsilon": "0.1", "where": [{"field": "note", "equals": text}],
    }  # fmt: skip
    spec = PipelineSpec.model_validate(data)
    for ascii_only in (True, False):
        asked = load_series(json.dumps(series, ensure_ascii=ascii_only).encode(), spec)
        assert asked.where[0].texts == (text,)
        assert load_series(canonical_series(asked), spec) == asked
