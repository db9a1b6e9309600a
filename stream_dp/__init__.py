"""Live, differentially private statistics from event streams, under one stated guarantee.

The public face: everything a program needs, by one import. ``import stream_dp`` itself loads nothing else; a name loads
its module when it is first used. What is not in ``__all__`` may change without notice. `docs/python.md` is a tour.

Examples
--------
>>> import stream_dp as sdp
>>> budget = sdp.Budget(epsilon=1)
>>> counter = budget.counter(epsilon="0.1", horizon=8760)
>>> counter.add(3)
>>> release = counter.release()
>>> release.tick, release.confidence, budget.left
(0, 0.95, Fraction(9, 10))
"""

import typing as _typing
from importlib import import_module as _import_module

__version__ = "0.1.0"

if _typing.TYPE_CHECKING:
    from stream_dp.accounting.derive import derive
    from stream_dp.accounting.discrete_gaussian import discrete_gaussian
    from stream_dp.accounting.entry import Entry
    from stream_dp.accounting.filters.approximate import (
        ApproximateFilter,
        TightApproximateFilter,
    )
    from stream_dp.accounting.filters.basic import BasicFilter
    from stream_dp.accounting.filters.filter import Filter, Spend
    from stream_dp.accounting.filters.gaussian import GaussianFilter
    from stream_dp.accounting.filters.pure import PureFilter
    from stream_dp.accounting.filters.renyi import RenyiFilter
    from stream_dp.accounting.filters.zcdp import ZCDPFilter
    from stream_dp.accounting.ledger import Ledger
    from stream_dp.accounting.rules.leaf import leaf
    from stream_dp.accounting.situations import (
        Alive,
        Composite,
        Filtered,
        Fixed,
        Group,
        Local,
        Parallel,
        Situation,
        Ticks,
        Touched,
    )
    from stream_dp.accounting.truncated_odometer import (
        bound as truncated_odometer,
    )
    from stream_dp.accounting.truncated_odometer import (
        bound_at as truncated_odometer_at,
    )
    from stream_dp.core.derivation import (
        Alternative,
        Condition,
        Derivation,
    )
    from stream_dp.core.guarantee import (
        ZCDP,
        ApproxDP,
        GaussianDP,
        Guarantee,
        Measure,
        ProbabilisticDP,
        Protected,
        PureDP,
        RenyiCurve,
        RenyiDP,
        TruncatedZCDP,
    )
    from stream_dp.core.neighbors import Neighbors
    from stream_dp.errors import (
        BrokenCondition,
        BudgetRefused,
        FailClosed,
        InvalidCost,
        NotDerivable,
        RejectedMessage,
        StreamDPError,
        TaintError,
        UnknownMechanism,
        UsageError,
        WorldError,
    )
    from stream_dp.python.embedded import (
        Pipeline,
        Plan,
    )
    from stream_dp.python.public_release import (
        PublicRelease,
        PublicWindow,
    )
    from stream_dp.python.standalone.continual_alerts import ContinualAlerts
    from stream_dp.python.standalone.continual_counter import ContinualCounter
    from stream_dp.python.standalone.continual_histogram import ContinualHistogram
    from stream_dp.python.standalone.continual_maximum import ContinualMaximum
    from stream_dp.python.standalone.continual_sum import ContinualSum, ContinualSums
    from stream_dp.python.standalone.continual_top import ContinualTop
    from stream_dp.python.standalone.privacy_budget import Budget
    from stream_dp.python.standalone.tick_release import (
        Counts,
        Ranked,
        SumRelease,
        Sums,
        TickRelease,
        TickWindow,
    )
    from stream_dp.verify.odometers.filter_boundary import FilterBoundary
    from stream_dp.verify.odometers.mixture_boundary import (
        MixtureBoundary,
        OneSidedMixtureBoundary,
    )
    from stream_dp.verify.odometers.odometer import Boundary, Odometer
    from stream_dp.verify.odometers.stitched_boundary import StitchedBoundary

