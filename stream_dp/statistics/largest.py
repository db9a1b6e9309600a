"""The statistics of one rank: `largest`, and `maximum`, which is rank 1 with its name.

The count is read off a counter of all columns, or it is the one quantity that an HSS watches and releases. The name of
the largest is that of the largest released column, of equal ones the first of the domain; there is none while the value
is 0, when nothing is known. It costs nothing more than the value, and the value's band holds for its own count at once:
a released column that is too low by more than the band, and yet the largest, is not above the truly largest one, which
is then too low by as much (of an HSS: `HSS.leader`).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic_core import InitErrorDetails

from stream_dp.core.mechanism import IntArray
from stream_dp.engine.series import Tell
from stream_dp.journal.release import name_bytes
from stream_dp.mechanisms.hss.sparse_vector import MAXIMUM, Largest, Quantity
from stream_dp.mechanisms.serving import clipped
from stream_dp.records.groupings import rank_problems
from stream_dp.records.scalars import problem
from stream_dp.statistics.parts.choice import Choice, Floats, Setting
from stream_dp.statistics.parts.choose_hss import (
    CounterKind,
    Demand,
    ExpectedEvents,
    RankMethod,
    Split,
    counts_columns,
    rank_choice,
    rank_confidence,
    split_problems,
)
from stream_dp.statistics.parts.series_spec import GroupedSeries, Rest
from stream_dp.statistics.parts.verdicts import Guess, Judged, Seen, leading

_VALUE_BYTES = 40


class RankSeries(GroupedSeries):
    """How many events so far in the category of one rank."""

    later = ("counter", "split")
    views: ClassVar[tuple[str, ...]] = ()
    method: RankMethod = "auto"
    expected_events: ExpectedEvents = None
    counter: CounterKind = "tree"
    split: Split = "error"

    @property
    def former_keys(self) -> Mapping[str, str]:
        return {} if "method" in self.model_fields_set else {"method": "hss"}

    def own_problems(self) -> list[InitErrorDetails]:
        problems = super().own_problems()
        if self.counter == "gaussian" and self.method not in ("hss", "paper_hss"):
            why = f"gaussian is the counter inside an HSS, and this method is {self.method}: name method hss"
            problems.append(problem(("counter",), why))
        return [*problems, *split_problems(self.split, self.method, self.counter)]

    def chosen(self, setting: Setting, quantity: Quantity) -> Choice:
        guesses = self.expected_events, None
        demand = Demand(setting, quantity, self.epsilon, *guesses, self.counter, self.split)
        return rank_choice(demand, self.method)

    def true_numbers(self, totals: IntArray) -> Sequence[Any]:
        return [self.exact(totals, ())]

    def guessed_totals(self, guess: Guess) -> Floats | str:
        return leading(guess)

    def judged(self, seen: Seen) -> Judged:
        return Judged(float(self.exact(seen.whole, seen.names)), seen.band)

    def entry_confidence(self, confidence: float, mechanism: Any) -> float:
        """Return the confidence of one column's band, where the count is read off all columns."""
        if counts_columns(mechanism):
            return rank_confidence(confidence, mechanism.width)
        return confidence


class LargestSeries(RankSeries):
    """How many events so far in the category of rank `rank`; rank 1 is `maximum`."""

    statistic: Literal["largest"] = "largest"
    rank: Annotated[int, Field(ge=1, le=10**6)]

    @property
    def about(self) -> str:
        return f"rank {self.rank} by {self.by_text} so far"

    @property
    def parameters(self) -> dict[str, int | str]:
        return {"rank": self.rank}

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        ranks = rank_problems("rank", self.rank, self.by, rest.fields)
        return [*super().problems(rest), *ranks]

    def choose(self, setting: Setting) -> Choice:
        quantity = Largest(self.rank).checked(setting.neighbors, setting.width, setting.ones)
        return self.chosen(setting, quantity)

    def teller(self, mechanism: Any, place: int | None, confidence: float) -> Tell:
        read = Largest(self.rank).of if counts_columns(mechanism) else MAXIMUM.of

        def tell(names: Sequence[str], answer: IntArray, tick: int, state: Any) -> dict[str, Any]:
            return {"value": read(clipped(answer))}

        return tell

    def told_bytes(self, names: Sequence[str]) -> int:
        return _VALUE_BYTES

    def exact(self, totals: IntArray, keys: Sequence[str]) -> int:
        return Largest(self.rank).of(totals)


class MaximumSeries(RankSeries):
    """How many events so far in the category that has most, and which it is."""

    statistic: Literal["maximum"] = "maximum"

    @property
    def about(self) -> str:
        return f"maximum by {self.by_text} so far, with its name"

    @property
    def parameters(self) -> dict[str, int | str]:
        return {"named": self.by_text}

    def choose(self, setting: Setting) -> Choice:
        return self.chosen(setting, MAXIMUM).saying(
            "the name is released too, at no further cost, and the error also holds for the count of that name"
        )

    def entries(self, keys: Sequence[str]) -> tuple[str, ...]:
        return tuple(keys)

    def teller(self, mechanism: Any, place: int | None, confidence: float) -> Tell:
        columns = counts_columns(mechanism)

        def tell(names: Sequence[str], answer: IntArray, tick: int, state: Any) -> dict[str, Any]:
            counts = clipped(answer)
            value = MAXIMUM.of(counts)
            place = MAXIMUM.holder(counts) if columns else mechanism.leader(state)
            return {"value": value} if place is None else {"name": names[place], "value": value}

        return tell

    def told_bytes(self, names: Sequence[str]) -> int:
        return _VALUE_BYTES + max(map(name_bytes, names))

    def exact(self, totals: IntArray, keys: Sequence[str]) -> int:
        return int(totals.max())
