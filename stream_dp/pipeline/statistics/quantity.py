"""The statistic `quantity`: a function of the categories' counts that an installed package offers."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic_core import InitErrorDetails

from stream_dp.core.messages import IntArray
from stream_dp.errors import UsageError
from stream_dp.mechanisms.quantity_checks import called
from stream_dp.pipeline.choice import Choice, Setting
from stream_dp.pipeline.choose_hss import CounterKind, Demand, ExpectedEvents, hss_choice
from stream_dp.pipeline.installed_quantities import function_of, installed_quantity
from stream_dp.pipeline.scalars import Name, problem
from stream_dp.pipeline.statistics.series_spec import GroupedSeries, Place
from stream_dp.runtime.release import Shape


class QuantitySeries(GroupedSeries):
    """The value of `function` at the categories' counts so far."""

    shape: ClassVar[Shape] = Shape.SCALAR
    later: ClassVar[tuple[str, ...]] = ("counter",)

    statistic: Literal["quantity"] = "quantity"
    function: Name
    version: Annotated[int, Field(ge=1, le=10**6)] = 1
    lipschitz: Annotated[int, Field(ge=1, le=10**6)] = 1
    expected_events: ExpectedEvents = None
    counter: CounterKind = "tree"

    @property
    def about(self) -> str:
        """What is released, in a few words."""
        return f"{self.function} (version {self.version}) by {self.by_text} so far"

    @property
    def parameters(self) -> dict[str, int | str]:
        """Which quantity, its version and what is stated of it."""
        return {"function": self.function, "version": self.version, "lipschitz": self.lipschitz}

    @classmethod
    def problems(
        cls, at: Place, series: Any, fields: Mapping[str, Any] | None
    ) -> list[InitErrorDetails]:
        """Return those of every grouped series, and a quantity that no installed package offers."""
        found, name = super().problems(at, series, fields), getattr(series, "function", None)
        if isinstance(name, str):
            try:
                function_of(name)
            except UsageError as refused:
                found.append(problem((*at, "function"), str(refused)))
        return found

    def choose(self, setting: Setting) -> Choice:
        """Choose the HSS on the quantity, which is tested for these rows first.

        Raises:
            UsageError: it fails its test, or nothing offers it.
        """
        quantity = installed_quantity(
            self.function, setting.width, setting.ones, self.lipschitz, self.version
        )
        demand = Demand(setting, quantity, self.epsilon, self.expected_events, counter=self.counter)
        return hss_choice(demand, f"method: hss; {self.function}: {quantity.why}")

    def exact(self, totals: IntArray, keys: Sequence[str]) -> int:
        """Return the function's value."""
        return called(function_of(self.function), totals)
