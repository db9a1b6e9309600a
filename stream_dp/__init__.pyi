"""The public names of `stream_dp`, and where they are: the one list, for type checkers and for `stream_dp` itself."""

from stream_dp.accounting.derive import derive as derive
from stream_dp.accounting.filters.filter import Entry as Entry
from stream_dp.accounting.filters.filter import Filter as Filter
from stream_dp.accounting.filters.filter import Spend as Spend
from stream_dp.accounting.filters.linear import BasicFilter as BasicFilter
from stream_dp.accounting.filters.linear import PureFilter as PureFilter
from stream_dp.accounting.filters.linear import RenyiFilter as RenyiFilter
from stream_dp.accounting.filters.squares import GaussianFilter as GaussianFilter
from stream_dp.accounting.filters.squares import (
    TightApproximateFilter as TightApproximateFilter,
)
from stream_dp.accounting.filters.squares import ZCDPFilter as ZCDPFilter
from stream_dp.accounting.gaussian_curve import discrete_gaussian as discrete_gaussian
from stream_dp.accounting.ledger import Ledger as Ledger
from stream_dp.accounting.ledger import truncated_odometer as truncated_odometer
from stream_dp.accounting.ledger import truncated_odometer_at as truncated_odometer_at
from stream_dp.accounting.rules.rule import leaf as leaf
from stream_dp.accounting.situations import Alive as Alive
from stream_dp.accounting.situations import Composite as Composite
from stream_dp.accounting.situations import Filtered as Filtered
from stream_dp.accounting.situations import Fixed as Fixed
from stream_dp.accounting.situations import Group as Group
from stream_dp.accounting.situations import Local as Local
from stream_dp.accounting.situations import Parallel as Parallel
from stream_dp.accounting.situations import Situation as Situation
from stream_dp.accounting.situations import Ticks as Ticks
from stream_dp.accounting.situations import Touched as Touched
from stream_dp.client.api import AsyncClient as AsyncClient
from stream_dp.client.api import Client as Client
from stream_dp.client.api import connect as connect
from stream_dp.client.api import connect_async as connect_async
from stream_dp.client.frames import ReleaseTable as ReleaseTable
from stream_dp.client.public_release import Counts as Counts
from stream_dp.client.public_release import PublicRelease as PublicRelease
from stream_dp.client.public_release import PublicWindow as PublicWindow
from stream_dp.core.derivation import Alternative as Alternative
from stream_dp.core.derivation import Condition as Condition
from stream_dp.core.derivation import Derivation as Derivation
from stream_dp.core.guarantee import ZCDP as ZCDP
from stream_dp.core.guarantee import ApproxDP as ApproxDP
from stream_dp.core.guarantee import GaussianDP as GaussianDP
from stream_dp.core.guarantee import Guarantee as Guarantee
from stream_dp.core.guarantee import Measure as Measure
from stream_dp.core.guarantee import ProbabilisticDP as ProbabilisticDP
from stream_dp.core.guarantee import Protected as Protected
from stream_dp.core.guarantee import PureDP as PureDP
from stream_dp.core.guarantee import RenyiCurve as RenyiCurve
from stream_dp.core.guarantee import RenyiDP as RenyiDP
from stream_dp.core.guarantee import TruncatedZCDP as TruncatedZCDP
from stream_dp.core.neighbors import Neighbors as Neighbors
from stream_dp.errors import BrokenCondition as BrokenCondition
from stream_dp.errors import BudgetRefused as BudgetRefused
from stream_dp.errors import FailClosed as FailClosed
from stream_dp.errors import InvalidCost as InvalidCost
from stream_dp.errors import MostlyNoise as MostlyNoise
from stream_dp.errors import NotDerivable as NotDerivable
from stream_dp.errors import RejectedMessage as RejectedMessage
from stream_dp.errors import ReleasesMissing as ReleasesMissing
from stream_dp.errors import StreamDPError as StreamDPError
from stream_dp.errors import TaintError as TaintError
from stream_dp.errors import UnknownMechanism as UnknownMechanism
from stream_dp.errors import UsageError as UsageError
from stream_dp.errors import WorldError as WorldError
from stream_dp.operate.run.hosted import HostedLane as HostedLane
from stream_dp.operate.run.hosted import LaneHost as LaneHost
from stream_dp.operate.run.hosted import Overtaken as Overtaken
from stream_dp.operate.run.hosted import RawRecord as RawRecord
from stream_dp.python.budget import Budget as Budget
from stream_dp.python.embedded import Pipeline as Pipeline
from stream_dp.python.embedded import Plan as Plan
from stream_dp.python.released import read_releases as read_releases
from stream_dp.python.series import ContinualSeries as ContinualSeries
from stream_dp.python.short_names import ContinualAlerts as ContinualAlerts
from stream_dp.python.short_names import ContinualCounter as ContinualCounter
from stream_dp.python.short_names import ContinualHistogram as ContinualHistogram
from stream_dp.python.short_names import ContinualMaximum as ContinualMaximum
from stream_dp.python.short_names import ContinualSum as ContinualSum
from stream_dp.python.short_names import ContinualSums as ContinualSums
from stream_dp.python.short_names import ContinualTop as ContinualTop
from stream_dp.python.short_names import Ranked as Ranked
from stream_dp.python.short_names import SumRelease as SumRelease
from stream_dp.python.short_names import Sums as Sums
from stream_dp.python.short_names import TickRelease as TickRelease
from stream_dp.python.short_names import TickWindow as TickWindow
from stream_dp.python.statistic import Alerts as Alerts
from stream_dp.python.statistic import ColumnsAbove as ColumnsAbove
from stream_dp.python.statistic import Count as Count
from stream_dp.python.statistic import CutOff as CutOff
from stream_dp.python.statistic import Distinct as Distinct
from stream_dp.python.statistic import Gauge as Gauge
from stream_dp.python.statistic import Histogram as Histogram
from stream_dp.python.statistic import Largest as Largest
from stream_dp.python.statistic import Maximum as Maximum
from stream_dp.python.statistic import Mean as Mean
from stream_dp.python.statistic import Monitor as Monitor
from stream_dp.python.statistic import Quantiles as Quantiles
from stream_dp.python.statistic import Ratio as Ratio
from stream_dp.python.statistic import Statistic as Statistic
from stream_dp.python.statistic import Sum as Sum
from stream_dp.python.statistic import Top as Top
from stream_dp.verify.odometers import Boundary as Boundary
from stream_dp.verify.odometers import FilterBoundary as FilterBoundary
from stream_dp.verify.odometers import MixtureBoundary as MixtureBoundary
from stream_dp.verify.odometers import Odometer as Odometer
from stream_dp.verify.odometers import (
    OneSidedMixtureBoundary as OneSidedMixtureBoundary,
)
from stream_dp.verify.odometers import StitchedBoundary as StitchedBoundary

__all__: list[str]
__version__: str
