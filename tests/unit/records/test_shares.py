"""Which ratios are shares: those of a part and its whole, by their conditions, for every statistic that can be one.

The oracle is brute force: every record that matters, and what the engine counts of it without noise.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from unit.pipeline.routing.planned_worlds import engine_of, ran

from stream_dp.engine.ports import Batch
from stream_dp.engine.series import MadeSeries
from stream_dp.errors import StreamDPError
from stream_dp.files.memory import MemorySource, MemoryStore
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records.conditions import Condition, implies
from stream_dp.records.conditions import tests_of as meaning_of
from stream_dp.records.schema import FieldSpec
from stream_dp.statistics import STATISTICS
from stream_dp.testing.noise import SeededNoise, ZeroNoise

SCHEMA: dict[str, Any] = {
    "time": {"type": "time"},
    "who": {"type": "text", "nullable": "true"},
    "country": {"type": "category", "domain": ["DE", "FR"], "nullable": "true"},
    "late": {"type": "boolean", "nullable": "true"},
    "stops": {"type": "integer", "nullable": "true"},
    "fare": {"type": "number", "nullable": "true"},
    "tags": {"type": "list", "domain": ["p", "q"], "most": "2", "nullable": "true"},
}
FIELDS = {name: TypeAdapter[Any](FieldSpec).validate_python(told) for name, told in SCHEMA.items()}
VALUES: Mapping[str, Sequence[Any]] = {
    "who": ("a", "b", "c", None),
    "country": ("DE", "FR", "else", None),
    "late": (True, False, None),
    "stops": (-1, 0, 1, 2, 3, 4, None),
    "fare": (-0.5, 0, 0.25, 0.5, 0.75, 1, 1.5, None),
    "tags": (["p"], ["q"], ["p", "q"], [], None),
}
"""Of each field every value that a test below names, one between each two of them, one beyond, and null."""
NAMED: Mapping[str, Sequence[str]] = {
    "who": ("a", "b"), "country": ("DE", "FR"), "late": ("true", "false"), "stops": ("0", "1", "2", "3"),
    "fare": ("0", "0.5", "1"), "tags": ("p", "q"),
}  # fmt: skip
OPERATORS: Mapping[str, Sequence[str]] = {
    "who": ("equals", "one_of"), "country": ("equals", "one_of"), "late": ("equals",), "tags": ("contains",),
    "stops": ("at_least", "at_most", "equals", "one_of"), "fare": ("at_least", "at_most", "equals", "one_of"),
}  # fmt: skip


@st.composite
def conditions(draw: st.DrawFn, names: Sequence[str]) -> dict[str, Any]:
    field = draw(st.sampled_from(names))
    operator, named = draw(st.sampled_from(OPERATORS[field])), st.sampled_from(NAMED[field])
    values = draw(st.lists(named, min_size=1, max_size=3) if operator == "one_of" else named)
    return {"field": field, operator: values}


@st.composite
def pairs(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Two lists of conditions on the same few fields, the second often a part of the first."""
    names = draw(st.lists(st.sampled_from([*VALUES]), min_size=1, max_size=2))
    part = draw(st.lists(conditions(names), max_size=4))
    some = st.sampled_from(part) if part else conditions(names)
    return part, draw(st.lists(some | conditions(names), max_size=3))


def takes(condition: Mapping[str, Any], value: Any) -> bool:
    ((operator, wanted),) = ((key, of) for key, of in condition.items() if key != "field")
    if value is None:
        return False
    if operator == "contains":
        return bool(wanted in value)
    if operator == "one_of":
        return any(takes({"field": condition["field"], "equals": one}, value) for one in wanted)
    if isinstance(value, bool):
        return bool(value == (wanted == "true"))
    if isinstance(value, str):
        return bool(value == wanted)
    against = float(wanted)
    if operator == "equals":
        return bool(value == against)
    return bool(value >= against if operator == "at_least" else value <= against)


