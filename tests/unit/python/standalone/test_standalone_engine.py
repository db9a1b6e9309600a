"""Mechanisms that run alone against the engine: the same series, events and noise give the same answers and charges."""

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import count
from typing import Any

import pytest
from unit.live.live_series_worlds import HORIZON, PIPELINE, Stopping, World, record

from stream_dp import Budget, Ranked
from stream_dp.engine.ports import Batch
from stream_dp.mechanisms.serving import Answer, Bands
from stream_dp.python.standalone import blocks
from stream_dp.statistics.choice.profiles import ExpectedShape
from stream_dp.testing.noise import SeededNoise

KEYS = ("DE", "FR", "other")
NAMES = {1: "tick", 3: "3h", 12: "12h", "ever": "ever"}
WINDOWS: dict[str, Any] = {"windows": [3, 12, "ever"]}
Make = Callable[[Budget, str], Any]

COUNTS: dict[str, tuple[dict[str, Any], Make]] = {
    "count": ({"statistic": "count"}, lambda b, e: b.counter(epsilon=e, horizon=HORIZON)),
    "count over windows": (
        {"statistic": "count", **WINDOWS},
        lambda b, e: b.counter(epsilon=e, horizon=HORIZON, **WINDOWS),
    ),
    "histogram over windows": (
        {"statistic": "histogram", "by": "country", **WINDOWS},
        lambda b, e: b.histogram(epsilon=e, keys=KEYS, horizon=HORIZON, **WINDOWS),
    ),
    "top": (
        {"statistic": "top", "by": "country", "k": 2},
        lambda b, e: b.top(epsilon=e, keys=KEYS, k=2, horizon=HORIZON),
    ),
    "top over windows": (
        {"statistic": "top", "by": "country", "k": 3, **WINDOWS},
        lambda b, e: b.top(epsilon=e, keys=KEYS, k=3, horizon=HORIZON, **WINDOWS),
    ),
}
SUM = {"statistic": "sum", "of": "amount"}
SUMS: dict[str, tuple[dict[str, Any], Make]] = {
    "sum": (
        {**SUM, "clamp": ["0", "9"]},
        lambda b, e: b.sum(epsilon=e, clamp=(0, 9), horizon=HORIZON),
    ),
    "fine sum over windows": (
        {**SUM, "clamp": ["-2.5", "9"], "step": "0.25", **WINDOWS},
        lambda b, e: b.sum(epsilon=e, clamp=("-2.5", 9), step="0.25", horizon=HORIZON, **WINDOWS),
    ),
    "coarse sums by key": (
        {**SUM, "clamp": ["-5", "10"], "step": "5", "by": "country"},
        lambda b, e: b.sum(epsilon=e, clamp=(-5, 10), step=5, keys=KEYS, horizon=HORIZON),
    ),
    "fine sums by key over windows": (
        {**SUM, "clamp": ["0", "9.5"], "step": "0.5", "by": "country", **WINDOWS},
        lambda b, e: b.sum(
            epsilon=e, clamp=(0, Decimal("9.5")), step="1/2", keys=KEYS, horizon=HORIZON, **WINDOWS
        ),
    ),
}
ALL = {**COUNTS, **SUMS}


def events(tick: int) -> dict[str, list[float]]:
    """What happens at a tick: many of DE, some beyond every clamp, between two steps, and below 0."""
    if tick == 4:
        return {}
    return {"DE": [tick - 5, 7.8, 7.375] * (tick + 1), "FR": [40, -40.5, 0.125][: tick % 4]}


def numbered() -> Callable[..., SeededNoise]:
    """Noise streams seeded by their number."""
    numbers = count()
    return lambda *_given: SeededNoise(next(numbers))


def engine_file(statistic: dict[str, Any], neighbors: str) -> dict[str, Any]:
    """The pipeline that has this one series."""
    if "windows" in statistic:
        statistic = {**statistic, "windows": [NAMES[each] for each in statistic["windows"]]}
    schema: dict[str, Any] = {
        **PIPELINE["schema"],
        "amount": {"type": "number", "nullable": "true"},
    }
    series = [{"name": "one", "epsilon": "2/3", **statistic}]
    privacy = {"epsilon": "2", "neighbors": neighbors}
    if neighbors == "replace":
        privacy["moves"] = "within_tick"  # as there is no other replacement here
    return {**PIPELINE, "schema": schema, "series": series, "privacy": privacy}


def batch(tick: int) -> Batch:
    """The records of a tick, with one that has no amount, in the order of the file."""
    rows = [record(tick, key, amount) for key, all_ in events(tick).items() for amount in all_]  # type: ignore[arg-type]
    first = sum(len(each) for t in range(tick) for each in events(t).values())
    return Batch(0, rows, range(first, first + len(rows)), first + len(rows), mark=tick)


