"""The list of types that a snapshot may hold; it is the only one.

Rules: each type is written under the kind and version that stand above it (`wire`). Where the fields of a state
change and old journals must still start, `UPGRADES[kind][version]` converts the fields of that version to those of
the next one. A version without an upgrade is refused, also where the last commit holds a snapshot and nothing is
replayed.
"""

from stream_dp.core.composition import Child, CompositionState
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.serial import Codec, Upgrades
from stream_dp.mechanisms.hss.hss import HSSState
from stream_dp.mechanisms.hss.per_bin_hss import PerBinState
from stream_dp.mechanisms.hss.quantities import ColumnsAbove, Largest, Maximum, Sum
from stream_dp.mechanisms.hss.sparse_vector import SparseVector, SparseVectorState
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounterState
from stream_dp.mechanisms.linear.counter import (
    CounterState,
    HandOverCounter,
    HandOverState,
    HybridCounter,
    HybridState,
)
from stream_dp.mechanisms.linear.cut_off_counter import CutOffState
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter, GaussianCounterState
from stream_dp.mechanisms.linear.lattice_noise import LatticeState
from stream_dp.mechanisms.linear.separate_counters import SeparateCounters, SeparateState
from stream_dp.mechanisms.linear.sum_counter import SumCounterState
from stream_dp.mechanisms.linear.sums_and_counts import SumsAndCountsState
from stream_dp.mechanisms.linear.tree import TreeState
from stream_dp.mechanisms.papers.local_protocol import LocalProtocolState
from stream_dp.mechanisms.papers.multi_sparse_vector import (
    MultiSparseVector,
    MultiSparseVectorState,
)
from stream_dp.mechanisms.papers.noisy_quantity import NoisyQuantity, NoisyQuantityState
from stream_dp.mechanisms.papers.paper_hss import PaperHSSState
from stream_dp.mechanisms.papers.paper_sparse_vector import PaperSparseVector
from stream_dp.mechanisms.quantiles.tumbling_quantiles import TumblingQuantilesState
from stream_dp.mechanisms.quantiles.value_tree import ValueTreeState
from stream_dp.mechanisms.watches.kinds import CountWatchers
from stream_dp.mechanisms.watches.monitor_state import (
    AlertsState,
    MonitorState,
    WatchersState,
    WatchWindow,
)
from stream_dp.mechanisms.watches.watch_messages import WatchTerms
from stream_dp.mechanisms.windows.noisy_forest import WindowForestState
from stream_dp.mechanisms.windows.windows_and_ever import WindowsAndEverState

UPGRADES: Upgrades = {}

STATES = Codec(
    [
        AlertsState,
        ArrivalCounterState,
        Child,
        ColumnsAbove,
        CompositionState,
        CountWatchers,
        CounterState,
        CutOffState,
        HandOverCounter,
        HandOverState,
        GaussianCounter,
        GaussianCounterState,
        HSSState,
        HybridCounter,
        HybridState,
        LatticeState,
        Largest,
        LocalProtocolState,
        Maximum,
        MonitorState,
        MultiSparseVector,
        MultiSparseVectorState,
        Neighbors,
        NoisyQuantity,
        NoisyQuantityState,
        PaperHSSState,
        PaperSparseVector,
        PerBinState,
        SeparateCounters,
        SeparateState,
        SparseVector,
        SparseVectorState,
        Sum,
        SumCounterState,
        SumsAndCountsState,
        TreeState,
        TumblingQuantilesState,
        ValueTreeState,
        WatchTerms,
        WatchWindow,
        WatchersState,
        WindowForestState,
        WindowsAndEverState,
    ],
    UPGRADES,
)
