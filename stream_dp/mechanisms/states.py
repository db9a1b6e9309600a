"""The one list of types a snapshot may hold, and the version of what mechanisms do.

Rules: raise `MECHANISMS` with any change of a mechanism's noise, thresholds or order of draws; a journal written
with another number is refused, also where its last commit holds a snapshot and nothing is replayed.
"""

from stream_dp.core.composition import Child, CompositionState
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.serial import Codec
from stream_dp.mechanisms.alerts import AlertsState
from stream_dp.mechanisms.counter import CounterState
from stream_dp.mechanisms.hss import HSSState
from stream_dp.mechanisms.hybrid_counter import HybridCounter, HybridState
from stream_dp.mechanisms.local_protocol import LocalProtocolState
from stream_dp.mechanisms.multi_sparse_vector import MultiSparseVector, MultiSparseVectorState
from stream_dp.mechanisms.sparse_vector import SparseVector, SparseVectorState
from stream_dp.mechanisms.tree import TreeState

MECHANISMS = 1

STATES = Codec(
    [
        AlertsState,
        Child,
        CompositionState,
        CounterState,
        HSSState,
        HybridCounter,
        HybridState,
        LocalProtocolState,
        MultiSparseVector,
        MultiSparseVectorState,
        Neighbors,
        SparseVector,
        SparseVectorState,
        TreeState,
    ]
)
