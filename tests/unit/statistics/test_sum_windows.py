"""Sums over windows: what a file says of them, at what price and error, their releases, live, asked, and audited."""

import asyncio
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_acts import create_series
from unit.live.live_series_steps import zero
from unit.live.live_series_worlds import HORIZON, Stopping, World, record
from unit.statistics.test_sum_series import FINE, PLAIN, WITHIN, bodies, built_of, file, rows_of

from stream_dp.core.guarantee import differential_privacy
from stream_dp.core.neighbors import Neighbors
from stream_dp.engine.ports import Batch
from stream_dp.errors import NotDerivable
from stream_dp.journal.release import read
from stream_dp.mechanisms.linear.noisy_forest import FLAT
from stream_dp.mechanisms.linear.sum_counter import SumCounter
from stream_dp.mechanisms.linear.window_forest import SumForest, WindowForest
from stream_dp.mechanisms.linear.windows_and_ever import SumsAndEver
from stream_dp.operate.audit.attack import attack, fresh_noise
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.yaml import load
from stream_dp.python.tick_release import PublicRelease
from stream_dp.statistics.parts import windows as windows_module
from stream_dp.statistics.parts.windows import window_choice
from stream_dp.verify.games.lower_bound import audit_mechanism

ONE = Fraction(1)
WINDOWS = ", windows: [2h, 4h]"
EVER = ", windows: [3h, ever]"
USERS = ", unit: user, user: pieces, max_events: 3, per: 2h"


@pytest.mark.parametrize(
    ("what", "more", "l1"),
    [
        (PLAIN, "", 240), (FINE, "", 24_000), (PLAIN, WITHIN, 240), (FINE, WITHIN, 25_000),
        (f"{PLAIN}, by: country", WITHIN, 480), (f"{FINE}, by: tags", WITHIN, 72_000),
        ("of: pieces, clamp: [-5, 3]", "", 5), (PLAIN, ", neighbors: replace", 240),
        ("of: pieces, clamp: [-5, -2]", USERS, 5),
    ],
)  # fmt: skip
def test_one_forest_has_the_whole_price_and_noise_for_what_one_event_changes(
    tmp_path: Path, what: str, more: str, l1: int
) -> None:
    built = built_of(tmp_path, what + WINDOWS, more)
    forest, protection = built.chosen[0].mechanism, built.spec.protection
    assert isinstance(forest, SumForest)
    assert (forest.windows, forest.shape, forest.l1) == ((1, 2, 4), FLAT, l1)
    assert forest.epsilon == protection.share
    assert forest.scales == (l1 / protection.share,)
    found = built.chosen[0].derivation.guarantee
    assert found.neighbors is built.spec.relation
    assert differential_privacy(found.measure).epsilon == 1


def test_the_sum_so_far_has_an_even_share(tmp_path: Path) -> None:
    both = built_of(tmp_path, f"{PLAIN}, windows: [3h, ever]", WITHIN).chosen[0]
    assert isinstance(both.mechanism, SumsAndEver)
    assert (both.mechanism.forest.epsilon, both.mechanism.ever.epsilon) == (2 * ONE / 3, ONE / 3)
    assert isinstance(both.mechanism.ever, SumCounter)
    assert both.spec.views == ("tick", "3h", "ever")
    assert both.spec.about == "sum of amount, each from 0 to 240, per tick and over 3h, and so far"
    assert both.choice.why == (
        "windows add up single ticks; the sum so far has 1/3 of the epsilon; one event changes it by up to 240 in all"
    )


def test_long_windows_get_levels(tmp_path: Path) -> None:
    path = file(tmp_path, f"{PLAIN}, windows: [30d]")
    path.write_text(path.read_text().replace("horizon: 8", "horizon: 9000"))
    (chosen,) = plan_json(build(load(path)))["series"]
    assert "windows from a forest, of its epsilon" in chosen["why"]
    assert "on sums of 1 tick(s)" in chosen["why"]


def test_releases_have_each_window_on_the_grid_with_its_band(tmp_path: Path) -> None:
    built = built_of(tmp_path, FINE + EVER)
    *_, last = bodies(built, [[1250], [-2000], [100], [-300]])
    told = read(last)
    assert isinstance(told.windows, dict)
    assert {name: part.value for name, part in told.windows.items()} == {
        "tick": -3.0, "3h": -22.0, "ever": -9.5,
    }  # fmt: skip
    assert b'"tick":{"value":-3.00,"band":' in last
    bands = [part.band or 0 for part in told.windows.values()]
    assert 0 < bands[0] < bands[1] < bands[2]
    assert PublicRelease.of(last).windows["3h"].value == -22


