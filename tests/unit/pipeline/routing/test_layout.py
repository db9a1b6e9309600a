"""Which entries of the row belong to which series."""

from typing import Any

from stream_dp.pipeline.layout import RowLayout
from stream_dp.pipeline.spec import PipelineSpec

Data = dict[str, Any]


def test_slices_and_keys(data: Data) -> None:
    layout = RowLayout.of(PipelineSpec.model_validate(data))
    assert layout.width == 1 + 3 + 4
    assert layout.slice("departures") == slice(0, 1)
    assert layout.slice("by_destination") == slice(1, 4)
    assert layout.slice("late_departures") == slice(4, 8)
    assert layout.keys("departures") == ("",)
    assert layout.keys("by_destination") == ("ATL", "BOS", "other")
    assert layout.keys("late_departures") == ("AA", "NO", "UA", "other")


def test_equal_features_share_a_slice(data: Data) -> None:
    one, two = {"field": "delay", "at_least": "60"}, {"field": "fare", "one_of": ["1", "2"]}
    same = {"field": "fare", "one_of": ["2.0", "1e0"]}
    count = {"statistic": "count", "epsilon": "1"}
    data["series"] = [
        count | {"name": "a", "where": [one, two]},
        count | {"name": "b", "where": [same, one]},
        count | {"name": "c", "where": [one]},
        count | {"name": "d"},
    ]
    layout = RowLayout.of(PipelineSpec.model_validate(data))
    assert layout.width == 3
    assert layout.slice("a") == layout.slice("b") == slice(0, 1)
    assert layout.slice("c") == slice(1, 2)
    assert layout.slice("d") == slice(2, 3)
