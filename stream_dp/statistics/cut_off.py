"""The statistic `cut_off`: which share of the users who were active had more events than their cap lets count.

What the cap cuts off is a bias of every other series, and nobody sees it there. Users are counted and not their events:
of those a single user may have any number. Who is counted is the guard's to say.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from pydantic_core import InitErrorDetails

from stream_dp.core.mechanism import IntArray
from stream_dp.engine.series import Tell
from stream_dp.mechanisms.linear.arrival_counter import ENTRIES, CutOffCounter
from stream_dp.mechanisms.quotients import quotient
from stream_dp.mechanisms.serving import Answer, Contrasts
from stream_dp.records.privacy import GUESSES, TOTAL
from stream_dp.records.record_columns import CapUse
from stream_dp.records.scalars import FieldName, duration_text, milliseconds, problem
from stream_dp.statistics.parts.choice import Choice, Floats, Setting
from stream_dp.statistics.parts.series_spec import WITHIN, Rest, SeriesSpec, quotient_values
from stream_dp.statistics.parts.verdicts import Guess, Judged, Seen
from stream_dp.statistics.parts.windows import EVER, Window, following, windowed

CapName: TypeAlias = Literal["max_events", "overall", "per_tick", "per_key", "keys", "total"]
DIGITS = 4
SHARE = (Fraction(0), Fraction(1))


class CutOffSeries(SeriesSpec):
    """The share of active users who were cut off, since the cap's window began and in the one before.

    With `cap`, by that cap: the cap of the window where it was used up, else each that had no room for a record; or
    `total`, beyond which a record that counts had something to add: of several, that of the amount `of`, or any.
    Without it, by any cap that a record uses.
    """

    later = ("cap", "of")

    # of a share nothing can be predicted, of the two numbers it is made of it can
    error_unit: ClassVar[str] = "users in either number"
    numbers: ClassVar[int] = ENTRIES

    statistic: Literal["cut_off"] = "cut_off"
    window: Window | None = None
    cap: CapName | None = None
    of: FieldName | None = None

    @property
    def views(self) -> tuple[str, ...]:
        """The window that is open, and the whole one before it; nothing where the cap holds for ever."""
        return () if self.window is None else (self.window, f"{self.window} before")

    @property
    def identifier(self) -> CapUse:
        cap = self.cap if self.of is None else f"{self.cap} of {self.of}"
        return CapUse(None if self.window is None else milliseconds(self.window), cap)

    @property
    def about(self) -> str:
        when = "so far" if self.window is None else f"in each {self.window}"
        return f"the share of the users active {when} {self._whose('their cap')}"

    def _whose(self, caps: str) -> str:
        if self.cap == TOTAL:
            amounts = "amounts" if self.of is None else f"amounts of {self.of}"
            return f"whose {amounts} came to more than the total, beyond which they add nothing"
        return f"who had events beyond {self.cap or caps}, which are not counted"

    @property
    def parameters(self) -> dict[str, int | str]:
        when = {} if self.window is None else {"told": "since a window began"}
        named = {"cap": self.cap, "of": self.of}
        return {"within": WITHIN, **when, **{k: v for k, v in named.items() if v is not None}}

    def teller(self, mechanism: Any, place: int | None, confidence: float) -> Tell:
        """Return what tells the share with its ends: nothing of the window before in the first one."""
        either = Answer(mechanism, place or 0)
        widths = Contrasts(either, either, confidence, SHARE[1])
        first: int = mechanism.users.window if place else 0

        def tell(names: Sequence[str], answer: IntArray, tick: int, state: Any) -> dict[str, Any]:
            if tick < first:
                return dict.fromkeys(("value", "low", "high"))
            active, cut = (Fraction(max(0, number)) for number in answer.tolist())
            share = quotient(cut, active, widths(tick), DIGITS, signed=False, within=SHARE)
            return quotient_values([share], None)

        return tell

    def covered(self, window: str, tick: int, step: int) -> range:
        """Return the ticks of the window that is open, or of the whole one before it."""
        if self.window is None or self.window == EVER:
            return super().covered("", tick, step)
        now = following(self.window, tick, step, running=True)
        before = following(self.window, now.start - 1, step, running=False)
        return now if window == self.window else before

    def true_numbers(self, totals: IntArray) -> Sequence[Any]:
        active, cut = totals.tolist()
        return [Fraction(cut, active) if active else None]

    def guessed_totals(self, guess: Guess) -> Floats | str:
        users = guess.typical if guess.users is None else guess.users
        return f"{GUESSES}.users" if users is None else np.array([float(users), 0.0])

    def judged(self, seen: Seen) -> Judged:
        """Return how many users are active: what their number is off by, of them, a share is off by in points."""
        return Judged(float(seen.totals[0]), seen.band, "active users")

    def own_problems(self) -> list[InitErrorDetails]:
        if self.of is not None and self.cap != TOTAL:
            return [problem(("of",), "is the amount of a total: write cap: total, or leave it out")]
        if not self.where:
            return []
        why = "the guard looks only at a record's user and tick: leave it out"
        return [problem(("where",), why)]

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        if rest.privacy.unit == "event":
            why = "counts users beyond their cap, but privacy.unit is event, which has no cap: write unit: user"
            return [problem(("statistic",), why)]
        declared = {name: getattr(rest.privacy, name) for name in get_args(CapName)}
        declared[TOTAL] = rest.privacy.shared or None
        if self.of is not None and declared[TOTAL] and rest.privacy.total_of(self.of) is None:
            amounts = [total.of for total in rest.privacy.shared]
            why = f"privacy has no total of {self.of}: name {' or '.join(amounts)}"
            return [problem(("of",), why)]
        if self.cap is not None and declared[self.cap] is None:
            given = [name for name, cap in declared.items() if cap is not None]
            why = f"privacy has no {self.cap}: name {' or '.join(given)}, or leave it out for all caps"
            return [problem(("cap",), why)]
        if rest.privacy.per is None:
            why = "the cap holds for ever: leave it out"
            return [] if self.window is None else [problem(("window",), why)]
        if self.window not in (None, EVER) and milliseconds(self.window) == rest.privacy.per:
            return []
        length = duration_text(rest.privacy.per)
        return [problem(("window",), f"the cap is one for each {length}: write {length}")]

    def choose(self, setting: Setting) -> Choice:
        users = setting.users
        if users is None:
            raise TypeError("users are cut off only where users are protected")
        mechanism = CutOffCounter(self.epsilon, setting.neighbors, setting.horizon, users)
        when = "ever" if self.window is None else f"in each {self.window}"
        why = (
            "two tree counters of first ticks, each with half of the epsilon, give the share of the users active "
            f"{when} {self._whose('their caps')}. The half-widths hold for each of the two numbers of users"
        )
        chosen = windowed(mechanism, setting, self.views or ("",), why)
        return chosen if self.views else replace(chosen, windows={})
