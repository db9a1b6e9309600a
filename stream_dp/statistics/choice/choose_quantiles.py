"""What quantiles are told by: a noisy maximum for windows that end, a tree over the values for those that slide.

Rules: a choice depends on the specification alone. This file knows no statistic.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from stream_dp.mechanisms.quantiles.sliding_quantiles import SlidingQuantiles
from stream_dp.mechanisms.quantiles.tumbling_quantiles import TumblingQuantiles
from stream_dp.mechanisms.quantiles.value_levels import ValueLevels, best_levels
from stream_dp.mechanisms.quantiles.value_tree import Over, ValueTree
from stream_dp.mechanisms.serving import Answer, Bands
from stream_dp.mechanisms.windows.forest_shape import best_forest
from stream_dp.mechanisms.windows.window_forest import WindowForest
from stream_dp.mechanisms.windows.windows_and_ever import WindowsAndEver, ever_share
from stream_dp.records.scalars import milliseconds
from stream_dp.statistics.choice.choice import Choice, Setting, steady, tree_counter
from stream_dp.statistics.parts.windows import EVER

UNRANKED = 1
"""Entries of a row behind the buckets: what has no value."""
IN_RANKS = "errors are in ranks: events"


def tumbling_choice(
    setting: Setting, epsilon: Fraction, lengths: Sequence[str], at: tuple[Fraction, ...]
) -> Choice:
    """Choose a bucket for each quantile of each window as it ends, at equal shares of the epsilon."""
    ticks = tuple(milliseconds(name) // setting.step for name in lengths)
    mechanism = TumblingQuantiles(setting.width, epsilon, setting.neighbors, ticks, at, UNRANKED)
    why = f"each choice has epsilon {mechanism.choice_epsilon}; {IN_RANKS}"
    chosen = steady(mechanism, why, setting)
    return Choice(
        mechanism,
        why,
        chosen.expected,
        dict.fromkeys(lengths, chosen.expected),
        supposing="in ranks",
    )


def sliding_choice(
    setting: Setting, epsilon: Fraction, views: Sequence[str], at: tuple[Fraction, ...]
) -> Choice:
    """Choose a tree over the values, counted over the windows among `views` and so far where `ever` is.

    Raises:
        NotDerivable: the longest window of so many nodes is more than a state may hold.
    """
    levels = best_levels(setting.width - UNRANKED, at)
    nodes = replace(setting, width=levels.nodes, ones=levels.height)
    spans = tuple(milliseconds(name) // setting.step for name in views if name != EVER)
    counts, over = _counts(nodes, epsilon, spans, ever=EVER in views)
    tree = ValueTree(levels, counts, UNRANKED)
    mechanism = SlidingQuantiles(tree, at, Fraction(str(setting.confidence)))
    bands = [Bands(Answer(mechanism, place), setting.confidence) for place in range(len(views))]
    expected = {
        name: lambda tick, band=band: band(tick, None)
        for name, band in zip(views, bands, strict=True)
    }
    why = f"{_tree_words(levels)}{over}; {IN_RANKS}"
    return Choice(mechanism, why, expected[views[0]], expected, supposing="in ranks")


def _counts(
    setting: Setting, epsilon: Fraction, spans: tuple[int, ...], *, ever: bool
) -> tuple[Over, str]:
    """What counts the nodes, and what is to be said of it."""
    if not spans:
        return tree_counter(setting, epsilon), ""
    share = ever_share(len(spans)) if ever else Fraction(0)
    forest = WindowForest(
        setting.width,
        epsilon * (1 - share),
        setting.neighbors,
        spans,
        best_forest(spans),
        setting.ones,
    )
    if not ever:
        return forest, ""
    so_far = tree_counter(setting, epsilon * share)
    return WindowsAndEver(forest, so_far), f"; what counts so far has {share} of the epsilon"


def _tree_words(levels: ValueLevels) -> str:
    """How the values are counted."""
    if levels.height == 1:
        return f"ranks add up the counts of {levels.leaves} buckets"
    sizes = ", ".join(map(str, levels.sizes))
    return f"ranks from a tree over the values, levels of {sizes} counts at equal shares"
