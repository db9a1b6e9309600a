"""Records are examined: hints of `check`, lists in cells, whom a record names, and what a replay refuses beforehand."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from oracles.user_caps import Event
from unit.pipeline.routing.user_worlds import KEYED, PIPELINE, payload, specification

from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_relations import MovedRows, event
from stream_dp.errors import NotDerivable, UsageError
from stream_dp.files.records import Record, each_record
from stream_dp.journal.dead_letters import UNREADABLE_BATCH, Span
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.sample import SampledBatch
from stream_dp.kafka.client.tick_marks import TickMarks
from stream_dp.kafka.source.record_batches import Unpacked
from stream_dp.operate import check_pipeline
from stream_dp.operate.audit.attack import attack
from stream_dp.operate.check_pipeline import require_fitting
from stream_dp.operate.fitting import (
    UNSIGNED,
    Fitting,
    Hint,
    Piece,
    Reason,
    Sample,
    _marked,
    file_sample,
    fitting_of,
)
from stream_dp.operate.replay_feed import examine
from stream_dp.operate.run.settings import settled
from stream_dp.operate.sampled_rows import out_of_order, rows_of
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_homes import PARTITIONERS
from stream_dp.pipeline.yaml import load
from stream_dp.records.cells import KeyAndHeaders, joined
from stream_dp.records.endpoints import ReplayClock
from stream_dp.statistics.alerts import AlertsSeries

GOOD: dict[str, Any] = {
    "time": "2024-05-01T00:30:00Z", "page": "home", "size": 3, "part": 0.5, "paid": True, "who": "one",
}  # fmt: skip
HIDDEN = "secret-of-a-record"


def spec(tmp_path: Path, clock: str = "replay", form: str = "iso", **size: object) -> PipelineSpec:
    replay = {
        "kind": "replay", "field": "time", "start": "2024-05-01T00:00:00Z", "step": "1h", "horizon": 6,
    }  # fmt: skip
    made = PipelineSpec.model_validate(
        {
            "version": 1,
            "name": "clicks",
            "source": {"kind": "kafka", "topic": "t", "bootstrap": "127.0.0.1:9092"},
            "schema": {
                "time": {"type": "time", "format": form},
                "page": {"type": "category", "domain": ["home", "help"]},
                "size": {"type": "integer", **size},
                "part": {"type": "number"},
                "paid": {"type": "boolean"},
                "who": {"type": "text"},
                "unused": {"type": "integer"},
            },
            "privacy": {"epsilon": 1},
            "clock": replay if clock == "replay" else {"kind": "wall", "step": "1s"},
            "series": [
                {
                    "name": "by_page", "statistic": "histogram", "by": "page", "method": "tree", "epsilon": 1,
                    "where": [
                        {"field": "size", "at_least": 0}, {"field": "part", "at_least": 0},
                        {"field": "paid", "equals": True}, {"field": "who", "equals": "one"},
                    ],
                }
            ],
        }
    )  # fmt: skip
    assert isinstance(made, PipelineSpec)
    return made


def of(made: PipelineSpec, *payloads: bytes) -> Fitting:
    return fitting_of(made, Sample("topic t", [Piece(1, payloads, range(7, 7 + len(payloads)))]))


def record(**changes: Any) -> bytes:
    kept = {name: value for name, value in (GOOD | changes).items() if value is not ...}
    return json.dumps(kept).encode()


def test_a_good_record_has_no_hint(tmp_path: Path) -> None:
    for clock in ("replay", "wall"):
        found = of(spec(tmp_path, clock), record())
        assert (found.dead, found.hints, found.reasons) == (0, [], [])


@pytest.mark.parametrize(
    ("changes", "reason", "says"),
    [
        ({"time": "2024-05-01 00:30:00"}, "wrong_type in time", "time: times without an offset"),
        ({"time": 1714523400}, "wrong_type in time", "declare `format: epoch_s`"),
        ({"time": HIDDEN}, "wrong_type in time", "time: texts that are not a time with an offset"),
        ({"time": None}, "wrong_type in time", "time: no time (null)"),
        ({"time": "2024-06-01T00:30:00Z"}, "time_out_of_range in time", "time: after the range"),
        ({"size": "60"}, "wrong_type in size", "size: numbers in quotes"),
        ({"size": HIDDEN}, "wrong_type in size", "size: texts, but numbers are declared"),
        ({"size": "1,5"}, "wrong_type in size", "size: numbers with a comma; write them with a"),
        ({"size": None}, "wrong_type in size", "size: null; declare `nullable: true`"),
        ({"paid": "true"}, "wrong_type in paid", "paid: texts or numbers, but true or false"),
        ({"who": 3}, "wrong_type in who", "who: numbers, or true and false"),
        ({"page": [HIDDEN]}, "wrong_type in page", "page: values of another type than `category`"),
        ({"size": ..., "Size": 3}, "missing_field in size", "size: the records have 'Size'"),
    ],
)
def test_a_mistake_in_a_field(
    tmp_path: Path, changes: dict[str, Any], reason: str, says: str
) -> None:
    found = of(spec(tmp_path), record(), record(**changes))
    assert [(each.name, each.records, each.example) for each in found.reasons] == [
        (reason, 1, "partition 1, offset 8")
    ]
    assert [each.records for each in found.hints] == [1]
    assert says in found.hints[0].says
    assert HIDDEN not in str(found.hints)


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b"", "without a value (tombstones)"),
        (b"\0\0\0\0\x07\x08home\x06", "Confluent's wire format: Avro or Protobuf"),
        (b'\0\0\0\0\x07{"page":"home"}', "Confluent JSON Schema"),
        (b"\xff\xfe", "binary values"),
        (b"home,3", "text that is not JSON"),
        (json.dumps(GOOD).encode().replace(b"home", b"h\xf4me"), "text that is not UTF-8"),
        (b'"{}"', "JSON, but no object"),
    ],
)
def test_a_payload_that_is_no_object(tmp_path: Path, payload: bytes, says: str) -> None:
    found = of(spec(tmp_path, "wall"), payload)
    assert (found.dead, found.wholly_refused) == (1, True)
    assert [says in each.says for each in found.hints] == [True]


@pytest.mark.parametrize(
    ("newest", "oldest", "starts"), [(1, 1, False), (1, 0, True), (0, 1, True)]
)
async def test_marks_of_another_key_alone_begin_no_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: int, oldest: int, starts: bool
) -> None:
    """A feed before `key rotate` made a data key: its marks end no tick, so a run would wait at tick 0 for ever."""
    clock = settled(spec(tmp_path).clock, ReplayClock)
    keys = [TickMarks(bytes([of]) * 32, "t", clock.grid, "f" * 32) for of in (0, 1)]
    good = json.dumps(GOOD).encode()

    def sample(key: int) -> Sample:
        marks = {0: keys[key].sign(0, 0), 2: keys[key].sign(0, 1)}
        records = Unpacked([b"", good, b"", good], [0, 1, 2, 3], [], marks)
        return Sample("topic t", [*_marked(SampledBatch(0, records, 0), keys[0])])

    async def samples(*_: object) -> AsyncIterator[Sample]:
        for key in (newest, oldest):
            yield sample(key)

    monkeypatch.setattr(check_pipeline, "_samples", samples)
    assert [sample(key).unsigned for key in (0, 1)] == [0, 2]
    assert fitting_of(spec(tmp_path), sample(1)).hints[0] == Hint(UNSIGNED, 2)
    assert [hint.says for hint in fitting_of(spec(tmp_path), sample(0)).hints] == []
    refused = pytest.raises(UsageError, match="topic t: its tick marks are signed by another key")
    with nullcontext() if starts else refused:
        await require_fitting(spec(tmp_path), Sealer(bytes(32), "clicks"))


def test_what_no_reader_can_read_and_what_is_late(tmp_path: Path) -> None:
    """Marks count within the sample; a batch that cannot be unpacked is as many records as its header says."""
    late, soon = record(), record(time="2024-05-01T02:30:00Z")
    pieces = [
        Piece(0, [late], [1], mark=1),
        Piece(0, [late, soon], [3, 4], [Span(UNREADABLE_BATCH, None, 5, 9)]),
        Piece(1, [late], [1]),
    ]
    found = fitting_of(spec(tmp_path), Sample("topic t", pieces))
    assert (found.records, found.late, found.dead) == (9, 1, 5)
    assert [(each.name, each.records, each.example) for each in found.reasons] == [
        ("unreadable_batch", 5, "partition 0, offset 5")
    ]


def test_values_outside_of_the_domain(tmp_path: Path) -> None:
    found = of(spec(tmp_path), record(page="Home "), record(page=HIDDEN), record())
    assert (found.dead, found.other) == (0, 2)
    (hint,) = found.hints
    assert "differ from the domain only in upper and lower case" in hint.says
    assert HIDDEN not in hint.says


@pytest.mark.parametrize(
    ("time", "says"),
    [
        ("2024-05-01T00:30:00Z", "texts, but `format: epoch_ms` is declared"),
        (1714523400, "in the clock's range if `format: epoch_s` is declared"),
        (1714523400000000, "in the clock's range if `format: epoch_us` is declared"),
    ],
)
def test_another_form_of_time_is_recognized(tmp_path: Path, time: object, says: str) -> None:
    found = of(spec(tmp_path, form="epoch_ms"), record(time=time))
    assert says in found.hints[0].says


KAFKA = {"source": KEYED, "journal": {"kind": "kafka"}, "releases": None}


def of_user(user: str | None) -> bytes:
    return json.dumps({"time": 0, "customer": user, "key": "a"}).encode()


def piece(partition: int, *users: str | None) -> Piece:
    return Piece(partition, [of_user(user) for user in users], range(len(users)))


def test_who_names_nobody_could_not_be_used() -> None:
    sample = Sample("events.jsonl", [piece(0, "ann", None, *["bob"] * 9)], lines=True)
    found = fitting_of(specification(), sample)
    assert [(each.name, each.records, each.example) for each in found.reasons] == [
        ("wrong_type in customer", 1, "line 1")
    ]
    says = "a record without a user cannot be counted: write the user into the record, or leave such records out"
    assert [each.says for each in found.hints] == [f"customer: null; {says}"]
    absent = Piece(0, [b'{"time": 0, "key": "a"}', of_user("ann")], range(2))
    (hint,) = fitting_of(specification(), Sample("topic t", [absent])).hints
    assert hint.says == f"customer: absent; {says}"


@pytest.mark.parametrize(
    ("path", "nullable", "says"),
    [
        ("pay.cents", False, ["inside of something that is null or not an object; declare `nullable: true` if the "
        "field may be missing"]),
        ("pay.cents", True, []),
        ("pay.Cents", True, ["the records have 'cents'; did you mean that?", "absent; no record has `pay.Cents`"]),
        ("Pay.cents", True, ["the records have 'pay'; did you mean that?"]),
        ("price.sum", True, ["absent; no record has `price.sum`: check its name or its `path:`"]),
        ("price.sum", False, ["absent; no record has `price.sum`: check its name or its `path:`"]),
    ],
)  # fmt: skip
def test_a_path_that_leads_nowhere(
    tmp_path: Path, path: str, nullable: bool, says: list[str]
) -> None:
    """A nullable field would be null in every record, and nothing else would show it."""
    payloads = [record(pay={"cents": 3}), record(pay=None)]
    found = of(spec(tmp_path, path=path, nullable=nullable), *payloads)
    assert len(found.hints) == len(says)
    for hint, begins in zip(found.hints, says, strict=True):
        assert hint.says.startswith(f"size: {begins}")


@pytest.mark.parametrize(
    ("field", "headers", "says"),
    [
        ({"from_header": "n"}, [("n", b"3")], []),
        (
            {"from_header": "m"},
            [("n", b"3")],
            ["absent; no record has header `m`: check its name"],
        ),
        ({"from_key": True}, [("n", b"3")], ["absent; no record has a key: check `from_key`"]),
        ({"from_header": "n"}, [("n", b"x")], ["texts, but numbers are declared"]),
        ({"from_header": "n"}, [("n", b"3.0")], ["numbers that are not whole (12.5)"]),
    ],
)
def test_a_header_that_is_not_there_or_does_not_convert(
    tmp_path: Path, field: dict[str, Any], headers: list[tuple[str, bytes]], says: list[str]
) -> None:
    declared = spec(tmp_path, **field)
    beside = KeyAndHeaders(declared.fields)
    found = of(declared, *[joined(record(size="?"), beside.members(None, headers))] * 3)
    assert len(found.hints) == len(says)
    for hint, begins in zip(found.hints, says, strict=True):
        assert (hint.says.startswith(f"size: {begins}"), hint.records) == (True, 3)


def test_entries_of_a_list_of_objects_have_their_hints(tmp_path: Path) -> None:
    listed = {"type": "list", "domain": ["a", "b"], "most": 2, "path": "rows[].sku"}
    made = PipelineSpec.model_validate(
        spec(tmp_path).model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"fields", "series"})
        | {"schema": {"time": {"type": "time"}, "skus": listed},
           "series": [{"name": "s", "statistic": "histogram", "by": "skus", "method": "tree", "epsilon": 1}]}
    )  # fmt: skip
    rows = [[{"sku": "a"}], [{"sku": "A"}], [{}], [{"sku": 5}], [{"sku": "a"}] * 3, None]
    found = of(made, *[record(rows=each) for each in rows])
    assert found.dead == 4
    assert {hint.says for hint in found.hints} == {
        "skus: values that differ from the domain only in upper and lower case or in spaces count as `other`",
        "skus: a list with an entry that has no `rows[].sku`; declare `nullable: true` if the field may be missing",
        "skus: lists with entries that are not texts",
        "skus: lists with more than 2 entries; a larger `most:` accepts them, but adds noise to all numbers",
        "skus: null; declare `nullable: true` if the field may be missing",
    }


def homes(partitioner: str) -> list[Piece]:
    """Records of twenty users, where producers of this kind put them in three partitions."""
    users = [f"user {number}" for number in range(20)]
    found = (PARTITIONERS[partitioner]([user.encode() for user in users]) % 3).tolist()
    return [piece(n, *(u for u, at in zip(users, found, strict=True) if at == n)) for n in range(3)]


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
def test_producers_that_place_users_otherwise_than_declared_are_found(partitioner: str) -> None:
    """A guard that was begun for each piece alone took every partition for everybody's."""
    declared = KAFKA | {"source": KEYED | {"partitioner": partitioner}}
    other = {"murmur2": "crc32", "crc32": "murmur2"}[partitioner]
    right = Sample("topic t", homes(partitioner), partitions=range(3))
    assert fitting_of(specification(**declared), right).dead == 0
    wrong = fitting_of(
        specification(**declared), Sample("topic t", homes(other), partitions=range(3))
    )
    assert [each.name for each in wrong.reasons] == ["wrong_partition in customer"]
    assert wrong.dead > 5
    says = {each.says: each.records for each in wrong.hints}
    hint = f"records are in the partitions in which `partitioner: {other}` puts their users; declare it in `source:`"
    assert says[hint] == wrong.dead


