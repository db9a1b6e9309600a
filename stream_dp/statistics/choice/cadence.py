"""A declared cadence for trees: release at every n-th tick only, and hold the last value in between.

A tree over fewer updates has less noise; what is held gets older. Where events come evenly and their number is known,
some hundreds of deadlines are hard to beat; HSS needs to know neither. This file knows no statistic.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, TypeAlias

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


def method_problems(
    declared: Sequence[str], method: str, every: int = 1, *, held: Sequence[str] = ("tree",)
) -> list[InitErrorDetails]:
    """Return that a method is not for the windows that are declared, or a cadence not for them or for the method.

    `held`: the methods whose releases may be held between two ticks of the cadence.
    """
    if declared and method not in ("tree", "auto", "gaussian"):
        return [problem(("method",), "windows are made by a forest of their own: leave method out")]
    if every == 1:
        return []
    if declared:
        why = "windows are released at every tick: leave it out"
        return [problem(("release_every",), why)]
    return [] if method in held else [problem(("release_every",), "is for method tree only")]
