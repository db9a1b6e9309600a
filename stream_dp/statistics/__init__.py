"""The statistics that a pipeline file can name: a file each (`maximum` is in `largest`), and a line in `STATISTICS`.

A statistic says which rows it needs, which mechanism it chooses, how its releases look, and its words. Begin
with `count`, then `parts.series_spec`. It knows no engine loop, no adapter and no other statistic's file;
nothing below names one.
"""

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import Field

from stream_dp.statistics.alerts import AlertsSeries
from stream_dp.statistics.columns_above import ColumnsAboveSeries
from stream_dp.statistics.count import CountSeries
from stream_dp.statistics.cut_off import CutOffSeries
from stream_dp.statistics.distinct import DistinctSeries
from stream_dp.statistics.gauge import GaugeSeries
from stream_dp.statistics.histogram import HistogramSeries
from stream_dp.statistics.largest import LargestSeries, MaximumSeries
from stream_dp.statistics.mean import MeanSeries
from stream_dp.statistics.monitor import MonitorSeries
from stream_dp.statistics.parts.series_spec import SeriesSpec
from stream_dp.statistics.quantiles import QuantilesSeries
from stream_dp.statistics.ratio import RatioSeries
from stream_dp.statistics.sum import SumSeries
from stream_dp.statistics.top import TopSeries

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
