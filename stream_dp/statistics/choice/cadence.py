"""A declared cadence for trees: release at every n-th tick only, and hold the last value in between.

A tree over fewer updates has less noise; what is held gets older. Where events come evenly and their number is known,
some hundreds of deadlines are hard to beat; HSS needs to know neither. This file knows no statistic.
"""

from fractions import Fraction
from typing import Annotated, Any, TypeAlias

from pydantic import Field
from pydantic_core import InitErrorDetails

from stream_dp.mechanisms.linear.coarse_counter import CoarseCounter
from stream_dp.records.scalars import problem
from stream_dp.statistics.choice.choice import Choice, Setting, steady, tree_counter

ReleaseEvery: TypeAlias = Annotated[int, Field(ge=1, le=10**9)]


def tree_choice(setting: Setting, epsilon: Fraction, every: int, why: str) -> Choice:
    """Choose a tree counter that is released at every tick, or at every n-th one and the last."""
    if every == 1:
        return steady(tree_counter(setting, epsilon), why, setting)
    held = CoarseCounter(
        setting.width, epsilon, setting.neighbors, setting.horizon, every, setting.ones
    )
    return steady(held, f"{why}, released every {every} ticks; its band is for then", setting)


def cadence_words(every: int) -> str:
    """What a cadence adds to what is said of a series."""
    return "" if every == 1 else f", released every {every} ticks"


def without_tree(at: tuple[str | int, ...], series: Any, *methods: str) -> list[InitErrorDetails]:
    """Return that a series, or a sketch of it, declares a cadence and a method that is not a tree, nor of `methods`."""
    declared = getattr(series, "release_every", None)
    if declared in (None, 1) or getattr(series, "method", "tree") in ("tree", *methods):
        return []
    if getattr(series, "windows", ()) or getattr(series, "window", None):
        return []  # windows are refused a cadence whatever the method
    return [problem((*at, "release_every"), "is for method tree only")]