def passing(where: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> bool:
    return all(takes(one, record[one["field"]]) for one in where)


def follows(part: Sequence[Any], whole: Sequence[Any]) -> bool:
    """Whether no record passes the one and not the other: all of them are tried."""
    names = sorted({one["field"] for one in (*part, *whole)})
    records = (dict(zip(names, each, strict=True)) for each in product(*(VALUES[n] for n in names)))
    return all(passing(whole, record) for record in records if passing(part, record))


def claimed(part: Sequence[Any], whole: Sequence[Any]) -> bool:
    read = [tuple(map(Condition.model_validate, where)) for where in (part, whole)]
    return implies(FIELDS, *(meaning_of(FIELDS, where) for where in read))


@settings(max_examples=600)
@given(pairs())
def test_one_filter_implies_another_exactly_where_no_record_speaks_against_it(
    both: tuple[list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    assert claimed(*both) == follows(*both)


OWN: Mapping[str, tuple[dict[str, Any], ...]] = {
    "count": ({}, {"windows": ["2h", "ever"]}),
    "sum": ({"of": "stops", "clamp": ["0", "9"]}, {"of": "stops", "clamp": ["-1", "9"]}),
    "mean": ({"of": "stops", "clamp": ["0", "9"]},),
    "gauge": ({"of": "country", "plus": "DE", "minus": "FR", "floor": "0"},),
    "distinct": ({"of": "who"}, {"of": "who", "every": ["2h"]}, {"of": "stops"}),
    "histogram": ({"by": "country", "method": "tree"}, {"by": "tags", "windows": ["2h"]}),
    "top": ({"by": "country", "k": "2"},),
    "maximum": ({"by": "country"},),
    "largest": ({"by": "country", "rank": "2"},),
    "columns_above": ({"by": "country", "level": "2"},),
    "quantiles": ({"of": "stops", "edges": ["0", "2"], "at": ["0.5"]},),
    "alerts": ({"by": "country", "threshold": "5"},),
    "monitor": ({"watch": [{"name": "w", "above": "5"}]},),
    "cut_off": ({},),
    "ratio": ({"of": "whole", "over": "whole"},),
}
SUM = {"statistic": "sum", "of": "stops", "clamp": ["0", "9"]}
SHARES = {"count", "sum", "distinct", "histogram"}
WIDE, NARROW = [{"field": "stops", "at_least": "1"}], [{"field": "stops", "equals": "2"}]


def divided(part: Mapping[str, Any], whole: Mapping[str, Any]) -> Built:
    """A pipeline with a part, its whole and their ratio; raises what is refused."""
    data = {
        "version": "1", "name": "shop", "source": {"kind": "file", "path": "unused.jsonl"}, "schema": SCHEMA,
        "privacy": {"epsilon": "20"},
        "clock": {
            "kind": "replay", "field": "time", "start": "2026-01-01T00:00:00Z", "step": "1h", "horizon": "6",
        },
        "series": [
            {**part, "name": "part", "epsilon": "1"}, {**whole, "name": "whole", "epsilon": "1"},
            {"name": "share", "statistic": "ratio", "of": "part", "over": "whole"},
        ],
    }  # fmt: skip
    return build(PipelineSpec.model_validate(data))


def batches(records: Callable[[int], Sequence[Mapping[str, Any]]]) -> list[Batch]:
    found, first = [], 0
    for tick in range(6):
        time = {"time": f"2026-01-01T0{tick}:30:00Z"}
        payloads = [json.dumps({**one, **time}).encode() for one in records(tick)]
        end = first + len(payloads)
        found.append(Batch(0, payloads, range(first, end), end + 1, mark=tick))
        first = end + 1
    return found


def events(seed: int) -> list[Batch]:
    lot = Random(seed)
    return batches(lambda _: [{n: lot.choice(of) for n, of in VALUES.items()} for _ in range(30)])


def numbers(body: Mapping[str, Any]) -> Iterator[tuple[Any, float]]:
    for window, part in body.get("windows", {"": body}).items():
        for key, value in part.get("values", {"": part.get("value")}).items():
            yield (window, key), value


def is_share(built: Built) -> bool:
    """Whether the plan and readers are told that it is a share; both say the same."""
    (series,) = (each for each in built.spec.series if each.inputs)
    within = "within" in series.parameters_by(built.spec.fields)
    assert within == ("a share" in built.made[0].why)
    return within


@pytest.mark.parametrize(
    "statistic", [kind.model_fields["statistic"].default for kind in STATISTICS]
)
def test_a_part_of_every_statistic_that_can_be_one_is_a_share(statistic: str) -> None:
    """And what is told as one never exceeds the whole, without noise."""
    accepted = 0
    for own, wheres in product(OWN[statistic], product(([], WIDE, NARROW), repeat=2)):
        part, whole = ({"statistic": statistic, **own, "where": where} for where in wheres)
        try:
            built = divided(part, whole)
        except (ValidationError, StreamDPError):
            continue
        accepted += 1
        adds = statistic in SHARES and "-1" not in own.get("clamp", ())
        assert is_share(built) == (adds and follows(*wheres)), (part, whole)
        if is_share(built):
            for seed in range(3):
                bodies = ran(built, events(seed), lambda *_: ZeroNoise())
                found = {(body["series"], body["tick"]): dict(numbers(body)) for body in bodies}
                for tick in range(6):
                    of, over = found["part", tick], found["whole", tick]
                    assert all((of[at] or 0) <= (over[at] or 0) for at in of)
                assert sum(found["whole", 5].values())
    assert bool(accepted) == (statistic in {*SHARES, "gauge"})


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        ({"statistic": "distinct", "of": "who"}, {"statistic": "distinct", "of": "stops"}),
        ({"statistic": "distinct", "of": "who"}, {"statistic": "count"}),
        (SUM, {"statistic": "count"}),
        (SUM, SUM | {"clamp": ["0", "8"]}),
    ],
)
def test_two_of_different_things_are_none(part: dict[str, Any], whole: dict[str, Any]) -> None:
    assert not is_share(divided(part, whole))


BUYERS = {"statistic": "distinct", "of": "who", "where": NARROW}
VISITORS = {"statistic": "distinct", "of": "who", "where": WIDE}


def visits() -> list[Batch]:
    plain = dict.fromkeys(VALUES)
    return batches(lambda tick: [plain | {"who": f"{tick} {n}", "stops": n} for n in (1, 2)])


def noise(_seed: bytes, number: int) -> SeededNoise:
    """The same in each run: in the first ticks more buyers than visitors."""
    return SeededNoise(number + 31)


async def test_a_journal_whose_shares_are_not_cut_starts_and_its_releases_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the first version wrote them: a share of distinct values was an ordinary quotient."""
    built, store, bodies = divided(BUYERS, VISITORS), MemoryStore(), list[bytes]()
    with monkeypatch.context() as patched:
        patched.setattr(
            MadeSeries, "body", lambda made, *given: made._written(made.makes[-1], *given)
        )
        await engine_of(
            built, MemorySource(visits()[:3], partitions=(0,)), store, bodies, noise
        ).run()
    before = [body for body in bodies if b'"share"' in body]
    assert max(json.loads(body)["value"] or 0 for body in before) > 1
    await engine_of(built, MemorySource(visits(), partitions=(0,)), store, bodies, noise).run()
    after = [body for body in bodies if b'"share"' in body]
    assert after[:3] == before
    assert all((json.loads(body)["value"] or 0) <= 1 for body in after[3:])
    assert len(after) == 6
