"""The statistic `alerts`: per category, have at least about `threshold` events come since its last alert?"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from stream_dp.core.messages import IntArray
from stream_dp.mechanisms.alerts import Alerts
from stream_dp.pipeline.choice import Choice, Setting, steady
from stream_dp.pipeline.statistics.series_spec import GroupedSeries
from stream_dp.runtime.release import Shape


class AlertsSeries(GroupedSeries):
    """Per category: have at least about `threshold` events come since its last alert?"""

    shape: ClassVar[Shape] = Shape.FLAGS

    statistic: Literal["alerts"] = "alerts"
    threshold: Annotated[int, Field(ge=1, le=10**15)]

    @property
    def about(self) -> str:
        """What is released, in a few words."""
        return f"alerts by {self.by_text}"

    @property
    def meaning(self) -> str:
        """What an alert means."""
        return f"at least about {self.threshold:,} {{band}} events since the one before"

    @property
    def parameters(self) -> dict[str, int | str]:
        """The threshold."""
        return {"threshold": self.threshold}

    def choose(self, setting: Setting) -> Choice:
        """Choose one re-armed sparse vector for each key."""
        alerts = Alerts(
            setting.width, self.epsilon, setting.neighbors, self.threshold, setting.ones
        )
        return steady(alerts, "re-armed per key", setting)

    def exact(self, totals: IntArray, keys: Sequence[str]) -> None:
        """Return nothing: alerts have no total."""
