"""What the router counts against what the ledger thinks a series sees: odd records, conditions of every kind.

A record goes through the router as bytes, in the file's series and in live series of their own. Whatever it holds, the
series that count it have boxes that meet, and no more of them than the plan states at an epsilon of 1 each.
"""

import json
from itertools import combinations
from random import Random
from typing import Any

import pytest
from unit.verify.exact.raw_streams import pipeline

from stream_dp.core.guarantee import PureDP
from stream_dp.engine.ports import Batch
from stream_dp.engine.tick_assembler import thin
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.router import OpenRouter

FIELDS: dict[str, Any] = {
    "land": {"type": "category", "domain": ["a", "b", "null"], "nullable": "true"},
    "n": {"type": "integer", "nullable": "true"},
    "ok": {"type": "boolean", "nullable": "true"},
    "city": {"type": "text", "nullable": "true"},
}
TEXTS = ["a", "a ", "A", "\u00e9", "e\u0301", "null", "true", "1", "\u212b", "\u00c5"]
INTEGERS = [str(n) for n in (0, -1, 5, 6, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))]
NUMBERS = ["0", "-0", "0.3", "0.30000000000000004", "9007199254740993", "9007199254740992", "1e15"]
OTHERS = [
    "null", "true", '"1"', "1e0", "5.0", "-0.0", "1e999", "-1e999", "NaN", str(2**63), '"zz"', "[]", '["x","x"]',
    '"\\u0061"', '"other"',
]  # fmt: skip
VALUES: dict[str, list[str]] = {
    "land": ["a", "b", "null"], "n": INTEGERS, "amount": NUMBERS, "city": TEXTS, "ok": ["true", "FALSE"],
    "tags": ["x", "y"],
}  # fmt: skip
OPERATORS = {
    "land": ["equals", "one_of"], "city": ["equals", "one_of"], "ok": ["equals"], "tags": ["contains"],
    "n": ["equals", "one_of", "at_least", "at_most"], "amount": ["equals", "one_of", "at_least", "at_most"],
}  # fmt: skip
PLAIN = {"time": "0", "who": '"me"', "key": '"a"'}


def condition(random: Random) -> dict[str, Any]:
    name = random.choice(list(VALUES))
    operator, values = random.choice(OPERATORS[name]), VALUES[name]
    wanted: Any = random.sample(values, 2) if operator == "one_of" else random.choice(values)
    return {"field": name, operator: wanted}


def count(name: str, where: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name, "statistic": "count", "windows": ["1s"], "epsilon": "1", "where": where,
    }  # fmt: skip


def value(random: Random, name: str) -> str:
    if random.random() < 0.15:
        return random.choice(OTHERS)
    if name == "tags":
        return random.choice(["[]", '["x"]', '["x", "y"]', '["y", "y"]', '["x", "nope"]', "null"])
    wanted = random.choice(VALUES[name])
    return json.dumps(wanted) if name in ("land", "city") else wanted.lower()


def record(random: Random) -> bytes:
    """Fields in any order, some missing, one sometimes twice."""
    names = [name for name in VALUES if random.random() > 0.06]
    names += random.sample(names, 1) if random.random() < 0.15 else []
    random.shuffle(names)
    fields = [*PLAIN.items(), *((name, value(random, name)) for name in names)]
    return ("{" + ", ".join(f'"{name}": {text}' for name, text in fields) + "}").encode()


def counted(router: OpenRouter, payload: bytes, columns: list[int]) -> list[int]:
    rows = router.route(Batch(0, [payload], range(1), 1)).rows
    sparse = thin(rows[0]) if 0 in rows else None
    cells = {} if sparse is None else dict(zip(sparse.columns, sparse.counts, strict=True))
    return [int(cells.get(column, 0)) for column in columns]


def alone(built: Built) -> tuple[OpenRouter, list[int]]:
    """Every series as a live one, beside a file of another."""
    router = OpenRouter(pipeline([count("z", [])], {}, 1, more=FIELDS), 0)
    columns = []
    for number, feature in enumerate(built.layout.series.values()):
        columns.append(router.open(feature, router.place(feature), number + 1).start)
    return router, columns


@pytest.mark.parametrize("seed", range(8))
def test_series_that_count_a_record_have_boxes_that_meet(seed: int) -> None:
    random = Random(seed)
    wheres = [[condition(random) for _ in range(random.choice([1, 1, 2]))] for _ in range(6)]
    series = [count(f"s{number}", where) for number, where in enumerate(wheres)]
    built = build(pipeline(series, {}, 1, more=FIELDS))
    measure = built.derivation.guarantee.measure
    assert isinstance(measure, PureDP)
    boxes = [chosen.box for chosen in built.chosen]
    file = OpenRouter(built.spec, 0)
    live, own = alone(built)
    columns = [counts.rows.start for counts in built.run_config(0).series]
    some = 0
    for _ in range(100):
        payload = record(random)
        ways = counted(file, payload, columns), counted(live, payload, own)
        for counts in ways:
            places = [place for place, number in enumerate(counts) if number]
            assert sum(counts) == len(places) <= measure.epsilon, payload
            assert all(boxes[a].meets(boxes[b]) for a, b in combinations(places, 2)), payload
            some += len(places)
        assert not any(ways[0]) or ways[0] == ways[1]
    assert some
