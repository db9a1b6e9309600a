"""The keys of pipeline files as a page, from their JSON Schema: what each is, its limits, its default.

A schema says a value as a text or as a number where YAML may write either; the page says it once, in the words of
docs/pipeline.md.
"""

import re
from typing import Any

Schema = dict[str, Any]

# Parts of a file in the order in which one writes them, by the suffix or the name of their models.
GROUPS = {
    "Sources and logins": ("SourceSpec", "Workers", "Values", "Security"),
    "Fields of `schema`": ("Field",),
    "Privacy": ("Privacy", "SharedTotal", "Guesses", "Analyst"),
    "Clocks": ("Clock",),
    "Series": ("Series",),
    "Parts of series": ("Condition", "Edges", "TickKey", "WatchSpec"),
    "Journal, releases and queries": ("JournalSpec", "Releases", "Queries"),
}
# By an example of each, the ones that admit most first, so that a pattern is named by the most that it takes.
WORDS = {
    "A b": "text",
    "orders": "name",
    "2026-01-01T00:00:00Z": "time with an offset",
    "16MiB": "size",
    "90m": "duration",
    "1/3": "decimal or fraction",
    "-7": "whole number",
}
UNITS = {
    "duration": {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1},
    "size": {"MiB": 2**20, "KiB": 2**10, "B": 1},
}


def heading(name: str, part: Schema) -> str:
    """The name under which a part stands: its own words in a file where it has any."""
    for key in ("statistic", "type", "kind"):
        if "const" in (own := part["properties"].get(key, {})):
            return f"{own['const']}" if key != "kind" else f"{own['const']} ({key_of(name)})"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.removesuffix("Spec")).lower()


def key_of(name: str) -> str:
    """The key of the file whose kinds a model is one of."""
    return next(key for key in ("source", "journal", "clock") if key in name.lower())


def anchor(title: str) -> str:
    """The place of a heading, as viewers make it."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def between(least: Any, most: Any, what: str = "") -> str:
    """Limits in words, nothing where there are none."""
    if least is None and most is None:
        return ""
    if most is None:
        return f", at least {least:,}{what}"
    return f", at most {most:,}{what}" if least is None else f", {least:,} to {most:,}{what}"


class Words:
    """What a schema says, as text with links to the parts that it names."""

    def __init__(self, parts: dict[str, Schema]) -> None:
        self.titles = {name: heading(name, part) for name, part in parts.items()}

    def link(self, reference: str) -> str:
        title = self.titles[reference.rsplit("/", 1)[1]]
        return f"[{title}](#{anchor(title)})"

    def of(self, value: Schema) -> str:
        """What a value is, with its limits."""
        if "$ref" in value:
            return self.link(value["$ref"])
        if "const" in value:
            return f"`{value['const']}`"
        if "enum" in value:
            return self.choice(value["enum"])
        for several in ("oneOf", "anyOf"):
            if several in value:
                return self.several(value[several])
        return self.plain(value)

    def choice(self, values: list[Any]) -> str:
        texts = dict.fromkeys(str(each) for each in values)
        return (
            "true or false"
            if set(texts) == {"true", "false"}
            else ", ".join(f"`{t}`" for t in texts)
        )

    def several(self, values: list[Schema]) -> str:
        """Alternatives, less those that are another's as YAML may write it."""
        said = dict.fromkeys(self.of(each) for each in values)
        if any(each.startswith("whole number,") for each in said):
            said.pop("whole number", None)
        if "decimal or fraction" in said:
            said.pop("number", None)
        return " or ".join(said)

    def plain(self, value: Schema) -> str:
        kind = value.get("type")
        if kind == "array":
            entry = (
                self.of(value["items"]) if "items" in value else self.of(value["prefixItems"][0])
            )
            size = between(value.get("minItems"), value.get("maxItems"))
            if value.get("minItems") == value.get("maxItems") is not None:
                size = f", {value['minItems']} of them"
            return f"list of: {entry}{size}"
        if kind == "object":
            inner = next(iter(value.get("patternProperties", {}).values()), None)
            entry = self.of(inner or value["additionalProperties"])
            size = between(value.get("minProperties"), value.get("maxProperties"))
            return f"mapping of names to: {entry}{size}"
        if kind == "integer":
            return "whole number" + between(value.get("minimum"), value.get("maximum"))
        if kind == "boolean":
            return "true or false"
        if kind == "number":
            return "number"
        if "pattern" in value:
            fits = [word for text, word in WORDS.items() if re.search(value["pattern"], text)]
            return fits[0] if fits else f"text of the form `{value['pattern']}`".replace("|", "\\|")
        return "text" + between(None, value.get("maxLength"), " characters")


def default(key: str, value: Schema, part: Schema, what: str) -> str:
    """What holds where a key is left out; durations and sizes in the largest unit that fits."""
    if key in part.get("required", ()):
        return "must be there"
    given = value.get("default")
    if isinstance(given, dict) and given:
        return "its defaults"
    if given is None or given in ("", [], {}):
        return "none"
    if isinstance(given, bool):
        return str(given).lower()
    for unit, size in UNITS.get(what, {}).items():
        if given % size == 0:
            return f"`{given // size}{unit}`"
    return f"`{given}`"


def table(part: Schema, words: Words) -> str:
    """The keys of a part, one a row."""
    said = {key: words.of(value) for key, value in part["properties"].items()}
    rows = [
        f"| `{key}` | {said[key]} | {default(key, value, part, said[key])} |"
        for key, value in part["properties"].items()
    ]
    return "\n".join(["| key | what it is | if left out |", "|---|---|---|", *rows])


def section(title: str, part: Schema, words: Words, more: str) -> str:
    """A part under its heading, with the page that explains it."""
    return f"### {title}\n\n{part.get('description', '')}{more}\n\n{table(part, words)}\n"


def explained(pipeline: str) -> dict[str, str]:
    """The pages of the statistics by their names, from the table of docs/pipeline.md."""
    rows = re.findall(r"^\| `(\w+)` \|.*\| (\[[^\]]+\]\([^)]+\)) \|$", pipeline, re.MULTILINE)
    return {name: f" More: {link}." for name, link in rows}


def keys_page(schema: Schema, pipeline: str) -> str:
    """All keys, the file's own first; `pipeline` is the text of docs/pipeline.md.

    Raises:
        ValueError: a part belongs to no group.
    """
    parts = schema["$defs"]
    words, pages = Words(parts), explained(pipeline)
    page = ["\n## The file\n", table(schema, words), ""]
    left = dict(parts)
    for group, ends in GROUPS.items():
        page.append(f"\n## {group}\n")
        named = [name for end in ends for name in parts if name.endswith(end)]
        for name in named:
            if name in left:
                title = words.titles[name]
                page.append(section(title, left.pop(name), words, pages.get(title, "")))
    if left:
        raise ValueError(f"parts of the schema without a group: {sorted(left)}")
    return "\n".join(page)
