"""Records with awkward values, features that ask for them, and what the oracle makes of both."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st
from oracles.tick_rows import (
    Added,
    Binned,
    Clocked,
    Comparison,
    Counted,
    Going,
    Named,
    Value,
    tick_rows,
)

from stream_dp.engine.ports import Batch
from stream_dp.pipeline.layout import Block, Feature, RowLayout, Slot
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records.amount_units import Amount
from stream_dp.records.conditions import Test
from stream_dp.records.groupings import Edges, TickKey, grouping_fields, keys_of, parts_of

START, STEP, HORIZON = 1_714_521_600_000, 3_600_000, 6
DOMAINS = {"kind": ("a", "b", "c"), "place": ("x", "y"), "tags": ("p", "q", "r")}
MOST = 3
SPEC = PipelineSpec.model_validate(
    {
        "version": 1,
        "name": "columns",
        "source": {"kind": "file", "path": "columns.jsonl"},
        "schema": {
            "at": {"type": "time", "format": "epoch_ms"},
            "kind": {"type": "category", "domain": list(DOMAINS["kind"])},
            "place": {"type": "category", "domain": list(DOMAINS["place"]), "nullable": True},
            "tags": {"type": "list", "domain": list(DOMAINS["tags"]), "most": MOST, "nullable": True},
            "note": {"type": "text", "nullable": True},
            "n": {"type": "integer", "nullable": True},
            "m": {"type": "integer"},
            "x": {"type": "number", "nullable": True},
            "flag": {"type": "boolean", "nullable": True},
        },
        "privacy": {"epsilon": "1"},
        "clock": {"kind": "replay", "field": "at", "start": START, "step": STEP, "horizon": HORIZON},
        "series": [{"name": "all", "statistic": "count", "epsilon": "1"}],
    }
)  # fmt: skip
INTEGERS = (-(2**63), -(2**53) - 1, -(2**53), -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1)
NUMBERS = (-1e308, -1.0, -0.0, 0.0, 5e-324, 0.1, 0.30000000000000004, 1.0, float(2**53), 1e308)
TEXTS = ("", "a", "b", "x", "null", "None", "Ä", "true")
MOMENTS = (START - 1, START, START + STEP - 1, START + STEP, START + HORIZON * STEP - 1,
           START + HORIZON * STEP)  # fmt: skip
POOLS: dict[str, tuple[Value, ...]] = {
    "kind": (*DOMAINS["kind"], "?", ""),
    "place": (*DOMAINS["place"], "?", "other"),
    "tags": (
        (),
        ("p",),
        ("q", "q"),
        ("q", "p", "q"),
        ("r", "?", "p"),
        ("?", "", "?"),
        ("r", "q", "p"),
    ),
    "note": TEXTS,
    "n": INTEGERS,
    "m": INTEGERS,
    "x": NUMBERS,
    "flag": (False, True),
}
BAD: dict[str, tuple[str, Any]] = {
    "n": ("wrong_type", 2**63), "m": ("wrong_type", None), "x": ("wrong_type", "1"), "kind": ("wrong_type", None),
    "tags": ("too_many_entries", ["p", "q"] * 2),
}  # fmt: skip


def optional(name: str) -> st.SearchStrategy[Value | None]:
    """A value of a field; null where the field may be null."""
    values: st.SearchStrategy[Value | None] = st.sampled_from(POOLS[name])
    return st.one_of(values, st.none()) if SPEC.fields[name].nullable else values


RECORDS = st.fixed_dictionaries(
    {name: optional(name) for name in POOLS}
    | {"at": st.sampled_from(MOMENTS), "spoilt": st.sampled_from([None, None, None, *BAD])}
)
"""Records as their values, and the field that `payload` spoils (None: it is a good one)."""


def test_of(name: str) -> st.SearchStrategy[Test]:
    """A condition on a field."""
    pool = DOMAINS.get(name) or POOLS[name]
    one = st.sampled_from(pool).map(lambda value: frozenset([value]))
    if name == "tags":
        return st.builds(Test, st.just(name), st.just("contains"), one)
    several = st.frozensets(st.sampled_from(pool), min_size=1, max_size=3)
    found = [st.builds(Test, st.just(name), st.just("equals"), one)]
    if name != "flag":
        found.append(st.builds(Test, st.just(name), st.just("one_of"), several))
    if name in {"n", "m", "x"}:
        found.append(st.builds(Test, st.just(name), st.sampled_from(["at_least", "at_most"]), one))
    return st.one_of(found)


AHEAD = {None: 0, "Asia/Kolkata": 19_800_000, "Etc/GMT+8": -28_800_000}
"""Zones whose clocks never change, and how many ms they are ahead of UTC."""
GOING: tuple[str | Edges | TickKey, ...] = (
    *DOMAINS,
    "flag",
    Edges(field="x", edges=(Fraction(-1), Fraction("0.1"), Fraction(1))),
    Edges(field="n", edges=(Fraction(-(2**53) - 1), Fraction(0), Fraction(2**63 - 1))),
    Edges(field="m", edges=(Fraction(2**53 + 1),)),
    *(TickKey(tick=tick, zone=zone) for tick in ("hour", "weekday") for zone in AHEAD),
)
BY: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.sampled_from(GOING),
    st.lists(st.sampled_from(GOING), min_size=2, max_size=3, unique=True).map(tuple),
)
AMOUNTS = (
    Amount("x", Fraction(-1), Fraction(1), Fraction(1, 8)),
    Amount("x", Fraction(0), Fraction(10**9)),
    Amount("n", Fraction(-3), Fraction(2)),
    Amount("m", Fraction(-(10**9)), Fraction(10**9)),
    Amount("m", Fraction(20), Fraction(60), Fraction(20)),
)
FEATURES = st.lists(
    st.builds(
        Feature,
        BY,
        st.frozensets(st.sampled_from(sorted(POOLS)).flatmap(test_of), max_size=3),
        st.sampled_from([None, None, *AMOUNTS]),
    ),
    min_size=1,
    max_size=6,
    unique=True,
)


def laid_out(features: Sequence[Feature]) -> RowLayout:
    width, slots = 0, dict[Feature | Block, Slot]()
    for feature in features:
        keys = keys_of(SPEC.fields, feature.by)
        slots[feature] = Slot(width, keys)
        width += len(keys)
    return RowLayout(width, slots, {})


def payload(record: dict[str, Any]) -> bytes:
    """A record as JSON; a null may as well be absent."""
    values = {name: value for name, value in record.items() if name != "spoilt"}
    if record["spoilt"] is not None:
        values[record["spoilt"]] = BAD[record["spoilt"]][1]
    elif record["n"] is None:
        del values["n"]
    return json.dumps(values).encode()


@dataclass(frozen=True)
class Outcome:
    """Rows and numbers of records by tick, and the refused records' places, reasons and fields."""

    rows: dict[int, list[int]]
    records: dict[int, int]
    refused: list[tuple[int, str, str | None]]


