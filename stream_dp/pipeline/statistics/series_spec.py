"""What every statistic says of itself: its keys in the file, its rows, its mechanism, its releases, its words.

Rules: a statistic is one subclass of `SeriesSpec` in a file of its own and an entry in `STATISTICS`; nothing else of
the pipeline, the page or the commands knows it. Models are frozen and refuse unknown keys. `problems` takes sketches of
broken entries too, so that one mistake hides no other.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic_core import InitErrorDetails

from stream_dp.core.messages import IntArray
from stream_dp.pipeline.choice import Choice, Setting
from stream_dp.pipeline.conditions import Where, condition_problems
from stream_dp.pipeline.scalars import Epsilon, Frozen, Name, problem
from stream_dp.runtime.release import Shape

Place = tuple[str | int, ...]


class SeriesSpec(Frozen, ABC):
    """An entry of `series:`: a statistic of the records that pass all of `where`."""

    shape: ClassVar[Shape]
    later: ClassVar[tuple[str, ...]] = ()
    """The keys that came later: at their defaults they are left out of fingerprints."""

    statistic: str
    name: Name
    epsilon: Epsilon
    where: Where = ()

    @property
    def grouped_by(self) -> str | None:
        """The category or list whose values have an entry each in this series' rows; None: one entry for all."""
        return None

    @property
    def left_out(self) -> set[str]:
        """The later keys that are at their defaults, which fingerprints and journals leave out."""
        model = type(self).model_fields
        return {name for name in self.later if getattr(self, name) == model[name].default}

    @abstractmethod
    def choose(self, setting: Setting) -> Choice:
        """Choose the mechanism, from the specification alone."""

    @abstractmethod
    def exact(self, totals: IntArray, keys: Sequence[str]) -> Any:
        """Return what an exact release would show after rows that add up to `totals`; None where nothing would.

        For sources declared public only. `totals` has shape (width,), `keys` names its entries.
        """

    @property
    @abstractmethod
    def about(self) -> str:
        """What is released, in a few words."""

    @property
    def meaning(self) -> str | None:
        """What a flag means, as a sentence in which `{band}` stands for the release's band; None without flags."""
        return None

    @property
    def parameters(self) -> dict[str, int | str]:
        """The statistic's own keys that readers of its releases want to know, with their values."""
        return {}

    def described(self) -> dict[str, Any]:
        """Return what the API says of the series: public, plain values. A statistic adds `parameters`, and no key."""
        return {
            "name": self.name,
            "statistic": self.statistic,
            "by": self.grouped_by,
            "shape": str(self.shape),
            "about": self.about,
            "meaning": self.meaning,
            "parameters": self.parameters,
        }

    @classmethod
    def problems(
        cls, at: Place, series: Any, fields: Mapping[str, Any] | None
    ) -> list[InitErrorDetails]:
        """Return what a series, or a sketch of a broken one, and the schema say together and must not.

        `at` is the place of the series; `fields` is None where the schema cannot be read.
        """
        if fields is None:
            return []
        found = _by_problems(at, getattr(series, "by", None), fields)
        for place, condition in enumerate(series.where):
            if condition is not None:
                found += condition_problems((*at, "where", place), condition, fields)
        return found


class GroupedSeries(SeriesSpec):
    """A statistic with an entry for each value of the category or list `by`."""

    by: str

    @property
    def grouped_by(self) -> str:
        """The category."""
        return self.by


def _by_problems(at: Place, by: str | None, fields: Mapping[str, Any]) -> list[InitErrorDetails]:
    if by is None:
        return []
    if by not in fields:
        return [problem((*at, "by"), f"'{by}' is not in the schema")]
    if fields[by] is not None and fields[by].type not in ("category", "list"):
        return [problem((*at, "by"), f"'{by}' is a {fields[by].type}, not a category or a list")]
    return []
