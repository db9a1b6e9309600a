"""What the API says of every series: whether its values are never below 0, and what errors are measured in."""

from fractions import Fraction
from typing import Any

import pytest
from pydantic import TypeAdapter

from stream_dp.statistics import Series

_SUM: dict[str, Any] = {"of": "amount", "step": "1"}
_SIGNS = {"of": "kind", "plus": "in", "minus": "out"}
_FAN = {"of": "delay", "at": ["0.5"]}
_MONITOR = {"watch": [{"name": "large", "above": "50"}]}


def described(statistic: str, **more: Any) -> dict[str, Any]:
    """What the API says."""
    entry = {"statistic": statistic, "name": "it", "epsilon": Fraction(1), **more}
    told: dict[str, Any] = TypeAdapter(Series).validate_python(entry).described()
    return told


@pytest.mark.parametrize(
    ("statistic", "more", "nonnegative", "error_unit"),
    [
        ("count", {}, True, "events"),
        ("count", {"unit": "orders"}, True, "orders"),
        ("histogram", {"by": "country"}, True, "events"),
        ("maximum", {"by": "country"}, True, "events"),
        ("sum", {**_SUM, "clamp": ["0", "9"]}, True, "of amount"),
        ("sum", {**_SUM, "clamp": ["-1", "9"], "unit": "dollars"}, False, "dollars"),
        ("mean", {**_SUM, "clamp": ["0", "9"]}, True, "of amount"),
        ("mean", {**_SUM, "clamp": ["-1", "9"]}, False, "of amount"),
        ("gauge", _SIGNS, False, "events"),
        ("gauge", {**_SIGNS, "floor": "0"}, True, "events"),
        ("distinct", {"of": "user"}, True, "values of user"),
        ("columns_above", {"by": "country", "level": "9"}, True, "values of country"),
        ("quantiles", {**_FAN, "clamp": ["0", "9"], "unit": "minutes"}, True, "events in rank"),
        ("quantiles", {**_FAN, "clamp": ["-1", "9"]}, False, "events in rank"),
        ("alerts", {"by": "country", "threshold": "9", "unit": "orders"}, True, "events"),
        ("monitor", _MONITOR, True, "events"),
        ("monitor", {**_MONITOR, **_SUM, "clamp": ["-1", "9"]}, False, "of amount"),
        ("cut_off", {}, True, "users in either number"),
        ("ratio", {"epsilon": Fraction(0), "of": "a", "over": "b"}, False, None),
    ],
)  # fmt: skip
def test_of_each_statistic(
    statistic: str, more: dict[str, Any], nonnegative: bool, error_unit: str | None
) -> None:
    told = described(statistic, **more)
    assert told.get("nonnegative", False) is nonnegative
    assert told.get("error_unit") == error_unit
