"""The statistic `sum`: how much of a clamped number, so far or over sliding windows, over all or by what it goes by."""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

from pydantic_core import InitErrorDetails

from stream_dp.core.mechanism import IntArray
from stream_dp.core.wording import how_many
from stream_dp.records.amount_units import (
    Amount,
    Clamp,
    SharedAmount,
    Step,
    UserTotal,
    clamp_problems,
    number_problems,
    plain_number,
    total_problems,
)
from stream_dp.records.groupings import decimal_text
from stream_dp.records.scalars import Exact, FieldName, duration_text, milliseconds, problem
from stream_dp.statistics.parts.choice import Choice, Setting
from stream_dp.statistics.parts.series_spec import Rest
from stream_dp.statistics.parts.windowed import SingleOrKeyed
from stream_dp.statistics.parts.windows import amounts_choice, shared_choice, totals_choice

CLAMPED = 2, 5, 10, 20, 50  # parts of a clamp, and numbers of largest amounts, which `check` tries
FEW = 1, 3
OF_A_USER = "limits what one user adds, but privacy.unit is event: write unit: user"
_BOTH = "with amounts of both signs, user_total is a user's sum in a whole window of the cap"


class AmountSeries(SingleOrKeyed):
    """A statistic of the field `of`, each value within `clamp`, on a grid of `step`; of all, or `by` key.

    With `shared_total` it is of what a user adds within a total of `privacy`, to all such series of the field together.
    """

    later: ClassVar[tuple[str, ...]] = ("shared_total", *SingleOrKeyed.later)

    of: FieldName
    clamp: Clamp
    step: Step = Fraction(1)
    shared_total: bool = False

    @property
    def totals(self) -> bool:
        return self.shared_total

    @property
    def shares(self) -> str | None:
        return self.of if self.shared_total else None

    @property
    def whole(self) -> Amount:
        lowest, highest = self.clamp
        return Amount(self.of, lowest, highest, self.step)

    @property
    def grain(self) -> Fraction:
        return self.step

    @property
    def about(self) -> str:
        low, high = map(decimal_text, self.clamp)
        return f"{self.statistic} of {self.of}, each from {low} to {high},{self.by_and_over}"

    @property
    def nonnegative(self) -> bool:
        return self.clamp[0] >= 0

    @property
    def error_unit(self) -> str:
        return self.unit or f"of {self.of}"

    @property
    def parameters(self) -> dict[str, int | str]:
        low, high = map(decimal_text, self.clamp)
        own = {"of": self.of, "clamp": f"{low} to {high}", "step": decimal_text(self.step)}
        shared = {"shared_total": "of users"} if self.shared_total else {}
        return {**own, **super().parameters, **shared}

    def variants(self) -> Iterator[tuple[str, Self]]:
        """Yield it in other windows, and with parts of its clamp."""
        if self.shared_total:
            return  # another clamp would not be that of the total
        yield from super().variants()
        low, high = self.clamp
        for part in CLAMPED if low >= 0 else ():
            most = high // (part * self.step) * self.step
            if most > low:
                clamp = f"clamp: [{decimal_text(low)}, {decimal_text(most)}]"
                yield clamp, self.model_copy(update={"clamp": (low, most)})

    def own_problems(self) -> list[InitErrorDetails]:
        return [*super().own_problems(), *clamp_problems(self.clamp, self.step)]

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        problems = [*super().problems(rest), *number_problems(self.of, rest.fields)]
        return [*problems, *self._shared_problems(rest)] if self.shared_total else problems

    def _shared_problems(self, rest: Rest) -> Iterator[InitErrorDetails]:
        total, mine = rest.privacy.total_of(self.of), (self.of, self.clamp, self.step)
        amounts = [total.of for total in rest.privacy.shared]
        why = ""
        if rest.privacy.unit == "event":
            why = OF_A_USER
        elif not amounts:
            why = "privacy has no total: declare one, such as total: {of: amount, clamp: [0, 240], at_most: 600}"
        elif total is None and rest.privacy.totals:
            why = f"privacy.totals has none of {self.of}, but of {', '.join(amounts)}: add one, or leave it out"
        elif mine != ((shown := total or rest.privacy.shared[0]).of, shown.clamp, shown.step):
            low, high = map(decimal_text, shown.clamp)
            several = "s" if rest.privacy.totals else ""
            why = (
                f"privacy.total{several} is of {shown.of}, clamp [{low}, {high}], in steps of "
                f"{decimal_text(shown.step)}: "
                "a series with shared_total must have the same, so change it here"
            )
        elif self.ones(rest.fields) > 1:
            instead = ", or use user_total" if "user_total" in type(self).model_fields else ""
            why = f"each entry of a list would take all of a record's amount: go by another field{instead}"
        if why:
            yield problem(("shared_total",), why)


