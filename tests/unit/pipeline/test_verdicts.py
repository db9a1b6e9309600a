"""Verdicts: typical numbers by hand for every statistic, the same judge everywhere, and never one without a guess."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from stream_dp.errors import UsageError
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.operate.check_pipeline import judgement_of
from stream_dp.operate.fitting import file_sample
from stream_dp.operate.sampled_rows import Sampled, rows_of
from stream_dp.operate.simulate import plot, simulate
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec, diagnose
from stream_dp.pipeline.verdicts import Guessed, Row, judged, noise_by_guesses, summary
from stream_dp.records.scalars import exact
from stream_dp.statistics import STATISTICS
from stream_dp.statistics.parts.verdicts import Seen
from stream_dp.testing.noise import ZeroNoise

Data = dict[str, Any]
DAYS = 10
START = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
RECORDS: Data = {"records": "10"}  # a tick, so 240 a day
BUYS = [{"field": "kind", "equals": "buy"}]
USERS: Data = {"unit": "user", "user": "who", "max_events": "4", "per": "1d"}
TYPICAL_USERS: Data = {"users": "300", "events": ["1", "9"]}  # of whose events 1 and 4 count
SO_FAR: Data = {"statistic": "count"}
COUNT: Data = SO_FAR | {"every": "1d"}
SUM_SO_FAR: Data = {"statistic": "sum", "of": "amount", "clamp": ["0", "240"]}
SUM: Data = SUM_SO_FAR | {"every": "1d"}
WATCH: Data = {"name": "w", "above": "60", "over": "1d"}


def data_of(series: Any, expect: Data | None, privacy: Data | None = None) -> Data:
    return {
        "version": 1, "name": "shop", "source": {"kind": "file", "path": "unused.jsonl"},
        "schema": {
            "time": {"type": "time"}, "who": {"type": "text"},
            "amount": {"type": "number", "nullable": "false" if expect else "true"},
            "country": {"type": "category", "domain": ["DE", "FR", "IT"]},
            "kind": {"type": "category", "domain": ["click", "buy", "back"]},
        },
        "privacy": {"epsilon": "20", **(privacy or {}), **({"expect": expect} if expect else {})},
        "clock": {
            "kind": "replay", "field": "time", "start": START.isoformat(), "step": "1h", "horizon": str(24 * DAYS),
        },
        "series": [({} if each["statistic"] == "ratio" else {"epsilon": "1"}) | each for each in series],
    }  # fmt: skip


def built_of(series: Any, expect: Data | None = RECORDS, privacy: Data | None = None) -> Built:
    return build(PipelineSpec.model_validate(data_of(series, expect, privacy)))


def rows(built: Built) -> dict[tuple[str, str], Row]:
    return {(row.series, row.window): row for row in judged(built, Guessed(built.spec))}


# name: series, guesses beside `records` (or users), privacy, typical number by hand of each window
CASES: dict[str, tuple[list[Data], Data, Data | None, dict[str, float]]] = {
    "count": ([COUNT], {}, None, {"1d": 240}),
    "count, sliding": ([SO_FAR | {"windows": ["24h", "ever"]}], {}, None,
                       {"tick": 10, "24h": 240, "ever": 2400}),
    "count, so far": ([{"statistic": "count"}], {}, None, {"": 2400}),
    "count, where": ([COUNT | {"where": BUYS}], {"passing": {"it": "1/4"}}, None, {"1d": 60}),
    "count, users": ([COUNT], TYPICAL_USERS, USERS, {"1d": 750}),  # 300 times (1 + 4) / 2
    "count, typical": ([COUNT | {"where": BUYS}], {"typical": {"it": "183"}}, None, {"1d": 183}),
    "histogram": ([COUNT | {"statistic": "histogram", "by": "country"}], {}, None, {"1d": 60}),
    "sum": ([SUM], {"amounts": {"it": "30"}}, None, {"1d": 7200}),
    "sum, clamped": ([SUM], {"amounts": {"it": "300"}}, None, {"1d": 240 * 240}),
    "sum, grid": ([SUM | {"step": "1/2", "by": "country"}], {"amounts": {"it": "30"}}, None, {"1d": 1800}),
    # 1 and 4 events of 30 each: 30 and 120, of which 100 count
    "sum, total": ([SUM | {"user_total": "100"}], TYPICAL_USERS | {"amounts": {"it": "30"}}, USERS, {"1d": 19500}),
    # the same, and half of the records pass, while all use the total
    "sum, shared": ([SUM | {"shared_total": "true", "where": BUYS}],
                    TYPICAL_USERS | {"amounts": {"it": "30"}, "passing": {"it": "1/2"}},
                    USERS | {"total": {"of": "amount", "clamp": ["0", "240"], "at_most": "100"}}, {"1d": 9750}),
    "mean": ([SUM | {"statistic": "mean"}], {"typical": {"it": "30"}}, None, {"1d": 30}),
    "gauge": ([COUNT | {"statistic": "gauge", "of": "kind", "plus": "buy", "minus": "back"}],
              {"typical": {"it": "-15"}}, None, {"1d": 15}),
    "distinct": ([COUNT | {"statistic": "distinct", "of": "who"}], TYPICAL_USERS, USERS, {"1d": 300}),
    "distinct, events": ([COUNT | {"statistic": "distinct", "of": "who"}], {"typical": {"it": "50"}}, None, {"1d": 50}),
    "cut_off": ([{"statistic": "cut_off", "window": "1d"}], TYPICAL_USERS, USERS, {"1d": 300, "1d before": 300}),
    # four countries as a Zipf law has them: 12, 6, 4, 3 of 25
    "top": ([COUNT | {"statistic": "top", "by": "country", "k": "1"}], {}, None, {"1d": 240 * 6 / 25}),
    "top, even": ([COUNT | {"statistic": "top", "by": "country", "k": "1", "expected_shape": "even"}], {}, None,
                  {"1d": 0}),
    "maximum": ([{"statistic": "maximum", "by": "country"}], {}, None, {"": 2400 * 12 / 25}),
    "largest": ([{"statistic": "largest", "by": "country", "rank": "2"}], {}, None, {"": 2400 * 6 / 25}),
    "columns_above": ([{"statistic": "columns_above", "by": "country", "level": "500"}], {}, None, {"": 2}),
    # a tenth lies beyond the outer quantile
    "quantiles": ([COUNT | {"statistic": "quantiles", "of": "amount", "clamp": ["0", "240"], "at": ["0.5", "0.9"]}],
                  {}, None, {"1d": 24}),
    "alerts": ([{"statistic": "alerts", "by": "country", "threshold": "60", "window": "1d"}], {}, None, {"": 60}),
    "monitor": ([{"statistic": "monitor", "watch": [WATCH]}], {}, None, {"": 60}),
    "ratio": ([COUNT | {"where": BUYS, "name": "buys"}, COUNT | {"name": "all"},
               {"statistic": "ratio", "of": "buys", "over": "all"}], {"passing": {"buys": "1/4"}}, None, {"1d": 0.25}),
}  # fmt: skip
OWN_WIDTHS = ("mean", "ratio", "top")  # of quotients and orders


def wrong_rows(name: str) -> list[str]:
    """The windows of a case whose typical number is not that by hand, or whose band is not that of a release of it."""
    series, expect, privacy, typical = CASES[name]
    *others, last = [{"name": f"s{at}", **each} for at, each in enumerate(series)]
    built = built_of(
        [*others, last | {"name": "it"}], (expect if privacy else RECORDS | expect), privacy
    )
    found = {window: row for (name, window), row in rows(built).items() if name == "it"}
    if found.keys() != typical.keys():
        return [*found]
    bands: dict[str, float] = {}
    for chosen in (c for c in built.chosen if c.spec.name == "it"):
        for window, expected in (chosen.choice.windows or {"": chosen.choice.expected}).items():
            bands[window] = expected(24 * DAYS - 1)
    wrong = []
    for window, row in found.items():
        assert row.judged is not None, row
        own = last["statistic"] in OWN_WIDTHS
        if row.judged.typical != pytest.approx(
            typical[window], abs=0.51 if own or "max" in name else 1e-6
        ) or (not own and row.judged.band != bands[window]):
            wrong.append(window)
    return wrong


@pytest.mark.parametrize("name", CASES)
def test_typical_numbers_by_hand_beside_the_band_of_the_same_window(name: str) -> None:
    assert wrong_rows(name) == []


def test_every_statistic_has_a_case() -> None:
    told = {each["statistic"] for series, *_ in CASES.values() for each in series}
    assert told == {str(kind.model_fields["statistic"].default) for kind in STATISTICS}


def test_the_band_of_another_window_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Seen, "band", property(lambda seen: seen.choice.expected(seen.tick)))
    assert wrong_rows("count, sliding") == ["24h", "ever"]


def test_a_mean_and_an_order_are_told_with_widths_of_their_own() -> None:
    """By hand: of n records the mean at the middle of the clamp is off by the sum's band over n less the count's."""
    mean = SUM | {"statistic": "mean", "name": "it"}
    few, many = (
        rows(built_of([mean], {"records": n, "typical": {"it": "120"}}))["it", "1d"].judged
        for n in ("10", "1000")
    )
    assert few is not None
    assert many is not None
    assert few.band > 50 * many.band
    built = built_of([mean], {"records": "125/3", "typical": {"it": "120"}})  # 1,000 a day
    thousand = rows(built)["it", "1d"].judged
    assert thousand is not None
    assert thousand.band == built.chosen[0].choice.expected(24 * DAYS - 1)
    top = COUNT | {"statistic": "top", "by": "country", "k": "1", "name": "it"}
    order = rows(built_of([top]))["it", "1d"].judged
    assert order is not None
    (chosen,) = built_of([top]).chosen
    each = chosen.choice.windows["1d"](24 * DAYS - 1)
    assert each < order.band <= 2 * each


def test_a_missing_guess_is_named_and_no_verdict_is_made_up() -> None:
    series = [
        COUNT | {"name": "a"}, COUNT | {"name": "b", "where": BUYS}, SUM | {"name": "c"},
        SUM | {"name": "d", "statistic": "mean"}, COUNT | {"name": "e", "statistic": "distinct", "of": "who"},
        {"name": "f", "statistic": "ratio", "of": "b", "over": "a"},
    ]  # fmt: skip
    found = rows(built_of(series, None))
    assert {row.missing for row in found.values() if row.series in "af"} == {
        "privacy.expect.records"
    }
    found = rows(built_of(series))
    missing = {row.series: row.missing for row in found.values()}
    assert missing == {
        "a": "", "b": "privacy.expect.passing.b", "c": "privacy.expect.amounts.c",
        "d": "privacy.expect.typical.d", "e": "privacy.expect.typical.e", "f": "privacy.expect.passing.b",
    }  # fmt: skip
    assert found["b", "1d"].json() == {
        "series": "b", "window": "1d", "verdict": None, "missing": "privacy.expect.passing.b",
    }  # fmt: skip
    assert summary([*found.values()]).endswith(
        "5 not known without privacy.expect.passing.b, privacy.expect.amounts.c, privacy.expect.typical.d, ..."
    )


def test_records_without_a_value_are_no_guess_of_those_with_one() -> None:
    """Of a field that may be null, only the share of records that have it says how many count."""
    whole = data_of([SUM | {"name": "it"}], RECORDS | {"amounts": {"it": "30"}})
    whole["schema"]["amount"]["nullable"] = "true"
    built = build(PipelineSpec.model_validate(whole))
    assert rows(built)["it", "1d"].missing == "privacy.expect.passing.it"


def test_a_number_around_zero_is_noise_and_many_records_are_useful() -> None:
    nothing = rows(built_of([COUNT | {"name": "it"}], {"typical": {"it": "0"}}))["it", "1d"]
    assert (nothing.verdict, nothing.words[2]) == ("noise", "noise")
    much = rows(built_of([COUNT | {"name": "it"}], {"records": "1000"}))["it", "1d"]
    assert much.verdict == "useful"


def shop(**expect: Any) -> Built:
    """The shop of the issue: 3,751 people, a cap of 10 a day, an hourly clock."""
    series = [
        SO_FAR | {"name": "clicks", "windows": ["24h"], "epsilon": "0.2"},
        SUM_SO_FAR | {"name": "revenue", "windows": ["24h"], "clamp": ["0", "400"], "epsilon": "0.2"},
        COUNT | {"name": "people", "statistic": "distinct", "of": "who", "epsilon": "0.1"},
    ]  # fmt: skip
    guesses = {"users": "35", "events": ["1", "2", "3", "4", "16"], "amounts": {"revenue": "16"}}
    return built_of(series, guesses | expect, USERS | {"max_events": "10", "epsilon": "1"})


def test_the_shop_is_told_that_it_is_noise_before_a_budget_is_spent() -> None:
    found = rows(shop())
    assert found["clicks", "24h"].words == ("140", "± 682", "noise (4.9 times the number)")
    assert {name: row.verdict for (name, window), row in found.items() if window != "tick"} == {
        "clicks": "noise", "revenue": "noise", "people": "rough",
    }  # fmt: skip
    assert summary([*found.values()]) == "Verdicts: 1 rough, 4 noise"
    warned = noise_by_guesses(shop())
    assert warned.startswith(
        "according to the guesses of privacy.expect, 4 of 5 numbers would be noise (clicks, revenue)"
    )
    assert noise_by_guesses(shop(users="3500")) == ""
    assert noise_by_guesses(built_of([COUNT | {"name": "it"}], None)) == ""


def test_guesses_change_no_fingerprint_and_are_refused_where_they_say_nothing() -> None:
    series = [COUNT | {"name": "it"}]
    spec = built_of(series).spec
    silent = spec.model_copy(update={"privacy": spec.privacy.model_copy(update={"expect": None})})
    other = built_of(series, {"records": "7", "typical": {"it": {"1d": "3"}}}).spec
    assert fingerprint(spec) == fingerprint(silent) == fingerprint(other)

    def problems(expect: Data, privacy: Data | None = None) -> list[str]:
        found: Any = diagnose(data_of(series, expect, privacy))
        return [".".join(map(str, each["loc"])) for each in found]

    assert problems(RECORDS | {"per_tick": "3"}) == ["privacy.expect.per_tick"]
    assert problems({"users": "3"}, USERS) == ["privacy.expect.events"]
    assert problems({"events": "3"}, USERS) == ["privacy.expect.users"]
    assert problems(TYPICAL_USERS | RECORDS, USERS) == ["privacy.expect.records"]
    assert problems({"records": "0"}) == ["privacy.expect.records"]
    assert problems({"typical": {"other": "3"}}) == ["privacy.expect.typical.other"]
    assert problems({"typical": {"it": {"7d": "3"}}}) == ["privacy.expect.typical.it"]


# what a sample says


def records(folder: Path, days: int = DAYS) -> Path:
    """Every hour of so many days: h + 1 records of hour h, by users in turn; every fifth buys for 30, in Germany."""
    lines, number = [], 0
    for hour in range(24 * days):
        for minute in range(hour % 24 + 1):
            at = START + timedelta(hours=hour, minutes=minute)
            buys = number % 5 == 0
            lines.append({
                "time": at.isoformat(), "who": f"u{number % 7}", "amount": 30 if buys else None,
                "country": "DE" if buys else "FR", "kind": "buy" if buys else "click",
            })  # fmt: skip
            number += 1
    path = folder / "records.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


MANY: list[Data] = [
    COUNT | {"name": "count"},
    SO_FAR | {"name": "sliding", "windows": ["24h", "ever"]},
    COUNT | {"name": "running", "running": "true"},
    {"name": "far", "statistic": "count"},
    COUNT | {"name": "by", "statistic": "histogram", "by": "country"},
    SUM | {"name": "sum"},
    SUM | {"name": "mean", "statistic": "mean"},
    COUNT | {"name": "gauge", "statistic": "gauge", "of": "kind", "plus": "buy", "minus": "back"},
    COUNT | {"name": "who", "statistic": "distinct", "of": "who"},
    {"name": "far_who", "statistic": "distinct", "of": "who"},
    COUNT | {"name": "top", "statistic": "top", "by": "country", "k": "1"},
    COUNT | {"name": "q", "statistic": "quantiles", "of": "amount", "clamp": ["0", "240"], "at": ["0.5"]},
    {"name": "slow", "statistic": "quantiles", "of": "amount", "clamp": ["0", "240"], "at": ["0.5"], "windows": ["6h"],
     "hop": "3h"},
    COUNT | {"name": "buys", "where": BUYS},
    {"name": "share", "statistic": "ratio", "of": "buys", "over": "count"},
]  # fmt: skip
A_DAY = 300  # 1 + 2 + ... + 24 records, of which a fifth buys


@pytest.mark.parametrize("days", [DAYS, 3])
def test_a_sample_says_what_is_typical_of_whole_windows(tmp_path: Path, days: int) -> None:
    built = built_of(MANY, None)
    sample = file_sample(built.spec, records(tmp_path, days), 10**6)
    found = {(row.series, row.window): row for row in judgement_of(built, sample).rows}
    typical = {key: row.judged.typical for key, row in found.items() if row.judged is not None}
    by_hand = {
        ("count", "1d"): A_DAY, ("sliding", "24h"): A_DAY, ("running", "1d"): A_DAY, ("sum", "1d"): A_DAY / 5 * 30,
        ("mean", "1d"): 30, ("gauge", "1d"): A_DAY / 5, ("who", "1d"): 7, ("buys", "1d"): A_DAY / 5,
        ("share", "1d"): 0.2, ("by", "1d"): A_DAY / 10, ("top", "1d"): A_DAY * 3 / 5, ("q", "1d"): A_DAY / 5 / 2,
    }  # fmt: skip
    assert {key: typical[key] for key in by_hand} == pytest.approx(by_hand)
    # so far, at the end of the horizon: at the rate of the ticks that the sample holds for sure
    known = 24 * days if days == DAYS else 24 * days - 1
    held = A_DAY * days - (0 if days == DAYS else 24)
    assert typical["far", ""] == pytest.approx(held * 24 * DAYS / known)
    assert (found["far_who", ""].missing == "a sample of 240 ticks") == (days != DAYS)


def test_a_sample_without_times_says_nothing(tmp_path: Path) -> None:
    built = built_of(MANY, None)
    path = tmp_path / "dead.jsonl"
    path.write_text('{"time": "yesterday"}\n')
    judgement = judgement_of(built, file_sample(built.spec, path, 10))
    assert {row.missing for row in judgement.rows} == {"a sample of records that say their time"}
    assert judgement.ways == {}


def test_what_other_series_refuse_is_in_no_way(tmp_path: Path) -> None:
    """A record whose amount is no number is dead for a count too: a count alone would seem useful as it is."""
    path = tmp_path / "shop.jsonl"
    lines = records(tmp_path).read_text().splitlines()
    path.write_text("\n".join(line.replace("null", '"0"') for line in lines))
    series = [COUNT | {"name": "count", "epsilon": "0.14"}, SUM | {"name": "sum", "epsilon": "9"}]
    built = built_of(series, None)
    judgement = judgement_of(built, file_sample(built.spec, path, 10**6))
    assert {row.series: row.judged and row.judged.typical for row in judgement.rows}["count"] == 60
    assert {way.judged.typical for way in judgement.ways["count"] if way.window == "1d"} == {60}


def test_ways_make_a_file_useful_and_hold_in_it(tmp_path: Path) -> None:
    """Each entry is put into the file: there the series is useful, and what it lost of its window is in the band."""
    series = [
        SO_FAR | {"name": "count", "windows": ["6h"], "epsilon": "0.2"},
        SUM | {"name": "sum", "clamp": ["0", "2000"], "epsilon": "0.2"},
        {"name": "by", "statistic": "histogram", "by": "country", "method": "hss", "epsilon": "0.2"},
        {
            "name": "q", "statistic": "quantiles", "of": "amount", "clamp": ["0", "240"], "buckets": "4",
            "at": ["0.4", "0.6"], "windows": ["6h"], "hop": "2h", "epsilon": "0.2",
        },
    ]  # fmt: skip
    built = built_of(series, None, USERS | {"max_events": "40"})
    sample = file_sample(built.spec, records(tmp_path), 10**6)
    judgement = judgement_of(built, sample)
    assert judgement.ways.keys() == {"count", "sum", "by", "q"}
    lines = {name: [way.lines for way in ways] for name, ways in judgement.ways.items()}
    assert ("every: 1d instead of windows",) in lines["count"]
    assert any("every: 7d instead of method" in changed for changed in lines["by"])
    assert any(
        {"every: 7d instead of windows and hop", "method: together"} <= {*changed}
        for changed in lines["q"]
    )
    assert any(
        "clamp: [0, 40]" in changed for changed in lines["sum"]
    )  # amounts are of 30: nothing is lost
    for name, ways in judgement.ways.items():
        steady = [way for way in ways if "clock" not in str(way.lines)]
        shown = {(way.window, way.judged.typical) for way in steady}
        assert len(shown) == len({window for window, _ in shown})  # a cap's cut is in the band
        for way in ways:
            if any(line.startswith("clock") for line in way.lines):
                continue
            changed = yaml.load(way.entry, yaml.BaseLoader)  # noqa: S506 - every scalar a text
            privacy = USERS | {"max_events": "40"}
            for part in (part for line in way.lines for part in line.split(", ")):
                key, _, value = part.partition(": ")
                if key.startswith("privacy."):
                    privacy[key.removeprefix("privacy.")] = value
            assert (changed["name"], float(changed["epsilon"])) == (name, float(way.epsilon))
            other = built_of([changed], None, privacy)
            row = next(
                row for row in judged(other, Sampled(other.spec, rows_of(other.spec, sample)))
                if row.window == way.window
            )  # fmt: skip
            assert row.judged is not None
            assert row.judged.band <= way.judged.band
            assert row.verdict == "useful"


def test_a_sample_is_read_with_and_without_a_total_that_series_share(tmp_path: Path) -> None:
    """Without a guard records add all that they have; with it a user adds no more than the total."""
    series = [SUM | {"name": "sum", "clamp": ["0", "40"], "shared_total": "true", "epsilon": "0.2"}]
    total = {"of": "amount", "clamp": ["0", "40"], "at_most": "50"}
    spec = built_of(series, None, USERS | {"max_events": "40", "total": total}).spec
    plain = [SUM | {"name": "sum", "clamp": ["0", "40"], "epsilon": "0.2"}]
    other = built_of(plain, None, USERS | {"max_events": "40"}).spec
    sample = file_sample(spec, records(tmp_path), 10**6)
    whole, capped = (rows_of(spec, sample, guarded=guarded).rows.sum() for guarded in (False, True))
    assert whole == rows_of(other, sample, guarded=False).rows.sum() > capped > 0


# simulations


def simulated(
    folder: Path, series: Any, privacy: Data | None = None, **more: Any
) -> Mapping[Any, Any]:
    file, data = folder / "shop.yaml", records(folder)
    file.write_text(json.dumps(data_of(series, None, privacy)))
    points = simulate(file, data, more.get("budgets", "20"), more.get("runs", 1), 10**6)
    return {(point.row.series, point.row.window, point.budget): point for point in points}


def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_dp.operate.simulate.NoiseStream", lambda seed, stream: ZeroNoise())


USERS_TOO: list[Data] = [
    {"name": "cut", "statistic": "cut_off", "window": "1d"},
    SUM | {"name": "total", "user_total": "60"},
    {"name": "max", "statistic": "maximum", "by": "country", "method": "tree"},
]


@pytest.mark.parametrize("privacy", [None, USERS | {"max_events": "9"}])
def test_without_noise_every_release_is_the_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, privacy: Data | None
) -> None:
    without_noise(monkeypatch)
    series = MANY if privacy is None else [*MANY, *USERS_TOO]
    errors = {
        key[:2]: point.observed.error
        for key, point in simulated(tmp_path, series, privacy).items()
        if point.observed is not None
    }
    assert {name for name, _ in errors} == {each["name"] for each in series}
    exactly = {
        key: error
        for key, error in errors.items()
        if key[0] not in ("mean", "share", "cut", "total")
    }
    assert exactly == dict.fromkeys(exactly, 0.0)
    rounded = {key: error for key, error in errors.items() if key not in exactly}
    assert all(error < 0.006 for error in rounded.values()), rounded


def test_a_window_that_is_off_by_a_tick_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_noise(monkeypatch)
    point = simulated(tmp_path, [SO_FAR | {"name": "it", "windows": ["24h"]}])
    assert all(p.observed is not None and p.observed.error == 0 for p in point.values())
    kind = type(
        build(PipelineSpec.model_validate(data_of([COUNT | {"name": "it"}], None))).chosen[0].spec
    )
    covered = kind.covered
    monkeypatch.setattr(
        kind,
        "covered",
        lambda self, window, tick, step: covered(self, window, max(0, tick - 1), step),
    )
    point = simulated(tmp_path, [SO_FAR | {"name": "it", "windows": ["24h"]}])
    assert any(p.observed is not None and p.observed.error > 0 for p in point.values())


def test_errors_fall_with_the_budget_and_bands_hold(tmp_path: Path) -> None:
    found = simulated(
        tmp_path, [COUNT | {"name": "it", "epsilon": "0.05"}], budgets="5,20", runs=10
    )
    few, many = (found["it", "1d", budget] for budget in (exact("5"), exact("20")))
    assert few.observed is not None
    assert many.observed is not None
    assert few.observed.rmse > 2 * many.observed.rmse
    assert (few.row.verdict, many.row.verdict) == ("rough", "useful")
    assert many.observed.coverage > 0.85
    assert float(few.epsilon) == 0.0125
    assert [*tmp_path.glob("*.journal*"), *tmp_path.glob("*.releases*")] == []


def test_what_caps_cut_off_is_beside_the_errors(tmp_path: Path) -> None:
    capped = simulated(tmp_path, [COUNT | {"name": "it"}], USERS | {"max_events": "30"})
    assert capped["it", "1d", exact("20")].cut_off == pytest.approx(1 - 7 * 30 / A_DAY)


def test_caps_and_steps_are_tried_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each combination counts what a file that says so counts, and says it in the same words."""
    file, data = tmp_path / "shop.yaml", records(tmp_path)
    monkeypatch.setattr("stream_dp.operate.simulate.fresh_seed", lambda: bytes(32))
    series, users = [COUNT | {"name": "it"}, SO_FAR | {"name": "ever"}], USERS | {"max_events": "9"}
    file.write_text(json.dumps(data_of(series, None, users)))
    points = simulate(file, data, "20", 1, 10**6, caps="3,30", steps="1h,1d")
    found = {(point.row.series, point.cap, point.step): point for point in points}
    assert len(points) == len(found) == 2 * 2 * 2
    for (name, cap, step), point in found.items():
        whole = data_of(series, None, users | {"max_events": str(cap)})
        clock = {"step": step, "horizon": str(24 * DAYS if step == "1h" else DAYS)}
        file.write_text(json.dumps(whole | {"clock": whole["clock"] | clock}))
        (own,) = [p for p in simulate(file, data, "20", 1, 10**6) if p.row.series == name]
        assert (point.words, point.json()) == (own.words, own.json())
    few = found["it", 3, "1h"]
    assert few.cut_off == pytest.approx(1 - 7 * 3 / A_DAY)
    assert few.observed is not None
    assert few.cut_off is not None
    assert few.share == pytest.approx(few.cut_off + few.observed.error / A_DAY)


