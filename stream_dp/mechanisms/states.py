"""The list of types that a snapshot may hold; it is the only one.

Rules: each type is written under the kind and version that stand above it (`wire`). Where the fields of a state change
and old journals must still start, `UPGRADES[kind][version]` converts the fields of that version to those of the next
one; a version without an upgrade is refused.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
import numpy as np

from stream_dp.core.composition import Child, CompositionState
from stream_dp.core.mechanism import IntArray, Mechanism
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.serial import Codec, Upgrades, canonical
from stream_dp.core.wire import wire_of
from stream_dp.mechanisms.hss.hss import HSSState
from stream_dp.mechanisms.hss.per_bin_hss import PerBinState, first_state
from stream_dp.mechanisms.hss.quantities import ColumnsAbove, Largest, Maximum, Sum
from stream_dp.mechanisms.hss.sparse_vector import SparseVector, SparseVectorState
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounterState, CutOffState
from stream_dp.mechanisms.linear.correlated_windows import CorrelatedWindowsState
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
from stream_dp.mechanisms.linear.nested_windows import NestedCounterState, NestedWindowsState
from stream_dp.mechanisms.linear.noisy_forest import WindowForestState
from stream_dp.mechanisms.linear.sums_and_counts import SumsAndCountsState
from stream_dp.mechanisms.linear.tree import TreeState
from stream_dp.mechanisms.linear.windows_and_ever import WindowsAndEverState
from stream_dp.mechanisms.papers.local_protocol import (
    LocalProtocolState,
    MultiSparseVector,
    MultiSparseVectorState,
)
from stream_dp.mechanisms.papers.paper_hss import (
    NoisyQuantity,
    NoisyQuantityState,
    PaperHSSState,
    PaperSparseVector,
)
from stream_dp.mechanisms.quantiles.rank_window import RankWindowState
from stream_dp.mechanisms.quantiles.tumbling_quantiles import TumblingQuantilesState
from stream_dp.mechanisms.quantiles.value_tree import ValueTreeState
from stream_dp.mechanisms.watches.kinds import CountWatchers
from stream_dp.mechanisms.watches.monitor_state import (
    AlertsState,
    MonitorState,
    WatchersState,
    WatchTerms,
    WatchWindow,
)


def mechanism_fingerprint(mechanism: Mechanism[Any]) -> str:
    """Return the SHA-256, in hex, of the mechanism, its parameters and all classes that it rests on.

    A state may continue only under the same fingerprint. It is computed from kinds, versions and parameters by name,
    never from class names or `repr`. The version of a mechanism stands above its class (`wire`): raise it with any
    change of its noise, its thresholds, its error band or the order of its draws. A parameter may be added with a
    default that keeps the old behaviour; one at its default is left out.

    Raises:
        TypeError: the mechanism or a parameter has no kind and version.
    """
    return hashlib.sha256(b"stream_dp mechanism 1\n" + canonical(mechanism)).hexdigest()


def columns_of(states: Sequence[Any]) -> Any:
    """Return states of one form as one that has the columns of all, one after the other, where arrays stand.

    Raises ValueError where they differ in anything but the entries of arrays.
    """
    first: Any = states[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(states, axis=-1)
    if isinstance(first, tuple):
        return tuple(map(columns_of, zip(*states, strict=True)))
    if is_dataclass(first):
        kind: Any = type(first)
        names = [field.name for field in fields(first)]
        return kind(*(columns_of([getattr(state, name) for state in states]) for name in names))
    if any(state != first for state in states):
        raise ValueError("these states differ and cannot be advanced as one")
    return first


def in_columns(state: Any, kept: slice | IntArray) -> Any:
    """Return the state with these columns of its arrays alone."""
    if isinstance(state, np.ndarray):
        return state[..., kept].copy()
    if isinstance(state, tuple):
        return tuple(in_columns(part, kept) for part in state)
    if is_dataclass(state):
        kind: Any = type(state)
        return kind(*(in_columns(getattr(state, field.name), kept) for field in fields(state)))
    return state


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
