"""Where the filter adds up what Gaussian noise costs, `auto` weighs it; nowhere else."""

from typing import Any

import pytest

from stream_dp.mechanisms.hss.gaussian_hss import GaussianHSS
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.spec import PipelineSpec

Data = dict[str, Any]


def chosen(data: Data, place: int, **privacy: str) -> Any:
    """The choice for a series of the small pipeline that says no method, under such a filter."""
    series = {k: v for k, v in data["series"][place].items() if k != "method"}
    whole = data | {"series": [series], "privacy": data["privacy"] | privacy}
    return build(PipelineSpec.model_validate(whole)).chosen[0].choice


def test_a_long_count_under_zcdp_has_gaussian_noise_and_says_why(data: Data) -> None:
    data["clock"]["horizon"] = "65536"
    found = chosen(data, 0, filter="zcdp", delta="1e-6")
    assert isinstance(found.mechanism, GaussianCounter)
    assert found.why.startswith("method: auto, typical error (RMSE): gaussian ")


def test_what_costs_the_filter_less_may_be_a_little_worse(data: Data) -> None:
    data["clock"]["horizon"] = "7000"
    found = chosen(data, 0, filter="zcdp", delta="1e-6")
    assert isinstance(found.mechanism, GaussianCounter)
    assert "gaussian is at most 5% worse and costs this filter about 1/" in found.why


def test_a_short_count_stays_with_a_tree(data: Data) -> None:
    data["clock"]["horizon"] = "1000"
    found = chosen(data, 0, filter="zcdp", delta="1e-6")
    assert isinstance(found.mechanism, Counter)
    assert ", tree " in found.why
    assert found.why.endswith("gaussian costs this filter about 1/17 of what a pure series does")


@pytest.mark.parametrize(
    "privacy",
    [
        {},
        {"filter": "basic", "delta": "1e-6", "first_block_delta": "1e-6"},
        {
            "filter": "tight_approximate",
            "epsilon": "9",
            "delta": "1e-6",
            "first_block_delta": "1e-7",
        },
    ],
)
def test_where_each_gaussian_series_would_be_charged_a_delta_none_is_taken(
    data: Data, privacy: dict[str, str]
) -> None:
    data["clock"]["horizon"] = "65536"
    for place in (0, 1):
        found = chosen(data, place, **privacy)
        assert not isinstance(found.mechanism, GaussianCounter | GaussianHSS)
        assert "gaussian" not in found.why


def test_gaussian_dp_needs_a_horizon(data: Data) -> None:
    data["clock"] = {"kind": "wall", "step": "1h"}
    found = chosen(data, 0, filter="gdp", delta="1e-6")
    assert isinstance(found.mechanism, HybridCounter)


def test_a_histogram_weighs_all_forms(data: Data) -> None:
    data["clock"]["horizon"] = "65536"
    found = chosen(data, 1, filter="zcdp", delta="1e-6")
    for form in ("tree ", "hss bin by bin ", "hss joint ", "gaussian ", "hss gaussian "):
        assert form in found.why
    assert "hss gaussian" not in chosen(data, 1, filter="gdp", delta="1e-6").why