def test_partitions_that_say_nothing_of_users_are_refused() -> None:
    sample = Sample("topic t", [piece(0, "ann")], partitions=(0, 1))
    with pytest.raises(UsageError, match=r"source\.keyed_by: customer"):
        fitting_of(specification(), sample)


BASKETS = """\
version: 1
name: baskets
source: {{kind: file, path: baskets.csv}}
schema:
  time: {{type: time}}
  items: {{type: list, domain: [beer, bread, milk], most: {most}{more}}}
privacy: {{epsilon: 10, neighbors: {neighbors}{moves}}}
clock: {{kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: 4}}
series:
  - {{name: items, statistic: histogram, by: items, method: tree, epsilon: 1}}
  - {{name: with_milk, statistic: count, epsilon: 1, where: [{{field: items, contains: milk}}]}}
  - {{name: largest, statistic: maximum, by: items, epsilon: 1, expected_events: 100}}
  - {{name: busy, statistic: alerts, by: items, threshold: 50, epsilon: 1}}
  - {{name: sparse, statistic: histogram, by: items, method: hss, expected_events: 100, epsilon: 1}}
"""
WITHIN = ", moves: within_tick"
AT_HALF = "2026-01-01T00:30:00Z"


def baskets(
    folder: Path, *, most: int = 2, neighbors: str = "add_remove", moves: str = "", more: str = ""
) -> Path:
    path = folder / "baskets.yaml"
    path.write_text(BASKETS.format(most=most, neighbors=neighbors, moves=moves, more=more))
    return path


