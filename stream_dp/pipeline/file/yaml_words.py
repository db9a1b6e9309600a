"""What is no YAML, in words for whoever wrote it: what stands there, and what to write in its place.

Rules: a reader's error is known by PyYAML's own words; one that is not in the table is told in those. Its place is
where people have to look, which is not always where the reader stopped. Nothing but signs of YAML is repeated.
"""

import re
from typing import Any, Final

import yaml

_QUOTES: Final = "a text that begins with {0} needs quotes around it"
_WORDS: Final[tuple[tuple[str, str, str], ...]] = (
    (".*", r"found character '\\t'.*", "a tab stands here; YAML wants spaces"),
    (".*", r"found character '(.)'.*", _QUOTES),
    (".*an (?:alias|anchor)", r"expected .*", _QUOTES.format("* or &")),
    (".*a tag", r"expected .*", _QUOTES.format("!")),
    (".*a directive", r".*", _QUOTES.format("%")),
    (".*a block scalar", r"expected .*", _QUOTES.format("> or |")),
    (".*quoted scalar", r"found unexpected .*", "the quotes that begin {1} are never closed"),
    (".*", r"found unknown escape character .*", "\\ begins an escape in double quotes; write \\\\"),
    ("while scanning a simple key", r"could not find expected ':'",
     "a key without ': ' behind it; a space belongs behind the colon"),
    (".*", r"mapping values are not allowed.*",
     "a colon too many, a dash without a space, or a line indented unlike those above; a text with ': ' needs quotes"),
    (".*", r"sequence entries are not allowed.*", "a dash begins an entry of a list, on a line of its own"),
    (".*", r"expected <block end>, but found '<block .*", "is indented unlike the lines that it belongs to"),
    (".*", r"expected <block end>, but found '\?'", "a key stands here, where the lines above are entries of a list"),
    (".*", r"expected <block end>, but found '-'", "an entry of a list stands here, where the lines above are keys"),
    (".*", r"expected <block end>, but found '<scalar>'|expected '<document start>', .*",
     "text stands behind what has ended already"),
    (".*", r"expected <block end>, but found '([\]},])'", "{0} closes nothing that was opened"),
    (".*", r"expected ',' or '(.)', but got .*", "a comma is missing before this, or the {0} to what opens {1}"),
    (".*", r"but found another document", "--- begins another document, and a file holds one pipeline"),
)  # fmt: skip
"""What PyYAML says that it reads and finds, and what people are told: {0} is the sign, {1} where it began."""


def yaml_words(error: yaml.MarkedYAMLError) -> tuple[Any, str]:
    """Return the mark at which to tell a reader's error, and what to tell."""
    context, found = error.context or "", error.problem or error.context
    mark = error.problem_mark or error.context_mark
    for within, kind, words in _WORDS:
        if re.fullmatch(within, context) and (match := re.fullmatch(kind, error.problem or "")):
            begins = _begins(error.context_mark)
            told = words.format(*(match.groups() or ("",)), begins)
            at_key = context == "while scanning a simple key"
            return (error.context_mark if at_key else mark), told
    return mark, str(found)


def _begins(mark: Any) -> str:
    return "before" if mark is None else f"in line {mark.line + 1}, column {mark.column + 1}"
