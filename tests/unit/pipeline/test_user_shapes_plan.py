"""Which series go by the shape that caps give a user's events, and what that saves; nothing else changes by it."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_dp.accounting.filters.squares import ZCDPFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.core.guarantee import ZCDP
from stream_dp.core.neighbors import Neighbors, Users, UserShape
from stream_dp.core.row_relations import Arrivals, EventRows, ShapedRows, Stream
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.pairs import GaussianAndEver
from stream_dp.mechanisms.linear.window_forest import GaussianForest
from stream_dp.operate.run.live_series import series_claim
from stream_dp.pipeline.builder import Built, Chosen, build
from stream_dp.pipeline.promise import caveats
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.verify.lower_bound import events_of

SERIES: list[dict[str, Any]] = [
    {"name": "all", "statistic": "count", "method": "gaussian", "epsilon": "0.5"},
    {"name": "day", "statistic": "count", "windows": ["24h"], "method": "gaussian", "epsilon": "0.5"},
    {"name": "both", "statistic": "count", "windows": ["24h", "ever"], "method": "gaussian", "epsilon": "0.5"},
    {"name": "by", "statistic": "histogram", "by": "country", "method": "gaussian", "epsilon": "0.5"},
    {"name": "product", "statistic": "histogram", "by": ["country", "kind"], "method": "gaussian", "epsilon": "0.5"},
    {"name": "kinds", "statistic": "histogram", "by": "kind", "method": "gaussian", "epsilon": "0.5"},
    {"name": "tree", "statistic": "count", "method": "tree", "epsilon": "0.1"},
]  # fmt: skip
MOST = {"max_events": "20", "per": "1d"}


def built_of(caps: dict[str, str], **changes: Any) -> Built:
    category = {"type": "category", "domain": ["DE", "FR"]}
    data: dict[str, Any] = {
        "version": 1, "name": "shop", "source": {"kind": "file", "path": "unused.jsonl"},
        "schema": {
            "time": {"type": "time"}, "who": {"type": "text"}, "shop": {"type": "text"}, "size": {"type": "integer"},
            "country": category,
            "kind": {"type": "category", "domain": ["a"], "nullable": "true"},
        },
        "privacy": {
            "unit": "user", "user": "who", "epsilon": "10", "delta": "1e-6", "filter": "zcdp", **MOST, **caps,
        },
        "clock": {
            "kind": "replay", "field": "time", "start": "2026-01-01T00:00:00Z", "step": "1h", "horizon": "8760",
        },
        "series": SERIES,
    }  # fmt: skip
    return build(PipelineSpec.model_validate(data | changes))


def planned(caps: dict[str, str], **changes: Any) -> dict[str, Chosen]:
    return {chosen.spec.name: chosen for chosen in built_of(caps, **changes).chosen}


def shapes(caps: dict[str, str], **changes: Any) -> dict[str, tuple[int, int, int] | None]:
    found: dict[str, tuple[int, int, int] | None] = {}
    for name, chosen in planned(caps, **changes).items():
        mechanism: Any = getattr(chosen.mechanism, "forest", None) or chosen.mechanism
        shape: UserShape | None = getattr(mechanism.rows, "shape", None)
        found[name] = None
        if shape is not None:
            found[name] = shape.users.cap, shape.per_tick, shape.per_entry
    return found


def test_gaussian_series_go_by_the_shape_and_entries_by_the_key() -> None:
    by_key = {"key": "country", "per_key": "2"}
    assert shapes({"per_tick": "1"}) == dict.fromkeys(
        ("all", "day", "both", "by", "product", "kinds"), (20, 1, 20)
    ) | {"tree": None}
    of_entries = {"by": (20, 20, 2), "product": (20, 20, 2)}
    assert shapes(by_key) == dict.fromkeys(("all", "day", "both", "kinds", "tree")) | of_entries
    together = shapes(by_key | {"keys": "3", "per_tick": "1"})
    assert together["all"] == (6, 1, 6)
    assert together["by"] == (6, 1, 2)


def test_null_shares_the_entry_of_all_that_is_outside_a_domain() -> None:
    """Two values of the key, of each of which so many events count."""
    found = shapes({"key": "kind", "per_key": "2"})
    assert found["kinds"] == found["product"] == (20, 20, 4)
    assert found["by"] is None


def test_a_bin_has_many_values_of_a_number() -> None:
    """Of each of which so many events count: the cap of a value bounds no bin."""
    sizes = {**SERIES[3], "by": {"field": "size", "edges": ["0", "10"]}}
    assert shapes({"key": "size", "per_key": "2"}, series=[sizes]) == {"by": None}


def test_without_caps_that_say_more_nothing_goes_by_a_shape() -> None:
    """And a counter has the noise and the fingerprint that it had."""
    assert not any(shapes({}).values())
    counter = planned({})["all"].mechanism
    assert isinstance(counter, GaussianCounter)
    assert counter.guarantee.users is None


@pytest.mark.parametrize("filter_", ["gdp", "basic", "tight_approximate"])
def test_under_filters_that_add_up_other_things_nothing_goes_by_a_shape(filter_: str) -> None:
    privacy = {
        "unit": "user",
        "user": "who",
        "epsilon": "10",
        "delta": "1e-5",
        "filter": filter_,
        **MOST,
        "per_tick": "1",
    }
    own: dict[str, str] = {}
    if filter_ == "tight_approximate":
        own = {"first_block_delta": "4e-6"}
    with_delta = {"delta": "1e-6"} if filter_ == "basic" else {}
    series = [SERIES[0] | with_delta, SERIES[3] | with_delta]
    assert shapes({}, privacy=privacy | own, series=series) == {"all": None, "by": None}


def test_the_price_is_the_same_and_the_noise_less() -> None:
    plain, shaped = planned({}), planned({"per_tick": "1"})
    for name in ("all", "day", "both", "by"):
        before, now = plain[name], shaped[name]
        rho = before.derivation.guarantee.measure
        assert isinstance(rho, ZCDP)
        assert now.derivation.guarantee == before.derivation.guarantee
        assert now.derivation.guarantee.users == Users(20, 24)
        assert before.derivation.rule == "all events of one user"
        assert now.mechanism.guarantee == now.derivation.guarantee
    assert plain["day"].choice.expected(100) > 4.4 * shaped["day"].choice.expected(100)
    by_key = planned({"key": "country", "per_key": "2"})
    assert plain["by"].choice.expected(100) > 3.1 * by_key["by"].choice.expected(100)
    assert isinstance(shaped["day"].mechanism, GaussianForest)
    assert isinstance(shaped["both"].mechanism, GaussianAndEver)


@pytest.mark.parametrize("caps", [{}, {"per_tick": "1"}], ids=["events", "shape"])
def test_all_of_it_is_charged_for_every_record_and_no_halt_frees_it(caps: dict[str, str]) -> None:
    """Under users a guarantee in zCDP counts everywhere, whatever a series' conditions are."""
    of_one = [{**SERIES[0], "where": [{"field": "country", "equals": "DE"}]}]
    (chosen,) = planned(caps, series=of_one).values()
    ledger = Ledger.under(
        ZCDPFilter.of(Fraction(1)), protected=chosen.derivation.guarantee.protected
    )
    entry = ledger.price(chosen.derivation, chosen.box)
    after = ledger.charge(entry)
    assert after.loads.local == {}
    assert after.halt(entry, 5).used == after.used
    assert after.halt(entry, 5).spent == after.spent == entry_cost(after)