def test_a_grouped_sum_has_values_by_key_in_every_window(tmp_path: Path) -> None:
    built = built_of(tmp_path, f"of: pieces, clamp: [-20, 60], step: 20, by: country{WINDOWS}")
    *_, last = bodies(built, [[3, 0, 1], [-1, 2, 0], [0, 0, -2]])
    assert b'"tick":{"values":{"DE":0,"FR":0,"other":-40},"band":' in last
    assert b'"2h":{"values":{"DE":-20,"FR":40,"other":-40},"band":' in last
    assert b'"4h":{"values":{"DE":40,"FR":40,"other":-20},"band":' in last


def test_only_what_cannot_be_below_nothing_is_told_as_nothing(tmp_path: Path) -> None:
    """A clamp from 0 on: noise below 0 is. From below 0 on: it is not, in any window."""
    (unsigned,) = bodies(built_of(tmp_path, PLAIN + EVER), [[-7]])
    assert [p.value for p in (read(unsigned).windows or {}).values()] == [0, 0, 0]
    (signed,) = bodies(
        built_of(tmp_path, "of: pieces, clamp: [-1, 9], windows: [2h, ever]"), [[-7]]
    )
    assert [p.value for p in (read(signed).windows or {}).values()] == [-7, -7, -7]


def test_a_plan_has_the_error_of_every_window_in_the_fields_own_unit(tmp_path: Path) -> None:
    (shown,) = plan_json(built_of(tmp_path, f"of: amount, clamp: [0, 240], step: 0.01{EVER}"))[
        "series"
    ]
    assert [each["window"] for each in shown["windows"]] == ["tick", "3h", "ever"]
    assert shown["windows"][0]["predicted_error"] == shown["predicted_error"]
    forest = WindowForest(1, Fraction(2, 3) / 240, Neighbors.ADD_REMOVE, (1, 3), FLAT)
    for window, place in (("tick", 0), ("3h", 1)):
        (told,) = [each for each in shown["windows"] if each["window"] == window]
        last = told["predicted_error"][-1]["error"]
        assert last == pytest.approx(forest.view_band(place, 8, 0.95), abs=1)
    json.dumps(shown)


def test_what_was_there_without_windows_is_as_it_was(tmp_path: Path) -> None:
    plain, windowed = (load(file(tmp_path, PLAIN + more)) for more in ("", WINDOWS))
    assert plain.series[0].left_out >= {"window", "windows"}
    assert fingerprint(plain) != fingerprint(windowed)
    assert plain.series[0].about == "sum of amount, each from 0 to 240, so far"
    assert "windows" not in plain.series[0].described()
    assert windowed.series[0].described()["shape"] == "windows"
    assert windowed.series[0].described()["windows"] == ["tick", "2h", "4h"]
    assert plain.series[0].exact(np.array([7]), ("",)) == 7
    assert windowed.series[0].exact(np.array([7]), ("",)) is None


def test_more_than_a_state_may_hold_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path, f"{PLAIN}, windows: [400001h]")
    path.write_text(path.read_text().replace("horizon: 8", "horizon: 500000"))
    with pytest.raises(NotDerivable, match=r"would hold 400,001 numbers.*shorter window"):
        build(load(path))


def test_no_record_changes_a_row_by_more_than_the_forest_is_made_for(tmp_path: Path) -> None:
    """Through the real router; the extremes are reached."""
    built = built_of(tmp_path, f"{FINE}, by: tags{WINDOWS}", WITHIN)
    forest: Any = built.chosen[0].mechanism
    contents = [
        {"amount": value, "tags": tags}
        for value in (None, 1e308, -1e308, 3.3, 240, -10)
        for tags in ([], ["new", "gift"], ["other"])
    ]
    rows = [rows_of(built, {"amount": 33.3, "tags": ["gift"]}, one) for one in contents]
    rows.append(rows_of(built, {"amount": 33.3, "tags": ["gift"]}))
    relation, largest = forest.rows.relation(Neighbors.REPLACE), 0
    for left in rows:
        for right in rows:
            assert relation.accept(left, right) is not None
            largest = max(largest, int(np.abs(left - right).sum()))
    assert largest == 72_000


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("", FINE + WINDOWS), (WITHIN, f"{FINE}, by: tags{EVER}"), (", neighbors: replace", FINE + EVER),
        (USERS, f"of: amount, clamp: [-4, 5]{EVER}"), (USERS, f"{PLAIN}, by: country{WINDOWS}"),
    ],
)  # fmt: skip
def test_the_audit_plays_amounts_against_windows(tmp_path: Path, more: str, what: str) -> None:
    """Every game is one of neighbours, or it would be halted; a right claim is refuted with probability 1e-7."""
    found = attack(file(tmp_path, what, more), runs=300, ticks=2, confidence=0.9999999)
    assert found.refuted == []


