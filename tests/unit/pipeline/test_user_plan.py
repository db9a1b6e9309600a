"""Who is protected, wherever it is said: in one line, in the plan, its tree, API, charges, live series, the audit."""

import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dp.cli.main import code_of
from stream_dp.core.neighbors import Users
from stream_dp.core.row_relations import EventRows, Stream
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.operate.observe.public_view import pipeline_json
from stream_dp.operate.run.live_series import series_claim
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.fingerprints import fingerprint, meaning
from stream_dp.pipeline.promise import (
    caveats,
    looks_like_people,
    plain_promise,
    times,
    unit_json,
    unit_name,
    unit_words,
)
from stream_dp.pipeline.report import guarantee_json, plan_json
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load

Data = dict[str, Any]
EVERY_DAY = "users of at most 20 events in a window of 24 ticks"


def built(data: Data, **privacy: Any) -> Built:
    """The pipeline for these users, by default of 20 events a day."""
    per_day = {"max_events": "20", "per": "1d"} if "overall" not in privacy else {}
    users = {"unit": "user", "user": "note", "epsilon": "2", **per_day}
    return build(PipelineSpec.model_validate(data | {"privacy": users | privacy}))


@pytest.mark.parametrize(
    ("privacy", "name"),
    [
        ({"per": "1h"}, "(user, hour)"),
        ({"per": "24h"}, "(user, day)"),
        ({"per": "12h"}, "(user, 12h)"),
        ({"per": "36h"}, "(user, 36h)"),
        ({"overall": "200"}, "user, for ever"),
    ],
)
def test_the_unit_in_short(data: Data, privacy: Data, name: str) -> None:
    assert unit_name(built(data, **privacy).spec) == name


def test_the_unit_in_words(data: Data) -> None:
    event = build(PipelineSpec.model_validate(data)).spec
    assert (unit_words(event), unit_json(event)) == ("one event", {"unit": "event"})
    day = "(user, day): all events of one note within one day together, of which at most 20 count"
    assert unit_words(built(data).spec) == day
    ever = "user, for ever: all events of one note for ever together, of which at most 1 counts"
    assert unit_words(built(data, overall="1").spec) == ever


def test_the_plan_and_the_api_say_it(data: Data) -> None:
    for_day = built(data)
    users = {"name": "(user, day)", "field": "note", "max_events": 20, "per": "1d"}
    found = plan_json(for_day)
    assert (found["unit"], found["users"]) == ("user", users)
    assert pipeline_json(for_day, for_day.spec.series)["users"] == users
    assert plan_json(built(data, overall="3"))["users"]["per"] is None
    assert "users" not in plan_json(build(PipelineSpec.model_validate(data)))


def test_every_node_above_the_mechanisms_says_it(data: Data) -> None:
    for_day = built(data, analysts=[{"name": "ann", "epsilon": "0.25"}])
    promise = for_day.promise
    assert guarantee_json(promise.guarantee)["users"] == EVERY_DAY
    analyst, *series_of_the_file = promise.premises
    for node in (analyst, for_day.block, *series_of_the_file):
        assert node.guarantee.users == Users(20, 24)
    for series in (analyst, *series_of_the_file):
        (one_event,) = series.premises
        assert one_event.guarantee.users is None
        assert series.guarantee.measure.epsilon == 20 * one_event.guarantee.measure.epsilon  # type: ignore[union-attr]
    entries = for_day.ledger.entries
    assert all(entry.rule.endswith(f", for {EVERY_DAY}") for entry in entries)
    assert [entry.epsilon for entry in entries] == [25 * 10**10, 15 * 10**11]
    alone = build(PipelineSpec.model_validate(data)).ledger.entries
    assert [entry.rule for entry in alone] == ["concurrent composition ([HSV] Thm 4.10)"]


def test_a_live_series_is_for_users_too(data: Data) -> None:
    """Its windows count from the pipeline's first tick, not from its own."""
    for_day = built(data)
    planner = LiveSeriesPlanner(for_day.spec, OpenRouter(for_day.spec, 0))
    asked = planner.propose(b"{name: more, statistic: count, epsilon: 0.1}", 23)
    assert asked.derivation.guarantee.users == Users(20, 24)
    claim = series_claim(asked.chosen, asked.start)
    assert claim is not None
    assert isinstance(claim.relation, Stream)
    rows: Any = claim.relation.rows
    assert isinstance(rows, EventRows)
    one, none = np.array([1]), np.array([0])
    for tick, accepted in ((23, True), (24, False)):
        rows = rows.accept(one, none)
        assert (rows is not None) is accepted, tick
    begun_with_it: Any = series_claim(asked.chosen)
    rows = begun_with_it.relation.rows
    assert rows.accept(one, none).accept(one, none) is not None  # the twin that forgets its start


def test_notes_say_what_is_not_protected(data: Data) -> None:
    assert "exactly the same value of note belong to one user" in caveats(built(data))[-2]
    assert "not whether the user is in the data at all" in caveats(built(data))[-1]
    assert (
        "exactly the same value of note belong to one user" in caveats(built(data, overall="3"))[-1]
    )
    named = data | {"schema": data["schema"] | {"customer": {"type": "text"}}}
    (hint,) = [n for n in caveats(build(PipelineSpec.model_validate(named))) if "customer" in n]
    assert "docs/people.md" in hint


