"""The list of types that a snapshot may hold; it is the only one.

Rules: each type is written under the kind and version that stand above it (`wire`). Where the fields of a state change
and old journals must still start, `UPGRADES[kind][version]` converts the fields of that version to those of the next
one; a version without an upgrade is refused.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from stream_dp.core.composition import Child, CompositionState
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.serial import Codec, Upgrades
from stream_dp.core.wire import wire_of
from stream_dp.mechanisms.hss.hss import HSSState
from stream_dp.mechanisms.hss.per_bin_hss import PerBinState, first_state
from stream_dp.mechanisms.hss.sparse_vector import (
    ColumnsAbove,
    Largest,
    Maximum,
    SparseVector,
    SparseVectorState,
    Sum,
)
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounterState, CutOffState
from stream_dp.mechanisms.linear.counter import (
    CounterState,
    HandOverCounter,
    HandOverState,
    HybridCounter,
    HybridState,
    SeparateCounters,
    SeparateState,
    SumCounterState,
)
from stream_dp.mechanisms.linear.ended_windows import EndedWindowsState, RunningWindowsState
from stream_dp.mechanisms.linear.gaussian_counter import (
    GaussianCounter,
    GaussianCounterState,
    LatticeState,
)
from stream_dp.mechanisms.linear.joint_windows import (
    CorrelatedWindowsState,
    NestedCounterState,
    NestedWindowsState,
)
from stream_dp.mechanisms.linear.noisy_forest import WindowForestState
from stream_dp.mechanisms.linear.pairs import SumsAndCountsState, WindowsAndEverState
from stream_dp.mechanisms.linear.tree import TreeState
from stream_dp.mechanisms.papers import (
    LocalProtocolState,
    MultiSparseVector,
    MultiSparseVectorState,
    NoisyQuantity,
    NoisyQuantityState,
    PaperHSSState,
    PaperSparseVector,
)
from stream_dp.mechanisms.quantiles.bucket_windows import (
    RankWindowState,
    TumblingQuantilesState,
)
from stream_dp.mechanisms.quantiles.value_tree import ValueTreeState
from stream_dp.mechanisms.watches.block import (
    AlertsState,
    MonitorState,
    WatchersState,
    WatchTerms,
    WatchWindow,
)
from stream_dp.mechanisms.watches.kinds import CountWatchers

UPGRADES: Upgrades = {"per-bin-hss-state": {1: first_state}}

STATES = Codec(
    [
        AlertsState,
        ArrivalCounterState,
        Child,
        ColumnsAbove,
        CompositionState,
        CorrelatedWindowsState,
        CountWatchers,
        CounterState,
        CutOffState,
        EndedWindowsState,
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
        NestedCounterState,
        NestedWindowsState,
        NoisyQuantity,
        NoisyQuantityState,
        PaperHSSState,
        PaperSparseVector,
        PerBinState,
        RankWindowState,
        RunningWindowsState,
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


def same_states(some: Mapping[int, bytes], others: Mapping[int, bytes]) -> bool:
    """Return whether encoded states are the same, but for what only ends beside a band read and version 1 lacks."""
    return some == others or _without_ages(some) == _without_ages(others)


def _without_ages(states: Mapping[int, bytes]) -> dict[int, Any]:
    return {number: _ageless(msgspec.msgpack.decode(state)) for number, state in states.items()}


def _ageless(plain: Any) -> Any:
    """Return an encoded state without the ages of HSS bin by bin and their version."""
    if isinstance(plain, list):
        return [_ageless(part) for part in plain]
    if not isinstance(plain, dict):
        return plain
    if plain.get("$") == wire_of(PerBinState).kind:
        known = {name: part for name, part in plain["fields"].items() if name != "armed"}
        plain = {"fields": known}
    return {key: _ageless(part) for key, part in plain.items()}
