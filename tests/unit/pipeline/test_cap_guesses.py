"""What `plan` says of other caps, by public guesses: the bands of a file that has them, what the guard would cut."""

import re
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest
from oracles.user_caps import Event, judge

from stream_dp.cli.main import code_of
from stream_dp.core.guarantee import PureDP
from stream_dp.operate.budget_view import PlanView, whole_plan_json
from stream_dp.pipeline import report, user_guard
from stream_dp.pipeline.builder import Built, build, chosen_for
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.promise import caveats, unit_json, unit_words
from stream_dp.pipeline.report import caps_json, caps_words
from stream_dp.pipeline.spec import PipelineSpec, diagnose

Data = dict[str, Any]
HORIZON = 240
GERMANY = [{"field": "country", "equals": "DE"}]
SUM: Data = {"statistic": "sum", "of": "amount", "clamp": ["0", "240"], "every": "1d"}
SERIES: list[Data] = [
    {"name": "so_far", "statistic": "count"},
    {"name": "sliding", "statistic": "count", "windows": ["24h", "7d"]},
    {"name": "germany", "statistic": "count", "every": "1d", "where": GERMANY},
    {"name": "by", "statistic": "histogram", "by": "country", "windows": ["24h"]},
    {"name": "revenue", **SUM},
    {"name": "total", **SUM, "user_total": "600"},
    {"name": "mean", **SUM, "statistic": "mean"},
    {"name": "shops", "statistic": "distinct", "of": "shop", "every": "1d", "running": "true"},
    {"name": "who", "statistic": "distinct", "of": "who", "every": "1d", "running": "true"},
    {"name": "capped", "statistic": "cut_off", "window": "1d"},
    {"name": "some", "statistic": "alerts", "by": "country", "threshold": "100"},
]
EXPECT: Data = {"users": "1000", "events": ["1", "4", "7", "60"], "per_tick": "2", "keys": "6"}
PER_DAY = {"max_events": "20", "per": "1d"}
BY_SHOP = {"key": "shop", "per_key": "2", "keys": "4"}
SQUARES = {"filter": "zcdp", "delta": "1e-6"}
FILES: dict[str, Data] = {
    "day": PER_DAY,
    "tick": PER_DAY | {"per_tick": "2"},
    "keys": PER_DAY | BY_SHOP,
    "all": PER_DAY | BY_SHOP | SQUARES | {"per_tick": "1"},
    "key alone": PER_DAY | SQUARES | {"key": "country", "per_key": "2"},
    "ever": {"overall": "200", "per_tick": "3"},
}


BY_KEY = ["without per_key", "per_key: 1", "without keys", "keys: 2"]
BESIDE = {
    "day": ["per_tick: 2"], "tick": ["without per_tick", "per_tick: 1"], "keys": ["per_tick: 2", *BY_KEY],
    "all": ["without per_tick", *BY_KEY], "key alone": ["per_tick: 2", "without per_key", "per_key: 1", "keys: 6"],
    "ever": ["without per_tick", "per_tick: 1"],
}  # fmt: skip
"""Caps beside that of the window: left out, halved, as guessed."""


def data_of(privacy: Data, expect: Data | None = EXPECT, series: Any = None) -> Data:
    for_ever = "overall" in privacy  # no window of the cap, so none of these
    asked = [{"epsilon": "0.25", **each} for each in (SERIES if series is None else series)]
    if for_ever:
        asked = [{k: v for k, v in each.items() if k != "window"} for each in asked]
    return {
        "version": 1, "name": "shop", "source": {"kind": "file", "path": "unused.jsonl"},
        "schema": {
            "time": {"type": "time"}, "who": {"type": "text"}, "shop": {"type": "text"}, "amount": {"type": "number"},
            "country": {"type": "category", "domain": ["DE", "FR"]},
        },
        "privacy": {
            "unit": "user", "user": "who", "epsilon": "10", **privacy, **({"expect": expect} if expect else {}),
        },
        "clock": {
            "kind": "replay", "field": "time", "start": "2026-01-01T00:00:00Z", "step": "1h", "horizon": str(HORIZON),
        },
        "series": asked,
    }  # fmt: skip


def built_of(privacy: Data, expect: Data | None = EXPECT, series: Any = None) -> Built:
    return build(PipelineSpec.model_validate(data_of(privacy, expect, series)))