async def of_the_engine(world: World) -> list[dict[str, Any]]:
    """Its releases, decimals exact."""
    given = [batch(tick) for tick in range(HORIZON)]
    given = [each for t in given for each in (t, Batch(1, [], range(0), 0, mark=t.mark))]
    await world.engine(Stopping(HORIZON, given)).run()
    return [json.loads(body, parse_float=Decimal) for body in world.bodies]


def alone(live: Any, summed: bool) -> Iterator[Any]:
    """Releases of the mechanism that runs alone on the same events."""
    for tick in range(HORIZON):
        for key, amounts in events(tick).items():
            for amount in amounts:
                given = [key] if hasattr(live, "keys") else []
                live.add(*given, *([amount] if summed else []))
        yield live.release()


def said(value: Any, band: Any) -> dict[str, Any]:
    """A value and a band as a release of the engine has them."""
    if isinstance(value, tuple):
        assert all(isinstance(each, Ranked) for each in value)
        ranks = [
            {"name": r.name, "value": r.value, "tied": list(r.tied)} | ({"more": r.more} if r.more else {})
            for r in value
        ]  # fmt: skip
        return {"ranks": ranks, "band": band}
    name = "value" if isinstance(value, int | Decimal) else "values"
    return {name: value if name == "value" else dict(value), "band": band}


def same(ours: list[Any], theirs: list[dict[str, Any]]) -> bool:
    """Whether all releases say the same, their windows in the same order."""
    assert len(ours) == len(theirs) == HORIZON
    for mine, their in zip(ours, theirs, strict=True):
        told = said(mine.value, mine.band)
        if mine.windows:
            each = {NAMES[w]: said(part.value, part.band) for w, part in mine.windows.items()}
            assert told == each["tick"]
            told = {"windows": each}
            if list(each) != list(their["windows"]):
                return False
        told |= {"tick": mine.tick, "confidence": Decimal(str(mine.confidence))}
        if told != {key: their[key] for key in told}:
            return False
    return True


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
@pytest.mark.parametrize("name", ALL)
async def test_it_answers_as_the_engine_does_under_the_same_noise(
    name: str, neighbors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    statistic, make = ALL[name]
    world = World(engine_file(statistic, neighbors), noise=numbered())
    theirs = await of_the_engine(world)
    monkeypatch.setattr(blocks, "new_noise", numbered())
    budget = Budget(epsilon=2, neighbors=neighbors)
    live = make(budget, "2/3")
    ours = list(alone(live, name in SUMS))
    assert same(ours, theirs)
    (chosen,) = world.built.chosen
    assert live._charged.mechanism == chosen.mechanism
    assert budget.ledger.entries[0].epsilon == world.built.ledger.entries[0].epsilon
    assert budget.spent == Fraction(world.built.ledger.spent, 10**12)


def rounded_down(amount: blocks.Amount, numbers: list[float]) -> int:
    """A twin: units are cut off, not rounded."""
    low, high = amount.units
    return sum(min(max(int(number // float(amount.step)), low), high) for number in numbers)


def unclamped(amount: blocks.Amount, numbers: list[float]) -> int:
    """A twin that forgets the clamp."""
    return sum(round(number / float(amount.step)) for number in numbers)


@pytest.mark.parametrize(
    ("name", "place", "twin"),
    [
        ("sum", "units_of", rounded_down),
        ("fine sum over windows", "units_of", rounded_down),
        ("coarse sums by key", "units_of", unclamped),
        ("coarse sums by key", "told_number", lambda units, step: units),
        ("top", "band_of", lambda mechanism, sure: Bands(mechanism, 0.95)),
        ("top over windows", "Bands", lambda answer, sure: Bands(answer, 0.95)),
        (
            "count over windows",
            "Bands",
            lambda answer, sure: Bands(Answer(answer.mechanism, 0), sure),
        ),
    ],
)
async def test_a_twin_that_tells_otherwise_is_found(
    name: str, place: str, twin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    statistic, make = ALL[name]
    theirs = await of_the_engine(World(engine_file(statistic, "add_remove"), noise=numbered()))
    monkeypatch.setattr(blocks, "new_noise", numbered())
    monkeypatch.setattr(blocks, place, twin)
    assert not same(list(alone(make(Budget(epsilon=2), "2/3"), name in SUMS)), theirs)


def test_guesses_move_what_auto_counts_a_top_list_by_as_in_the_engine() -> None:
    shapes: list[ExpectedShape | None] = [None, "zipf"]
    for shape in shapes:
        more: dict[str, Any] = {} if shape is None else {"expected_shape": shape}
        statistic = {"statistic": "top", "by": "country", "k": 1, "expected_events": "9000", **more}
        (chosen,) = World(engine_file(statistic, "add_remove")).built.chosen
        live = Budget(epsilon=2).top(
            epsilon="2/3", keys=KEYS, k=1, horizon=HORIZON, expected_events=9000, **more
        )
        assert live._charged.mechanism == chosen.mechanism