@pytest.mark.parametrize(
    ("caps", "steps", "why"),
    [
        ("x", "", "--cap: "), ("0", "", "--cap: must be greater than 0"), ("", "1x", "--step: "),
        ("3", "7d", "--cap 3 --step 7d: privacy.per: must be a whole number of ticks"),
    ],
)  # fmt: skip
def test_what_cannot_be_tried_is_refused(tmp_path: Path, caps: str, steps: str, why: str) -> None:
    file, data = tmp_path / "shop.yaml", records(tmp_path)
    file.write_text(json.dumps(data_of([COUNT | {"name": "it"}], None, USERS)))
    with pytest.raises(UsageError, match=why):
        simulate(file, data, "20", 1, 10**6, caps=caps, steps=steps)
    file.write_text(json.dumps(data_of([COUNT | {"name": "it"}], None)))
    if caps == "3":
        why = "--cap: each record is protected by itself"
    with pytest.raises(UsageError, match=why):
        simulate(file, data, "20", 1, 10**6, caps=caps, steps=steps)


@pytest.mark.parametrize("across", ["budgets", "caps", "steps"])
def test_errors_are_drawn_against_what_was_tried(tmp_path: Path, across: str) -> None:
    pytest.importorskip("matplotlib")
    file, data, drawn = tmp_path / "shop.yaml", records(tmp_path), tmp_path / "errors.svg"
    alerts = {"name": "a", "statistic": "alerts", "by": "country", "threshold": "60"}
    file.write_text(json.dumps(data_of([COUNT | {"name": "it"}, alerts], None, USERS)))
    tried = {
        "budgets": ("5,20", "3,4", ""),
        "caps": ("20", "3,4", ""),
        "steps": ("20", "", "1h,1d"),
    }
    epsilon, caps, steps = tried[across]
    plot(simulate(file, data, epsilon, 1, 10**6, caps=caps, steps=steps), drawn)
    words = drawn.read_text()
    named = {"budgets": "epsilon", "caps": "cap", "steps": "step in hours"}[across]
    assert all(f"<!-- {word} -->" in words for word in ("it", named, "useful below", "NOT PRIVATE"))
    assert ("<!-- 1d, cap 3 -->" in words) == (across == "budgets")
    with pytest.raises(UsageError, match=r"must end in \.svg"):
        plot([], tmp_path / "errors.txt")


