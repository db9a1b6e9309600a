"""`stream-dp init`: a first file from three kinds of CSV and from JSON lines, open only where it is marked."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from stream_dp.operate.init import Column, pipeline_schema
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load

Say = Callable[..., Any]
COUNTRIES = ("DE", "FR", "PL")


def orders() -> str:
    """A shop's orders: times with an offset, people, categories, amounts."""
    rows = [
        f"2024-05-{1 + n % 9:02}T{n % 24:02}:00:00Z,{1000 + n},c{n % 40},{COUNTRIES[n % 3]},{n}.5,"
        f"{'true' if n % 4 else 'false'}"
        for n in range(120)
    ]
    return "\n".join(["placed_at,order_id,customer_id,country,amount,gift", *rows, ""])


def dated() -> str:
    """A shop's orders by dates alone; a date before the order's, customers of three kinds, a nullable person."""
    rows = [
        f"1990-02-{1 + n % 9:02},2024-05-{1 + n // 6:02},{n % 3},{'' if n % 9 == 0 else n % 40},"
        f"{COUNTRIES[n % 3]},{n % 6}"
        for n in range(120)
    ]
    return "\n".join(["born,day,customer_no,User ID,store_id,quantity", *rows, ""])


def awkward() -> str:
    """Empty cells, quotes, commas in quotes, names like keywords, none, twice, or not allowed; no offset."""
    rows = [
        f'2024-05-01 10:00:{n:02},{"yes" if n % 2 else "no"},"1,{n}","a ""b""",,1,2,3,{"SML"[n % 3]},007'
        for n in range(40)
    ]
    head = 'when,on,"net, amount","say ""hi""",null,,x,x,Größe,code'
    return "\n".join(["\ufeff" + head, *rows, "a row that is too short", ""])


def legacy() -> str:
    """A shop's orders from a German office: semicolons, decimal commas, points at thousands; what may be either."""
    rows = [
        f"0{1 + n % 9}.05.2024 10:{n % 60:02};{COUNTRIES[n % 3]};1.{100 + n},{n % 100:02};{1 + n % 7},{100 + n}"
        for n in range(120)
    ]
    return "\n".join(["Zeit;Länderkürzel;Betrag;Menge", *rows, ""])


KINDS: Mapping[str, tuple[Callable[[], str], Mapping[str, str], list[str]]] = {
    "orders": (
        orders,
        {
            "placed_at": "time", "order_id": "integer", "customer_id": "text", "country": "category",
            "amount": "number", "gift": "boolean",
        },
        ["domain of country", "start of the clock", "horizon of the clock"],
    ),
    "dated": (
        dated,
        {
            "born": "time", "day": "time", "customer_no": "category", "User ID": "integer",
            "store_id": "category", "quantity": "integer",
        },
        ["domain of customer_no", "domain of store_id", "start of the clock", "horizon of the clock"],
    ),
    "awkward": (
        awkward,
        {
            "when": "time", "on": "category", "net, amount": "number", "null": "text",
            "Größe": "category", "code": "category",
        },
        [
            "zone of when", "domain of on", "domain of Größe", "domain of code", "start of the clock",
            "horizon of the clock",
        ],
    ),
    "legacy": (
        legacy,
        {"Zeit": "time", "Länderkürzel": "category", "Betrag": "number", "Menge": "text"},
        ["zone of Zeit", "domain of Länderkürzel", "start of the clock", "horizon of the clock"],
    ),
}  # fmt: skip
DECLARED = (
    (r"start: declare this", "start: 2024-05-01T00:00:00Z"),
    (r"horizon: declare this", "horizon: 240"),
    (r"zone: declare this", "zone: UTC"),
    (r"domain: \[\]", "domain: [DE, attic, yes]"),
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path / "home"))


