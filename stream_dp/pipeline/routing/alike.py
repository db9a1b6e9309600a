"""Features whose conditions differ in one value only: one count by the values of that field answers all of them.

A hundred thousand features that each ask for another `equals` of one field are a histogram of that field, read at a
hundred thousand places. Rules: counting features together changes no count, only the work; whether it is done
depends on the features alone, never on records.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from stream_dp.records.conditions import Test

MANY = 8  # from so many features on, those that share a field and all other conditions are counted together
_CODED = ("category", "text", "list", "integer")
_VALUED = ("equals", "one_of", "contains")

Wheres = frozenset[Test]


class AskedFor(NamedTuple):
    """A feature's columns of the row, and the values of the field that it counts."""

    columns: tuple[int, ...]
    values: frozenset[Any]


@dataclass(frozen=True, slots=True)
class Alike:
    """Features that count values of `field`, among the records that pass `rest`."""

    field: str
    rest: Wheres
    wanted: tuple[AskedFor, ...]


def alike(
    scalars: Mapping[Wheres, Sequence[int]], fields: Mapping[str, Any]
) -> tuple[list[Alike], dict[Wheres, Sequence[int]]]:
    """Split features (columns of the row by their conditions) into those counted together and the others."""
    known = Counter(key for where in scalars for _, key in _ways(where, fields))
    together: dict[tuple[str, Wheres], list[AskedFor]] = {}
    alone: dict[Wheres, Sequence[int]] = {}
    for where, columns in scalars.items():
        ways = [(known[key], key[0], test, key) for test, key in _ways(where, fields)]
        number, _, test, key = max(ways, key=lambda way: way[:2], default=(0, "", None, None))
        if number < MANY or test is None or key is None:
            alone[where] = columns
        else:
            together.setdefault(key, []).append(AskedFor(tuple(columns), test.values))
    return [Alike(field, rest, tuple(found)) for (field, rest), found in together.items()], alone


def _ways(where: Wheres, fields: Mapping[str, Any]) -> Iterator[tuple[Test, tuple[str, Wheres]]]:
    """Yield each condition that asks for values, with its field and the other conditions."""
    for test in where:
        if test.operator in _VALUED and fields[test.field].type in _CODED:
            yield test, (test.field, where - {test})