def fitted(folder: Path, file: Path, more: str = ', separator: "|"') -> Fitting:
    spec = load(baskets(folder, more=more))
    return fitting_of(spec, file_sample(spec, file, 100))


def cells_of(folder: Path, *cells: str) -> Path:
    path = folder / "baskets.csv"
    path.write_text("time,items\n" + "".join(f"{AT_HALF},{cell}\n" for cell in cells))
    return path


def lists_of(folder: Path, path: Path, more: str = ', separator: "|"') -> list[Any]:
    """The items of each record of a file, as JSON has them."""
    spec = load(baskets(folder, more=more))
    found = each_record(path, spec.fields, "time", spec.own_times)
    return [json.loads(record.payload)["items"] for record in found]


def test_a_cell_of_csv_holds_a_list_where_a_separator_is_declared(tmp_path: Path) -> None:
    path = cells_of(tmp_path, "milk|beer", "milk", "", "ham|", '"a,b|milk"')
    lists = [["milk", "beer"], ["milk"], [], ["ham", ""], ["a,b", "milk"]]
    assert lists_of(tmp_path, path) == lists
    assert lists_of(tmp_path, path, "") == ["milk|beer", "milk", None, "ham|", "a,b|milk"]


def test_check_counts_lists_and_says_what_is_wrong_with_some(tmp_path: Path) -> None:
    found = fitted(
        tmp_path, cells_of(tmp_path, "milk|beer", "", "milk|ham", "milk|beer|bread", "Milk")
    )
    assert [(each.name, each.records) for each in found.reasons] == [
        ("too_many_entries in items", 1)
    ]
    (items,) = (fit for fit in found.fields if fit.name == "items")
    assert (items.type, items.fits, items.wrong, items.other) == ("list", [0, 1, 2, 4], [3], [2, 4])
    assert [each.says for each in found.hints] == [
        "items: lists with more than 2 entries; a larger `most:` accepts them, but adds noise to all numbers",
        "items: values that differ from the domain only in upper and lower case or in spaces count as `other`",
    ]


