"""Long files are read by libyaml: what it says is what PyYAML's own reader says, or that one is asked."""

import gc
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.pipeline.file.test_yaml import GOOD

from stream_dp.errors import UsageError
from stream_dp.pipeline import yaml as pipeline_yaml
from stream_dp.pipeline.layout import uncollected
from stream_dp.pipeline.yaml import load, nodes, read_alike

PIECES = [
    "a", "b: ", "c", "- ", "\n", "\n  ", "\n    ", "{", "}", "[", "]", ", ", ": ", ",", ":", '"', "'",
    "# x", "#", "|\n", ">\n", "&x ", "*x", "!t ", "!!str ", "~", "\\n", "\\u0041", "é", "😀", "\xa0",
    "  ", "1", "null", "-", "@", "`", "|-\n", ">+\n", "\n- ", "\n\n", "<<: ", "=", "k: v\n", '"q": 1\n',
    "- {a: b}\n", "x: [1, 2]\n", "?", "? ", "---\n", "...\n", "\t", "\u2028",
]  # fmt: skip
REFUSALS = (yaml.YAMLError, ValueError, OverflowError, RecursionError)


def tree(node: yaml.Node | None) -> Any:
    """What a node says, and where; an empty value has a place of its own in each reader, and is refused anyway."""
    if node is None:
        return None
    empty = isinstance(node, yaml.ScalarNode) and not node.value and not node.style
    place = None if empty else (node.start_mark.line, node.start_mark.column)
    tag = None if node.tag.startswith("tag:yaml.org,2002:") else node.tag
    if isinstance(node, yaml.ScalarNode):
        return place, tag, node.value, node.style or None
    if isinstance(node, yaml.SequenceNode):
        return place, tag, [tree(item) for item in node.value]
    return place, tag, [(tree(key), tree(value)) for key, value in node.value]


def told(text: str) -> Any:
    """The tree of a text, or of what kind its error is."""
    try:
        return tree(nodes(text))
    except REFUSALS as error:
        return type(error)


def test_both_readers_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, fast = random.Random(11), 0
    for _ in range(4000):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 12)))
        slow = told(text)
        with monkeypatch.context() as patch:
            patch.setattr(pipeline_yaml, "LONG", 0)
            assert told(text) == slow, repr(text)
        fast += read_alike(text) and not isinstance(slow, type)
    assert fast > 500


UNLIKE = ["{a- \n\n\\x41?c\\x41}", "[...\n? |\n-]"]


@pytest.mark.parametrize("text", UNLIKE)
def test_what_they_take_differently_is_read_by_the_one(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_yaml, "LONG", 0)
    assert not read_alike(text)
    slow = told(text)
    monkeypatch.setattr(pipeline_yaml, "read_alike", lambda _: True)
    assert told(text) != slow  # the twin without the check


def test_what_is_nested_too_deeply_is_refused_and_breaks_no_stack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline_yaml, "LONG", 0)
    for text in ("[" * 200_000, "{a: " * 200_000, "- " * 200_000):
        assert told(text) in (RecursionError, yaml.parser.ParserError)


def test_a_long_file_means_what_a_short_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(GOOD)
    short = load(path)
    path.write_text(
        GOOD.replace("epsilon: 1/3", "epsilon:", 1).replace("horizon: 8760", "horizon: 1 0")
    )
    with pytest.raises(UsageError) as before:
        load(path)
    monkeypatch.setattr(pipeline_yaml, "LONG", 0)
    with pytest.raises(UsageError) as after:
        load(path)
    assert str(after.value) == str(before.value)
    path.write_text(GOOD)
    assert load(path) == short


def test_the_collector_rests_inside_and_goes_on_behind() -> None:
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
    with suppress(KeyError), uncollected():
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_file_of_many_series_is_read_by_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "series:\n" + "".join(f"  - {{name: s{at}, statistic: count}}\n" for at in range(200))
    slow = pipeline_yaml.nodes(text[:1000].rpartition("\n")[0])
    assert slow is not None
    monkeypatch.setattr(yaml, "compose", lambda *_, **__: 1 // 0)
    assert pipeline_yaml.nodes(text) is not None
