"""Which two series of a file a ratio is not made of, and why, for people.

Rules: `others` are the series of the file by name, or sketches of broken ones, of which nothing more is said.
"""

from collections.abc import Mapping
from typing import Any

from stream_dp.core.near_names import meant
from stream_dp.journal.release import Shape
from stream_dp.statistics.parts.series_spec import SeriesSpec


def not_an_input(series: Any, name: Any, others: Mapping[str, Any]) -> str | None:
    """Why a ratio is not made of the series of this name; None where it is, or where that cannot be told."""
    if not isinstance(name, str):
        return None
    if name == getattr(series, "name", None):
        return f"'{name}' is the ratio itself"
    if name not in others:
        return f"'{name}' is no series of this file{meant(name, others)}"
    input_ = others[name]
    if not isinstance(input_, SeriesSpec):
        return None
    if input_.inputs:
        return f"'{name}' is itself made of releases: name the series that it is made of"
    if input_.form is Shape.FLAGS or type(input_).teller is not SeriesSpec.teller:
        return f"'{name}' ({input_.statistic}) does not release numbers that could be divided"
    return None


def not_together(of: SeriesSpec, over: SeriesSpec) -> list[str]:
    """Why no ratio is made of these two."""
    found = []
    if of.name == over.name:
        found.append(f"'{over.name}' stands above and below: their ratio is always 1")
    if of.views != over.views:
        found.append(
            f"'{of.name}' and '{over.name}' must have the same windows: {_windows(of)}, and {_windows(over)}"
        )
    if over.signed:
        found.append(f"'{over.name}' may be 0 and below, where a ratio means nothing")
    if over.grouped_by is not None and over.keyed and over.grouped_by != of.grouped_by:
        found.append(
            f"'{over.name}' has a value for each key, and '{of.name}' does not have the same keys: give both the same "
            "by, or divide by a total"
        )
    return found


def _windows(series: SeriesSpec) -> str:
    return (
        f"'{series.name}' has {', '.join(series.views)}"
        if series.views
        else (f"'{series.name}' has none")
    )
