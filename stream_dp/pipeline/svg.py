"""A derivation tree as a picture: SVG text, from what `derivation_json` says and nothing else.

Rules: premises stand to the right of what follows from them, each node in a box of its own, first premise at the
height of its conclusion. Text is wrapped by estimated widths, which are rather too large than too small, so no font
is loaded; every text is escaped. One style sheet serves light and dark readers; nothing refers to other files.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any
from xml.sax.saxutils import escape

WIDTH, GAP, SPACE, PADDING, MARGIN = 290, 46, 14, 12, 8
_PART = 5  # between the parts of one box
_ILLEGAL = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_STYLE = """
:root { color-scheme: light dark; }
text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: #171a26; }
rect { fill: #ffffff; stroke: #c9cedd; }
.leaf rect { stroke: #3b5bdb; stroke-width: 1.5; }
path { fill: none; stroke: #8b93a8; stroke-width: 1.5; }
.subject { font-size: 14px; font-weight: 600; }
.result { font-size: 13px; font-weight: 600; fill: #3b5bdb; }
.rule { font-size: 12px; }
.source { font-size: 11px; fill: #5d6478; }
.holds { font-size: 10px; fill: #1b7f4d; }
.fails { font-size: 10px; fill: #c92a2a; }
@media (prefers-color-scheme: dark) {
  text { fill: #e9ebf3; }
  rect { fill: #181c28; stroke: #3a4258; }
  .leaf rect { stroke: #8ca5ff; }
  .result { fill: #8ca5ff; }
  .source { fill: #9aa2b8; }
  .holds { fill: #63d79b; }
  .fails { fill: #ff8787; }
}
"""
_SIZES = {"subject": 14, "result": 13, "rule": 12, "source": 11, "holds": 10, "fails": 10}
_EM = {"subject": 0.6, "result": 0.6}  # estimated mean width of a letter; 0.55 for the others
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

PICTURE_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'"
"""The Content-Security-Policy under which the picture shows as it should: its own style, nothing else."""


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of text: its class, its baseline below the top of its box, its words."""

    kind: str
    below: int
    words: str


@dataclass(slots=True)
class _Box:
    lines: tuple[_Line, ...]
    height: int
    premises: tuple["_Box", ...]
    x: int = 0
    y: int = 0
    subtree: int = field(init=False)

    def __post_init__(self) -> None:
        stacked = sum(p.subtree for p in self.premises) + SPACE * (len(self.premises) - 1)
        self.subtree = max(self.height, stacked)


def draw(derivation: Mapping[str, Any]) -> str:
    """The SVG document of a derivation {subject, rule, source, guarantee, conditions, premises}.

    >>> draw({"subject": "a < b", "rule": "proven mechanism"}).count("a &lt; b")
    2
    """
    root = _box(derivation)
    _place(root, MARGIN, MARGIN)
    boxes = tuple(_walk(root))
    width = max(box.x for box in boxes) + WIDTH + MARGIN
    height = root.subtree + 2 * MARGIN
    title = _clean(f"Derivation: {derivation.get('subject', '')}")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="title">',
            f'<title id="title">{title}</title>',
            f"<style>{_STYLE}</style>",
            *(_edge(box, premise) for box in boxes for premise in box.premises),
            *(_node(box) for box in boxes),
            "</svg>\n",
        ]
    )


def _box(node: Mapping[str, Any]) -> _Box:
    lines, below = [], PADDING
    for kind, text in _parts(node):
        size = _SIZES[kind]
        letters = int((WIDTH - 2 * PADDING) / (size * _EM.get(kind, 0.55)))
        for words in wrap(text, letters):
            below += round(size * 1.35)
            lines.append(_Line(kind, below - round(size * 0.3), words))
        below += _PART
    return _Box(tuple(lines), below - _PART + PADDING, tuple(map(_box, node.get("premises", ()))))


def _parts(node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts of a node in reading order, each with its class."""
    texts = {
        "subject": node.get("subject"),
        "result": _result(node.get("guarantee")),
        "rule": node.get("rule"),
        "source": node.get("source"),
    }
    yield from ((kind, str(text)) for kind, text in texts.items() if text)
    for condition in node.get("conditions", ()):
        holds, why = condition.get("holds", False), condition.get("why")
        words = f"{condition.get('name', '')}: {why}" if why else str(condition.get("name", ""))
        yield ("holds", f"✓ {words}") if holds else ("fails", f"✗ {words}")


def _result(guarantee: Any) -> str:
    """The guarantee in one line; whatever the measure, each of its numbers by name."""
    if not isinstance(guarantee, Mapping):
        return str(guarantee or "")
    letters = {"epsilon": "ε", "delta": "δ", "rho": "ρ", "alpha": "α", "mu": "μ"}
    numbers = (f"{letters[key]} = {guarantee[key]}" for key in letters if key in guarantee)
    whom = (guarantee.get("neighbors"), guarantee.get("users"))
    return ", ".join([*numbers, *map(str, filter(None, whom))])


def _place(box: _Box, x: int, y: int) -> None:
    box.x, box.y = x, y
    for premise in box.premises:
        _place(premise, x + WIDTH + GAP, y)
        y += premise.subtree + SPACE


def _walk(box: _Box) -> Iterator[_Box]:
    yield box
    for premise in box.premises:
        yield from _walk(premise)


def _edge(box: _Box, premise: _Box) -> str:
    """From the right side of a conclusion to the left side of a premise, through the gap between."""
    start, middle, end = box.x + WIDTH, box.x + WIDTH + GAP // 2, premise.x
    return f'<path d="M{start} {box.y + 22}H{middle}V{premise.y + 22}H{end}"/>'


def _node(box: _Box) -> str:
    kind = "node" if box.premises else "node leaf"
    texts = "".join(
        f'<text class="{line.kind}" x="{box.x + PADDING}" y="{box.y + line.below}">'
        f"{_clean(line.words)}</text>"
        for line in box.lines
    )
    shape = f'x="{box.x}" y="{box.y}" width="{WIDTH}" height="{box.height}" rx="10"'
    return f'<g class="{kind}"><rect {shape}/>{texts}</g>'


def _clean(text: str) -> str:
    """Escaped, and without the characters that XML has no place for."""
    return escape(_ILLEGAL.sub("\ufffd", text))