def made(say: Say, kind: str, *more: str) -> tuple[Any, str]:
    encoding = "latin-1" if kind == "legacy" else "utf-8"
    Path(f"{kind}.csv").write_text(KINDS[kind][0](), encoding=encoding)
    said = say("init", "--csv", f"{kind}.csv", *more)
    assert said.code == 0, said.err
    return said, Path(f"{kind}.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_is_refused_for_what_is_marked_alone(say: Say, kind: str) -> None:
    _, types, open_places = KINDS[kind]
    said, text = made(say, kind)
    fields = yaml.safe_load(text)["schema"]
    assert {name: field["type"] for name, field in fields.items()} == types
    assert f"the {len(open_places)} places" in said.out
    plan = say("plan", f"{kind}.yaml")
    assert plan.code == 2
    found = re.findall(
        r"^(?:stream-dp: )?\w+\.yaml:(\d+):\d+: \S.*?: declare the (.*?): ", plan.err, re.MULTILINE
    )
    assert [what for _, what in found] == open_places
    assert len(plan.err.splitlines()) == len(open_places)
    lines = text.splitlines()
    assert all("declare this" in lines[int(line) - 1] for line, _ in found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_completed_runs_on_the_data(say: Say, kind: str) -> None:
    _, text = made(say, kind)
    for old, new in DECLARED:
        text = re.sub(old, new, text)
    path = Path(f"{kind}.yaml")
    path.write_text(text)
    assert build(load(path)).spec.name == kind
    assert list(jsonschema.Draft202012Validator(pipeline_schema()).iter_errors(_core(text))) == []
    assert say("key").code == 0
    checked = json.loads(say("check", str(path), "--json").out)
    assert checked["records"] >= 40
    bad = {"awkward": 1, "dated": 14}.get(kind, 0)  # a short row; nobody's records
    assert (checked["dead"], checked["late"]) == (bad, 0)
    run = say("run", str(path), "--until-end", "--key-file", "stream-dp.key")
    assert run.code == 0, run.err
    releases = Path(f"{kind}.releases.jsonl").read_text().splitlines()
    assert {json.loads(line)["series"] for line in releases} >= {"events"}


def _core(text: str) -> Any:
    """The file as an editor reads it; times stay texts."""
    return yaml.safe_load(re.sub(r"(\d{4}-\d\d-\d\dT\S+)", r"'\1'", text))


@pytest.mark.parametrize("kind", KINDS)
def test_no_value_of_the_data_is_written(say: Say, kind: str) -> None:
    said, text = made(say, kind)
    values = {"c7", 'a "b"', "1,7", "007", "2024-05-07T"}
    assert [value for value in values if value in text or value in said.out] == []
    assert re.search(r"(?<![A-Z])(PL)(?![A-Z])", text + said.out) is None
    if kind == "awkward":
        assert "NOT PRIVATE: left out: 1 record (no row, or no JSON object)." in said.out
        assert "left out: 3 columns without a name" in said.out
        assert '# "say \\"hi\\"" has a name that no field can have' in text
        return
    asked, text = made(say, kind, "--show-values", "--out", "shown.yaml")
    assert ("DE, FR, PL" in asked.out, "PL" in text) == (True, False)
    assert "c7" not in asked.out  # nobody lists customers


def test_a_file_that_is_there_stays(say: Say) -> None:
    _, text = made(say, "orders")
    said = say("init", "--csv", "orders.csv")
    assert said.code == 2
    assert "exists and is kept" in said.err
    assert say("init", "--csv", "orders.csv", "--out", "more.yaml", "--name", "more").code == 0
    assert Path("more.yaml").read_text() == text.replace("name: orders", "name: more")


def test_a_sample_of_what_comes_into_a_topic_has_a_wall_clock(say: Say) -> None:
    Path("orders.csv").write_text(orders())
    said = say("init", "--csv", "orders.csv", "--topic", "shop.orders", "--bootstrap", "kafka:9092")
    data = yaml.safe_load(Path("shop.orders.yaml").read_text())
    assert data["source"] == {
        "kind": "kafka",
        "topic": "shop.orders",
        "bootstrap": "kafka:9092",
        "keyed_by": "customer_id",
    }
    assert data["clock"] == {"kind": "wall", "step": "1m", "delay": "2s"}
    assert "stream-dp send orders.csv --pipeline shop.orders.yaml" in said.out
    assert "stream-dp broker" not in said.out  # a Kafka is named
    Path("shop.orders.yaml").write_text(
        Path("shop.orders.yaml").read_text().replace("[]", "[DE, FR]")
    )
    assert say("plan", "shop.orders.yaml").code == 0


def test_people_are_the_unit_where_their_values_come_again(say: Say) -> None:
    said, text = made(say, "orders")
    data = yaml.safe_load(text)
    assert "The name of the field customer_id sounds like people" in said.out
    assert (data["privacy"]["unit"], data["privacy"]["user"]) == ("user", "customer_id")
    assert [series["statistic"] for series in data["series"]][:2] == ["distinct", "count"]
    assert all(series["every"] == "1d" for series in data["series"])
    for old, new in (*DECLARED, (r"# expect", "expect")):
        text = re.sub(old, new, text)
    Path("guessed.yaml").write_text(text)
    verdicts = {row["series"]: row["verdict"] for row in _plan(say, "guessed.yaml")["verdicts"]}
    assert (verdicts["users"], verdicts["events"]) == ("useful", "useful")
    by_event = re.sub(r"(?m)^  (user|max_events|per|expect): .*\n", "", text)
    Path("event.yaml").write_text(by_event.replace("unit: user", "unit: event", 2))
    assert "one event" in say("plan", "event.yaml").out


def _plan(say: Say, file: str) -> Any:
    return json.loads(say("plan", file, "--json").out)


@pytest.mark.parametrize(
    ("columns", "user"),
    [
        ({"session": 40, "userId": 30}, "userId"),  # a session is somebody's
        ({"SessionID": 40}, "SessionID"),
        ({"account": 30, "account no": 30}, "account"),  # the first of two
        ({"customer": 118}, "customer"),  # of very many some come again
        ({"customer": 119}, None),  # hardly anybody does
        ({"customer": 3}, None),  # kinds of customers
        ({"customer": 15}, None),  # few
        ({"user_agent": 40, "member_type": 40, "logins": 40}, None),  # not of people
    ],
)
def test_who_is_the_unit(say: Say, columns: Mapping[str, int], user: str | None) -> None:
    rows = [{name: f"v{n % many}" for name, many in columns.items()} for n in range(120)]
    Path("seen.jsonl").write_text("\n".join(map(json.dumps, rows)))
    said = say("init", "--jsonl", "seen.jsonl")
    text = Path("seen.yaml").read_text()
    assert yaml.safe_load(text)["privacy"].get("user") == user
    assert yaml.safe_load(text)["source"].get("keyed_by") == user
    assert "not replayed" in said.out
    assert "not replayed" in text


def test_dates_are_days_and_the_likelier_time_is_the_clock(say: Say) -> None:
    _, text = made(say, "dated")
    data = yaml.safe_load(text)
    assert data["schema"]["day"] == {"type": "time", "format": "%Y-%m-%d", "zone": "UTC"}
    assert (data["clock"]["field"], data["clock"]["step"]) == ("day", "1d")
    assert 'Records without "User ID" are dead letters' in text


def test_json_lines_have_types_of_their_own(say: Say) -> None:
    rows = [
        {"at": 1714521600000 + n, "seen": f"{n + 1}/03/2026 10:00", "tags": ["a", "b"], "n": n, "x": n / 2, "ok": n > 3,
         "deep": [{"a": 1}],
         "cart": {"rows": [{"sku": "a", "n": 1}, {"sku": "b"}][: n % 3]}, "created": 1714521600 + n / 4,
         "pay": {"total": {"cents": n}, "coupon": "a"} if n % 5 else None,
         "mixed": n if n % 2 else "n", "code": f"{n % 2}"} | ({f"key {n}": 1} if n == 7 else {})
        for n in range(30)
    ]  # fmt: skip
    Path("events.jsonl").write_text("\n".join(map(json.dumps, rows)))
    said = say("init", "--jsonl", "events.jsonl")
    text = Path("events.yaml").read_text()
    fields = yaml.safe_load(text)["schema"]
    assert {name: field["type"] for name, field in fields.items()} == {
        "at": "time", "seen": "time", "tags": "list", "n": "integer", "x": "number", "ok": "boolean",
        "code": "category", "pay.total.cents": "integer", "pay.coupon": "category", "cart.rows[].sku": "list",
        "created": "time",
    }  # fmt: skip
    assert fields["pay.total.cents"] == {
        "type": "integer",
        "path": "pay.total.cents",
        "nullable": True,
    }
    assert fields["cart.rows[].sku"]["path"] == "cart.rows[].sku"
    assert fields["at"]["format"] == "epoch_ms"
    assert fields["created"]["format"] == "epoch_float"
    assert fields["seen"]["format"] == "%d/%m/%Y %H:%M"
    assert "does the day or the month come first?" in text
    assert "key 7" not in text + said.out
    assert '# "deep" holds objects or lists: left out' in text
    assert '# "mixed" holds values of several types: left out' in text
    assert "left out: 1 name that few records have" in said.out
    assert "declare the most of tags" in say("plan", "events.yaml").err


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ((), "name a sample"),
        (("--csv", "nowhere.csv"), "no such file"),
        (("--csv", "a.txt"), "must end in .csv"),
        (("--csv", "empty.csv"), "the sample holds no record"),
        (("--topic", "t"), "where is Kafka?"),
    ],
)
def test_bad_samples_are_refused(say: Say, arguments: tuple[str, ...], wrong: str) -> None:
    Path("empty.csv").write_text("a,b\n")
    said = say("init", *arguments)
    assert said.code == 2
    assert wrong in said.err
    assert list(Path().glob("*.yaml")) == []


