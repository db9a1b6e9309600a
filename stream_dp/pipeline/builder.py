"""From a specification to what the engine runs: mechanisms, bands, the frozen block's charge.

Rules: everything here is a function of the specification; a guarantee comes from `derivations`, a refusal from
the ledger, before anything runs. This file opens nothing.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

from stream_dp.accounting.ledger import Ledger
from stream_dp.core.derivation import Derivation
from stream_dp.core.mechanism import Mechanism
from stream_dp.mechanisms.alerts import Alerts
from stream_dp.mechanisms.counter import Counter
from stream_dp.mechanisms.hybrid_counter import HybridCounter
from stream_dp.mechanisms.states import MECHANISMS
from stream_dp.pipeline.bands import Bands
from stream_dp.pipeline.derivations import derive, fixed_block
from stream_dp.pipeline.methods import ENDLESS, Demand, best_hss, predicted_hss_error
from stream_dp.pipeline.router import RowLayout
from stream_dp.pipeline.series import AlertsSeries, CountSeries, HistogramSeries, MaximumSeries
from stream_dp.pipeline.spec import PipelineSpec, ReplayClock, fingerprint, fingerprints
from stream_dp.runtime.commit import Charge
from stream_dp.runtime.engine import Plan
from stream_dp.runtime.series import Series

AnySeries = CountSeries | HistogramSeries | MaximumSeries | AlertsSeries


@dataclass(frozen=True, slots=True)
class Chosen:
    """The mechanism of one series, and why this one."""

    spec: AnySeries
    mechanism: Mechanism[Any]
    why: str
    derivation: Derivation


@dataclass(frozen=True, slots=True)
class Built:
    """A specification with its mechanisms, its derivation and its (charged) ledger."""

    spec: PipelineSpec
    layout: RowLayout
    chosen: tuple[Chosen, ...]
    derivation: Derivation
    ledger: Ledger

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the specification's meaning and the mechanisms chosen for it."""
        return _sha256(f"{fingerprint(self.spec)}\n{self._mechanisms}")

    @property
    def parts(self) -> dict[str, str]:
        """Short fingerprints of the parts, so that a refusal can say what changed."""
        return {**fingerprints(self.spec), "mechanisms": _sha256(self._mechanisms)[:12]}

    @property
    def _mechanisms(self) -> str:
        return "\n".join([f"mechanisms {MECHANISMS}", *(repr(c.mechanism) for c in self.chosen)])

    def plan(self, now: int, *, private: bool = True, accepted: str = "") -> Plan:
        """What the engine runs; `now` (ms) becomes the origin of a wall clock that declares none.

        `accepted` names a new guarantee on a source that was seen before; the journal records it.
        """
        spec, clock = self.spec, self.spec.clock
        block, hold = (clock.block, None) if isinstance(clock, ReplayClock) else (1, clock.delay)
        start = clock.start
        return Plan(
            spec.name,
            self.fingerprint,
            now - now % clock.step if start is None else start,
            clock.step,
            clock.horizon,
            block,
            hold,
            private,
            tuple(self._series(chosen) for chosen in self.chosen),
            tuple(Charge(e.name, e.epsilon, e.delta, e.rule) for e in self.ledger.entries),
            self.parts,
            accepted,
        )

    def _series(self, chosen: Chosen) -> Series:
        confidence = float(self.spec.confidence)
        keyed = isinstance(chosen.spec, HistogramSeries | AlertsSeries)
        return Series(
            chosen.spec.name,
            chosen.mechanism,
            self.layout.slice(chosen.spec.name),
            self.layout.keys(chosen.spec.name) if keyed else None,
            isinstance(chosen.spec, AlertsSeries),
            Bands(chosen.mechanism, confidence),
            confidence,
        )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def build(spec: PipelineSpec) -> Built:
    """Choose mechanisms, derive the guarantee and charge the ledger.

    Raises:
        BudgetRefused: the series need more than privacy.epsilon.
        NotDerivable: no rule covers them.
    """
    layout = RowLayout.of(spec)
    chosen = []
    for series in spec.series:
        slot = layout.slice(series.name)
        mechanism, why = choose(spec, series, slot.stop - slot.start)
        chosen.append(Chosen(series, mechanism, why, derive(mechanism, series.name)))
    derivation = fixed_block(spec.name, tuple(c.derivation for c in chosen))
    ledger = Ledger.of(spec.privacy.epsilon)
    ledger = ledger.charge(ledger.price(derivation))
    return Built(spec, layout, tuple(chosen), derivation, ledger)


def choose(spec: PipelineSpec, series: AnySeries, width: int) -> tuple[Mechanism[Any], str]:
    """The mechanism of a series and the reason, from the specification alone."""
    relation, horizon = spec.relation, spec.clock.horizon
    match series:
        case AlertsSeries():
            return Alerts(width, series.epsilon, relation, series.threshold), "re-armed per key"
        case CountSeries():
            return _tree(spec, series, 1), "a count is a tree counter"
        case HistogramSeries(method="tree"):
            return _tree(spec, series, width), "method: tree"
    demand = Demand.of(spec, series, width)
    hss = best_hss(demand)
    if series.method == "hss":
        return hss, "method: hss"
    tree, last = _tree(spec, series, width), (horizon or ENDLESS) - 1
    by_tree = Bands(tree, demand.confidence)(last, None)
    by_hss = predicted_hss_error(hss, demand, last)
    why = f"predicted error at the end: tree {by_tree}, hss {by_hss}"
    return (tree if by_tree <= by_hss else hss), f"method: auto, {why}"


def _tree(spec: PipelineSpec, series: AnySeries, width: int) -> Counter | HybridCounter:
    if spec.clock.horizon is None:
        return HybridCounter(width, series.epsilon, spec.relation)
    return Counter(width, series.epsilon, spec.relation, spec.clock.horizon)