def entry_cost(ledger: Ledger) -> int:
    (entry,) = ledger.entries
    return ledger.filter.cost(entry).amount


def test_the_plan_says_what_goes_by_the_shape() -> None:
    built = built_of({"per_tick": "1"})
    (note,) = [note for note in caveats(built) if note.startswith("Gaussian noise of")]
    assert note.startswith(
        "Gaussian noise of all, day, both, by, product, kinds is computed from squares"
    )
    words = "1 in a tick and 20 in an entry change together"
    assert all(words in chosen.choice.why for chosen in built.chosen if chosen.spec.name != "tree")
    assert not [note for note in caveats(built_of({})) if "is computed from squares" in note]
    values = {"name": "whom", "statistic": "distinct", "of": "shop", "epsilon": "0.1"}
    by_shop = {"key": "shop", "keys": "3"}
    notes = caveats(built_of(by_shop, series=[values]))
    assert (
        "whom has noise for 3 values of shop of a user, and the number of events does not matter"
        in notes
    )


def test_a_cap_of_values_is_that_of_its_own_field() -> None:
    def arrivals(of: str, **privacy: str) -> Any:
        series = {"name": "whom", "statistic": "distinct", "of": of, "epsilon": "0.1"}
        (chosen,) = planned({"key": "shop", "keys": "3"} | privacy, series=[series]).values()
        mechanism: Any = chosen.mechanism
        return mechanism.arrivals

    assert arrivals("shop") == Arrivals(None, Users(20, 24), values=3)
    assert arrivals("size") == arrivals("country") == Arrivals()
    assert arrivals("who") == Arrivals(None, Users(20, 24))
    # all texts outside a domain are one value for the cap, and many for whoever counts them
    assert arrivals("country", key="country") == Arrivals()
    assert arrivals("shop", filter="optimal") == Arrivals()


