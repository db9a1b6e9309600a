"""The statistic `ratio`: what one series releases over what another one does, at each tick and in each window.

Post-processing ([HSV] 2.14): it sees nothing but what is released, costs nothing, and takes no epsilon. Its interval
follows from the laws of both noises, which are independent. Where both count the same, and the conditions of the one
leave only records that the other counts too, it is a share, and stays from 0 to 1.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, InstanceOf, PrivateAttr
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import InitErrorDetails

from stream_dp.core.wording import meant
from stream_dp.engine.series import MadeSeries, Make, Part
from stream_dp.errors import NotDerivable
from stream_dp.journal.release import Shape
from stream_dp.mechanisms.quotients import Quotient, quotient
from stream_dp.mechanisms.serving import Contrasts
from stream_dp.records.conditions import Where, implies, tests_of
from stream_dp.records.groupings import By, decimal_text
from stream_dp.records.scalars import Name, problem
from stream_dp.statistics.parts.choice import ENDLESS, Choice, Setting
from stream_dp.statistics.parts.series_spec import (
    WITHIN,
    Input,
    MadeOf,
    Rest,
    SeriesSpec,
    quotient_values,
)

_SHARE = (Fraction(0), Fraction(1))


def _nothing(value: object) -> object:
    if value != 0:
        raise ValueError(
            "must be left out: a ratio is computed from releases and has no privacy loss of its own"
        )
    return value


def _none(value: object) -> object:
    if value != ():
        raise ValueError(
            "must be left out: a ratio has the conditions of its two series and none of its own"
        )
    return value


class RatioSeries(SeriesSpec):
    """The releases of the series `of` over those of the series `over`, with so many `digits` behind the point."""

    error_unit: ClassVar[str] = ""  # how far off it is depends on how much was counted

    statistic: Literal["ratio"] = "ratio"
    epsilon: SkipJsonSchema[
        Annotated[InstanceOf[Fraction], BeforeValidator(_nothing), Field(exclude=True)]
    ] = Fraction(0)
    delta: SkipJsonSchema[
        Annotated[InstanceOf[Fraction], BeforeValidator(_nothing), Field(exclude=True)]
    ] = Fraction(0)
    where: SkipJsonSchema[Annotated[Where, BeforeValidator(_none), Field(exclude=True)]] = ()
    of: Name
    over: Name
    digits: Annotated[int, Field(ge=1, le=9)] = 4
    _of: SeriesSpec | None = PrivateAttr(None)
    _over: SeriesSpec | None = PrivateAttr(None)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.of, self.over

    def knowing(self, others: Mapping[str, SeriesSpec]) -> "RatioSeries":
        known = self.model_copy()
        known._of, known._over = (others.get(name) for name in self.inputs)  # noqa: SLF001 - a copy
        return known

    @property
    def views(self) -> tuple[str, ...]:
        return () if self._of is None else self._of.views

    @property
    def form(self) -> Shape:
        return self.shape if self._of is None else self._of.form

    @property
    def grouped_by(self) -> By | None:
        return None if self._of is None else self._of.grouped_by

    def conditions_as(self, meant: Any) -> dict[str, Any]:
        return {}

    @property
    def about(self) -> str:
        return f"{self.of} over {self.over}"

    @property
    def nonnegative(self) -> bool:
        """Whether the numerator is; the denominator always is."""
        return self._of is not None and self._of.nonnegative

    @property
    def parameters(self) -> dict[str, int | str]:
        inherited = {} if self._of is None else self._of.parameters
        when = {key: inherited[key] for key in ("told",) if key in inherited}
        return {"of": self.of, "over": self.over, "digits": self.digits, **when}

    def parameters_by(self, fields: Mapping[str, Any]) -> dict[str, int | str]:
        within = {"within": WITHIN} if self._is_share(fields) else {}
        return {**self.parameters, **within}

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        return []

    def input_problems(self, others: Mapping[str, SeriesSpec]) -> list[InitErrorDetails]:
        problems = [
            problem((key,), wrong)
            for key, name in (("of", self.of), ("over", self.over))
            if (wrong := self._input_problem(name, others)) is not None
        ]
        if problems:
            return problems
        return [
            problem(("over",), why) for why in _not_together(others[self.of], others[self.over])
        ]

    def _input_problem(self, name: str, others: Mapping[str, SeriesSpec]) -> str | None:
        if name == self.name:
            return f"'{name}' is the ratio itself"
        if name not in others:
            return f"'{name}' is not a series of this file{meant(name, others)}"
        series = others[name]
        if series.inputs:
            return f"'{name}' is itself made of releases: name the series that it is made of"
        if series.form is Shape.FLAGS or type(series).teller is not SeriesSpec.teller:
            return (
                f"'{name}' ({series.statistic}) does not release numbers of the same thing at every tick, which could "
                "be divided: name a count, a histogram, a sum, a gauge or distinct"
            )
        return None

    def choose(self, setting: Setting) -> Choice:
        raise NotDerivable(f"{self.name}: a ratio is computed from releases and has no mechanism")

    def made(
        self, inputs: Sequence[Input], fields: Mapping[str, Any], horizon: int | None
    ) -> MadeOf:
        of, over = inputs
        for source in inputs:
            source.require_by_tick(self.name)
        within = _SHARE if self._is_share(fields) else None
        uncut = within is not None and not self._was_share(fields)
        ends = [within, None] if uncut else [within]
        makers = tuple(self._maker(of, over, bounds) for bounds in ends)
        confidence = float(of.confidence)
        made = MadeSeries(self.name, self.inputs, of.keys, self.views, makers, confidence)
        return MadeOf(made, self._why(of, over, horizon, within))

    def _maker(self, of: Input, over: Input, within: tuple[Fraction, Fraction] | None) -> Make:
        farthest = None if within is None else within[1] * over.unit / of.unit
        confidence, units = float(of.confidence), (of.unit, over.unit)
        widths = {
            window: Contrasts(of.answer(window), over.answer(window), confidence, farthest, units)
            for window in self.views or ("",)
        }
        signed, digits = self._of is not None and self._of.signed, self.digits

        def make(tick: int, window: str, parts: Sequence[Part]) -> dict[str, Any]:
            (of_part, over_part), at_tick = parts, widths[window](tick)
            values: Any = of_part.get("values") or {"": of_part["value"]}
            totals: Any = over_part.get("values") or dict.fromkeys(values, over_part["value"])

            def told(value: Any, total: Any) -> Quotient:
                if value is None:  # no window has ended
                    return Quotient(None, None, None)
                pair = Fraction(value), Fraction(total)
                return quotient(*pair, at_tick, digits, signed=signed, within=within)

            quotients = [told(value, totals[key]) for key, value in values.items()]
            return quotient_values(quotients, list(values) if "values" in of_part else None)

        return make

    def _is_share(self, fields: Mapping[str, Any]) -> bool:
        """Whether, whatever the records are, no true value of the one exceeds that of the other."""
        of, over = self._of, self._over
        if of is None or over is None or of.counted is None or of.counted != over.counted:
            return False
        return implies(fields, tests_of(fields, of.where), tests_of(fields, over.where))

    def _was_share(self, fields: Mapping[str, Any]) -> bool:
        """Whether the first version told it as a share: journals hold others, which are not cut to 0 and 1."""
        of, over = self._of, self._over
        if of is None or over is None or {of.statistic, over.statistic} - _ADDING:
            return False
        return tests_of(fields, of.where) >= tests_of(fields, over.where)

    def _why(
        self, of: Input, over: Input, horizon: int | None, within: tuple[Fraction, Fraction] | None
    ) -> str:
        tick, shown = (horizon or ENDLESS) - 1, []
        for name in self.views or ("",):
            below, above = (decimal_text(series.band(tick, name)) for series in (over, of))
            window = f"{name}: " if name else ""
            shown.append(f"{window}sqrt({above}^2 + ({below} r)^2) / (n - {below})")
        share = (
            ""
            if within is None
            else f"; the ratio is a share, because {of.name} counts a part of {over.name}"
        )
        return (
            f"post-processing of {of.name} and {over.name}, which costs no epsilon{share}; at tick {tick}, for a "
            f"ratio r and a value n of {over.name}, the distance of `low` and `high` from r is at most about "
            f"{', '.join(shown)}"
        )


_ADDING = {"count", "histogram", "sum"}
"""The statistics whose shares the first version told as shares."""


def _not_together(of: SeriesSpec, over: SeriesSpec) -> list[str]:
    problems = []
    if of.name == over.name:
        problems.append(f"'{over.name}' stands above and below: their ratio is always 1")
    if of.views != over.views:
        problems.append(
            f"'{of.name}' and '{over.name}' must have the same windows: {_windows(of)}, and {_windows(over)}"
        )
    elif _told(of) != _told(over):
        problems.append(
            f"'{over.name}' and '{of.name}' tell the same windows at other times: {_told(over)}, and {_told(of)}"
        )
    if over.signed:
        problems.append(f"'{over.name}' may be 0 and below, where a ratio means nothing")
    if over.grouped_by is not None and over.keyed and over.grouped_by != of.grouped_by:
        problems.append(
            f"'{over.name}' has a value for each key, and '{of.name}' does not have the same keys: give both the same "
            "by, or divide by a total"
        )
    return problems


def _told(series: SeriesSpec) -> int | str:
    return series.parameters.get("told", "at every tick")


def _windows(series: SeriesSpec) -> str:
    windows = ", ".join(series.views) or "none"
    return f"'{series.name}' has {windows}"
