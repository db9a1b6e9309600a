"""Series of quantities (largest, columns_above) and the paper's HSS: what they choose, release and refuse."""

from typing import Any, TypeAlias

import numpy as np
import pytest
from pydantic import ValidationError

from stream_dp.core.messages import Query, Update
from stream_dp.errors import UsageError
from stream_dp.mechanisms.hss import HSS
from stream_dp.mechanisms.paper_hss import PaperHSS
from stream_dp.mechanisms.quantities import MAXIMUM, ColumnsAbove, Largest
from stream_dp.mechanisms.serving import Bands
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.testing.noise import SeededNoise

Data: TypeAlias = dict[str, Any]
TICKS = 100


def one(data: Data, *, replaced: bool = False, **more: Any) -> Built:
    """The pipeline with this series alone, two units of epsilon."""
    data["series"] = [{"name": "it", "by": "airline", "epsilon": "2", **more}]
    if replaced:
        data["privacy"] |= {"neighbors": "replace", "moves": "within_tick"}
    return build(PipelineSpec.model_validate(data))


@pytest.mark.parametrize(
    ("more", "quantity"),
    [
        ({"statistic": "largest", "rank": "1"}, Largest(1)),
        ({"statistic": "largest", "rank": "3", "expected_events": "5000"}, Largest(3)),
        ({"statistic": "columns_above", "level": "400"}, ColumnsAbove(400)),
        ({"statistic": "maximum", "expected_events": "5000"}, MAXIMUM),
    ],
)
@pytest.mark.parametrize("replaced", [False, True])
def test_what_is_released_lies_within_its_band(
    data: Data, more: Data, quantity: Any, replaced: bool
) -> None:
    """One run of a hundred ticks: at most one in five is outside (the band is for 95 %; ticks depend on each other)."""
    built = one(data, replaced=replaced, **more)
    (chosen,) = built.chosen
    mechanism = chosen.mechanism
    assert isinstance(mechanism, HSS)
    assert mechanism.quantity == quantity
    assert mechanism.guarantee == chosen.derivation.guarantee
    rng, noise = np.random.default_rng(7), SeededNoise(11)
    bands, state, total, outside = Bands(mechanism, 0.95), mechanism.init(noise), np.zeros(4), 0
    for tick in range(TICKS):
        row = rng.poisson([4, 30, 12, 2])
        total = total + row
        state, _ = mechanism.step(state, Update(row), noise)
        state, answer = mechanism.step(state, Query(), noise)
        assert answer is not None
        exact = chosen.spec.exact(total.astype(np.int64), ["AA", "NO", "UA", "other"])
        outside += abs(int(answer[0]) - exact) > bands(tick, state)
    assert outside <= TICKS // 5
    assert chosen.choice.expected(TICKS - 1) >= 0


def test_the_plan_says_what_they_are(data: Data) -> None:
    built = one(data, statistic="columns_above", level="400", expected_events="5000")
    assert "the number of columns" not in str(built.chosen[0].derivation)  # growth is watched
    assert plan_json(built)["series"][0]["name"] == "it"
    assert "the column of rank 2" in str(one(data, statistic="largest", rank="2").derivation)
    spec = one(data, statistic="largest", rank="2").spec.series[0].described()
    assert (spec["shape"], spec["parameters"]) == ("scalar", {"rank": 2})
    assert spec["about"] == "rank 2 by airline so far"


def test_columns_above_expects_no_more_than_can_be_near(data: Data) -> None:
    """Fifty events reach level 40 in one category at most."""
    built = one(data, statistic="columns_above", level="1000000", expected_events="5000")
    assert built.chosen[0].choice.expected(99) == 0
    built = one(data, statistic="columns_above", level="1", expected_events="5000")
    assert built.chosen[0].choice.expected(99) == 4


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"statistic": "largest", "rank": "5"},
            "there are 4 categories, with 'other': no more ranks than that",
        ),
        ({"statistic": "largest", "rank": "0"}, "greater than or equal to 1"),
        ({"statistic": "largest"}, "Field required"),
        ({"statistic": "columns_above", "level": "0"}, "greater than or equal to 1"),
        ({"statistic": "columns_above", "level": "9", "method": "paper_hss"}, "Extra inputs"),
        ({"statistic": "largest", "rank": "1", "method": "paper"}, "'hss' or 'paper_hss'"),
    ],
)
def test_what_makes_no_sense_is_refused(data: Data, more: Data, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        one(data, **more)


@pytest.mark.parametrize(
    "more",
    [{"statistic": "maximum", "expected_events": "900"}, {"statistic": "largest", "rank": "2"}],
)
def test_the_papers_hss_is_for_replaced_rows(data: Data, more: Data) -> None:
    (chosen,) = one(data, replaced=True, method="paper_hss", **more).chosen
    assert isinstance(chosen.mechanism, PaperHSS)
    assert chosen.mechanism.guarantee == chosen.derivation.guarantee
    assert chosen.choice.expected(99) > 0
    for neighbors in ({"neighbors": "add_remove"}, {"neighbors": "replace", "moves": "any_tick"}):
        data["privacy"] = {"unit": "event", "epsilon": "2", **neighbors}
        with pytest.raises(UsageError, match=r"series it: method paper_hss: .* use method hss"):
            one(data, method="paper_hss", **more)