@pytest.mark.parametrize(("by", "caps", "entries"), [
    ("country", {}, 3), ("country", {"key": "country", "keys": "2"}, 2), ("country", {"key": "kind", "keys": "2"}, 3),
    (["country", "kind"], {"key": "country", "keys": "2"}, 4), (["country", "kind"], {"key": "kind", "keys": "1"}, 3),
    (["country", {"tick": "hour"}], {"key": "country", "keys": "1"}, 20),
    ({"field": "size", "edges": ["1", "5", "9"]}, {"key": "size", "keys": "2"}, 2),
    ("country", {"key": "country", "per_key": "2"}, 3), ("country", {"per_tick": "1", "max_events": "2"}, 2),
])  # fmt: skip
def test_a_user_lies_in_as_many_entries_as_caps_of_their_own_field_allow(
    by: Any, caps: dict[str, str], entries: int
) -> None:
    """Of a product each field has its cap; no more entries than events. Of another identifier each event has one."""
    series = {"name": "people", "statistic": "distinct", "of": "who", "by": by, "epsilon": "0.1"}
    (chosen,) = planned(caps, series=[series]).values()
    mechanism: Any = chosen.mechanism
    cap = int(caps.get("max_events", "20"))
    assert mechanism.arrivals == Arrivals(None, Users(cap, 24), entries=entries)
    (other,) = planned(caps, series=[series | {"of": "shop"}]).values()
    assert other.mechanism.arrivals == Arrivals()  # type: ignore[attr-defined]


def test_values_of_the_key_count_in_each_entry() -> None:
    series = {
        "name": "shops",
        "statistic": "distinct",
        "of": "shop",
        "by": "kind",
        "epsilon": "0.1",
    }
    built = built_of({"key": "shop", "keys": "3"}, series=[series])
    mechanism: Any = built.chosen[0].mechanism
    assert mechanism.arrivals == Arrivals(None, Users(20, 24), values=3, entries=2)
    assert mechanism.arrivals.changes == 12
    words = (
        "shops has noise for 3 values of shop of a user, each in up to 2 entries, and the number"
    )
    assert any(note.startswith(words) for note in caveats(built))


def test_rows_of_a_claim_are_those_that_the_caps_allow() -> None:
    chosen = planned({"per_tick": "1"})["by"]
    assert series_claim(chosen) is None  # the claim is the mechanism's own
    relation = chosen.mechanism.rows.relation(Neighbors.ADD_REMOVE)
    assert isinstance(relation, ShapedRows)
    assert events_of(chosen.mechanism, None) == 1
    plain = planned({})["by"]
    claim = series_claim(plain)
    assert claim is not None
    assert isinstance(claim.relation, Stream)
    assert isinstance(claim.relation.rows, EventRows)
    assert events_of(plain.mechanism, claim) == 20


def test_a_relation_of_a_shape_refuses_what_caps_exclude() -> None:
    rows = ShapedRows.of(UserShape(Users(4), 2, 3), 2, 1)
    nothing = np.zeros(2, np.int64)

    def after(*differences: list[int]) -> ShapedRows | None:
        relation: ShapedRows | None = rows
        for difference in differences:
            assert relation is not None
            relation = relation.accept(nothing + 5, nothing + 5 + difference)
        return relation

    assert after([1, 1], [2, 0]) is not None
    assert after([2, 0], [0, 0], [1, 1]) is not None
    for refused in ([[2, 1]], [[3, 0]], [[2, 0], [2, 0]], [[1, 1], [1, 1], [1, 0]]):
        assert after(*refused[:-1]) is not None
        assert after(*refused) is None
    assert rows.accept(nothing, np.zeros(3, np.int64)) is None
    assert rows.accept(nothing, nothing) is rows