@pytest.mark.parametrize(
    ("most", "neighbors", "moves", "l0"),
    [
        (2, "add_remove", "", 2),
        (9, "add_remove", "", 4),
        (1, "replace", WITHIN, 2),
        (2, "replace", WITHIN, 4),
        (2, "replace", "", 2),
    ],
)
def test_every_statistic_pays_for_what_one_event_may_set(
    tmp_path: Path, most: int, neighbors: str, moves: str, l0: int
) -> None:
    """Where a replacement may move to another tick, the mechanism is one for add_remove at half the epsilon."""
    built = build(load(baskets(tmp_path, most=most, neighbors=neighbors, moves=moves)))
    items, milk, _, busy, _ = (chosen.mechanism for chosen in built.chosen)
    share = 2 if built.spec.relation is Neighbors.REPLACE_ANY_TICK else 1
    assert 1 / items.unit_epsilon == busy.scale == share * l0  # type: ignore[attr-defined]
    assert 1 / milk.unit_epsilon == share  # type: ignore[attr-defined]
    ones = min(most, 4)
    assert [each.mechanism.rows.ones for each in built.chosen] == [ones, 1, *[ones] * 3]
    relations = {chosen.derivation.guarantee.neighbors for chosen in built.chosen}
    assert relations == {built.spec.relation}
    if share == 2:
        assert isinstance(event(built.spec.relation, 4, items.rows.ones), MovedRows)


