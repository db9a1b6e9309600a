"""The statistics a pipeline file can name: one file each, and one line each in `STATISTICS`."""

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import Field

from stream_dp.pipeline.statistics.alerts import AlertsSeries
from stream_dp.pipeline.statistics.columns_above import ColumnsAboveSeries
from stream_dp.pipeline.statistics.count import CountSeries
from stream_dp.pipeline.statistics.cut_off import CutOffSeries
from stream_dp.pipeline.statistics.distinct import DistinctSeries
from stream_dp.pipeline.statistics.gauge import GaugeSeries
from stream_dp.pipeline.statistics.histogram import HistogramSeries
from stream_dp.pipeline.statistics.largest import LargestSeries
from stream_dp.pipeline.statistics.maximum import MaximumSeries
from stream_dp.pipeline.statistics.mean import MeanSeries
from stream_dp.pipeline.statistics.monitor import MonitorSeries
from stream_dp.pipeline.statistics.quantiles import QuantilesSeries
from stream_dp.pipeline.statistics.ratio import RatioSeries
from stream_dp.pipeline.statistics.series_spec import SeriesSpec
from stream_dp.pipeline.statistics.sum import SumSeries
from stream_dp.pipeline.statistics.top import TopSeries

STATISTICS: tuple[type[SeriesSpec], ...] = (
    CountSeries,
    SumSeries,
    MeanSeries,
    GaugeSeries,
    DistinctSeries,
    CutOffSeries,
    HistogramSeries,
    TopSeries,
    MaximumSeries,
    LargestSeries,
    ColumnsAboveSeries,
    QuantilesSeries,
    AlertsSeries,
    MonitorSeries,
    RatioSeries,
)

if TYPE_CHECKING:
    Series: TypeAlias = SeriesSpec
else:
    Series = Annotated[reduce(or_, STATISTICS), Field(discriminator="statistic")]


def statistic_named(name: object) -> type[SeriesSpec]:
    """Return the statistic of this name; what all have in common where there is none."""
    named = {kind.model_fields["statistic"].default: kind for kind in STATISTICS}
    return named.get(name, SeriesSpec)
