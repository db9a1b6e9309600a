"""The statistic `alerts`: per category, have about `threshold` events come since its last alert, or in a window?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic_core import InitErrorDetails

from stream_dp.core.messages import IntArray
from stream_dp.mechanisms.alerts import Alerts
from stream_dp.mechanisms.monitor import Monitor
from stream_dp.mechanisms.watch_messages import LARGEST_THRESHOLD, WatchTerms
from stream_dp.pipeline.alarms import (
    daily,
    one_window,
    usual_count,
    usual_problems,
    window_terms,
)
from stream_dp.pipeline.choice import Choice, Setting, steady
from stream_dp.pipeline.false_alarm import FalseAlarm
from stream_dp.pipeline.scalars import milliseconds, problem
from stream_dp.pipeline.statistics.series_spec import GroupedSeries, Place
from stream_dp.pipeline.windows import (
    Window,
    Windows,
    window_lengths,
    window_problems,
    windows_sketched,
)
from stream_dp.runtime.release import Shape


class AlertsSeries(GroupedSeries):
    """Per category: have at least about `threshold` events come since its last alert, of these in the last window?

    With `below`: have less than about so many come in it? `usual` is the count at which an alarm is a false one.
    """

    shape: ClassVar[Shape] = Shape.FLAGS
    later: ClassVar[tuple[str, ...]] = ("window", "windows", "below", "usual")
    rights: ClassVar[tuple[str, ...]] = ("usual",)

    statistic: Literal["alerts"] = "alerts"
    threshold: Annotated[int, Field(ge=1, le=LARGEST_THRESHOLD)]
    below: bool = False
    window: Window | None = None
    windows: Windows = ()
    usual: Annotated[int, Field(ge=0, le=LARGEST_THRESHOLD)] | None = None

    @property
    def over(self) -> str | None:
        """The window that it looks at; None: all since the alert before."""
        return self.windows[0] if self.windows else self.window

    @property
    def about(self) -> str:
        """What is released, in a few words."""
        over = "" if self.over is None else f" over {self.over}"
        return f"alerts by {self.by_text}{over}"

    @property
    def meaning(self) -> str:
        """What an alert means."""
        within = "" if self.over is None else f" within {self.over} and"
        if self.below:
            return f"at most about {self.threshold:,} {{band}} events{within} since the one before"
        return f"at least about {self.threshold:,} {{band}} events{within} since the one before"

    @property
    def parameters(self) -> dict[str, int | str]:
        """The threshold, the window, and on which side it fires."""
        window = {} if self.over is None else {"window": self.over}
        side: dict[str, int | str] = {"fires": "below"} if self.below else {}
        return {"threshold": self.threshold, **window, **side}

    @classmethod
    def sketched(cls, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return what can be read of a broken entry's conditions and windows."""
        return {**super().sketched(value), **windows_sketched(value)}

    @classmethod
    def problems(
        cls, at: Place, series: Any, fields: Mapping[str, Any] | None
    ) -> list[InitErrorDetails]:
        """Return those of every series, of its window, and of the side on which it fires."""
        found = [*window_problems(at, series), *one_window(at, series)]
        below = getattr(series, "below", False) is True
        if below and not getattr(series, "windows", ()) and getattr(series, "window", None) is None:
            why = "every count since an alert begins below: name a window, such as windows: [1h]"
            found.append(problem((*at, "below"), why))
        threshold, usual = getattr(series, "threshold", None), getattr(series, "usual", None)
        found += usual_problems(at, threshold, below, usual)
        return [*found, *super().problems(at, series, fields)]

    @classmethod
    def clock_problems(cls, at: Place, series: Any, clock: Any) -> list[InitErrorDetails]:
        """Return whether its window does not go with the clock."""
        return window_lengths(at, series, clock)

    def choose(self, setting: Setting) -> Choice:
        """Choose one re-armed sparse vector for each key, over a window one that a monitor has."""
        usual, ticks = usual_count(self.threshold, self.below, self.usual), daily(setting.step)
        if self.over is None:
            alerts = Alerts(
                setting.width, self.epsilon, setting.neighbors, self.threshold, setting.ones
            )
            chosen = steady(alerts, "re-armed per key", setting)
            chance = alerts.false_alarm(usual, ticks)
        else:
            terms = self._terms(setting.width, setting.step)
            watches = Monitor(
                setting.width, self.epsilon, setting.neighbors, (terms,), setting.ones
            )
            chosen = steady(watches, f"re-armed per key, over {self.over}", setting)
            chance = watches.false_alarm(terms, usual, ticks)
        return replace(chosen, alarms=(FalseAlarm(self.name, usual, chance),))

    def _terms(self, places: int, step: int) -> WatchTerms:
        ticks = milliseconds(self.over) // step
        return window_terms(self.threshold, places, ticks, below=self.below, rearm=True)

    def exact(self, totals: IntArray, keys: Sequence[str]) -> None:
        """Return nothing: alerts have no total."""
