"""What people are told: numbers with their nouns, what a misspelled name may have meant, how far a long task is.

Rules: progress is public: ticks, releases, games, files, or percent; never records, bytes or places of a source,
except in a command that shows the operator exact figures and says so in `what`. Nothing here prints: the caller
decides whether and where progress is shown.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Final, Protocol


class Progress(Protocol):
    """Receiver of progress; it may be called at any rate."""

    def __call__(self, what: str, done: int = 0, of: int = 0, unit: str = "", /) -> None:
        """Take the progress; an empty `what` means that there is nothing to wait for.

        `of` is 0 where the total is not known; `unit` is the noun of one thing, or %, or empty where nothing is
        counted.
        """
        ...


def unseen(_what: str, _done: int = 0, _of: int = 0, _unit: str = "", /) -> None:
    """Ignore the progress."""


def percent(done: int, of: int) -> tuple[int, int, str]:
    """Return a part of a whole as the arguments `done`, `of` and `unit` of a `Progress`.

    >>> percent(1, 3), percent(7, 0)
    ((33, 100, '%'), (0, 0, ''))
    """
    return (min(100, 100 * done // of), 100, "%") if of > 0 else (0, 0, "")


def how_many(number: int, noun: str, several: str | None = None) -> str:
    """Return a number with its noun; `several` is the plural, by default the noun with an s.

    >>> how_many(1, "tick"), how_many(1200, "tick"), how_many(0, "entry", "entries")
    ('1 tick', '1,200 ticks', '0 entries')
    """
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"


LONGEST = 100
"""Number of characters of the written text that are compared."""
SKIMMED, COMPARED = 5_000, 1_000
"""Most names compared apart from case and punctuation, and most names compared letter by letter."""
_ALIKE = 0.65  # difflib's ratio; "amount" is too far from "at_most"
_PUNCTUATION = re.compile(r"[\W_]")
_ELSEWHERE: Final[Mapping[str, tuple[str, ...]]] = {
    "agg": ("statistic",), "aggregate": ("statistic",), "array": ("list",), "average": ("mean",), "avg": ("mean",),
    "bigint": ("integer",), "broker": ("bootstrap",), "brokers": ("bootstrap",), "cardinality": ("distinct",),
    "columns": ("schema",), "csv": ("file",), "date": ("time",), "datetime": ("time",), "decimal": ("number",),
    "double": ("number",), "enum": ("category",), "eps": ("epsilon",), "eq": ("equals",), "field": ("of",),
    "fields": ("schema",), "filter": ("where",), "float": ("number",), "freq": ("step",), "group_by": ("by",),
    "groupby": ("by",), "gt": ("at_least",), "gte": ("at_least",), "in": ("one_of",), "int": ("integer",),
    "interval": ("step",), "key": ("by",), "kind": ("statistic", "type"), "long": ("integer",), "lt": ("at_most",),
    "lte": ("at_most",), "max": ("maximum", "at_most", "clamp"), "median": ("quantiles",), "metric": ("statistic",),
    "metrics": ("series",), "min": ("at_least", "clamp"), "n": ("k",), "no": ("false",), "off": ("false",),
    "on": ("true",), "optional": ("nullable",), "percentile": ("quantiles",), "percentiles": ("quantiles",),
    "range": ("clamp",), "required": ("nullable",), "str": ("text",), "string": ("text",), "threshold": ("above",),
    "timestamp": ("time",), "total": ("sum",), "type": ("statistic", "kind"), "unique": ("distinct",),
    "values": ("domain",), "varchar": ("text",), "yes": ("true",), ">": ("at_least",), ">=": ("at_least",),
    "<": ("at_most",), "<=": ("at_most",), "=": ("equals",), "==": ("equals",),
}  # fmt: skip
"""Names in other tools, with our names for the same thing."""


def near_names(written: object, names: Iterable[str], most: int = 1) -> list[str]:
    """Return at most `most` of `names` that `written` may mean, the nearest first.

    First come names that differ only in case and punctuation, then names that other tools use for the same thing, then
    names with a similar spelling. The known names are public; the written text is never returned. The number of
    compared names is bounded, because anybody may ask often.

    >>> near_names("Epsilom", ["epsilon", "delta"]), near_names("user-id", ["user_id"]), near_names("x", ["epsilon"])
    (['epsilon'], ['user_id'], [])
    """
    if not isinstance(written, str):
        return []
    wanted = written[:LONGEST]
    some = list(islice(names, SKIMMED))
    near = alike_names(wanted, some)
    near += [name for name in _ELSEWHERE.get(wanted.lower(), ()) if name in some]
    if len(near) < most:
        cased: dict[str, str] = {}
        for name in some[:COMPARED]:
            cased.setdefault(name.casefold(), name)
        spelled = get_close_matches(wanted.casefold(), list(cased), most, _ALIKE)
        near += [cased[name] for name in spelled]
    return list(dict.fromkeys(near))[:most]


def alike_names(written: str, names: Iterable[str]) -> list[str]:
    """Return the names that differ from `written` only in case, spaces and punctuation.

    >>> alike_names("User ID", ["user_id", "user"])
    ['user_id']
    """
    plain = _plain(written)
    return [name for name in names if plain and _plain(name) == plain]


def meant(written: object, names: Iterable[str]) -> str:
    """Return a question to append to a refusal, "; did you mean epsilon?"; empty where no name is near.

    >>> meant("epsilom", ["epsilon", "delta"])
    '; did you mean epsilon?'
    """
    near = near_names(written, names)
    shown = (name if name == name.strip() else repr(name) for name in near)
    return "".join(f"; did you mean {name}?" for name in shown)


def shown_number(number: float) -> str:
    """Return a number as people read it.

    >>> shown_number(1234.5), shown_number(0.12345), shown_number(float("inf"))
    ('1,234', '0.123', 'inf')
    """
    return f"{number:,.0f}" if abs(number) >= 10 else f"{number:,.3g}"


def _plain(name: str) -> str:
    return _PUNCTUATION.sub("", name.casefold())