def changed(privacy: Data, words: str) -> tuple[Data, Data]:
    """The caps of the file, and the keys of the sum, with what these words say; caps that are never reached go."""
    caps, own = dict(privacy), Data()
    for change in filter(None, words.split(" and ")):
        name, value = change.split(": ") if ": " in change else (change.split()[1], None)
        (own if name == "user_total" else caps)[name] = value
    most = int(caps.get("max_events") or caps["overall"])
    for name in ("per_tick", "per_key", "keys"):
        if caps.get(name) is None or int(caps[name]) >= most:
            caps.pop(name, None)
    if not caps.keys() & {"per_key", "keys"}:
        caps.pop("key", None)
    return caps, own


def wrong_bands(name: str) -> list[str]:
    """The ways of which the calculator's bands are not those of a file with these caps."""
    wrong = []
    for found in caps_json(built_of(FILES[name]))["caps"]:
        (asked,) = (each for each in SERIES if each["name"] == found["name"])
        for way in found["ways"]:
            caps, own = changed(FILES[name], way["caps"])
            series = {k: v for k, v in (asked | own).items() if v is not None}
            (chosen,) = built_of(caps, None, [series]).chosen
            choice = chosen.choice
            bands = {
                window: error(HORIZON - 1)
                for window, error in (choice.windows or {"": choice.expected}).items()
            }
            if way["bands"] != bands:
                wrong.append(f"{found['name']}: {way['caps']}")
    return wrong


@pytest.mark.parametrize("name", FILES)
def test_bands_are_those_of_a_file_that_has_these_caps(name: str) -> None:
    assert wrong_bands(name) == []
    ways = {
        f["name"]: [w["caps"] for w in f["ways"]] for f in caps_json(built_of(FILES[name]))["caps"]
    }
    beside = [each for each in ways["so_far"] if "max_events" not in each and "overall" not in each]
    assert beside == ["", *BESIDE[name]]
    cap = "overall" if name == "ever" else "max_events"
    assert ways["so_far"][0] == ""
    assert {f"{cap}: 60", f"{cap}: {100 if name == 'ever' else 10}"} <= {*ways["so_far"]}
    assert ("without per_tick" in ways["so_far"]) == ("per_tick" in FILES[name])
    assert ("without keys" in ways["so_far"]) == ("keys" in FILES[name])
    assert "without user_total" in ways["total"]
    assert any(words.startswith("user_total: ") for words in ways["revenue"])


def test_bands_of_the_files_own_caps_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = built_of(PER_DAY).spec
    monkeypatch.setattr(report, "chosen_for", lambda _, *series: chosen_for(spec, *series))
    assert wrong_bands("day")


