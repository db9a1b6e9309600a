"""The statistic `gauge`: what each record counts, and the exact loss over every small stream; twins lose more.

Independent of the code: neighbouring streams are enumerated, and what tells them apart is found from the real noise
(`oracles.tree_privacy`).
"""

import itertools
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles.tree_privacy import least_shift
from unit.statistics.statistic_cases import DOORS, built_of, rows_of

from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.counter import SumCounter, SumCounterState
from stream_dp.testing.noise import ScriptedNoise, ZeroNoise

KINDS = {"enter": 1, "leave": -1, "look": 0, None: 0}


@pytest.mark.parametrize(
    ("keys", "field", "signs"),
    [
        (DOORS, "kind", KINDS),
        ("of: pieces, plus: [1, 2], minus: -1", "pieces", {1: 1, 2: 1, -1: -1, 0: 0, 3: 0}),
        ("of: customer, plus: [in, back], minus: out", "customer", {"in": 1, "back": 1, "out": -1, "": 0}),
    ],
)  # fmt: skip
def test_each_record_counts_up_down_or_not(
    tmp_path: Path, keys: str, field: str, signs: dict[Any, int]
) -> None:
    built = built_of(tmp_path, f"statistic: gauge, {keys}")
    for value, sign in signs.items():
        assert rows_of(built, {field: value}).tolist() == [sign]
    assert rows_of(built, *({field: v} for v in [*signs] * 5)).tolist() == [5 * sum(signs.values())]


def test_by_and_where_go_together_and_no_other_series_changes(tmp_path: Path) -> None:
    late = "statistic: gauge, of: kind, plus: leave, minus: enter, where: [{field: pieces, at_least: 5}]"
    built = built_of(
        tmp_path,
        f"statistic: gauge, {DOORS}, by: country",
        "{name: all, epsilon: 1, statistic: count}",
        f"{{name: late, epsilon: 1, {late}}}",
    )
    records: list[dict[str, Any]] = [
        {"kind": kind, "country": country, "pieces": pieces}
        for kind, country, pieces in itertools.product(KINDS, ("DE", "FR", "ES"), (0, 5))
        for _ in range(1 + (kind == "enter") + (country == "FR"))
    ]
    expected = [
        sum(KINDS[one["kind"]] for one in records if one["country"] == country)
        for country in ("DE", "FR", "ES")
    ]
    only_late = -sum(KINDS[one["kind"]] for one in records if one["pieces"] >= 5)
    assert rows_of(built, *records).tolist() == [*expected, len(records), only_late]


class FlooredWithin(SumCounter):
    """Never counts below 0: what an event adds may be lost at the floor later, in a tick of its own."""

    def step(
        self, state: SumCounterState, message: Message, noise: Noise
    ) -> tuple[SumCounterState, IntArray | None]:
        after, answer = super().step(state, message, noise)
        return SumCounterState(np.maximum(after.total, 0), after.noise), answer


class AddedForReplaced(SumCounter):
    """The noise of add_remove under replace, where a record that came may have gone instead."""

    @property
    def l1(self) -> int:
        return self.weight


TICKS, EPSILON, BIG = 4, Fraction(4, 5), 1 << 20


def answers(mechanism: SumCounter, noise: Any, rows: Sequence[int]) -> IntArray:
    state, found = mechanism.init(noise), []
    for row in rows:
        state, _ = mechanism.step(state, Update(np.array([row])), noise)
        _, answer = mechanism.step(state, Query(), noise)
        assert answer is not None
        found.append(int(answer[0]))
    return np.array(found)


def law(mechanism: SumCounter) -> tuple[Any, Any]:
    """The real map from noises to answers, and one over each noise's scale."""
    called, empty = ScriptedNoise([0] * 20_000), [0] * TICKS
    answers(mechanism, called, empty)
    scales = [call.scale for call in called.calls for _ in range(call.size)]
    scripts = [[BIG * (at == one) for one in range(len(scales))] for at in range(len(scales))]
    matrix = np.array([answers(mechanism, ScriptedNoise(each), empty) / BIG for each in scripts]).T
    used = np.abs(matrix).max(axis=0) > 1e-4
    return matrix[:, used], np.array([float(1 / scale) for scale in scales])[used]


def worst(mechanism: SumCounter) -> float:
    """The largest loss over every stream of four records' signs, and every change of one of them."""
    matrix, weights = law(mechanism)
    changes = {(a, 0) for a in (-1, 1)}
    if mechanism.neighbors is Neighbors.REPLACE:
        changes |= set(itertools.permutations((-1, 0, 1), 2))
    shifts = set()
    for rows in itertools.product((-1, 0, 1), repeat=TICKS):
        for tick, (left, right) in itertools.product(range(TICKS), changes):
            pair = [[*rows[:tick], rows[tick] + one, *rows[tick + 1 :]] for one in (left, right)]
            one, other = (answers(mechanism, ZeroNoise(), each) for each in pair)
            shifts.add(tuple(one - other))
    found = [least_shift(matrix, np.array(s), weights, integer=False) for s in shifts if any(s)]
    return max(float(weights @ np.abs(each)) for each in found)


@pytest.mark.parametrize("relation", [Neighbors.ADD_REMOVE, Neighbors.REPLACE])
def test_every_pair_of_small_streams_loses_the_claim_at_most(relation: Neighbors) -> None:
    mechanism = SumCounter(1, EPSILON, relation, TICKS, -1, 1)
    assert worst(mechanism) == pytest.approx(float(EPSILON), abs=2e-3)


@pytest.mark.parametrize(("twin", "relation", "least"), [
    (FlooredWithin, Neighbors.ADD_REMOVE, 1.3), (AddedForReplaced, Neighbors.REPLACE, 1.9),
])  # fmt: skip
def test_a_twin_loses_more(twin: type[SumCounter], relation: Neighbors, least: float) -> None:
    assert worst(twin(1, EPSILON, relation, TICKS, -1, 1)) > least * float(EPSILON)
