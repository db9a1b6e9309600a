"""Windows as they are asked in earnest, from raw records: how noise must move for the same releases, and its price.

The theory says: an event lies in one count of each level, and counts get noise of their own. So noise that is moved by
what the records add to its count gives the same releases, byte for byte: that is a bijection, and its price is the sum
of |shift| / scale (pure), or of shift^2 / (2 variance) (zCDP). The test moves the noise of the real pipeline so, with
the rows that a real router made of the two streams, and asks for equality of the price and of what `plan` states.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from unit.verify.exact.raw_streams import SCHEMA, SEALER, event

from stream_dp.core.guarantee import ZCDP, PureDP
from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Batch
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import guard_of

MINUTE = 60_000
TICKS = 170
Records = Sequence[dict[str, Any]]


@dataclass
class Noted:
    """Noise by number of the draw and of the tick; notes what was asked for."""

    give: Callable[[int, int, int], IntArray]
    tick: int = 0
    calls: list[tuple[int, int, Fraction]] = field(default_factory=list)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """The values of this draw."""
        number = sum(1 for tick, *_ in self.calls if tick == self.tick)
        self.calls.append((self.tick, number, Fraction(scale)))
        return self.give(self.tick, number, size)

    gaussian = geometric = laplace


def built_of(series: dict[str, Any], privacy: dict[str, str]) -> Built:
    """Two weeks of minutes."""
    return build(
        PipelineSpec.model_validate(
            {
                "version": "1", "name": "raw", "source": {"kind": "file", "path": "unused.jsonl"}, "schema": SCHEMA,
                "privacy": {"epsilon": "10"} | privacy, "series": [series],
                "clock": {
                    "kind": "replay", "field": "time", "start": "1970-01-01T00:00:00Z", "step": "1m",
                    "horizon": "20160",
                },
            }
        )
    )  # fmt: skip


def rows_of(built: Built, records: Records) -> list[IntArray]:
    """The rows that guard and router make of these records."""
    values = [json.dumps(one).encode() for one in records]
    guard = guard_of(built.spec, 0, SEALER.user_key())
    guard.begin((0,))
    batch = guard.admit(Batch(0, values, range(len(values)), len(values)), -1)
    router = Router(built.spec, 0)
    rows = router.route(batch).rows
    return [rows.get(tick, np.zeros(router.width, np.int64)) for tick in range(TICKS)]


def published(built: Built, rows: Sequence[IntArray], noise: Noted, **changes: Any) -> list[bytes]:
    """All releases; with `changes` of a mechanism that is made for something else."""
    (series,) = built.run_config(0).series
    mechanism: Any = series.mechanism
    mechanism = made_for(mechanism, changes)
    state, found = mechanism.init(noise), []
    for tick, row in enumerate(rows):
        noise.tick = tick
        state, _ = mechanism.step(state, Update(row), noise)
        state, answer = mechanism.step(state, Query(), noise)
        found.append(series.body(TickGrid(0, MINUTE), tick, tick, state, answer))
    return found


def counts_of(mechanism: Any) -> Any:
    """What has the noise: behind quantiles, the counts of a tree over values."""
    return mechanism.tree.counts if hasattr(mechanism, "tree") else mechanism


def nodes_of(mechanism: Any) -> Callable[[IntArray], IntArray]:
    """What a row adds to the counts that get noise; a tree has its buckets, then level by level the sums of some."""
    if not hasattr(mechanism, "tree"):
        return lambda row: row
    leaves, arity = mechanism.tree.levels.leaves, mechanism.tree.levels.arity
    assert leaves > arity

    def nodes(row: IntArray) -> IntArray:
        levels = [[int(one) for one in row[:leaves]]]
        while len(levels[-1]) > arity:
            below = levels[-1]
            levels.append([sum(below[at : at + arity]) for at in range(0, len(below), arity)])
        return np.array([one for level in levels for one in level], np.int64)

    return nodes


def made_for(mechanism: Any, changes: dict[str, Any]) -> Any:
    """The mechanism made for something else; `a_level`: each level of the tree runs at the whole epsilon."""
    if not hasattr(mechanism, "tree"):
        return replace(mechanism, **changes)
    counts, height = mechanism.tree.counts, mechanism.tree.levels.height
    own = {"epsilon": counts.epsilon * height} if "a_level" in changes else changes
    return replace(mechanism, tree=replace(mechanism.tree, counts=replace(counts, **own)))


def price(built: Built, left: Records, right: Records, **changes: Any) -> Fraction:
    """What these streams cost by the shift of the theory, once the shift was seen to explain every release.

    Noise that is not moved explains nothing.
    """
    shape = counts_of(built.chosen[0].mechanism).shape
    spans = [1]
    for arity in shape.arities:
        spans.append(spans[-1] * arity)
    rows = rows_of(built, left), rows_of(built, right)
    nodes = nodes_of(built.chosen[0].mechanism)
    apart = [nodes(one - other) for one, other in zip(*rows, strict=True)]
    random = Random(7)
    drawn: dict[tuple[int, int], IntArray] = {}

    def shift(tick: int, number: int) -> IntArray:
        covered = apart[tick - spans[number] + 1 : tick + 1]
        moved: IntArray = np.sum(covered, axis=0, dtype=np.int64)
        return moved

    def first(tick: int, number: int, size: int) -> IntArray:
        drawn[tick, number] = np.array([random.randint(-99, 99) for _ in range(size)], np.int64)
        return drawn[tick, number]

    def second(tick: int, number: int, size: int) -> IntArray:
        return drawn[tick, number] + shift(tick, number)

    noise = Noted(first)
    told = published(built, rows[0], noise, **changes)
    assert published(built, rows[1], Noted(second), **changes) == told
    unmoved = Noted(lambda tick, number, size: drawn[tick, number])
    assert published(built, rows[1], unmoved, **changes) != told
    pure = isinstance(built.derivation.guarantee.measure, PureDP)
    found = Fraction(0)
    for tick, number, scale in noise.calls:
        moved = [abs(int(one)) for one in shift(tick, number)]
        found += sum(moved) / scale if pure else sum(one * one for one in moved) / (2 * scale)
    levels = {number for tick, number, _ in noise.calls}
    assert levels == set(range(len([span for span in spans if span <= TICKS])))
    return found


def stated(built: Built, most: int = TICKS) -> Fraction:
    """What the plan states, less the shares of levels whose first count ends after the last tick played."""
    measure = built.derivation.guarantee.measure
    assert isinstance(measure, PureDP | ZCDP)
    whole = measure.epsilon if isinstance(measure, PureDP) else measure.rho
    shape, span = counts_of(built.chosen[0].mechanism).shape, 1
    shares = [shape.shares[0]]
    for arity, share in zip(shape.arities, shape.shares[1:], strict=True):
        span *= arity
        if span <= most:
            shares.append(share)
    return whole * sum(shares, Fraction(0))


def at(tick: int, **values: Any) -> dict[str, Any]:
    """A record of a minute."""
    return event(**values) | {"time": tick * MINUTE}


def others() -> list[dict[str, Any]]:
    """Records of other users all over the ticks."""
    return [
        at(tick, who=f"u{tick}", tags=["y", "z"][: tick % 3], amount=tick % 5)
        for tick in range(TICKS)
    ]


ANY = {"neighbors": "replace"}
WITHIN = ANY | {"moves": "within_tick"}
RHO = {"filter": "zcdp", "delta": "1e-6"}
USERS = {"unit": "user", "user": "who", "max_events": "3", "per": "1h"}
COUNT = {"name": "s", "statistic": "count", "windows": ["1h", "24h"], "epsilon": "1"}
TAGS = {
    "name": "s",
    "statistic": "histogram",
    "by": "tags",
    "windows": ["1h", "24h"],
    "epsilon": "1",
}
SUM = {
    "name": "s",
    "statistic": "sum",
    "of": "amount",
    "clamp": ["-1", "2"],
    "windows": ["1h", "24h"],
    "epsilon": "1",
}
TREE = {
    "name": "s", "statistic": "quantiles", "of": "amount", "clamp": ["0", "200"], "at": ["0.5"],
    "windows": ["1h", "24h"], "epsilon": "1",
}  # fmt: skip
BOTH = ["x", "nope"]
FOUR = [at(60 + 13 * n, tags=BOTH, amount=9) for n in range(4)]
CROWD = [at(61, tags=BOTH, amount=9) for _ in range(4)]
PAIRS: dict[str, tuple[dict[str, Any], dict[str, str], Records, Records]] = {
    "count": (COUNT, {}, [at(5)], []),
    "count, any tick": (COUNT, ANY, [at(3)], [at(50)]),
    "list": (TAGS, {}, [at(7, tags=BOTH)], []),
    "list, replaced": (TAGS, WITHIN, [at(7, tags=BOTH)], [at(7, tags=["y", "z"])]),
    "list, any tick": (TAGS, ANY, [at(7, tags=BOTH)], [at(100, tags=BOTH)]),
    "list, Gaussian": (TAGS | {"method": "gaussian"}, RHO, [at(7, tags=BOTH)], []),
    "list, Gaussian, replaced": (
        TAGS | {"method": "gaussian"}, RHO | WITHIN, [at(7, tags=BOTH)], [at(7, tags=["y", "z"])],
    ),
    "sum": (SUM, {}, [at(7, amount=9)], []),
    "sum, replaced": (SUM, WITHIN, [at(7, amount=9)], [at(7, amount=-9)]),
    "sum, any tick": (SUM, ANY, [at(7, amount=9)], [at(100, amount=9)]),
    "values": (TREE, {}, [at(7, amount=90)], []),
    "values, replaced": (TREE, WITHIN, [at(7, amount=0)], [at(7, amount=199)]),
    "values, any tick": (TREE, ANY, [at(7, amount=0)], [at(100, amount=199)]),
    "user, values": (TREE, USERS, [one | {"amount": 50 * n} for n, one in enumerate(FOUR)], []),
    "user, sum": (SUM, USERS, FOUR, []),
    "user, list": (TAGS, USERS, FOUR, []),
    "user, list, Gaussian": (TAGS | {"method": "gaussian"}, RHO | USERS, CROWD, []),
}  # fmt: skip


@pytest.mark.parametrize("case", PAIRS)
def test_the_shift_of_the_theory_explains_every_release_at_the_stated_price(case: str) -> None:
    series, privacy, left, right = PAIRS[case]
    built = built_of(series, privacy)
    found = price(built, [*left, *others()], [*right, *others()])
    assert found == stated(built)
    assert len(counts_of(built.chosen[0].mechanism).shape.arities) > 0


WHOLE = {"epsilon": Fraction(1)}
TWINS: dict[str, dict[str, Any]] = {
    "list": {"ones": 1},
    "list, replaced": {"neighbors": Neighbors.ADD_REMOVE},
    "list, any tick": WHOLE,
    "list, Gaussian": {"ones": 1},
    "list, Gaussian, replaced": {"neighbors": Neighbors.ADD_REMOVE},
    "values": {"a_level": True},
    "values, replaced": {"neighbors": Neighbors.ADD_REMOVE},
    "values, any tick": WHOLE,
    "user, values": {"a_level": True},
    "sum": {"highest": 1},
    "sum, replaced": {"neighbors": Neighbors.ADD_REMOVE},
    "user, sum": WHOLE,
    "user, list": WHOLE,
}


@pytest.mark.parametrize("case", TWINS)
def test_a_forest_made_for_something_else_costs_more_than_is_stated(case: str) -> None:
    series, privacy, left, right = PAIRS[case]
    built = built_of(series, privacy)
    streams = [*left, *others()], [*right, *others()]
    assert price(built, *streams, **TWINS[case]) > stated(built)


def test_two_ticks_of_gaussian_noise_cost_less_than_group_privacy_says() -> None:
    """A replaced event that moves: two shifts, each of a quarter of rho; only counts that hold both cost more."""
    built = built_of(TAGS | {"method": "gaussian"}, RHO | ANY)
    near = price(built, [at(6, tags=BOTH), *others()], [at(7, tags=["y", "z"]), *others()])
    far = price(built, [at(6, tags=BOTH), *others()], [at(140, tags=BOTH), *others()])
    assert far <= stated(built) / 2
    assert near <= stated(built) / 2