def of_oracle(guesses: Data, caps: Any, ticks: int) -> int:
    """How many records of the typical users count: one log each, in order of time, each value of the key in turn."""
    kept = 0
    for many in map(int, guesses["events"]):
        in_ticks = min(ticks, -(-many // int(guesses["per_tick"])))
        values = min(many, int(guesses["keys"]))
        log = [Event("u", at * in_ticks // many, f"{at % values}") for at in range(many)]
        verdict = judge({0: log}, caps[0], None, None, None, *caps[1:])
        kept += sum(verdict.rows.values())
    return kept


def wrong_cuts(lots: int) -> int:
    wrong = 0
    for lot in range(lots):
        random = Random(lot)
        guesses = {
            "users": "7", "events": [str(random.randint(1, 40)) for _ in range(random.randint(1, 4))],
            "per_tick": str(random.randint(1, 5)), "keys": str(random.randint(1, 6)),
        }  # fmt: skip
        by_key = {
            "key": "shop",
            "per_key": str(random.randint(1, 4)),
            "keys": str(random.randint(1, 4)),
        }
        file = PER_DAY | {"per_tick": str(random.randint(1, 3))} | (by_key if lot % 2 else {})
        (found,) = caps_json(built_of(file, guesses, SERIES[:1]))["caps"]
        every = sum(map(int, guesses["events"]))
        for way in found["ways"]:
            own, _ = changed(file, way["caps"])
            most = [own.get(name) for name in ("max_events", "per_tick", "per_key", "keys")]
            kept = of_oracle(guesses, [None if m is None else int(m) for m in most], 24)
            wrong += way["cut_off"] != float(1 - Fraction(kept, every))
    return wrong


def test_what_is_cut_off_is_what_the_guard_would_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong_cuts(60) == 0

    real: Any = user_guard.with_room

    def without_keys(*rooms: Any) -> Any:
        return real(*rooms[:-1], [10**6])

    monkeypatch.setattr(user_guard, "with_room", without_keys)
    monkeypatch.setattr(
        user_guard, "_counting", user_guard._counting.__wrapped__
    )  # else from the cache
    assert wrong_cuts(20) > 0


def found_of(privacy: Data, expect: Data, name: str) -> tuple[Data, dict[str, Data]]:
    (found,) = (f for f in caps_json(built_of(privacy, expect))["caps"] if f["name"] == name)
    return found, {way["caps"]: way for way in found["ways"]}


def test_the_least_error_is_the_band_and_what_is_cut_off() -> None:
    """By hand: 1 + 4 + 7 + 60 events of four typical users are 18,000 of a thousand; of 60 count 20."""
    found, ways = found_of(PER_DAY, EXPECT, "germany")
    assert (found["value"], found["over"], found["passing"]) == (18_000, "1d", None)
    for words, lost in (("", 10_000), ("max_events: 60", 0), ("max_events: 5", 14_250)):
        assert ways[words]["cut_off"] == pytest.approx(lost / 18_000)
        assert ways[words]["error"] == ways[words]["bands"]["1d"] + lost
    assert found["least"] == "max_events: 60"


def test_what_where_drops_has_used_the_cap() -> None:
    """A tenth passes: noise is for all places, and a tenth of what is cut off is missing. So fewer are better."""
    few = EXPECT | {"users": "40", "passing": {"germany": "0.1"}, "events": ["1", "1", "5", "30"]}
    found, ways = found_of(PER_DAY, few, "germany")
    plain, all_of_it = found_of(PER_DAY, few | {"passing": {}}, "germany")
    assert (found["value"], plain["value"]) == (37, 370)
    for words, way in ways.items():
        band = way["bands"]["1d"]
        assert band == all_of_it[words]["bands"]["1d"]
        assert way["error"] - band == pytest.approx((all_of_it[words]["error"] - band) / 10)
    assert (found["least"], plain["least"]) == ("max_events: 1", "max_events: 5")
    line = caps_words(found)
    assert "(its where keeps 0.675 of the 6.75 events of a user that count)" in line
    assert "(its where keeps all (nothing is guessed) of the 6.75" in caps_words(plain)
    (note,) = [n for n in caveats(built_of(PER_DAY)) if n.startswith("records that the where of")]
    assert "of germany drops use up their users' caps, too" in note


def test_a_total_is_weighed_beside_a_roomy_cap() -> None:
    """30 of each record: 20 events are 600, 60 are 1,800, and a total of 300 leaves a user of 20 the half."""
    guess = EXPECT | {"amounts": {"revenue": "30", "total": "30"}}
    found, ways = found_of(PER_DAY, guess, "revenue")
    assert found["value"] == 540_000
    assert ways["user_total: 600"]["error"] == ways["user_total: 600"]["bands"]["1d"] + 300_000
    assert ways["max_events: 60 and user_total: 1800"]["cut_off"] == 0
    assert found["least"] == "max_events: 60 and user_total: 1800"
    _, totals = found_of(PER_DAY, guess, "total")
    band = totals["user_total: 300"]["bands"]["1d"]
    lost = 250 * (1 * 30 + 4 * 30 + 7 * 30 + 60 * 30) - 250 * (30 + 120 + 210 + 300)
    assert totals["user_total: 300"]["error"] == band + lost
    assert totals["user_total: 300"]["cut_off"] == pytest.approx(lost / 540_000)
    below: Data = SUM | {"name": "net", "clamp": ["-240", "240"], "epsilon": "1"}
    owed = built_of(PER_DAY, EXPECT | {"amounts": {"net": "-30"}}, [below])
    (net,) = caps_json(owed)["caps"]
    assert net["value"] == -540_000
    assert net["ways"][0]["error"] == net["ways"][0]["bands"]["1d"] + 300_000


SHARED = {**SUM, "shared_total": "true"}
SHARING: list[Data] = [
    {"name": "all", **SHARED},
    {"name": "german", **SHARED, "where": GERMANY},
    {"name": "french", **SHARED, "where": [{"field": "country", "equals": "FR"}]},
    {"name": "cut", "statistic": "cut_off", "window": "1d", "cap": "total"},
]


def total_of(most: str) -> Data:
    return PER_DAY | {"total": {"of": "amount", "clamp": ["0", "240"], "at_most": most}}


def test_a_total_that_series_share_is_weighed_with_what_a_where_drops() -> None:
    """A user's 60 records of 30 leave 600, whatever they are; of that a series has its share."""
    guess = EXPECT | {"passing": {"german": "0.25"}, "amounts": {"all": "30", "german": "30"}}
    every = {
        each["name"]: each for each in caps_json(built_of(total_of("300"), guess, SHARING))["caps"]
    }
    for name, part in (("all", 1), ("german", 0.25)):
        ways = {way["caps"]: way for way in every[name]["ways"]}
        assert {"", "total: 600", "total: 150", "max_events: 60 and total: 1800"} <= ways.keys()
        for words, most in (("", 300), ("total: 600", 600), ("total: 150", 150)):
            (chosen,) = built_of(total_of(str(most)), None, [{**SHARED, "name": "all"}]).chosen
            band = chosen.choice.expected(HORIZON - 1)
            assert ways[words]["bands"] == {"1d": band}
            lost = sum(n * 30 - min(min(n, 20) * 30, most) for n in (1, 4, 7, 60))
            assert ways[words]["error"] == pytest.approx(band + 250 * lost * part)
        assert ways["max_events: 60 and total: 1800"]["cut_off"] == 0
    assert "(its where keeps 2 of the 8 events" in caps_words(every["german"])


def test_plan_says_what_a_shared_total_costs() -> None:
    """Three series at the price of two, as two of them see different records, and who has less for it."""
    built = built_of(total_of("600"), None, SHARING)
    assert built.derivation.guarantee.measure == PureDP(Fraction(3, 4))
    assert built.promise.guarantee.measure == PureDP(Fraction(10))
    notes = " / ".join(caveats(built))
    assert "how much of amount each user has added" in notes
    assert "records that the where of german, french drops use up the total, too" in notes
    assert "and for the other kind only once the window of the cap is over" in notes
    assert "no series of this file has shared_total" not in notes
    assert "no series of this file has shared_total" in " ".join(
        caveats(built_of(total_of("600"), None, [SERIES[0]]))
    )
    assert "20 count, and 600 of amount in sums with shared_total" in unit_words(built.spec)
    users: Any = unit_json(built.spec)["users"]
    assert users["total"] == "600 of amount"
    own = [{**each, "user_total": "600"} for each in SHARING[:3]]
    for each in own:
        del each["shared_total"]
    alone = built_of(PER_DAY, None, own)
    assert alone.derivation.guarantee.measure == PureDP(Fraction(3, 4))
    assert fingerprint(built.spec) != fingerprint(built_of(total_of("300"), None, SHARING).spec)


def test_a_number_over_another_window_and_one_of_several_entries() -> None:
    assert found_of(PER_DAY, EXPECT, "so_far")[0]["value"] == 18_000 * HORIZON / 24
    assert found_of(PER_DAY, EXPECT, "sliding")[0]["over"] == "24h"
    assert found_of(PER_DAY, EXPECT, "by")[0]["value"] == 6_000  # DE, FR, other
    assert found_of(PER_DAY | {"share": "1/4"}, EXPECT, "germany")[0]["value"] == 4_500
    _, same = found_of(
        PER_DAY, EXPECT | {"per_tick": "25"}, "so_far"
    )  # what caps nothing is no other cap
    assert not any("per_tick" in words for words in same)
    _, idle = found_of(PER_DAY | {"per_tick": "10"}, EXPECT, "so_far")
    assert {"max_events: 10", "max_events: 5"} <= idle.keys()  # which per_tick then never reaches
    _, keyed = found_of(PER_DAY | {"key": "shop", "keys": "4"}, EXPECT | {"keys": "7"}, "so_far")
    assert "per_key: 3" in keyed  # 72 / 4 / 7, rounded up
    values = {each["name"]: each["value"] for each in caps_json(built_of(FILES["ever"]))["caps"]}
    assert (values["so_far"], values["germany"]) == (18_000, 1_800)  # of all 240 ticks, and of 24
    for name in ("mean", "shops", "who", "capped", "some"):
        found, ways = found_of(PER_DAY, EXPECT, name)
        assert found["value"] is found["least"] is None
        assert all(way["error"] is None for way in ways.values())
    assert caps_words(found_of(PER_DAY, EXPECT, "mean")[0]).endswith(
        "No guess says how this changes the error"
    )
    alike: Data = {"name": "s", "statistic": "count", "windows": ["12h", "36h"]}
    (longer,) = caps_json(built_of(PER_DAY, EXPECT, [alike]))["caps"]
    assert (longer["over"], longer["value"]) == ("36h", 27_000)
    (tick,) = caps_json(built_of(PER_DAY | {"per": "1h"}, EXPECT, [alike]))["caps"]
    assert (tick["over"], tick["value"]) == ("tick", 18_000)
    found, ways = found_of(PER_DAY, EXPECT, "who")
    band = ways["max_events: 1"]["bands"]["1d"]
    assert caps_words(found) == f"who over 1d: ± {band} with each of these caps"


def test_guesses_change_no_guarantee_and_no_fingerprint() -> None:
    plain, guessed = built_of(PER_DAY, None), built_of(PER_DAY)
    assert plain.fingerprint == guessed.fingerprint
    assert fingerprint(plain.spec) == fingerprint(guessed.spec)
    assert plain.parts == guessed.parts
    assert plain.promise == guessed.promise
    assert plain.ledger.entries == guessed.ledger.entries
    assert "caps" not in whole_plan_json(plain)
    assert [each["name"] for each in whole_plan_json(guessed)["caps"]] == [
        s["name"] for s in SERIES
    ]


@pytest.mark.parametrize(("expect", "at", "why"), [
    ({"passing": {"germny": "0.5"}}, ("passing", "germny"), "is no series that counts records of this file"),
    ({"amounts": {"germany": "5"}}, ("amounts", "germany"), "is no sum of this file"),
    ({"events": ["20000", "1"]}, ("events",), "are more than 20,000 events together"),
])  # fmt: skip
def test_guesses_that_fit_nothing_are_refused(expect: Data, at: Any, why: str) -> None:
    found: Any
    (found,) = diagnose(data_of(PER_DAY, EXPECT | expect))
    assert found["loc"] == ("privacy", "expect", *at)
    assert why in found["msg"]


def test_guesses_are_of_users() -> None:
    events = data_of({}) | {"privacy": {"epsilon": "10", "expect": EXPECT}}
    found: Any = diagnose(events)
    assert [each["loc"] for each in found] == [("privacy", "expect", key) for key in EXPECT]


def test_the_terminal_has_a_line_for_each_series(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(f"""\
version: 1
name: shop
source: {{kind: file, path: none.csv}}
schema: {{time: {{type: time}}, who: {{type: text}}}}
privacy: {{unit: user, user: who, max_events: 4, per: 1d, epsilon: 1, expect: {{users: 300, events: [1, 9]}}}}
clock: {{kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: {HORIZON}}}
series: [{{name: orders, statistic: count, every: 1d, epsilon: 0.5}}]
""")
    assert code_of(["plan", str(file)]) == 0
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert (
        "Half-widths and cut-off parts with other caps, according to the guesses in privacy.expect"
        in out
    )
    assert (
        "orders over 1d, about 1,500: as in the file ± 24, 50.0% cut off; max_events: 9 ± 54, 0.0% cut off;"
        in out
    )
    assert (
        "The sum of band and cut-off part is least with max_events: 9 (54 + 0 = 54); with the caps of the file, "
        "it is 24 + 750 = 774" in out
    )


def test_the_example_of_the_page_is_what_plan_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "people.md").read_text()
    section = page.split("### What other caps would have")[1].split("\n## ")[0]
    file = tmp_path / "shop.yaml"
    file.write_text(section.split("```yaml\n")[1].split("```")[0])
    shown = section.split("```text\n")[1].split("```")[0]
    assert " ".join(shown.split()) == " ".join(PlanView(file).shown()["caps"])
    least = [caps["least"] for caps in PlanView(file).json()["caps"]]
    assert least == ["max_events: 30", "", "max_events: 30 and user_total: 900"]
