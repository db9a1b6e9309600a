"""No derivation takes less noise than its claim needs: each scale alone, a thousandth smaller, is refused.

Rules: a mechanism that claims what its noise does not give is stopped by its own derivation, whatever made the noise
too small: an entry that was left out, a share that was not split, one of two draws. So all cases have several ones.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_relations import Arrivals
from stream_dp.errors import BrokenCondition
from stream_dp.mechanisms.linear.counter import Counter, HandOverCounter, HybridCounter, SumCounter
from stream_dp.mechanisms.linear.ended_windows import EndedArrivals, EndedCounts, EndedSums
from stream_dp.mechanisms.linear.joint_windows import NestedCounter
from stream_dp.mechanisms.linear.noisy_forest import ForestShape
from stream_dp.mechanisms.linear.tree import TreeNoise
from stream_dp.mechanisms.linear.window_forest import SumForest, WindowForest
from stream_dp.mechanisms.quantiles.bucket_windows import (
    RankLevels,
    RankWindow,
    TumblingQuantiles,
)
from stream_dp.mechanisms.serving import derived
from stream_dp.mechanisms.watches.block import WatchTerms
from stream_dp.mechanisms.watches.kinds import Monitor, SumMonitor, WindowAlerts

FIFTH, TENTH = Fraction(1, 5), Fraction(1, 10)
LESS = Fraction(999, 1000)
LEVELS = ForestShape((3, 2), (Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)))
WATCHES = (WatchTerms(9, 3), WatchTerms(5, window=4), WatchTerms(7, tick=True))
ALONE = "scale", "tick_scale", "window_scale"
TOLD = *ALONE, "value_scale", "window_value_scale"


def cases() -> Iterator[Any]:
    """Mechanisms, the name of a scale, and which of several it is."""
    rows = 5, FIFTH, Neighbors.REPLACE
    mechanisms: list[tuple[Any, dict[str, int]]] = [
        (Monitor(*rows, WATCHES, 3), dict.fromkeys(ALONE, 1)),
        (Monitor(*rows, WATCHES, 3, TENTH), dict.fromkeys(TOLD, 1)),
        (WindowAlerts(*rows, WATCHES[1:2], 3), {"scale": 1, "window_scale": 1}),
        (SumMonitor(*rows, WATCHES, -3, 8, 2), dict.fromkeys(ALONE, 1)),
        (SumMonitor(*rows, WATCHES, -3, 8, 2, TENTH), dict.fromkeys(TOLD, 1)),
        (Counter(*rows, 100, 3), {"tree": 1}),
        (HybridCounter(*rows, 3), {"inner": 1, "totals": 1}),
        (HandOverCounter(*rows, 3), {"tree": 1}),
        (SumCounter(*rows, 100, -3, 8, 2), {"trees": 1}),
        (SumCounter(*rows, None, -3, 8, 2), {"trees": 2}),
        (WindowForest(*rows, (1, 12), LEVELS, 3), {"scales": 3}),
        (SumForest(*rows, (1, 12), LEVELS, -3, 8, 2), {"scales": 3}),
        (NestedCounter(*rows, LEVELS, 3), {"scales": 3}),
        (RankWindow(*rows, 12, RankLevels(5, 300)), {"variance": 1}),
        (EndedCounts(*rows, (1, 12), 3), {"scale": 1}),
        (EndedSums(*rows, (1, 12), -3, 8, 2), {"scale": 1}),
        (EndedArrivals(FIFTH, rows[2], Arrivals(12, ended=True)), {"scale": 1}),
        (TumblingQuantiles(*rows, (1, 4), (FIFTH, 1 - TENTH)), {"scale": 1}),
        (TumblingQuantiles(*rows, (1, 4), (FIFTH, 1 - TENTH), 0, True), {"scale": 1}),
    ]
    for mechanism, names in mechanisms:
        told = " told" if getattr(mechanism, "value_epsilon", 0) else ""
        for name, parts in names.items():
            for part in range(parts):
                what = f"{type(mechanism).__name__} {name} {part}{told}"
                yield pytest.param(mechanism, name, part, id=what)


def less(scale: Any, part: int = 0) -> Any:
    """A scale, what has one, what returns one, or one of several, with a little less noise."""
    match scale:
        case Fraction():
            return scale * LESS
        case TreeNoise():
            return replace(scale, scale=scale.scale * LESS)
        case tuple():
            return *scale[:part], less(scale[part]), *scale[part + 1 :]
    return lambda _, *at: less(scale(*at))


@pytest.mark.parametrize(("mechanism", "name", "part"), list(cases()))
def test_a_scale_that_is_a_little_too_small_is_not_derived(
    mechanism: Any, name: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert derived(mechanism, "m").guarantee == mechanism.guarantee
    short = less(getattr(mechanism, name), part)
    monkeypatch.setattr(type(mechanism), name, short)
    with pytest.raises(BrokenCondition):
        replace(mechanism).derivation()
