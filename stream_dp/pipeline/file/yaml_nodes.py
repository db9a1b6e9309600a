"""The nodes of a YAML text: from PyYAML, and for a long text from libyaml, which is thirty times as fast.

Rules: both readers must agree, or PyYAML decides: a text that libyaml refuses, or that contains characters which
the two read differently, is read by PyYAML, whose messages and places are shown to people. Nodes without a tag get
a standard tag without further meaning. libyaml has no limit of nesting and does not protect the stack; here it has
a limit.
"""

import re
from typing import Any

import yaml

LONG = 1 << 12  # characters; PyYAML reads a shorter text in a tenth of a second
MOST_NESTED = 100
PLAIN_TAG = "tag:yaml.org,2002:str"
_ALIKE = re.compile("[\n\x20-\x3e@-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]*")
_UNLIKE = re.compile(r"^(?:\.\.\.|---|%)", re.MULTILINE)
_BASES: tuple[type, ...] = ()
if yaml.__with_libyaml__:
    from yaml._yaml import CParser

    _BASES = (CParser,)


class _TooDeep(Exception):
    """The text is nested more deeply than any pipeline."""


class _Fast(*_BASES):  # type: ignore[misc]  # CParser, if installed
    """Composes nodes with libyaml and acts as its resolver."""

    depth = 0

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        """Return the tag of a node without one; ignores the value."""
        return PLAIN_TAG

    def descend_resolver(self, parent: Any, index: Any) -> None:
        """Enter a node and count the depth; raise _TooDeep beyond the limit."""
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise _TooDeep

    def ascend_resolver(self) -> None:
        """Leave a node."""
        self.depth -= 1


def nodes(text: str) -> yaml.Node | None:
    """Return the root of a text's single document, None without one. A plain scalar has style None or "".

    Raises:
        yaml.YAMLError, ValueError, OverflowError, RecursionError: it is not YAML, or nested too deeply.
    """
    if _BASES and len(text) >= LONG and said_alike(text):
        try:
            return _fast(text)
        except (_TooDeep, yaml.YAMLError, ValueError, RecursionError):
            pass
    root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    return root


def said_alike(text: str) -> bool:
    """Return whether a text has nothing that the two readers treat differently.

    They differ on tabs and line breaks other than line feeds, document markers, directives, and `?`.
    """
    return _ALIKE.fullmatch(text) is not None and _UNLIKE.search(text) is None


def _fast(text: str) -> yaml.Node | None:
    root: yaml.Node | None = _Fast(text).get_single_node()
    return root
