"""The statistic `alerts`: per category, have about `threshold` events come since its last alert, or in a window?

Or, `of` a number: has it added up to that?
"""

from dataclasses import replace
from fractions import Fraction
from typing import Literal, TypeAlias

from pydantic_core import InitErrorDetails

from stream_dp.core.neighbors import Neighbors
from stream_dp.journal.release import Shape
from stream_dp.mechanisms.watches.block import WatchTerms
from stream_dp.mechanisms.watches.kinds import Alerts, Monitor, SumMonitor, WindowAlerts
from stream_dp.records.amount_units import Clamp, Step, number_problems
from stream_dp.records.groupings import decimal_text
from stream_dp.records.scalars import FieldName, milliseconds, problem
from stream_dp.statistics.parts.alarms import (
    Looking,
    OnSums,
    SignedThreshold,
    alarm_of,
    level_problems,
    sign_problems,
    usual_problems,
    window_terms,
)
from stream_dp.statistics.parts.choice import Choice, Setting, steady
from stream_dp.statistics.parts.series_spec import GroupedSeries, Rest
from stream_dp.statistics.parts.windows import (
    EVER,
    Window,
    Windows,
    placed_windows,
    window_lengths,
    window_problems,
)

AlertMechanism: TypeAlias = Alerts | Monitor | SumMonitor | WindowAlerts


class AlertsSeries(OnSums, GroupedSeries):
    """Per category: have at least about `threshold` events come since its last alert, of these in the last window?

    With `below`: have less than about so many come in it? `usual` is the count at which an alarm is a false one. `of` a
    number, within `clamp` and on a grid of `step`, it is what the events add up to.
    """

    shape = Shape.FLAGS
    later = ("window", "windows", "below", "usual", "of", "clamp", "step")
    unmeant = ("usual",)

    statistic: Literal["alerts"] = "alerts"
    threshold: SignedThreshold
    below: bool = False
    window: Window | None = None
    windows: Windows = ()
    usual: SignedThreshold | None = None
    of: FieldName | None = None
    clamp: Clamp | None = None
    step: Step = Fraction(1)

    @property
    def over(self) -> str | None:
        """The window that it looks at; None: all since the alert before."""
        return self.windows[0] if self.windows else self.window

    @property
    def about(self) -> str:
        over = "" if self.over is None else f" over {self.over}"
        of = "" if self.of is None else f" on {self.of}"
        return f"alerts{of} by {self.by_text}{over}"

    @property
    def meaning(self) -> str:
        within = "" if self.over is None else f" within {self.over} and"
        most = "at most" if self.below else "at least"
        return f"{most} about {self.threshold:,} {{band}} {self.error_unit}{within} since the one before"

    @property
    def parameters(self) -> dict[str, int | str]:
        window = {} if self.over is None else {"window": self.over}
        side: dict[str, int | str] = {"fires": "below"} if self.below else {}
        parameters: dict[str, int | str] = {"threshold": self.threshold, **window, **side}
        if self.amount is None:
            return parameters
        low, high, step = map(decimal_text, (self.amount.lowest, self.amount.highest, self.step))
        return {**parameters, "of": self.amount.field, "clamp": f"{low} to {high}", "step": step}

    def own_problems(self) -> list[InitErrorDetails]:
        problems = [*super().own_problems(), *window_problems(self.windows, self.window)]
        ever = "without windows alerts count since the one before: leave it out, or name a duration such as 1h"
        named = placed_windows(self.windows, self.window)
        problems += [problem(at, ever) for at, name in named if name == EVER]
        if len(self.windows) > 1:
            why = "alerts look at one window: write a series for each, or a monitor with a watch for each"
            problems.append(problem(("windows", 1), why))
        if self.below and self.over is None:
            why = "a count since the last alert begins at 0, below any threshold: name a window such as windows: [1h]"
            problems.append(problem(("below",), why))
        signed = self.perhaps_signed
        at, step = ("threshold",), self.step
        return [
            *problems,
            *level_problems(at, self.threshold, below=self.below, step=step, signed=signed),
            *usual_problems(self.threshold, self.below, self.usual),
            *sign_problems((), self.usual, signed=signed),
            *self.sum_problems(),
        ]

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        return [
            *super().problems(rest),
            *([] if self.of is None else number_problems(self.of, rest.fields)),
            *window_lengths(rest.clock, self.windows, self.window),
        ]

    def choose(self, setting: Setting) -> Choice:
        watches = self._watches(setting)
        over = "" if self.over is None else f", over {self.over}"
        chosen = steady(watches, f"each key is re-armed by itself{over}", setting)
        terms, level = self._terms(1, setting.step), (self.threshold, self.usual)
        looking = Looking(setting.step, setting.last + 1, setting.confidence)
        alarm = alarm_of(
            self.name, watches, terms, level, self.step, looking, keyed=True, of=self.of
        )
        return replace(chosen, alarms=(alarm,)).in_steps(self.step)

    def _watches(self, setting: Setting) -> AlertMechanism:
        """Counts since the alert before have a mechanism of their own, and windows where events are replaced."""
        plain = setting.width, self.epsilon, setting.neighbors
        if self.amount is None and self.over is None:
            return Alerts(*plain, self.threshold, setting.ones)
        terms = self._terms(setting.width, setting.step)
        if self.amount is not None:
            return SumMonitor(*plain, (terms,), *self.amount.units, setting.ones)
        if terms.window and setting.neighbors is Neighbors.REPLACE:
            return WindowAlerts(*plain, (terms,), setting.ones)
        return Monitor(*plain, (terms,), setting.ones)

    def _terms(self, places: int, step: int) -> WatchTerms:
        units = int(self.threshold / self.step)
        if self.over is None:
            return WatchTerms(units, places)
        ticks = milliseconds(self.over) // step
        return window_terms(units, places, ticks, below=self.below, rearm=True)
