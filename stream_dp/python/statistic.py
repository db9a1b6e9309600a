"""What a program asks of a budget: a statistic by the keys that it has in pipeline files, checked as an entry of one.

`Count`, `Mean` and so on are names of this module, one for each of `STATISTICS`: whoever adds a statistic there has it
here. A request becomes a pipeline of its own, in memory, so every mistake is found that is one in a file, all at once.
"""

import inspect
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeAlias

from pydantic_core import ErrorDetails

from stream_dp.errors import UsageError
from stream_dp.pipeline.spec import PipelineSpec, diagnose
from stream_dp.pipeline.yaml import joined, nodes, placed
from stream_dp.records.endpoints import WallClock
from stream_dp.records.privacy import Privacy
from stream_dp.statistics import STATISTICS
from stream_dp.statistics.parts.series_spec import SeriesSpec

Amount: TypeAlias = int | str | Fraction | Decimal  # an exact number
Schema: TypeAlias = Mapping[
    str, Mapping[str, Any]
]  # the fields of an event, each as in `schema:` of a pipeline file

_BY_BUDGET = ("statistic", "name", "epsilon")  # keys of an entry that the budget fills in
# A budget ticks from outside, as a wall clock does, and that needs a source whose records are stamped. Nothing is read.
_SOURCE = {"kind": "kafka", "topic": "events", "bootstrap": "localhost:1"}
# Parts are checked together only in a whole file, which has a series.
_ANY_SERIES = {"name": "any", "statistic": "count", "epsilon": "0.000001"}
_NO_FIELD = {"(no field)": {"type": "text", "nullable": True}}


class Statistic:
    """A statistic that is asked for, by its keys in pipeline files, but `name` and `epsilon`.

    Parameters
    ----------
    **keys
        What the statistic needs: as in a pipeline file, with lists, dicts and exact numbers; in a `Pipeline` also
        `name` and `epsilon`. They are checked together with the schema, when a budget or a pipeline is asked for it.
    """

    kind: ClassVar[type[SeriesSpec]]

    def __init__(self, **keys: Any) -> None:
        self.keys = keys

    @property
    def word(self) -> str:
        """Its name in pipeline files."""
        return str(self.kind.model_fields["statistic"].default)

    def entry(self, name: str, epsilon: Amount | None) -> dict[str, Any]:
        """Return the entry of `series:` that it is under this name and at this price."""
        return {"statistic": self.word, **self.keys, "name": name, **present({"epsilon": epsilon})}

    def __repr__(self) -> str:
        keys = ", ".join(f"{name}={value!r}" for name, value in self.keys.items())
        return f"{type(self).__name__}({keys})"


@cache
def named(name: str) -> type[Statistic]:
    """Return the class of a statistic; raise AttributeError where `STATISTICS` has none of this name."""
    kinds = {kind.__name__.removesuffix("Series"): kind for kind in STATISTICS}
    if name not in kinds:
        raise AttributeError(f"module 'stream_dp' has no attribute {name!r}")
    kind, empty = kinds[name], inspect.Parameter.empty
    parameters = inspect.signature(kind).parameters.values()
    keys = [key.replace(annotation=empty) for key in parameters if key.name not in _BY_BUDGET]
    shown = inspect.Signature(keys)  # by notebooks, which complete the keys too
    namespace = {"kind": kind, "__doc__": kind.__doc__, "__signature__": shown}
    return type(name, (Statistic,), {**namespace, "__module__": __name__})


def __getattr__(name: str) -> type[Statistic]:
    return named(name)


def present(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Request:
    """An `entry` of `series:` beside these `parts` of the file: `privacy`, `clock`, `schema` and `confidence`.

    `inputs` are those of series that run already, which it may be made of; `taken`: another one has its name.
    """

    entry: Mapping[str, Any]
    parts: Mapping[str, Any]
    inputs: Sequence["Request"] = ()
    taken: bool = False

    def checked(self) -> PipelineSpec:
        """Return the pipeline, whose last series is the one that is asked for.

        Raises UsageError with every problem of the entry and of the parts, each with its key.
        """
        entries = [request.entry for request in (*self.inputs, self)]
        data = _whole({**self.parts, "schema": self._schema()}, entries)
        floats = dict(_floats(data))
        if self.taken:
            taken = f"a series '{self.entry['name']}' is already there"
            floats[f"series[{len(self.inputs)}].name"] = taken
        result = diagnose(data)
        problems = dict(_problems(data, result)) if isinstance(result, list) else {}
        if isinstance(result, list) or floats:
            _refuse({**problems, **floats}, len(self.inputs))
        return result

    def _schema(self) -> dict[str, Any]:
        """Return its fields, and those of its inputs."""
        fields, inherited = dict(self.parts["schema"]), [i.parts["schema"] for i in self.inputs]
        for name, field in (pair for schema in inherited for pair in schema.items()):
            if fields.setdefault(name, field) != field:
                raise UsageError(
                    f"schema.{name}: this field is declared otherwise in a series from which this one is "
                    "computed"
                )
        return fields


def checked_parts(parts: Mapping[str, Any]) -> PipelineSpec:
    """Return `privacy` and `clock` in a pipeline without series; errors as of `Request.checked`."""
    data = _whole(parts, (_ANY_SERIES,))
    result = diagnose(data)
    errors = [e for e in result if e["loc"][0] != "series"] if isinstance(result, list) else []
    if problems := dict([*_problems(data, errors), *_floats(data)]):
        _refuse(problems, 0)
    known: dict[str, Any] = {
        "privacy": Privacy.model_validate(data["privacy"]),
        "clock": WallClock.model_validate(data["clock"]),
    }
    return PipelineSpec.model_construct(**known)


def _whole(parts: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    schema = parts["schema"] or _NO_FIELD
    keys = {"version": 1, "name": "budget", "source": _SOURCE, **parts, "schema": schema}
    whole: dict[str, Any] = plain({**keys, "series": entries})
    return whole


def plain(value: Any) -> Any:
    """Return the value with texts in place of decimals, which the models read exactly, and of paths."""
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Fraction | Path):
        return str(value)
    return f"{value:f}" if isinstance(value, Decimal) else value


def _floats(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the place of each float, which is not the decimal that was written, and what to write instead."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _floats(entry, joined(path, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _floats(item, joined(path, place))
    elif isinstance(value, float):
        double, instead = float(value), "write an exact number, such as 1"
        if math.isfinite(double):
            top, bottom = Fraction(repr(double)).as_integer_ratio()
            instead = f'write "{double!r}" or Fraction({top}, {bottom})'
        yield path, f"{double!r} is a float, and numbers are exact here: {instead}"


def _problems(data: Mapping[str, Any], errors: Sequence[ErrorDetails]) -> Iterator[tuple[str, str]]:
    """Yield the place and the text that each problem has in a file."""
    if errors and (root := nodes(json.dumps(data, default=str))) is not None:
        for problem in sorted(placed(root, errors)):
            yield problem.path, problem.message + problem.meant


def _refuse(problems: Mapping[str, str], last: int) -> NoReturn:
    raise UsageError("\n".join(f"{_argument(path, last)}: {why}" for path, why in problems.items()))


def _argument(path: str, last: int) -> str:
    """Return the argument, or the key of the statistic, that a place of the file is here."""
    path = path.replace("clock.step", "tick")
    for part in (f"series[{last}].", "clock.", "privacy."):
        path = path.removeprefix(part)
    return path