@pytest.mark.parametrize("most", [300, 20])
def test_what_a_total_cuts_off_is_a_share_of_the_amounts(tmp_path: Path, most: int) -> None:
    """Seven users buy for 30 some 8 times a day each, and 60 or 90 of it count; also beside a cap of their records."""
    total = {"of": "amount", "clamp": ["0", "240"], "at_most": "90"}
    privacy = USERS | {"max_events": str(most), "total": total}
    series = [
        SUM | {"name": "own", "user_total": "60"},
        SUM | {"name": "shared", "shared_total": "true"},
        SUM | {"name": "whole"},
    ]
    found = simulated(tmp_path, series, privacy)
    own, shared, whole = (
        found[name, "1d", exact("20")].cut_off for name in ("own", "shared", "whole")
    )
    assert own == pytest.approx(1 - 7 * 60 / (30 * A_DAY / 5))
    assert shared == pytest.approx(1 - 7 * 90 / (30 * A_DAY / 5))
    assert (whole == 0) == (most == 300)


def test_what_is_typical_is_what_the_verdict_compares(tmp_path: Path) -> None:
    """For quantiles the records beyond the outer one, for a list how far its first is ahead."""
    ranks = COUNT | {"statistic": "quantiles", "of": "amount", "clamp": ["0", "240"]}
    series = [
        ranks | {"name": "q", "at": ["0.5", "0.9"]},
        COUNT | {"name": "top", "statistic": "top", "by": "country", "k": "1"},
    ]
    found = simulated(tmp_path, series)
    for name, typical in (("q", A_DAY / 5 / 10), ("top", A_DAY * 3 / 5)):
        point = found[name, "1d", exact("20")]
        assert point.row.judged is not None
        assert point.row.judged.typical == pytest.approx(typical)
        assert point.words[2] == point.row.words[0]


