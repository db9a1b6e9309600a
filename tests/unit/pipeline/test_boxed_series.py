"""Series and analysts that see different records: what they cost together, in a file and as live series."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from stream_dp.core.guarantee import ApproxDP, PureDP
from stream_dp.engine.admission import Admission
from stream_dp.engine.series import Registry
from stream_dp.errors import BudgetRefused, UsageError
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.operate.budget_view import PlanView, budget_json, filters_json
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import canonical_series, load_series

COUNTRIES = [f"c{number}" for number in range(50)]
WHOLE = {"name": "whole", "statistic": "count", "epsilon": "0.5"}


def only(country: str) -> list[dict[str, str]]:
    return [{"field": "country", "equals": country}]


def count(country: str, epsilon: str = "0.5", name: str = "", **keys: Any) -> dict[str, Any]:
    series = {"name": name or country, "statistic": "count", "epsilon": epsilon}
    return {**series, "where": only(country), **keys}


def content(series: list[dict[str, Any]], **privacy: Any) -> dict[str, Any]:
    return {
        "version": "1",
        "name": "shop",
        "source": {"kind": "file", "path": "unused.jsonl"},
        "schema": {
            "time": {"type": "time"},
            "country": {"type": "category", "domain": COUNTRIES},
            "customer": {"type": "text"},
            "amount": {"type": "number"},
        },
        "privacy": {"epsilon": "1", **privacy},
        "clock": {
            "kind": "replay", "field": "time", "start": "1970-01-01T00:00:00Z", "step": "1h",
            "horizon": "100",
        },
        "series": series,
    }  # fmt: skip


def pipeline(series: list[dict[str, Any]], **privacy: Any) -> PipelineSpec:
    return PipelineSpec.model_validate(content(series, **privacy))


def admission_of(built: Built) -> Admission:
    config = built.run_config(0)
    router = OpenRouter(built.spec, config.origin, built.layout)
    planner = LiveSeriesPlanner(built.spec, router)
    return Admission(Registry(config.series, config.made), built.subledgers(), planner)


def created(admission: Admission, country: str, analyst: str = "", **keys: Any) -> None:
    definition = json.dumps(count(country, **keys)).encode()
    admission.create(admission.propose(definition, 0), analyst, 0)


REPLACED = {"neighbors": "replace", "moves": "within_tick", "epsilon": "2"}
USERS = {"unit": "user", "user": "customer", "overall": "4"}


@pytest.mark.parametrize(
    ("privacy", "together"),
    [
        ({}, "0.5"),
        ({"neighbors": "replace"}, "0.5"),
        (REPLACED, "1"),  # a record of one country in place of one of another
        (USERS, "0.5"),
    ],
    ids=["one event more", "moved", "in its tick", "users"],
)
def test_three_counts_of_three_countries_cost_what_one_record_meets(
    privacy: dict[str, Any], together: str
) -> None:
    built = build(pipeline([count(c) for c in COUNTRIES[:3]], **privacy))
    assert built.derivation.guarantee.measure == PureDP(Fraction(together))
    assert budget_json(built.spec, built.subledgers())["spent"] == together
    assert built.promise.guarantee.measure == PureDP(built.spec.privacy.epsilon)


def test_a_journals_first_charge_is_the_sum_as_before_boxes() -> None:
    (charge,) = build(pipeline([count(c) for c in COUNTRIES[:3]])).run_config(0).charges
    assert charge.epsilon == 15 * 10**11


def test_with_a_delta_forty_counts_are_composed_at_the_optimum_in_their_boxes() -> None:
    granted = {"epsilon": "2", "delta": "1e-6"}
    alike = [count("c0", "0.05", f"s{n}") for n in range(40)]
    apart = [count(f"c{n % 4}", "0.05", f"s{n}") for n in range(40)]
    for series, epsilon in ((alike, 1.298542), (apart, 0.499200)):
        built = build(pipeline(series, **granted))
        assert built.ledger.filter.name == "optimal"
        measure = built.derivation.guarantee.measure
        assert isinstance(measure, ApproxDP)
        assert float(measure.epsilon) == pytest.approx(epsilon, abs=1e-6)


def test_a_plan_says_how_many_more_series_each_filter_would_take(tmp_path: Path) -> None:
    """74 beside 10, as 84 of 0.05 run at once; under the pure filter 40, so none beside 50."""
    path = tmp_path / "shop.yaml"
    granted = {"epsilon": "2", "delta": "1e-6"}
    for number, optimal, pure in ((10, 74, 30), (50, 34, None)):
        series = [count("c0", "0.05", f"s{n}") for n in range(number)]
        path.write_text(json.dumps(content(series, **granted)))
        shown = PlanView(path).shown()["filters"]
        assert {row["epsilon"] for row in shown} == {"0.05"}
        more = {row["filter"]: row["series"] for row in shown}
        assert next(iter(more)) == "optimal"
        assert (more["optimal"], more["pure"], more["basic"]) == (optimal, pure, pure)
        assert len(more) == 7


@pytest.mark.parametrize(
    "privacy",
    [
        {"delta": "1e-6"},
        {"delta": "1e-6", "filter": "zcdp"},
        {"delta": "1e-6", "filter": "renyi", "order": "30"},
        {"delta": "1e-6", "filter": "gdp"},
        {},
    ],
)
def test_so_many_more_series_are_charged_one_by_one(privacy: dict[str, str]) -> None:
    """What a plan says of the filter that holds: its own ledger takes so many, and not one more."""
    built = build(pipeline([count("c0", "0.1"), count("c1", "0.05")], epsilon="1", **privacy))
    holds, *others = filters_json(built)
    main, size = built.ledger, PureDP(Fraction(holds["epsilon"]))
    for number in range(holds["series"]):
        main = main.charge(main.ask(f"s{number}", size, "a test"))
    with pytest.raises(BudgetRefused):
        main.charge(main.ask("more", size, "a test"))
    assert holds["filter"] == built.spec.privacy.filter
    assert bool(others) == bool(privacy)


def test_filters_that_have_no_theorem_for_the_series_are_left_out() -> None:
    """Gaussian noise has no epsilon without a delta of its own."""
    gaussian = {**WHOLE, "method": "gaussian", "epsilon": "0.2"}
    built = build(pipeline([gaussian], epsilon="2", delta="1e-6", filter="zcdp"))
    assert [row["filter"] for row in filters_json(built)] == ["zcdp", "renyi"]


TENANTS = [{"name": c, "epsilon": "0.5", "where": only(c)} for c in COUNTRIES]


def test_fifty_tenants_of_a_half_cost_a_half_and_see_their_records_only() -> None:
    built = build(pipeline([WHOLE], analysts=TENANTS))
    assert built.ledger.spent == 10**12
    with pytest.raises(BudgetRefused):
        build(pipeline([WHOLE], analysts=[*TENANTS, {"name": "any", "epsilon": "0.1"}]))
    admission = admission_of(built)
    for country in COUNTRIES[:3]:
        created(admission, country, country)
    with pytest.raises(
        UsageError, match=r"analyst c3 must read only records with country = c3, .*= c4"
    ):
        created(admission, "c4", "c3")
    with pytest.raises(BudgetRefused, match=r"analyst c0: again .*country = c0"):
        created(admission, "c0", "c0", name="again")


def test_an_analyst_is_given_no_part_by_a_list_whose_conditions_set_nothing_apart() -> None:
    part = {"field": "tags", "contains": "new"}
    listed = content([WHOLE], analysts=[{"name": "ann", "epsilon": "0.5", "where": [part]}])
    listed["schema"]["tags"] = {"type": "list", "domain": ["new", "old"], "most": "1"}
    with pytest.raises(ValueError, match="a condition on a list sets no records apart"):
        PipelineSpec.model_validate(listed)


def test_live_series_of_other_records_fit_beside_each_other_and_a_halt_frees_its_box() -> None:
    admission = admission_of(build(pipeline([WHOLE])))
    for country in COUNTRIES[:9]:
        created(admission, country)
    assert admission.subledgers.main.spent == 10**12
    with pytest.raises(BudgetRefused, match=r"c0 and has 0 left.* the same records: c0$"):
        created(admission, "c0", name="more")
    admission.halt("c0", 5)
    assert admission.subledgers.main.spent == 10**12  # of the others
    definition = json.dumps(count("c0", name="next")).encode()
    admission.create(admission.propose(definition, 5), "", 5)


def test_only_what_an_analyst_may_see_is_new_in_a_fingerprint() -> None:
    plain = pipeline([WHOLE], analysts=[{"name": "c0", "epsilon": "0.1"}])
    part = pipeline([WHOLE], analysts=[{"name": "c0", "epsilon": "0.1", "where": only("c0")}])
    assert fingerprint(plain) != fingerprint(part)
    with pytest.raises(ValueError, match="not in the domain"):
        pipeline([WHOLE], analysts=[{"name": "x", "epsilon": "0.1", "where": only("nobody")}])


def test_conditions_of_conditions_are_charged_for_what_they_let_through() -> None:
    """Ten countries and all others are apart, in a file and live; an alternative on another field meets all."""
    ten: dict[str, Any] = {"field": "country", "one_of": COUNTRIES[:10]}
    some = count("c0") | {"where": [ten]}
    others = count("c1") | {"where": [{"not": {"any": [{"all": [ten]}, *only("c20")]}}]}
    spec = pipeline([some, others])
    assert build(spec).derivation.guarantee.measure == PureDP(Fraction("0.5"))
    mixed = count("c2") | {"where": [{"any": [ten, {"field": "amount", "at_least": "9"}]}]}
    wide = pipeline([some, others, mixed])
    assert build(wide).derivation.guarantee.measure == PureDP(Fraction(1))
    assert (
        len(
            {
                fingerprint(each)
                for each in (spec, wide, pipeline([some, others | {"where": [{"not": ten}]}]))
            }
        )
        == 3
    )
    admission = admission_of(build(spec))
    for name, start in (("c3", 0), ("c4", 1)):
        live(admission, others | {"name": name, "epsilon": "0.25"}, start)
        asked = load_series(json.dumps(mixed | {"name": name}).encode(), spec)
        assert load_series(canonical_series(asked), spec) == asked
    with pytest.raises(BudgetRefused):
        live(admission, others | {"name": "c5", "epsilon": "0.25"}, 2)
    with pytest.raises(ValueError, match="must be a comparison of one field"):
        pipeline([WHOLE], analysts=[{"name": "x", "epsilon": "0.1", "where": others["where"]}])


TOTAL = {"of": "amount", "clamp": ["0", "240"], "at_most": "600"}
SHARING = {"unit": "user", "user": "customer", "max_events": "20", "per": "24h", "total": TOTAL}


def shared(country: str, epsilon: str = "1") -> dict[str, Any]:
    keys = {"statistic": "sum", "of": "amount", "clamp": ["0", "240"], "shared_total": "true"}
    return count(country, epsilon) | keys


def live(admission: Admission, series: dict[str, Any], start: int, analyst: str = "") -> None:
    proposal = admission.propose(json.dumps(series).encode(), start)
    admission.create(proposal, analyst, start)


def test_live_sums_within_a_total_come_and_go_at_the_price_of_one() -> None:
    """Beside what costs by events until the window ends, not only until a halt."""
    admission = admission_of(build(pipeline([count("c9", "0.5")], **SHARING, epsilon="1.5")))
    for number in range(6):
        live(admission, shared(f"c{number}"), 3)
    with pytest.raises(BudgetRefused):
        live(admission, shared("c0") | {"name": "again"}, 3)
    for number in range(6):
        admission.halt(f"c{number}", 5)
    live(admission, shared("c0") | {"name": "next"}, 5)  # of the same currency at once
    admission.halt("next", 6)
    for start, fits in ((6, False), (23, False), (24, True)):
        again = count("c9", "1", f"count{start}")
        proposal = admission.propose(json.dumps(again).encode(), start)
        assert admission.preview(proposal, "").fits is fits
    live(admission, count("c9", "1", "day"), 24)


def test_an_analyst_of_some_records_has_no_shared_total() -> None:
    analysts = [
        {"name": "ann", "epsilon": "1", "where": only("c0")},
        {"name": "ben", "epsilon": "1"},
    ]
    built = build(pipeline([count("c9", "0.5")], **SHARING, epsilon="4", analysts=analysts))
    admission = admission_of(built)
    with pytest.raises(UsageError, match="may use the whole total"):
        live(admission, shared("c0", "0.5"), 1, "ann")
    live(admission, shared("c0", "0.5"), 1, "ben")
    own = {**shared("c0"), "user_total": "600"}
    del own["shared_total"]
    with pytest.raises(UsageError, match="shared_total works here"):
        live(admission, own, 1)
