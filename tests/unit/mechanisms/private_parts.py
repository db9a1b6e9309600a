"""Which parts of a state are public, and what a band does when the others change.

Rules: `PUBLIC` names the public fields of every type of state; all that is not named is private, and a type that is
missing is an error. A public field tells no more than the answers so far and the number of messages.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeAlias

from stream_dp.core.composition import Child, CompositionState
from stream_dp.core.mechanism import IntArray, Noise, Query, Update
from stream_dp.core.sealed import SealedState, inside_of
from stream_dp.mechanisms.hss.hss import HSSState
from stream_dp.mechanisms.hss.per_bin_hss import PerBinState
from stream_dp.mechanisms.hss.sparse_vector import SparseVectorState
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounterState, CutOffState
from stream_dp.mechanisms.linear.counter import (
    CounterState,
    HandOverState,
    HybridState,
    SeparateState,
    SumCounterState,
)
from stream_dp.mechanisms.linear.ended_windows import EndedWindowsState, RunningWindowsState
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounterState, LatticeState
from stream_dp.mechanisms.linear.joint_windows import (
    CorrelatedWindowsState,
    NestedCounterState,
    NestedWindowsState,
)
from stream_dp.mechanisms.linear.noisy_forest import WindowForestState
from stream_dp.mechanisms.linear.pairs import SumsAndCountsState, WindowsAndEverState
from stream_dp.mechanisms.linear.tree import TreeState
from stream_dp.mechanisms.papers import NoisyQuantityState, PaperHSSState
from stream_dp.mechanisms.quantiles.bucket_windows import (
    RankWindowState,
    TumblingQuantilesState,
)
from stream_dp.mechanisms.quantiles.value_tree import ValueTreeState
from stream_dp.mechanisms.watches.block import (
    AlertsState,
    MonitorState,
    WatchersState,
    WatchWindow,
)
from stream_dp.testing.conformance import Tainted

Band: TypeAlias = Callable[[int, Any], int]
Path: TypeAlias = tuple[Any, ...]

PUBLIC: dict[type, set[str]] = {
    AlertsState: set(),
    ArrivalCounterState: {"updates"},
    Child: {"mechanism"},
    CompositionState: {"created"},
    CorrelatedWindowsState: set(),
    CutOffState: set(),
    EndedWindowsState: {"updates", "told"},
    CounterState: set(),
    HandOverState: {"number"},
    GaussianCounterState: set(),
    HSSState: {"queries", "intervals", "released", "watcher"},
    HybridState: {"epoch"},
    LatticeState: {"steps"},
    MonitorState: {"threshold", "mode", "asked"},
    NestedCounterState: {"updates"},
    NestedWindowsState: set(),
    NoisyQuantityState: set(),
    PaperHSSState: {"steps", "intervals", "threshold", "released", "watcher"},
    PerBinState: {"queries", "intervals", "released", "levels", "armed"},
    RankWindowState: {"updates"},
    RunningWindowsState: {"updates"},
    SeparateState: {"updates"},
    SparseVectorState: {"halted"},
    SumCounterState: set(),
    TreeState: {"prefix"},
    TumblingQuantilesState: {"updates", "told"},
    ValueTreeState: {"updates"},
    WatchWindow: {"place", "window", "age"},
    WatchersState: set(),
    WindowForestState: {"updates"},
    WindowsAndEverState: set(),
    SumsAndCountsState: set(),
}
CHANGES: tuple[Callable[[Any], Any], ...] = (
    lambda x: x * 0,
    lambda x: x + 1,
    lambda x: x + (1 << 40),
    lambda x: -x - 1_000,
    Tainted,
)


def private_parts(state: Any, at: Path = ()) -> Iterator[Path]:
    """Where the private numbers and arrays of a state lie."""
    if type(state) is SealedState:
        yield from private_parts(inside_of(state), at)
    elif is_dataclass(state):
        names = {f.name for f in fields(state)}
        assert type(state) in PUBLIC, f"say which fields of {type(state).__name__} are public"
        for name in sorted(names - PUBLIC[type(state)]):
            yield from private_parts(getattr(state, name), (*at, name))
    elif isinstance(state, tuple):
        for place, part in enumerate(state):
            yield from private_parts(part, (*at, place))
    elif isinstance(state, dict):
        for key, part in state.items():
            yield from private_parts(part, (*at, key))
    elif state is not None:  # None has no number that could be changed
        yield at


def changed(state: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """The state with one part changed; the given one stays as it is."""
    if not path:
        return change(state)
    if type(state) is SealedState:
        return SealedState(changed(inside_of(state), path, change))
    head, rest = path[0], path[1:]
    if isinstance(state, dict):
        return {**state, head: changed(state[head], rest, change)}
    if isinstance(state, tuple):
        part = changed(state[head], rest, change)
        return (*state[:head], part, *state[head + 1 :])
    return replace(state, **{head: changed(getattr(state, head), rest, change)})


def check_band(band: Band, tick: int, state: Any) -> None:
    """The band is the same whatever the private parts are, one by one and all at once, and does not touch them.

    Raises:
        AssertionError, TaintError: it looks at private data.
    """
    right = band(tick, state)
    paths = list(private_parts(state))
    for change in CHANGES:
        whole = state
        for path in paths:
            assert band(tick, changed(state, path, change)) == right
            whole = changed(whole, path, change)
        assert band(tick, whole) == right


def states(mechanism: Any, rows: Sequence[IntArray], noise: Noise) -> Iterator[tuple[int, Any]]:
    """Each tick with the state after its answer, as the engine asks for the band."""
    state = mechanism.init(noise)
    for tick, row in enumerate(rows):
        state, _ = mechanism.step(state, Update(row[: mechanism.width]), noise)
        state, _ = mechanism.step(state, Query(), noise)
        yield tick, state
