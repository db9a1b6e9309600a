"""The least epsilon for an error: against trying every candidate, of broken predictions, and of real statistics."""

import asyncio
import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from unit.live.live_series_worlds import PIPELINE

from stream_dp.accounting.amounts import text
from stream_dp.errors import NotAccepted, UsageError
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.operate.run.live_series import STEPS, ErrorSearch, decimal, place_of
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec

LAST = 7200
Curve = Callable[[Fraction], Fraction | float]


async def searched(curve: Curve, wanted: str | float) -> tuple[Fraction, int]:
    """What is found where epsilon has this error, and after how many predictions."""
    tried = list[str]()

    async def predicted(definition: bytes) -> float:
        said = json.loads(definition)
        assert said["name"] == "x"
        assert "error" not in said
        tried.append(said["epsilon"])
        return float(curve(Fraction(said["epsilon"])))

    definition = json.dumps({"name": "x", "error": wanted}).encode()
    found = json.loads(await ErrorSearch().priced(definition, "ann", predicted))["epsilon"]
    return Fraction(found), len(tried)


CURVES: list[Curve] = [
    lambda epsilon: 30 / epsilon,
    lambda epsilon: int(300 / epsilon),
    lambda epsilon: 3 / epsilon**2 + 2,
    lambda epsilon: 400 if epsilon < Fraction(7, 100) else 1 / epsilon,
    lambda epsilon: 5 / float(epsilon) ** 0.5,
]


@pytest.mark.parametrize("curve", CURVES, ids=range(len(CURVES)))
@pytest.mark.parametrize("wanted", ["3", "25", "99.5", "400", "12345"])
async def test_it_is_the_least_of_all_candidates(curve: Curve, wanted: str) -> None:
    found, steps = await searched(curve, wanted)
    fit = next(at for at in range(LAST + 1) if float(curve(decimal(at))) <= Fraction(wanted))
    assert steps <= STEPS
    assert found == decimal(fit)


@pytest.mark.parametrize("wanted", ["0.1", "10000000000", "0", "1"])
async def test_what_is_found_is_enough_and_the_work_is_bounded(wanted: str) -> None:
    def stairs(epsilon: Fraction) -> float:
        return int(1 / epsilon) if epsilon < 1 else 0

    found, steps = await searched(stairs, wanted)
    assert stairs(found) <= float(wanted)
    assert steps <= STEPS + 2
    assert stairs(decimal(max(0, place_of(found) - 1))) > float(wanted) or found == decimal(0)


async def test_what_goes_up_again_is_still_enough() -> None:
    def jagged(epsilon: Fraction) -> float:
        return 30 / float(epsilon) * (2 if int(epsilon * 1000) % 7 == 3 else 1)

    for wanted in ("20", "60", "311"):
        found, steps = await searched(jagged, wanted)
        assert jagged(found) <= float(wanted)
        assert steps <= STEPS + 2


async def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^error: no epsilon up to 100 makes"):
        await searched(lambda epsilon: 7 + 1 / epsilon, "7")


async def test_so_little_that_nothing_can_be_drawn_is_not_enough() -> None:
    def drawn(epsilon: Fraction) -> float:
        if epsilon < Fraction(1, 50):
            raise UsageError("epsilon: too little")
        return 1 / float(epsilon)

    found, _ = await searched(drawn, "1000")
    assert found == Fraction(1, 50)


async def test_a_definition_that_is_none_is_refused_at_once() -> None:
    tried = list[bytes]()

    async def predicted(definition: bytes) -> float:
        tried.append(definition)
        raise UsageError("by: is missing")

    with pytest.raises(UsageError, match="by: is missing"):
        await ErrorSearch().priced(b'{"error":3}', "ann", predicted)
    assert len(tried) == 1


async def never(_definition: bytes) -> float:
    """No prediction is asked for."""
    raise AssertionError


@pytest.mark.parametrize(
    "definition", [b"{}", b'{"name":"x","epsilon":"0.1"}', b"", b"\xff", b"[1]", b'{"error"', b"[" * 10**4]
)  # fmt: skip
async def test_what_names_no_error_goes_on_as_it_is(definition: bytes) -> None:
    assert await ErrorSearch().priced(definition, "ann", never) == definition