@pytest.mark.parametrize(("days", "hours"), [(1, 23), (3, 0)])
def test_a_sample_of_less_than_a_day_is_said_to_be_one(
    tmp_path: Path, days: int, hours: int
) -> None:
    built = built_of([COUNT | {"name": "it"}], None)
    sample = file_sample(built.spec, records(tmp_path, days), 10**6)
    assert judgement_of(built, sample).part == hours * 3_600_000


# live series


def test_a_preview_of_noise_says_so_and_asks_for_a_confirmation() -> None:
    spec = built_of([COUNT | {"name": "other"}], {"records": "10"}).spec
    planner = LiveSeriesPlanner(spec, OpenRouter(spec, 0))
    definition = {"name": "it", "statistic": "count", "every": "1d", "epsilon": "0.001"}
    noisy = planner.propose(json.dumps(definition).encode(), 0)
    assert [row["verdict"] for row in noisy.verdicts] == ["noise"]
    assert noisy.noise.startswith("mostly noise according to the guesses of privacy.expect: ± ")
    elsewhere = planner.received(noisy.packed(), 0)  # it was derived by another process
    assert (elsewhere.verdicts, elsewhere.noise) == (noisy.verdicts, noisy.noise)
    good = planner.propose(json.dumps(definition | {"epsilon": "1"}).encode(), 0)
    assert ([row["verdict"] for row in good.verdicts], good.noise) == (["useful"], "")
    silent = LiveSeriesPlanner(
        spec.model_copy(update={"privacy": spec.privacy.model_copy(update={"expect": None})}),
        OpenRouter(spec, 0),
    )
    assert silent.propose(json.dumps(definition).encode(), 0).noise == ""
