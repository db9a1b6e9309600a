"""The nodes of a YAML text: by PyYAML's own reader, and for a long text by libyaml, thirty times as fast.

Rules: both say the same, or the first one decides: what libyaml refuses, and a text with characters that the two take
differently, is read by PyYAML, whose words and places people are told. Tags of what has none of its own say nothing
but that they are standard. libyaml has no limit of nesting and no guard of the stack; here it has one.
"""

import re
from typing import Any

import yaml

LONG = 1 << 12  # characters; a text that is shorter takes a tenth of a second at most
MOST_NESTED = 100
PLAIN_TAG = "tag:yaml.org,2002:str"
_ALIKE = re.compile("[\n\x20-\x3e@-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]*")
_UNLIKE = re.compile(r"^(?:\.\.\.|---|%)", re.MULTILINE)
_BASES: tuple[type, ...] = ()
if yaml.__with_libyaml__:
    from yaml._yaml import CParser

    _BASES = (CParser,)


class _TooDeep(Exception):
    """The text is nested deeper than any pipeline."""


class _Fast(*_BASES):  # type: ignore[misc]  # CParser, where there is one
    """Composes nodes; what it asks of a resolver."""

    depth = 0

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        """Return the tag of what has none; no value is looked at."""
        return PLAIN_TAG

    def descend_resolver(self, parent: Any, index: Any) -> None:
        """Enter a node: the one place to count how deep they are nested."""
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise _TooDeep

    def ascend_resolver(self) -> None:
        """Leave a node."""
        self.depth -= 1


def nodes(text: str) -> yaml.Node | None:
    """Return the root of a text's one document; None where it has none. A plain scalar has style None or "".

    Raises:
        yaml.YAMLError, ValueError, OverflowError, RecursionError: it is no YAML, or nested too deeply.
    """
    if _BASES and len(text) >= LONG and said_alike(text):
        try:
            return _fast(text)
        except (_TooDeep, yaml.YAMLError, ValueError, RecursionError):
            pass
    root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    return root


def said_alike(text: str) -> bool:
    """Say whether a text holds none of what the two readers take differently.

    That is tabs and line breaks other than line feeds, marks of a document, directives, and a `?`.
    """
    return _ALIKE.fullmatch(text) is not None and _UNLIKE.search(text) is None


def _fast(text: str) -> yaml.Node | None:
    root: yaml.Node | None = _Fast(text).get_single_node()
    return root