@pytest.mark.parametrize(
    ("name", "looks"),
    [*((n, True) for n in ("Customer_ID", "userName", "email", "client_ip", "IP", "deviceId", "patient")),
     *((n, False) for n in ("zip", "trip", "amount", "tip", "machine"))],
)  # fmt: skip
def test_names_look_like_a_person_or_do_not(name: str, looks: bool) -> None:
    assert looks_like_people([name]) == [name] * looks


PIPELINE = """\
version: 1
name: people
source: {kind: file, path: none.csv}
schema: {time: {type: time}, customer: {type: text}}
privacy: {unit: user, user: customer, max_events: 3, per: 2h, epsilon: 3}
clock: {kind: replay, field: time, start: 2024-05-01T00:00:00Z, step: 1h, horizon: 6}
series: [{name: clicks, statistic: count, epsilon: 0.3}]
"""


def test_the_first_line_of_the_plan(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "people.yaml"
    path.write_text(PIPELINE)
    assert code_of(["plan", str(path), "--proof"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith(
        "people protects (user, 2h): what is published hides any single customer's events of one window of 2h"
    )
    assert (
        "people is (0.3, 0)-differentially private: unit (user, 2h): all events of one customer within one window "
        "of 2h together, of which at most 3 count, neighbours add_remove, over all releases for ever."
        in out
    )
    assert "clicks eps 0.3, delta 0, users of at most 3 events in a window of 2 ticks by all" in out
    assert "clicks eps 0.1, delta 0 by sparse parallel composition" in out


BY_DAY = {"unit": "user", "user": "note", "max_events": "20", "per": "1d"}
FOR_EVER = {"unit": "user", "user": "note", "overall": "200"}
WALL = {"kind": "wall", "step": "1s"}


def of_users(data: Data, **privacy: str) -> Data:
    return data | {"privacy": {"epsilon": "2"} | privacy}


@pytest.mark.parametrize(
    ("privacy", "clock", "cap", "ticks"),
    [(BY_DAY, {}, 20, 24), (FOR_EVER, WALL, 200, None), ({}, {}, 1, None)],
    ids=["each day", "for ever", "one event"],
)
def test_a_cap_holds_in_each_public_window_or_for_ever(
    data: Data, privacy: dict[str, str], clock: dict[str, str], cap: int, ticks: int | None
) -> None:
    changed = of_users(data, **privacy) | ({"clock": clock} if clock else {})
    spec = PipelineSpec.model_validate(changed)
    assert (spec.privacy.cap, spec.privacy.window_ticks(spec.clock)) == (cap, ticks)


def test_the_fingerprint_covers_who_is_protected_and_no_spelling(data: Data) -> None:
    def found(**privacy: str) -> str:
        return fingerprint(PipelineSpec.model_validate(of_users(data, **privacy)))

    per_day = found(**BY_DAY)
    assert per_day == found(**BY_DAY | {"per": "24h"})
    others = [BY_DAY | {"max_events": "21"}, BY_DAY | {"per": "2d"}, FOR_EVER]
    others += [FOR_EVER | {"user": "airline"}, FOR_EVER | {"overall": "20"}, {}]
    assert len({per_day, *(found(**other) for other in others)}) == 7
    said = meaning(PipelineSpec.model_validate(of_users(data)))["privacy"]
    assert said == {"unit": "event", "neighbors": "add_remove", "epsilon": "2"}


PROMISED = """\
version: 1
name: shop
source: {{kind: file, path: shop.jsonl}}
schema: {{time: {{type: time}}, customer: {{type: integer}}}}
privacy: {{{privacy}}}
clock: {{kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: 48}}
series: [{{name: orders, statistic: count, epsilon: 0.1}}]
"""
PER = "unit: user, user: customer, max_events: 5, per: 1d, epsilon: 1"
SAYS = [
    (
        "epsilon: 2",
        "shop protects one event: what is published hides any single event. With or without it, every "
        "outcome is at most 7.39 times as likely.",
    ),
    (
        "epsilon: 0.5, neighbors: replace, moves: within_tick",
        "shop protects one event: what is published hides any single event. With it or with another in "
        "its place, every outcome is at most 1.65 times as likely, if a replacement keeps its tick (moves: "
        "within_tick).",
    ),
    (
        PER,
        "shop protects (user, day): what is published hides any single customer's events of one day. With or "
        "without them, every outcome is at most 2.72 times as likely.",
    ),
    (
        "unit: user, user: customer, overall: 5, epsilon: 1, delta: 1e-9, filter: zcdp",
        "shop protects user, for ever: what is published hides any single customer's events. With or without "
        "them, every outcome is at most 2.72 times as likely, apart from a probability of 0.000000001.",
    ),
    (
        "epsilon: 10",
        "shop protects one event: what is published may reveal a single event. With or without it, every outcome is at "
        "most 22,100 times as likely. That is weak: people usually take an epsilon of 0.5 to 2.",
    ),
]


@pytest.mark.parametrize(("privacy", "says"), SAYS)
def test_it_says_who_is_protected_and_what_that_means(
    tmp_path: Path, privacy: str, says: str
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(PROMISED.format(privacy=privacy))
    assert plain_promise(load(path)) == says


@pytest.mark.parametrize("epsilon", ["1/1000", "1/3", "2", "7", "99"])
def test_the_factor_is_three_digits_and_never_too_small(epsilon: str) -> None:
    found, exact = times(Fraction(epsilon)), Decimal(math.exp(Fraction(epsilon)))
    assert exact * Decimal("0.9999999") <= found <= exact * Decimal("1.0101")
    assert len(found.normalize().as_tuple().digits) <= 3
    assert found >= 1 + Decimal(1) * Fraction(epsilon).numerator / Fraction(epsilon).denominator