@pytest.mark.parametrize(("neighbors", "moves"), [("add_remove", ""), ("replace", WITHIN)])
def test_the_audit_plays_whole_lists(tmp_path: Path, neighbors: str, moves: str) -> None:
    """Every game is one of neighbours, or it would be halted; a right claim is refuted with probability 1e-7."""
    path = baskets(tmp_path, most=3, neighbors=neighbors, moves=moves)
    found = attack(path, runs=200, ticks=2, confidence=0.9999999)
    assert [each.name for each in found.series] == [
        "items",
        "with_milk",
        "largest",
        "busy",
        "sparse",
    ]
    assert found.refuted == []


def test_a_mechanism_for_one_entry_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = AlertsSeries.choose

    def forgetful(series: Any, setting: Any) -> Any:
        alone = type(setting)(setting.width, setting.neighbors, setting.horizon, 0.95)
        return choose(series, alone)

    monkeypatch.setattr(AlertsSeries, "choose", forgetful)
    build(load(baskets(tmp_path, most=1)))
    with pytest.raises(
        NotDerivable, match=r"busy: one event may set 2 .*, but Alerts is made for 1"
    ):
        build(load(baskets(tmp_path)))


REPLAY = {"kind": "replay", "field": "time", "start": 0, "step": 1000, "horizon": 10}
USABLE, BAD = b'{"time":5,"shop":"a","unused":"x"}', b'{"time":5,"shop":7}'