@pytest.mark.parametrize(
    ("name", "values", "cells", "kind"),
    [
        ("a", ["1", "-2"], True, "integer"),
        ("a", ["1", "2.5", "1e3"], True, "number"),
        ("a", ["01", "02"] * 9, True, "category"),
        ("a", ["TRUE", "false"], True, "boolean"),
        ("a", ["x", "y", "z"], True, "text"),
        ("email", ["x"] * 9, True, "text"),
        ("price", [1714521600] * 3, False, "integer"),
        ("ts", [1714521600] * 3, False, "time"),
        ("timestamp", ["881250949", "891717742"], True, "time"),
        ("timestamp", ["88125094", "1"], True, "integer"),
        ("a", [["x"], []], False, "list"),
        ("a", [["x"], [1]], False, ""),
        ("a", [1, "x"], False, ""),
        ("a", ["9" * 400, "1"], True, "text"),
        ("a", ["x", "y", "x|y", "y|x", "z|x|y", "z"] * 3, True, "list"),
        ("a", [f"{n},{m}" for n in range(9) for m in range(9)], True, "number"),
        ("a", [f"{n},{m}" for n in range(9) for m in range(100, 109)], True, "text"),
        ("a", ["x;y", "u;v", "x", "z"] * 9, True, "category"),
        ("user", ["x", "y", "x;y", "y;x", "z;x;y", "z"], True, "text"),
        ("a", ["1"] * 19 + ["n/a"], True, "integer"),
        ("a", ["1"] * 18 + ["n/a"], True, "category"),
        ("a", ["2024-05-01T00:00:00Z"] * 19 + ["2024-05-01"], True, "time"),
    ],
)
def test_types(name: str, values: list[object], cells: bool, kind: str) -> None:
    assert Column(name, len(values), values).proposal(cells=cells).type == kind
