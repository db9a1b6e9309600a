"""An entry of `watch:` of a monitor: which events count, by what, and when it fires.

Rules: a watch over a window of one tick is one of single ticks. What it says beside schema and clock is checked by its
monitor. This file knows no statistic.
"""

from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from stream_dp.mechanisms.watches.watch_messages import LARGEST_THRESHOLD, WatchTerms
from stream_dp.records.conditions import Where
from stream_dp.records.groupings import By, grouping_text
from stream_dp.records.scalars import Duration, Frozen, Name, milliseconds, problem, refuse
from stream_dp.statistics.parts.alarms import is_window, usual_problems, window_terms

Threshold = Annotated[int, Field(ge=1, le=LARGEST_THRESHOLD)]
Level = Annotated[int, Field(ge=-LARGEST_THRESHOLD, le=LARGEST_THRESHOLD)]
_Looks = Literal["since_firing", "tick"] | Duration
_OVER = {"since_firing": "", "tick": " in a tick"}


def _over(value: object) -> object:
    if value in ("since_firing", "tick") or (isinstance(value, str) and is_window(value)):
        return value
    raise ValueError("must be 'since_firing', 'tick' or a duration such as 1h")


class WatchSpec(Frozen):
    """One watch: which events count or are added up, by what if anything, and when it fires.

    `over`: the events since it began or last fired, of these the ones in a window, or those of one tick; `below` is
    about windows and single ticks only. `usual` is the count at which it fires by noise alone.
    """

    name: Name
    where: Where = ()
    by: By | None = None
    above: Threshold | None = None
    below: Level | None = None
    over: Annotated[str, BeforeValidator(_over, json_schema_input_type=_Looks)] | None = None
    rearm: bool = True
    usual: Level | None = None

    @model_validator(mode="after")
    def _one_threshold(self) -> "WatchSpec":
        if (self.above is None) == (self.below is None):
            refuse([problem((), "needs one of above and below, and not both")])
        if self.below is not None and self.over == "since_firing":
            why = (
                "every count since a firing begins below: leave it out, and it watches single ticks"
            )
            refuse([problem(("over",), why)])
        refuse(usual_problems(self.threshold, self.below is not None, self.usual))
        return self

    @property
    def amount(self) -> None:
        """Records add what they do in its monitor."""
        return

    @property
    def threshold(self) -> int:
        """What its count is compared with."""
        return self.above or self.below or 0

    @property
    def looks_at(self) -> str:
        """What it looks at: `since_firing`, `tick` or a window."""
        return self.over or ("since_firing" if self.below is None else "tick")

    @property
    def looks_back(self) -> bool:
        """Whether it looks at a window."""
        return is_window(self.over)

    def terms(self, entries: int, step: int, unit: Fraction = Fraction(1)) -> WatchTerms:
        """What the mechanism is told of it, for so many entries of rows in this `unit`, and ticks of `step` ms."""
        below, over, units = self.below is not None, self.looks_at, int(self.threshold / unit)
        if over == "since_firing":
            return WatchTerms(units, entries, rearm=self.rearm)
        ticks = 1 if over == "tick" else milliseconds(over) // step
        return window_terms(units, entries, ticks, below=below, rearm=self.rearm)

    @property
    def when(self) -> dict[str, Any]:
        """When it fires, by the keys of its definition, what is left out there too; what it goes by in words."""
        by = {} if self.by is None else {"by": grouping_text(self.by)}
        limit = {"above": self.above} if self.below is None else {"below": self.below}
        return {**by, **limit, "over": self.looks_at, "rearm": self.rearm}

    @property
    def filter(self) -> list[dict[str, Any]]:
        """Where it counts, as it was written."""
        return [each.model_dump(mode="json", exclude_none=True) for each in self.where]

    @property
    def words(self) -> str:
        """When it fires, in a few words."""
        side = "above" if self.below is None else "below"
        when = f"{side} {self.threshold:,}"
        tick = _OVER.get(self.looks_at, f" in {self.looks_at}")
        by = "" if self.by is None else f" for each of {grouping_text(self.by)}"
        return f"{when}{tick}{by}" + ("" if self.rearm else ", once")
