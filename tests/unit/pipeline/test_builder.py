"""What `build` derives and charges: hand-written numbers, refusals, fingerprints that tell apart."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee, PureDP, differential_privacy
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire_of
from stream_dp.errors import BudgetRefused, NotDerivable
from stream_dp.journal.release import Shape
from stream_dp.mechanisms.hss import sparse_vector
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.hss.sparse_vector import SparseVector
from stream_dp.mechanisms.linear import counter
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter
from stream_dp.mechanisms.serving import derived
from stream_dp.mechanisms.watches.kinds import Alerts
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.statistics.parts.choose_hss import BIN_SHARE, QUANTITY_SHARE

Data = dict[str, Any]
UNIT = 10**12
REPLACED = {"neighbors": "replace", "moves": "within_tick"}


def built(data: Data, **changes: Any) -> Built:
    """Build `data` with top-level changes."""
    return build(PipelineSpec.model_validate(data | changes))


def flat(node: Derivation, depth: int = 0) -> list[tuple[int, str, Fraction]]:
    """(depth, subject, epsilon) of every node."""
    measure = differential_privacy(node.guarantee.measure)
    assert measure.delta == 0
    assert all(condition.holds for condition in node.conditions)
    deeper = [line for premise in node.premises for line in flat(premise, depth + 1)]
    return [(depth, node.subject, measure.epsilon), *deeper]


def test_a_year_by_hand(year: PipelineSpec) -> None:
    example = build(year)
    e = Fraction
    _, many, busiest, _ = (chosen.mechanism for chosen in example.chosen)
    assert isinstance(many, PerBinHSS)
    assert isinstance(busiest, HSS)
    assert many.counter_epsilon == BIN_SHARE  # how it is split is a matter of error
    assert busiest.counter_epsilon == QUANTITY_SHARE / 2
    assert busiest.threshold_epsilon == busiest.query_epsilon
    rest, other = 1 - many.counter_epsilon, e(1, 2) - busiest.counter_epsilon
    assert flat(example.derivation) == [
        (0, "flights: series of the first start", e(2)),
        (1, "departures", e(1, 5)),
        (2, "one counter, 8,760 updates", e(1, 5)),
        (1, "by_destination", e(1)),
        (2, "sub-mechanisms", e(1)),
        (3, "count sparse vectors of 106 column(s), re-armed for ever", rest),
        (4, "one count sparse vector of one column", rest),
        (3, "106 column(s)", 1 - rest),
        (4, "one column's counter: trees one after the other, an update in one", 1 - rest),
        (1, "busiest_destination", e(1, 2)),
        (2, "sub-mechanisms", e(1, 2)),
        (3, "sparse vector instances", other),
        (4, "one sparse vector instance", other),
        (3, "106 column(s)", e(1, 2) - other),
        (4, "one counter, any number of updates", e(1, 2) - other),
        (1, "late_departures", e(3, 10)),
        (2, "one alert instance of one key", e(3, 10)),
    ]
    ledger = example.ledger
    assert (ledger.epsilon, ledger.spent, ledger.left) == (5 * UNIT // 2, 2 * UNIT, UNIT // 2)
    assert [(entry.epsilon, entry.delta) for entry in ledger.entries] == [(2 * UNIT, 0)]


def test_the_epsilons_of_the_file_are_those_of_the_series(data: Data) -> None:
    example = built(data)
    epsilons = [
        differential_privacy(chosen.derivation.guarantee.measure).epsilon
        for chosen in example.chosen
    ]
    assert epsilons == [Fraction(1, 5), Fraction(1), Fraction(3, 10)]
    assert example.derivation.guarantee == Guarantee(PureDP(Fraction(3, 2)), Neighbors.ADD_REMOVE)
    assert example.ledger.left == UNIT // 2


def test_replace_halves_what_a_column_may_spend(data: Data) -> None:
    example = built(data, privacy=data["privacy"] | REPLACED)
    one, many, alerts = (chosen.mechanism for chosen in example.chosen)
    assert isinstance(one, Counter)
    assert isinstance(many, Counter)
    assert isinstance(alerts, Alerts)
    assert one.unit_epsilon == Fraction(1, 5)
    assert many.unit_epsilon == Fraction(1, 2)
    assert alerts.scale == 2 / Fraction(3, 10)
    tree = flat(example.derivation)
    assert (1, "by_destination", Fraction(1)) in tree
    assert (2, "one counter, 100 updates", Fraction(1, 2)) in tree
    assert (2, "one alert instance of one key", Fraction(3, 20)) in tree
    assert example.derivation.guarantee.measure == PureDP(Fraction(3, 2))


def test_an_own_time_that_is_content_halves_every_series(data: Data) -> None:
    """On a replay clock a replacement may move to another tick: mechanisms for add_remove at half the epsilon."""
    example = built(data, privacy=data["privacy"] | {"neighbors": "replace"})
    one, many, alerts = (chosen.mechanism for chosen in example.chosen)
    assert isinstance(one, Counter)
    assert isinstance(many, Counter)
    assert isinstance(alerts, Alerts)
    assert one.unit_epsilon == Fraction(1, 10)
    assert many.unit_epsilon == Fraction(1, 2)
    assert alerts.scale == 2 / Fraction(3, 10)
    assert example.derivation.guarantee == Guarantee(
        PureDP(Fraction(3, 2)), Neighbors.REPLACE_ANY_TICK
    )
    assert [chosen.derivation.guarantee.measure for chosen in example.chosen] == [
        PureDP(series.epsilon) for series in example.spec.series
    ]


def test_over_budget(data: Data) -> None:
    with pytest.raises(BudgetRefused) as caught:
        built(data, privacy=data["privacy"] | {"epsilon": "1.4"})
    assert caught.value.exit_code == 3
    text = str(caught.value)
    assert "asks for epsilon 1.5; of 1.4 the ledger has spent 0 and has 1.4 left" in text
    assert "Lower its epsilon, halt what is not needed, or (before the first start) raise" in text


def test_costs_round_up_and_budgets_round_down(data: Data) -> None:
    thirds = [item | {"epsilon": "1/3"} for item in data["series"]]
    with pytest.raises(BudgetRefused):
        built(data, series=thirds, privacy={"epsilon": "0.999999999999"})
    assert built(data, series=thirds, privacy={"epsilon": "1"}).ledger.left == 0
    assert built(data, series=thirds[:1], privacy={"epsilon": "1"}).ledger.spent == UNIT // 3 + 1
    with pytest.raises(BudgetRefused):  # the same third: rounded up it costs more than it gives
        built(data, series=thirds[:1], privacy={"epsilon": "1/3"})


def _with(data: Data, index: int, **changes: Any) -> list[Data]:
    return [item | changes if i == index else item for i, item in enumerate(data["series"])]


def test_a_fingerprint_tells_mechanisms_apart(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    hss = {"method": "hss"}
    prints = [
        built(data).fingerprint,
        built(data, series=_with(data, 0, epsilon="0.3")).fingerprint,
        built(data, series=_with(data, 1, **hss)).fingerprint,
        built(data, series=_with(data, 1, **hss, epsilon="0.3")).fingerprint,
        built(data, series=_with(data, 2, threshold="99")).fingerprint,
        built(data, privacy=data["privacy"] | {"neighbors": "replace"}).fingerprint,
        built(data, clock=data["clock"] | {"horizon": "101"}).fingerprint,
    ]
    assert len(set(prints)) == len(prints)
    other_path = data["source"] | {"bootstrap": "elsewhere:1"}
    assert built(data, source=other_path).fingerprint == prints[0]
    monkeypatch.setattr(Counter, "__repr__", lambda self: "another name of it")
    assert built(data).fingerprint == prints[0]
    monkeypatch.setattr(Counter, "__wire__", replace(wire_of(Counter), version=99))
    assert built(data).fingerprint != prints[0]


def test_an_endless_clock_gets_a_counter_without_an_end(data: Data) -> None:
    example = built(data, clock={"kind": "wall", "step": "1s"})
    assert isinstance(example.chosen[0].mechanism, HybridCounter)
    plan = example.run_config(1_234_567)
    assert (plan.origin, plan.step, plan.horizon) == (1_234_000, 1000, None)
    assert (plan.block, plan.hold) == (1, 500)


def test_the_plan_of_a_replay(data: Data) -> None:
    example = built(data, clock=data["clock"] | {"block": "10"})
    plan = example.run_config(0)
    assert (plan.origin, plan.horizon) == (1_357_034_400_000, 100)
    assert (plan.block, plan.hold, plan.private) == (10, None, True)
    assert [(c.name, c.epsilon, c.delta) for c in plan.charges] == [
        ("flights: series of the first start", 3 * UNIT // 2, 0)
    ]
    assert [(s.name, s.rows, s.keys, s.shape) for s in plan.series] == [
        ("departures", slice(0, 1), ("",), Shape.SCALAR),
        ("by_destination", slice(1, 4), ("ATL", "BOS", "other"), Shape.HISTOGRAM),
        ("late_departures", slice(4, 8), ("AA", "NO", "UA", "other"), Shape.FLAGS),
    ]
    assert all(series.band(3, None) > 0 for series in plan.series)
    assert {series.confidence for series in plan.series} == {0.95}


def test_a_mechanism_without_a_derivation_is_refused() -> None:
    with pytest.raises(NotDerivable, match="no derivation is known for a object"):
        derived(object(), "mine")  # type: ignore[arg-type]


def test_a_claim_that_is_not_derived_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = Counter(3, Fraction(1), Neighbors.REPLACE, 10)
    assert derived(claimed, "c").subject == "c"
    monkeypatch.setattr(Counter, "unit_epsilon", Fraction(1))
    with pytest.raises(NotDerivable, match="c: the derived guarantee differs"):
        derived(claimed, "c")


def test_a_sparse_vector_says_which_scale_it_needs() -> None:
    def why(width: int, neighbors: Neighbors) -> str:
        one = SparseVector(width, Fraction(1), Fraction(1), neighbors, (0,) * width)
        return {each.name: each.why for each in derived(one, "s").conditions}["query noise"]

    assert "scale 1/e2" in why(3, Neighbors.ADD_REMOVE)
    assert "scale 2/e2" in why(3, Neighbors.REPLACE)
    assert "scale 1/e2" in why(1, Neighbors.REPLACE)


def test_every_source_is_named(data: Data) -> None:
    def sources(node: Derivation) -> set[str]:
        return {node.source}.union(*map(sources, node.premises))

    hss = _with(data, 1, method="hss")
    named = sources(built(data, series=hss).derivation)
    assert {counter.SOURCE, counter.HAND_OVER_SOURCE, sparse_vector.SOURCE} <= named
    assert all(named)
    assert isinstance(built(data, series=hss).chosen[1].mechanism, PerBinHSS)
