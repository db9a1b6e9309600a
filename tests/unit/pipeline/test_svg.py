"""The derivation tree as a picture: well-formed, a box for each node, texts escaped and inside, no overlap."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.operate.example_files import flights_folder
from stream_dp.pipeline import svg
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.file.yaml import load
from stream_dp.pipeline.report import derivation_json
from stream_dp.pipeline.svg import draw

SVG = "{http://www.w3.org/2000/svg}"
Rect = tuple[int, int, int, int]


def parsed(svg: str) -> ET.Element:
    """The document; an error where it is not well-formed."""
    return ET.fromstring(svg)  # noqa: S314 - our own text


def rects(root: ET.Element) -> list[Rect]:
    """(left, top, right, bottom) of every box."""
    found = []
    for rect in root.iter(f"{SVG}rect"):
        x, y, width, height = (int(rect.attrib[key]) for key in ("x", "y", "width", "height"))
        found.append((x, y, x + width, y + height))
    return found


def overlapping(boxes: list[Rect]) -> list[tuple[Rect, Rect]]:
    """Pairs of boxes with a common point."""
    return [
        (one, two)
        for one, two in combinations(boxes, 2)
        if one[0] <= two[2] and two[0] <= one[2] and one[1] <= two[3] and two[1] <= one[3]
    ]


def nodes(derivation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All nodes of a derivation."""
    yield derivation
    for premise in derivation["premises"]:
        yield from nodes(premise)


@pytest.fixture(scope="module")
def flights() -> dict[str, Any]:
    """The derivation of the example."""
    return derivation_json(build(load(flights_folder() / "pipeline.yaml")).derivation)


TEXTS = st.text(max_size=60) | st.sampled_from(["<script>", "a & b", "]]>", '"', "\x00", "x" * 300])
CONDITIONS = st.fixed_dictionaries({"name": TEXTS, "holds": st.booleans(), "why": TEXTS})
GUARANTEES = st.sampled_from(
    [{"epsilon": 0.5, "delta": 0, "neighbors": "add_remove"}, {"rho": 0.1}, {"mu": 1}, "ε = 1", {}]
)


def _with(premises: Any) -> Any:
    return st.fixed_dictionaries(
        {
            "subject": TEXTS,
            "rule": TEXTS,
            "source": TEXTS,
            "guarantee": GUARANTEES,
            "conditions": st.lists(CONDITIONS, max_size=3),
            "premises": premises,
        }
    )


TREES = st.recursive(
    _with(st.just([])), lambda trees: _with(st.lists(trees, max_size=4)), max_leaves=12
)


@given(TREES)
@settings(max_examples=60, deadline=None)
def test_every_tree_is_drawn_whole(derivation: dict[str, Any]) -> None:
    root = parsed(draw(derivation))
    boxes = rects(root)
    assert len(boxes) == len(list(nodes(derivation)))
    assert overlapping(boxes) == []
    edges = list(root.iter(f"{SVG}path"))
    assert len(edges) == len(boxes) - 1
    width, height = int(root.attrib["width"]), int(root.attrib["height"])
    assert all(x >= 0 and y >= 0 and right <= width and low <= height for x, y, right, low in boxes)


def test_the_overlap_check_finds_a_layout_that_is_too_tight(
    monkeypatch: pytest.MonkeyPatch, flights: dict[str, Any]
) -> None:
    assert overlapping(rects(parsed(draw(flights)))) == []
    monkeypatch.setattr(svg, "SPACE", -1)
    assert overlapping(rects(parsed(draw(flights)))) != []
    monkeypatch.undo()
    monkeypatch.setattr(svg, "GAP", 0)
    assert overlapping(rects(parsed(draw(flights)))) != []


def test_every_word_of_the_example_is_there_in_order(flights: dict[str, Any]) -> None:
    shown = parsed(draw(flights)).iter(f"{SVG}g")
    for node, group in zip(nodes(flights), shown, strict=True):
        texts = [line.text or "" for line in group.iter(f"{SVG}text")]
        words = " ".join(texts).split()
        expected = [node["subject"], f"ε = {node['guarantee']['epsilon']}, δ = 0, add_remove"]
        expected += [node["rule"], node["source"]]
        expected += [f"✓ {c['name']}: {c['why']}" for c in node["conditions"]]
        assert words == " ".join(expected).split()


def test_texts_lie_inside_their_box(flights: dict[str, Any]) -> None:
    for group in parsed(draw(flights)).iter(f"{SVG}g"):
        (rect,) = group.iter(f"{SVG}rect")
        top, height = int(rect.attrib["y"]), int(rect.attrib["height"])
        lines = [int(text.attrib["y"]) for text in group.iter(f"{SVG}text")]
        assert all(top < line < top + height - 4 for line in lines)
        assert all(two - one >= 12 for one, two in pairwise(lines))


def test_what_could_be_markup_stays_text() -> None:
    evil = '</text><script>alert(1)</script><!-- & "'
    condition = {"name": evil, "holds": False, "why": "\x0b\ud800"}
    svg = draw({"subject": evil, "rule": evil, "source": evil, "conditions": [condition]})
    root = parsed(svg)
    assert list(root.iter(f"{SVG}script")) == []
    svg.encode("utf-8")
    (box,) = root.iter(f"{SVG}g")
    words = "".join(text.text or "" for text in box.iter(f"{SVG}text"))
    assert "</text><script>alert(1)</script>" in words.replace(" ", "")
    assert "✗" in words


def test_nothing_is_loaded_from_elsewhere(flights: dict[str, Any]) -> None:
    drawn = draw(flights).replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not any(part in drawn for part in ("http", "url(", "href", "@import", "@font-face"))


def test_a_bare_tree_can_be_drawn() -> None:
    assert len(rects(parsed(draw({})))) == 1
