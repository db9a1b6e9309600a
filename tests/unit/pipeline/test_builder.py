"""What `build` derives and charges: hand-written numbers, refusals, fingerprints that tell apart."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.accounting.filters.linear import BasicFilter, PureFilter, RenyiFilter
from stream_dp.accounting.filters.squares import GaussianFilter, TightApproximateFilter, ZCDPFilter
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire_of
from stream_dp.errors import BudgetRefused, NotDerivable
from stream_dp.journal.release import Shape
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter
from stream_dp.mechanisms.serving import derived
from stream_dp.mechanisms.watches.kinds import Alerts
from stream_dp.pipeline.budget import filter_of, opened
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records.privacy import Privacy
from stream_dp.statistics.parts.choose_hss import BIN_SHARE, QUANTITY_SHARE

Data = dict[str, Any]
UNIT = 10**12


def built(data: Data, **changes: Any) -> Built:
    return build(PipelineSpec.model_validate(data | changes))


@pytest.mark.parametrize(
    ("privacy", "relation", "units"),
    [
        ({}, Neighbors.ADD_REMOVE, ("1/5", "1", "10/3")),
        ({"neighbors": "replace", "moves": "within_tick"}, Neighbors.REPLACE, ("1/5", "1/2", "20/3")),
        ({"neighbors": "replace"}, Neighbors.REPLACE_ANY_TICK, ("1/10", "1/2", "20/3")),
    ],
)  # fmt: skip
def test_a_columns_share_and_scale_are_for_the_relation_of_the_file(
    data: Data, privacy: Data, relation: Neighbors, units: tuple[str, ...]
) -> None:
    """Where an own time is content, mechanisms for add_remove have half the epsilon."""
    example = built(data, privacy=data["privacy"] | privacy)
    one, many, alerts = (chosen.mechanism for chosen in example.chosen)
    assert isinstance(one, Counter)
    assert isinstance(many, Counter)
    assert isinstance(alerts, Alerts)
    assert [one.unit_epsilon, many.unit_epsilon, alerts.scale] == [Fraction(unit) for unit in units]
    assert example.derivation.guarantee == Guarantee(PureDP(Fraction(3, 2)), relation)
    prices = [chosen.derivation.guarantee.measure for chosen in example.chosen]
    assert prices == [PureDP(Fraction(1, 5)), PureDP(Fraction(1)), PureDP(Fraction(3, 10))]
    ledger = example.ledger
    assert (ledger.epsilon, ledger.spent, ledger.left) == (2 * UNIT, 3 * UNIT // 2, UNIT // 2)
    assert [(entry.epsilon, entry.delta) for entry in ledger.entries] == [(3 * UNIT // 2, 0)]


def test_an_hss_splits_its_epsilon_by_its_shares(year: PipelineSpec) -> None:
    """How it is split is a matter of error."""
    _, many, busiest, _ = (chosen.mechanism for chosen in build(year).chosen)
    assert isinstance(many, PerBinHSS)
    assert isinstance(busiest, HSS)
    assert many.counter_epsilon == BIN_SHARE
    assert busiest.counter_epsilon == QUANTITY_SHARE / 2
    assert busiest.threshold_epsilon == busiest.query_epsilon


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


def test_a_claim_that_is_not_derived_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def claimed() -> Counter:
        return Counter(3, Fraction(1), Neighbors.REPLACE, 10)

    assert derived(claimed(), "c").subject == "c"
    monkeypatch.setattr(Counter, "unit_epsilon", Fraction(1))
    with pytest.raises(NotDerivable, match="c: the derived guarantee differs"):
        derived(claimed(), "c")


@pytest.mark.parametrize(
    ("privacy", "kind"),
    [
        ({}, PureFilter),
        ({"filter": "basic", "delta": "1e-9"}, BasicFilter),
        ({"filter": "gdp", "delta": "1e-9"}, GaussianFilter),
        ({"filter": "tight_approximate", "delta": "1e-9"}, TightApproximateFilter),
        ({"filter": "zcdp", "delta": "1e-9"}, ZCDPFilter),
        ({"filter": "renyi", "delta": "1e-9", "order": "13"}, RenyiFilter),
    ],
)
def test_the_filter_is_the_one_that_is_named(privacy: Data, kind: type) -> None:
    assert type(filter_of(Privacy.model_validate({"epsilon": "2"} | privacy))) is kind


def test_keys_at_their_defaults_leave_the_fingerprint_as_it_was(data: Data) -> None:
    plain = fingerprint(PipelineSpec.model_validate(data))
    named = data["privacy"] | {"filter": "pure", "delta": "0", "analysts": []}
    assert fingerprint(PipelineSpec.model_validate(data | {"privacy": named})) == plain
    other = data["privacy"] | {"analysts": [{"name": "ann", "epsilon": "0.1"}]}
    assert fingerprint(PipelineSpec.model_validate(data | {"privacy": other})) != plain


def test_analysts_are_paid_for_before_the_series(data: Data) -> None:
    ann = [{"name": "ann", "epsilon": "0.5"}]
    built = build(
        PipelineSpec.model_validate(data | {"privacy": data["privacy"] | {"analysts": ann}})
    )
    assert [entry.name for entry in built.ledger.entries] == [
        "analyst ann",
        "flights: series of the first start",
    ]
    assert built.subledgers().ledgers["ann"].left == 5 * 10**11
    ann[0]["epsilon"] = "0.6"
    with pytest.raises(
        BudgetRefused, match=r"asks for epsilon 1\.5; of 2 the ledger has spent 0\.6"
    ):
        build(PipelineSpec.model_validate(data | {"privacy": data["privacy"] | {"analysts": ann}}))
    with pytest.raises(BudgetRefused, match="analyst ann asks for epsilon 3"):
        opened(
            Privacy.model_validate(
                {"epsilon": "2", "analysts": [{"name": "ann", "epsilon": Fraction(3)}]}
            )
        )