def test_the_audit_refutes_windows_whose_weight_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One event moves the sum by 240 scales: it is missed with probability below 1e-9."""
    forest: Any = built_of(tmp_path, PLAIN + WINDOWS).chosen[0].mechanism
    for twin in (False, True):
        if twin:
            monkeypatch.setattr(SumForest, "scales", (ONE,))
        found = audit_mechanism(replace(forest), fresh_noise, runs=400, ticks=1, failure=1e-6)
        assert found.violated == twin


def test_windows_that_count_are_no_mechanism_for_amounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows_module, "window_choice", lambda *given: window_choice(*given[:3]))
    with pytest.raises(
        NotDerivable, match=r"volume: one event may add 240 units .* WindowForest is made for 1"
    ):
        built_of(tmp_path, PLAIN + WINDOWS)


def refunds() -> list[Batch]:
    """Two partitions, one tick a batch: tick + 1 orders of tick - 5 from DE, and one of -10 from FR in the second."""
    found, position = list[Batch](), [0, 0]
    for tick in range(HORIZON):
        for partition in (0, 1):
            events = [record(tick, "DE", tick - 5)] * (tick + 1)
            events += [record(tick, "FR", -10 * partition), record(tick, "FR", None)]
            labels = range(position[partition], position[partition] + len(events))
            position[partition] += len(events)
            found.append(Batch(partition, events, labels, position[partition], mark=tick))
    return found


def refunded(first: int, last: int, low: int, high: int) -> dict[str, int]:
    """What was sold in ticks `first` to `last`, each order clamped."""
    clamped = {tick: min(max(tick - 5, low), high) for tick in range(HORIZON)}
    return {
        "DE": sum(2 * (tick + 1) * clamped[tick] for tick in range(first, last + 1)),
        "FR": sum(min(max(amount, low), high) for amount in (0, -10)) * (last + 1 - first),
        "other": 0,
    }


ASKED = {"statistic": "sum", "of": "amount", "clamp": ["-4", "3"], "epsilon": "1/3"}
LIVE: list[dict[str, Any]] = [
    {"name": "far", **ASKED},
    {"name": "wide", **ASKED, "windows": ["3h", "ever"], "by": "country"},
]


async def test_live_sums_go_below_nothing_and_are_asked_by_window() -> None:
    """Created at a cut: they add up from their first tick on; what is asked of one window is what was released."""
    world, answers, start = World(noise=zero), dict[str, Any](), 4
    source = Stopping(start - 1, refunds())
    engine = world.engine(source)
    run = asyncio.create_task(engine.run())
    await world.until(start - 1)
    for definition in LIVE:
        assert (await create_series(engine, json.dumps(definition).encode())).start == start
    source.go(9)
    await world.until(9)
    for window in ("tick", "3h", "ever"):
        asked = {"do": "ask", "series": "wide", "id": window, "until": "1970-01-01T01:00:00Z"}
        said = await engine.tell(json.dumps({**asked, "window": window}).encode(), "")
        answers[window] = json.loads(said)
    source.go(HORIZON)
    await run
    far = world.releases("far")
    every = {tick: refunded(start, tick, -4, 3) for tick in range(start, HORIZON)}
    assert far == {tick: sum(told.values()) for tick, told in every.items()}
    assert min(far.values()) < 0 < max(far.values())
    wide = [json.loads(body) for body in world.bodies if json.loads(body)["series"] == "wide"]
    assert [each["tick"] for each in wide] == list(range(start, HORIZON))
    for each in wide:
        tick = each["tick"]
        assert {name: part["values"] for name, part in each["windows"].items()} == {
            "tick": refunded(tick, tick, -4, 3),
            "3h": refunded(max(start, tick - 2), tick, -4, 3),
            "ever": every[tick],
        }
    (at_nine,) = [each["windows"] for each in wide if each["tick"] == 9]
    for window, answer in answers.items():
        assert answer["answer"]["windows"] == {window: at_nine[window]}
