"""Windows of counts have Gaussian noise where the filter adds it up and it is the better one, or where it is named."""

from typing import Any

import pytest
from pydantic import ValidationError

from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.window_forest import GaussianForest, WindowForest
from stream_dp.mechanisms.linear.windows_and_ever import GaussianAndEver, WindowsAndEver
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.spec import PipelineSpec

Data = dict[str, Any]
MILLIONTH = {"delta": "1e-6", "filter": "zcdp"}
LISTS = {"type": "list", "domain": [f"a{n}" for n in range(20)], "most": "5"}


def built(data: Data, privacy: Data, **series: Any) -> Built:
    """A pipeline of minutes with one windowed series, by a list of up to five categories if it is a histogram."""
    data["clock"] |= {"step": "1m", "horizon": "40000"}
    data["schema"]["tags"] = LISTS
    one = {"name": "n", "windows": ["1h", "24h"], "epsilon": "1", **series}
    return build(
        PipelineSpec.model_validate(
            data | {"series": [one], "privacy": data["privacy"] | {"epsilon": "9"} | privacy}
        )
    )


def test_lists_have_gaussian_windows_under_zcdp_and_single_entries_have_not(data: Data) -> None:
    lists = built(data, MILLIONTH, statistic="histogram", by="tags")
    assert isinstance(lists.chosen[0].mechanism, GaussianForest)
    assert (
        "method: auto, typical error (RMSE) of tick / 1h / 24h: gaussian "
        in lists.chosen[0].choice.why
    )
    one = built(data, MILLIONTH, statistic="count")
    assert isinstance(one.chosen[0].mechanism, WindowForest)
    assert ", tree " in one.chosen[0].choice.why


def test_the_count_so_far_beside_lists_is_for_as_many_entries(data: Data) -> None:
    """Two that are for different ones are refused; both noises are for a list."""
    windows = ("1h", "ever")
    made = built(
        data, MILLIONTH, statistic="histogram", by="tags", method="gaussian", windows=windows
    )
    both = made.chosen[0].mechanism
    assert isinstance(both, GaussianAndEver)
    assert both.forest.ones == both.ever.ones > 1


@pytest.mark.parametrize("filter_", ["zcdp", "renyi"])
def test_named_it_is_taken_and_the_filter_is_charged_its_rho(data: Data, filter_: str) -> None:
    order = {"order": "24"} if filter_ == "renyi" else {}
    made = built(
        data, MILLIONTH | {"filter": filter_} | order, statistic="count", method="gaussian"
    )
    forest = made.chosen[0].mechanism
    assert isinstance(forest, GaussianForest)
    counter = built(
        data,
        MILLIONTH | {"filter": filter_} | order,
        statistic="count",
        method="gaussian",
        windows=(),
    )
    whole = counter.chosen[0].mechanism
    assert isinstance(whole, GaussianCounter)
    assert forest.rho == whole.rho
    assert made.ledger.spent == counter.ledger.spent


def test_the_count_so_far_has_its_share_of_rho(data: Data) -> None:
    made = built(data, MILLIONTH, statistic="count", method="gaussian", windows=["1h", "ever"])
    both = made.chosen[0].mechanism
    assert isinstance(both, GaussianAndEver)
    assert both.ever.rho * 2 == both.forest.rho
    why = made.chosen[0].choice.why
    assert why.endswith("; the count so far has 1/3 of the rho")
    auto = built(data, MILLIONTH, statistic="count", windows=["1h", "ever"])
    assert isinstance(auto.chosen[0].mechanism, WindowsAndEver)
    assert "of tick / 1h / ever: gaussian " in auto.chosen[0].choice.why


def test_filter_gdp_admits_none_and_has_laplace_windows(data: Data) -> None:
    gdp = {"epsilon": "9", "delta": "1e-6", "filter": "gdp"}
    with pytest.raises(NotDerivable, match="name filter zcdp"):
        built(data, gdp, statistic="count", method="gaussian")
    auto = built(data, gdp, statistic="histogram", by="tags")
    assert isinstance(auto.chosen[0].mechanism, WindowForest)


def test_without_a_delta_the_file_is_refused_at_its_method(data: Data) -> None:
    with pytest.raises(ValidationError, match="method gaussian needs a delta"):
        built(data, {}, statistic="count", method="gaussian")
