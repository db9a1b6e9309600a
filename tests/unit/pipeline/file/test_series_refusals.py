"""Refusals of live series repeat nothing of what stands there, whatever quotes and line breaks it holds."""

import asyncio
import json
from typing import Any

import pytest
from live_acts import create_series, preview_series
from unit.live.live_series_worlds import HORIZON, Stopping, World
from unit.pipeline.file.test_refusals import FOLDER

from stream_dp.errors import UsageError
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import MOST, canonical_series, load, load_series

GOOD = {"name": "q", "statistic": "count", "epsilon": "0.5"}


def refusal(text: str | bytes, spec: PipelineSpec | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        load_series(text.encode() if isinstance(text, str) else text, spec or World().built.spec)
    assert "SECRET" not in str(caught.value)
    return str(caught.value)


SAID = [
    ("statistic: cuont", "22: statistic: what stands there is not a known statistic; did you mean count?"),
    ("statistic: count, windows: SECRET",
     "38: windows: must be a list, in brackets or with a dash before each entry"),
    ("statistic: count, windos: [1h]", "29: windos: is not a known key; did you mean windows?"),
    ("statistic: count, method: gausian",
     "37: method: must be tree, gaussian, correlated, nested or auto; did you mean gaussian?"),
    ("statistic: count, where: [{field: country, equals: SECRET}]",
     "62: where[0].equals: what stands there is not in the domain of the field"),
    ("statistic: count, where: [{field: country, equals: de}]",
     "62: where[0].equals: what stands there is not in the domain of the field; did you mean DE?"),
    ("statistic: count, where: [{field: contry, equals: DE}]",
     "45: where[0].field: what stands there is not in the schema; did you mean country?"),
    ("statistic: count, secret:SECRET", "29: a space is missing behind the colon: what stands there"),
    ("statistic: count, title: null",
     "36: title: has no value (null); leave it out, or put quotes around it if it is a text"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "wanted"), SAID)
def test_of_a_definition_the_place_and_the_problem_are_told(keys: str, wanted: str) -> None:
    said = refusal(f"{{name: x, {keys}, epsilon: 1}}", load(FOLDER / "shop.yaml"))
    assert said == f"series, line 1, column {wanted}"


def test_behind_a_misspelled_statistic_its_other_keys_are_told() -> None:
    said = refusal(b"{name: two, statistic: cuont, epsilom: 1}", load(FOLDER / "shop.yaml"))
    first, second = said.splitlines()
    assert first.endswith("is not a known statistic; did you mean count?")
    assert "cuont" not in said
    assert second.endswith("epsilom: is not a known key; did you mean epsilon?")


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
    assert refusal(json.dumps(GOOD | change)).startswith("series, line 1, column ")


@pytest.mark.parametrize(
    "text", ["{name: !SECRET q, statistic: count, epsilon: 1}", "{name: *SECRET }"]
)
def test_nor_a_tag_or_an_alias(text: str) -> None:
    refusal(text)


HALF = "holds half of a pair of escapes, such as \\ud83d without \\ude00; write both halves, or the character itself"
PLACED = [
    ('{"name":"SECRET\\ud83d"}', f"1:9: name: {HALF}"),
    ('{"SECRET\\ude00":"q"}', f"1:2: [key]: {HALF}"),
    ('{"name":"SECRET😀","epsilon":1,"statistic":"count"}',
     "1:9: name: must be a lower-case letter or a digit, then at most 62 of those or of _ . -"),
    ('{"name":"SECRET\x7f"}',
     '1:16: not valid YAML: holds a control character; write it in double quotes as an escape such as "\\u0007"'),
    ('{"name":"SECRET"', "1:17: not valid JSON or YAML here; look for a comma, a quote or a bracket that is missing"),
    ('{"name":"q","epsilon":1,"statistic":"count","bogus":"SECRET"}',
     "1:45: bogus: is not a known key; known are statistic, name, epsilon, delta, where, title, description, unit, "
     "window, windows, every, running, aims, method"),
    ('{"name":"q","epsilon":1,"statistic":"count","release_every":5}',
     "1:45: release_every: is gone: every series is released at every tick; leave it out"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "told"), PLACED)
def test_a_refusal_says_where_and_what_to_do(text: str, told: str) -> None:
    line, column, what = told.split(":", 2)
    assert f"series, line {line}, column {column}:{what}" in refusal(text).splitlines()


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
    why = "an alias is not allowed in a live series; write it out"
    assert refusal(text) == f"series, line 1, column 73: where[1].equals: {why}"
    written = text.replace("&a ", "").replace("*a", "5")
    assert load_series(written.encode(), World().built.spec).where[1].texts == ("5",)


@pytest.mark.parametrize(("number", "more"), [(50, False), (5000, True)])
def test_a_refusal_lists_no_more_than_a_hundred_problems(number: int, more: bool) -> None:
    """Looking up the place of each takes time in the length of the text; 60 KiB can hold thousands."""
    unknown = dict.fromkeys((f"k{i}" for i in range(number)), "1")
    lines = refusal(json.dumps(GOOD | unknown)).splitlines()
    assert (lines[-1] == f"series: at least {MOST} problems; the rest is not listed") == more
    assert len(lines) == (MOST + 1 if more else number)


@pytest.mark.parametrize(
    "text", ["a😀b", "\\\\", "\\ud83d", "é", "\\😀", "a\x85b", "\u2028 ", "\u2029"]
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