# name -> module below stream_dp, and its name there where it has another
_PLACES = {
    "Budget": "python.standalone.privacy_budget",
    "ContinualCounter": "python.standalone.continual_counter",
    "ContinualHistogram": "python.standalone.continual_histogram",
    "ContinualMaximum": "python.standalone.continual_maximum",
    "ContinualAlerts": "python.standalone.continual_alerts",
    "ContinualSum": "python.standalone.continual_sum",
    "ContinualSums": "python.standalone.continual_sum",
    "ContinualTop": "python.standalone.continual_top",
    "TickRelease": "python.standalone.tick_release",
    "TickWindow": "python.standalone.tick_release",
    "Counts": "python.standalone.tick_release",
    "Ranked": "python.standalone.tick_release",
    "SumRelease": "python.standalone.tick_release",
    "Sums": "python.standalone.tick_release",
    "Pipeline": "python.embedded",
    "Plan": "python.embedded",
    "PublicRelease": "python.public_release",
    "PublicWindow": "python.public_release",
    "Neighbors": "core.neighbors",
    "Guarantee": "core.guarantee",
    "Measure": "core.guarantee",
    "Protected": "core.guarantee",
    "PureDP": "core.guarantee",
    "ApproxDP": "core.guarantee",
    "ProbabilisticDP": "core.guarantee",
    "ZCDP": "core.guarantee",
    "RenyiDP": "core.guarantee",
    "RenyiCurve": "core.guarantee",
    "GaussianDP": "core.guarantee",
    "TruncatedZCDP": "core.guarantee",
    "Derivation": "core.derivation",
    "Condition": "core.derivation",
    "Alternative": "core.derivation",
    "derive": "accounting.derive",
    "leaf": "accounting.rules.leaf",
    "Situation": "accounting.situations",
    "Fixed": "accounting.situations",
    "Parallel": "accounting.situations",
    "Composite": "accounting.situations",
    "Local": "accounting.situations",
    "Filtered": "accounting.situations",
    "Group": "accounting.situations",
    "Ticks": "accounting.situations",
    "Touched": "accounting.situations",
    "Alive": "accounting.situations",
    "Ledger": "accounting.ledger",
    "Entry": "accounting.entry",
    "Filter": "accounting.filters.filter",
    "Spend": "accounting.filters.filter",
    "PureFilter": "accounting.filters.pure",
    "BasicFilter": "accounting.filters.basic",
    "ApproximateFilter": "accounting.filters.approximate",
    "TightApproximateFilter": "accounting.filters.approximate",
    "ZCDPFilter": "accounting.filters.zcdp",
    "RenyiFilter": "accounting.filters.renyi",
    "GaussianFilter": "accounting.filters.gaussian",
    "discrete_gaussian": "accounting.discrete_gaussian",
    "truncated_odometer": "accounting.truncated_odometer:bound",
    "truncated_odometer_at": "accounting.truncated_odometer:bound_at",
    "Odometer": "verify.odometers.odometer",
    "Boundary": "verify.odometers.odometer",
    "FilterBoundary": "verify.odometers.filter_boundary",
    "MixtureBoundary": "verify.odometers.mixture_boundary",
    "OneSidedMixtureBoundary": "verify.odometers.mixture_boundary",
    "StitchedBoundary": "verify.odometers.stitched_boundary",
    "StreamDPError": "errors",
    "UsageError": "errors",
    "BudgetRefused": "errors",
    "FailClosed": "errors",
    "WorldError": "errors",
    "NotDerivable": "errors",
    "BrokenCondition": "errors",
    "RejectedMessage": "errors",
    "TaintError": "errors",
    "InvalidCost": "errors",
    "UnknownMechanism": "errors",
}

__all__ = [
    "ZCDP",
    "Alive",
    "Alternative",
    "ApproxDP",
    "ApproximateFilter",
    "BasicFilter",
    "Boundary",
    "BrokenCondition",
    "Budget",
    "BudgetRefused",
    "Composite",
    "Condition",
    "ContinualAlerts",
    "ContinualCounter",
    "ContinualHistogram",
    "ContinualMaximum",
    "ContinualSum",
    "ContinualSums",
    "ContinualTop",
    "Counts",
    "Derivation",
    "Entry",
    "FailClosed",
    "Filter",
    "FilterBoundary",
    "Filtered",
    "Fixed",
    "GaussianDP",
    "GaussianFilter",
    "Group",
    "Guarantee",
    "InvalidCost",
    "Ledger",
    "Local",
    "Measure",
    "MixtureBoundary",
    "Neighbors",
    "NotDerivable",
    "Odometer",
    "OneSidedMixtureBoundary",
    "Parallel",
    "Pipeline",
    "Plan",
    "ProbabilisticDP",
    "Protected",
    "PublicRelease",
    "PublicWindow",
    "PureDP",
    "PureFilter",
    "Ranked",
    "RejectedMessage",
    "RenyiCurve",
    "RenyiDP",
    "RenyiFilter",
    "Situation",
    "Spend",
    "StitchedBoundary",
    "StreamDPError",
    "SumRelease",
    "Sums",
    "TaintError",
    "TickRelease",
    "TickWindow",
    "Ticks",
    "TightApproximateFilter",
    "Touched",
    "TruncatedZCDP",
    "UnknownMechanism",
    "UsageError",
    "WorldError",
    "ZCDPFilter",
    "derive",
    "discrete_gaussian",
    "leaf",
    "truncated_odometer",
    "truncated_odometer_at",
]

if not _typing.TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load a public name when it is first used (PEP 562).

        Raises
        ------
        AttributeError
            It is not one of ``__all__``.
        """
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, attribute = _PLACES[name].partition(":")
        found = getattr(_import_module(f"{__name__}.{module}"), attribute or name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*__all__, "__version__"])
