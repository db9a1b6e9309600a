"""The statistic `top`: the names with most events so far or over windows, and which ranks are not told apart.

Ranks are read off the noisy counts of all names, which costs nothing more; docs/top.md says why no mechanism that only
selects is better for an endless stream. Of equal values the first of the domain is the greater. `other` ranks like any
entry, as it counts in `maximum`: where it leads, the domain misses something.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from pydantic_core import InitErrorDetails

from stream_dp.core.mechanism import IntArray
from stream_dp.engine.series import Tell
from stream_dp.journal.release import Rank, Shape, name_bytes
from stream_dp.mechanisms.serving import Bands, Differences, all_at_once, clipped
from stream_dp.records.groupings import rank_problems
from stream_dp.statistics.histogram import HistogramSeries
from stream_dp.statistics.parts.choice import Choice, ExpectedShape, Floats, Setting
from stream_dp.statistics.parts.choose_hss import ExpectedEvents
from stream_dp.statistics.parts.series_spec import GroupedSeries, Rest
from stream_dp.statistics.parts.verdicts import Guess, Judged, Outcome, Seen, leading
from stream_dp.statistics.parts.windowed import OneNoise
from stream_dp.statistics.parts.windows import method_problems

MOST_RANKS = 100
MOST_TIED = 20
"""So many names that are not told apart are listed for each rank; of the rest the number is told."""
_RANK_BYTES = 80
_NAME_BYTES = 3


class TopSeries(OneNoise, GroupedSeries):
    """The `k` names with most events, their counts, and who is not told apart from each."""

    shape = Shape.RANKS
    adds: ClassVar[Fraction | None] = Fraction(1)

    statistic: Literal["top"] = "top"
    k: Annotated[int, Field(ge=1, le=MOST_RANKS)]
    method: Literal["tree", "hss", "auto", "gaussian", "correlated", "nested"] = "auto"
    expected_events: ExpectedEvents = None
    expected_shape: ExpectedShape | None = None

    @property
    def about(self) -> str:
        return f"top {self.k} by {self.by_text} {self.over}"

    @property
    def parameters(self) -> dict[str, int | str]:
        return {"k": self.k, **super().parameters}

    def own_problems(self) -> list[InitErrorDetails]:
        return [*super().own_problems(), *method_problems(self.declared, self.method)]

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        ranks = rank_problems("k", self.k, self.by, rest.fields)
        return [*super().problems(rest), *ranks]

    def choose(self, setting: Setting) -> Choice:
        """Choose what a histogram would, with bands for all names at once; `auto` takes the narrower one in the end.

        A histogram takes the smaller typical error; but who is told apart depends on the largest, and an HSS lags.
        """
        confidence = all_at_once(setting.confidence, setting.width)
        together = replace(setting, confidence=confidence)
        if self.views or self.method != "auto":
            return self._counts(self.method).choose(together)
        tree, hss = (self._counts(method).choose(together) for method in ("tree", "hss"))
        bands = f"bands of all names at once at the end: tree {tree.expected(setting.last)}"
        guess = hss.why.removeprefix("method: ")
        why = f"method: auto, {bands}, hss {hss.expected(setting.last)} ({guess})"
        narrower = hss if hss.expected(setting.last) < tree.expected(setting.last) else tree
        return replace(narrower, why=why)

    def _counts(self, method: str) -> HistogramSeries:
        """Return the histogram that ranks are read off."""
        own = {key: getattr(self, key) for key in TopSeries.model_fields if key != "k"}
        own |= {"statistic": "histogram", "method": method}
        return HistogramSeries.model_construct(**own)

    def entry_confidence(self, confidence: float, mechanism: Any) -> float:
        """Return the confidence of one value's band: those of all entries hold at once, so those of the ranks do."""
        return all_at_once(confidence, mechanism.width)

    def teller(self, mechanism: Any, place: int | None, confidence: float) -> Tell:
        differences = Bands(Differences(mechanism, place), confidence)

        def tell(names: Sequence[str], answer: IntArray, tick: int, state: Any) -> dict[str, Any]:
            return {"ranks": ranks(names, clipped(answer), self.k, differences(tick, state))}

        return tell

    def outcomes(
        self, shown: Mapping[str, Any], totals: IntArray, names: Sequence[str]
    ) -> Iterator[Outcome]:
        """Yield the true count of each name that is listed, and how far off its released one is."""
        true = dict(zip(names, totals.tolist(), strict=True))
        for rank in shown["ranks"]:
            error = rank["value"] - true[rank["name"]]
            yield Outcome(true[rank["name"]], error, abs(error) <= shown["band"])

    def guessed_totals(self, guess: Guess) -> Floats | str:
        return leading(guess, self.expected_shape)

    def judged(self, seen: Seen) -> Judged:
        """Return by how much the first exceeds the first that is not listed, and the least difference that shows it."""
        counts = np.sort(seen.totals)[::-1]
        gap = float(counts[0] - counts[min(self.k, len(counts) - 1)])
        return Judged(gap, seen.apart, f"from the first to rank {min(self.k + 1, len(counts))}")

    def told_bytes(self, names: Sequence[str]) -> int:
        longest = sorted(map(name_bytes, names), reverse=True)[: 1 + MOST_TIED]
        return self.k * (_RANK_BYTES + sum(longest) + _NAME_BYTES * len(longest))


def ranks(names: Sequence[str], counts: IntArray, k: int, apart: int) -> tuple[Rank, ...]:
    """Return the `k` greatest of `counts`, each with those that do not differ from it by more than `apart`.

    >>> import numpy as np
    >>> [(rank.name, rank.value, rank.tied) for rank in ranks("abc", np.array([5, 9, 6]), 2, 3)]
    [('b', 9, ('c',)), ('c', 6, ('b', 'a'))]
    """
    order = (-counts).argsort(kind="stable")
    sizes = -counts[order]
    firsts = sizes.searchsorted(sizes[:k] - apart, side="left").tolist()
    ends = sizes.searchsorted(sizes[:k] + apart, side="right").tolist()
    ordered = [names[at] for at in order[: k + 1 + MOST_TIED].tolist()]
    values = (-sizes[:k]).tolist()
    listed_ranks = []
    for rank, (first, end) in enumerate(zip(firsts, ends, strict=True)):
        listed = min(end, first + 1 + MOST_TIED)
        tied = (*ordered[first : min(rank, first + MOST_TIED)], *ordered[rank + 1 : listed])
        more = end - first - 1 - len(tied)
        name, value = ordered[rank], values[rank]
        listed_ranks.append(Rank(name=name, value=value, tied=tied, more=more))
    return tuple(listed_ranks)