class SumSeries(AmountSeries):
    """The sum of the field `of`, each value within `clamp`, on a grid of `step`; so far, over windows or in each.

    With `user_total` all records of a user add at most that much, in each public window of the cap or for ever; amounts
    of both signs add up to at most that much, up or down, in each window of the cap, once it has ended.
    """

    later: ClassVar[tuple[str, ...]] = ("user_total", *AmountSeries.later)

    statistic: Literal["sum"] = "sum"
    user_total: Exact | None = None

    @property
    def amount(self) -> Amount | UserTotal | SharedAmount:
        if self.shared_total:
            return SharedAmount(self.whole)
        return self.whole if self.user_total is None else UserTotal(self.whole, self._most)

    @property
    def totals(self) -> bool:
        return self.shared_total or self.user_total is not None

    @property
    def about(self) -> str:
        if self.shared_total:
            return f"{super().about}, of each user no more than is left of the total"
        if self.user_total is None:
            return super().about
        most = decimal_text(self.user_total)
        all_of_it = f"from -{most} to {most} in a window" if self.signed else f"at most {most}"
        return f"{super().about}, of each user {all_of_it}"

    @property
    def parameters(self) -> dict[str, int | str]:
        total = self.user_total
        own: dict[str, int | str] = {} if total is None else {"user_total": decimal_text(total)}
        return super().parameters | own

    @property
    def signed(self) -> bool:
        return self.clamp[0] < 0

    @property
    def counted(self) -> Amount | SharedAmount | None:
        # fewer records of a user may add more of what is left of a total than others took
        if self.shared_total:
            return SharedAmount(self.whole)  # decided before any series' conditions
        return None if self.signed or self.user_total is not None else self.whole

    def typical(self, guess: Fraction | None) -> Fraction:
        low, high = self.clamp
        return min(max((low + high) / 2 if guess is None else guess, low), high)

    def variants(self) -> Iterator[tuple[str, "SumSeries"]]:
        """Yield it with totals of a user's few largest amounts too."""
        yield from super().variants()
        for many in FEW if not self.totals else ():
            yield from self.with_totals(many * self.clamp[1]).items()

    def with_totals(self, most: Fraction) -> dict[str, "SumSeries"]:
        if self.shared_total:
            return {}
        totals: tuple[Fraction | None, ...] = (math.ceil(most / self.step) * self.step,)
        if self.user_total is not None:
            totals = None, 2 * self.user_total, self.user_total / 2 // self.step * self.step
        return {
            f"user_total: {decimal_text(total)}"
            if total
            else "without user_total": self.model_copy(update={"user_total": total})
            for total in totals
        }

    @property
    def _most(self) -> int:
        return int((self.user_total or 0) / self.step)

    def own_problems(self) -> list[InitErrorDetails]:
        problems, total = super().own_problems(), self.user_total
        if total is None:
            return problems
        if self.shared_total:
            problems.append(
                problem(("user_total",), "cannot stand beside shared_total: choose one of the two")
            )
        problems += [problem(("user_total",), why) for why in total_problems(total, self.step)]
        if self.signed and (len(self.every) != 1 or self.running):
            problems.append(
                problem(
                    ("user_total",),
                    f"{_BOTH}: write every: with the length of per, and no running",
                )
            )
        return problems

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        problems, total = super().problems(rest), self.user_total
        if self.shared_total or total is None:
            return problems
        if rest.privacy.unit == "event":
            return [*problems, problem(("user_total",), OF_A_USER)]
        per = rest.privacy.per
        if self.signed and not problems and (per is None or milliseconds(self.every[0]) != per):
            cap = (
                "is for ever: say max_events and per"
                if per is None
                else f"has {duration_text(per)}"
            )
            return [problem(("every",), f"{_BOTH}, and the cap {cap}")]
        events = rest.privacy.most_events(rest.clock)
        most = events * max(map(abs, self.clamp)) * self.ones(rest.fields)
        if not problems and total >= most:
            why = (
                f"the {how_many(events, 'event')} of a user that count add at most {decimal_text(most)} "
                "anyway, at the same price: leave it out, or give less"
            )
            problems.append(problem(("user_total",), why))
        return problems

    def choose(self, setting: Setting) -> Choice:
        own = setting, self.epsilon, self.spans
        if self.shared_total:
            return shared_choice(*own, self.step)
        if self.user_total is not None:
            return totals_choice(*own, self._most, self.step, -1 if self.signed else 0)
        return amounts_choice(*own, self.whole.units, self.step, "a sum")

    def shown_totals(self, totals: IntArray) -> list[Any]:
        return [plain_number(units * self.step) for units in totals.tolist()]