@pytest.mark.parametrize(
    "error", ["-1", '"x"', "null", "[]", "1e9", '"1e9"', "NaN", "1234567890123", "{}", "true", '"s3cr3t"']
)  # fmt: skip
async def test_what_is_no_error_is_refused_and_not_repeated(error: str) -> None:
    definition = b'{"error":' + error.encode() + b"}"
    if error == "NaN":
        assert await ErrorSearch().priced(definition, "ann", never) == definition
        return
    with pytest.raises(UsageError, match=r"^error: must be a number") as refused:
        await ErrorSearch().priced(definition, "ann", never)
    assert "s3cr3t" not in str(refused.value)


async def test_an_error_and_an_epsilon_are_one_too_many() -> None:
    with pytest.raises(UsageError, match=r"^error: name either"):
        await ErrorSearch().priced(b'{"error":3,"epsilon":"1"}', "ann", never)


async def test_one_search_of_an_analyst_and_one_in_all() -> None:
    search, go, running = ErrorSearch(), asyncio.Event(), list[str]()

    async def predicted(definition: bytes) -> float:
        running.append(json.loads(definition)["name"])
        await go.wait()
        return 1 / float(json.loads(definition)["epsilon"])

    def asked(name: str) -> "asyncio.Task[bytes]":
        definition = json.dumps({"name": name, "error": 10}).encode()
        return asyncio.create_task(search.priced(definition, name, predicted))

    first, second = asked("ann"), asked("bob")
    while not running:  # noqa: ASYNC110 - steps of the loop, no time
        await asyncio.sleep(0)
    with pytest.raises(NotAccepted, match="is under way"):
        await asked("ann")
    assert set(running) == {"ann"}
    go.set()
    assert json.loads(await first)["epsilon"] == json.loads(await second)["epsilon"] == "0.1"
    assert (await asked("ann")) == await first


def planner() -> LiveSeriesPlanner:
    """Of a shop with amounts."""
    schema = {**PIPELINE["schema"], "price": {"type": "integer"}}
    spec = build(PipelineSpec.model_validate({**PIPELINE, "schema": schema})).spec
    return LiveSeriesPlanner(spec, OpenRouter(spec, 0))


REAL: list[dict[str, Any]] = [
    {"statistic": "count"}, {"statistic": "count", "windows": ["3h"]}, {"statistic": "histogram", "by": "country"},
    {"statistic": "maximum", "by": "country"}, {"statistic": "alerts", "by": "country", "threshold": "50"},
    {"statistic": "sum", "of": "price", "clamp": ["0", "10"]}, {"statistic": "top", "by": "country", "k": "2"},
]  # fmt: skip


@pytest.mark.parametrize("wanted", ["9", "70"])
@pytest.mark.parametrize("asked", REAL, ids=lambda asked: asked["statistic"])
async def test_of_real_statistics_one_step_less_is_not_enough(
    asked: dict[str, Any], wanted: str
) -> None:
    planned = planner()

    def error(definition: bytes) -> float:
        return planned.propose(definition, 3).predicted()[1]

    async def predicted(definition: bytes) -> float:
        return error(definition)

    definition = json.dumps({"name": "x", "error": wanted, **asked}).encode()
    found = json.loads(await ErrorSearch().priced(definition, "ann", predicted))
    assert error(json.dumps(found).encode()) <= float(wanted)
    less = decimal(place_of(Fraction(found["epsilon"])) - 1)
    assert error(json.dumps({**found, "epsilon": text(less)}).encode()) > float(wanted)


@pytest.mark.parametrize(
    "asked",
    [
        {"statistic": "count", "windows": ["3h", "ever"]},
        {"statistic": "top", "by": "country", "k": "2", "windows": ["6h"]},
        {"statistic": "mean", "of": "price", "clamp": ["0", "10"], "windows": ["3h"]},
    ],
    ids=lambda asked: asked["statistic"],
)
async def test_an_error_is_kept_in_every_window_and_not_in_the_tick_alone(
    asked: dict[str, Any],
) -> None:
    planned = planner()

    async def predicted(definition: bytes) -> float:
        return planned.propose(definition, 3).predicted()[1]

    definition = json.dumps({"name": "x", "error": "4", **asked}).encode()
    found = await ErrorSearch().priced(definition, "ann", predicted)
    proposal = planned.propose(found, 3)
    last = proposal.predicted()[0] - 3
    errors = {name: error(last) for name, error in proposal.chosen.choice.windows.items()}
    assert max(errors.values()) == proposal.predicted()[1] <= 4
    assert errors["tick"] < max(errors.values())