def replayed(**changed: object) -> PipelineSpec:
    by_shop = {
        "name": "by",
        "statistic": "histogram",
        "by": "shop",
        "method": "tree",
        "epsilon": "1",
    }
    made = {
        "version": 1,
        "name": "shops",
        "source": {"kind": "kafka", "topic": "shops", "bootstrap": "127.0.0.1:9092"},
        "schema": {
            "time": {"type": "time", "format": "epoch_ms"},
            "shop": {"type": "category", "domain": ["a"]},
            "unused": {"type": "integer"},
        },
        "privacy": {"epsilon": "1"},
        "clock": REPLAY,
        "series": [by_shop],
    }
    return PipelineSpec.model_validate(made | changed)


def lines_of(*payloads: bytes) -> list[Record]:
    return [Record(line, 5, payload) for line, payload in enumerate(payloads, 1)]


def test_reasons_fields_numbers_and_the_first_line() -> None:
    payloads = [USABLE, BAD, b"{", b'{"shop":"a"}', b'{"time":-1,"shop":"a"}', BAD, b"[]", USABLE]
    found = examine(replayed(), lines_of(*payloads))
    assert [record.line for record in found.good] == [1, 8]
    assert found.bad == [
        Reason("wrong_type", "shop", 2, "line 2"),
        Reason("not_json", None, 1, "line 3"),
        Reason("missing_field", "time", 1, "line 4"),
        Reason("time_out_of_range", "time", 1, "line 5"),
        Reason("wrong_type", None, 1, "line 7"),
    ]
    assert found.refused == 6
    said = list(found.report(replayed(), Path("folder/data.csv")))
    assert said[0] == "NOT PRIVATE: shops cannot use 6 of the 8 records of data.csv:"
    assert said[1:3] == [
        "  wrong_type in shop: 2, the first in line 2",
        "  not_json: 1, the first in line 3",
    ]


@pytest.mark.parametrize(
    ("declared", "hint"),
    [
        (
            {},
            "a time needs an offset, or the schema must declare its `zone:`, or the `format:` of its numbers",
        ),
        ({"format": "epoch_ms"}, "a time is a whole number, as `format:` says, and never null"),
    ],
)
def test_the_hint_does_not_ask_for_what_is_declared(declared: dict[str, str], hint: str) -> None:
    shop = {"type": "category", "domain": ["a"]}
    made = replayed(schema={"time": {"type": "time", **declared}, "shop": shop})
    _, said = examine(made, lines_of(b'{"time":null,"shop":"a"}')).report(made, Path("data.csv"))
    assert said == f"  wrong_type in time: 1, the first in line 1 ({hint})"


def test_a_record_that_names_no_user_is_a_dead_letter() -> None:
    user = {"unit": "user", "user": "unused", "overall": "1", "epsilon": "1"}
    known = b'{"time":5,"shop":"a","unused":3}'
    nobody = b'{"time":5,"shop":"a"}'
    found = examine(replayed(privacy=user), lines_of(known, nobody, known))
    assert found.bad == [Reason("missing_field", "unused", 1, "line 2")]
    assert len(found.good) == 2  # also beyond the cap, which is not the record's fault


def test_a_sample_of_users_with_shared_totals_is_counted() -> None:
    """Where no guard has limited it, each record adds all that it has; a total that no series shares is not read."""
    totals = [
        {"of": "amount", "clamp": ["0", "2"], "at_most": "3"},
        {"of": "pieces", "clamp": ["0", "9"], "at_most": "9"},
    ]
    own = {"of": "amount", "clamp": ["0", "2"], "shared_total": "true", "epsilon": "1"}
    series = [
        {"name": "sum", "statistic": "sum", **own},
        {"name": "mean", "statistic": "mean", **own},
    ]
    made = specification(
        schema=PIPELINE["schema"] | {"pieces": {"type": "integer"}},
        privacy=PIPELINE["privacy"] | {"totals": totals},
        series=series,
    )

    def sampled(ticks: Sequence[int]) -> Sample:
        records = [payload(Event("u", tick, "c")) for tick in ticks]
        return Sample("a file", [Piece(0, records, range(len(ticks)))])

    assert out_of_order(made, sampled((3, 3, 0, 0)))
    sample = sampled((3, 3, 3, 5))  # of the last tick it may have a part
    assert rows_of(made, sample, guarded=False).rows.sum(axis=0).tolist() == [6, 6, 3]
    assert rows_of(made, sample).rows.sum(axis=0).tolist() == [3, 2, 1]