def routed(layout: RowLayout, records: Sequence[dict[str, Any]], tick: int | None) -> Outcome:
    made = Router(SPEC, START, layout).route(
        Batch(0, [payload(record) for record in records], range(len(records)), 0, tick=tick)
    )
    refused = [
        (at, one.reason, one.field) for one in made.dead for at in range(one.first, one.last + 1)
    ]
    return Outcome({at: row.tolist() for at, row in made.rows.items()}, made.records, refused)


def expected(layout: RowLayout, records: Sequence[dict[str, Any]], tick: int | None) -> Outcome:
    """What the oracle says; a spoilt field is refused only where the layout uses it."""
    features = [feature for feature, _ in layout.counted(SPEC)]
    used = {name for feature in features for name in grouping_fields(feature.by)}
    used |= {name for feature in features for test in feature.where for name in test.fields}
    used |= {feature.of.field for feature in features if feature.of is not None}
    kept: list[dict[str, Any]] = []
    ticks: list[int] = []
    refused: list[tuple[int, str, str | None]] = []
    for place, record in enumerate(records):
        own = (record["at"] - START) // STEP
        spoilt = record["spoilt"]
        if spoilt is not None and spoilt in used:
            refused.append((place, BAD[spoilt][0], spoilt))
        elif not 0 <= (own if tick is None else tick) < HORIZON:
            refused.append((place, "time_out_of_range", "at"))
        else:
            kept.append(record)
            ticks.append(own if tick is None else tick)
    rows = tick_rows(kept, ticks, counted(layout), layout.width, lambda t: START + t * STEP)
    return Outcome(rows, {at: ticks.count(at) for at in set(ticks)}, refused)


def going(part: Any) -> Going:
    """One grouping in the oracle's words."""
    if isinstance(part, Edges):
        number = float if part.field == "x" else int
        return Binned(part.field, tuple(number(edge) for edge in part.edges))
    if isinstance(part, TickKey):
        return Clocked(part.tick == "weekday", AHEAD[part.zone])
    return Named(part, DOMAINS.get(part, ("False", "True")))


def adding(amount: Amount) -> Added:
    """An amount in the oracle's words."""
    low, high = (int(bound / amount.step) for bound in (amount.lowest, amount.highest))
    return Added(amount.field, low, high, float(amount.step))


def counted(layout: RowLayout) -> list[Counted]:
    """The features in the oracle's words."""
    return [
        Counted(
            slot.start,
            tuple(map(going, parts_of(feature.by))) if feature.by is not None else (),
            tuple(
                Comparison(t.field, t.operator, tuple(t.values))
                for t in feature.where
                if isinstance(t, Test)
            ),
            adding(feature.of) if isinstance(feature.of, Amount) else None,
        )
        for feature, slot in layout.counted(SPEC)
    ]
