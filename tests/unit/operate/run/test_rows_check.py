"""The test vectors of docs/rows.md, and what `stream-dp rows check` says of logs that are right and of broken ones.

The vectors are read by a reader that was written from the page alone. This file run as a program writes them anew; that
changes the form of what workers of other versions read, so read docs/formats.md before you commit it:

    PYTHONPATH=tests python tests/unit/operate/run/test_rows_check.py
"""

import base64
import hashlib
import hmac
import json
import zlib
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from typer.testing import CliRunner

from stream_dp.cli.main import app
from stream_dp.engine.lanes import rows as form
from stream_dp.engine.lanes.rows import (
    COUNTING,
    LAYOUT,
    ROW,
    Cells,
    LaneRow,
    Layout,
    Stamp,
    encoded,
)
from stream_dp.errors import FailClosed, UsageError
from stream_dp.journal.keys import Sealer, write_private
from stream_dp.operate.run.hosted import LaneHost, Pair, RawRecord
from stream_dp.operate.run.rows_check import MOST, check_rows
from stream_dp.pipeline.fingerprints import fingerprint, text_of
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.yaml import load

FOLDER = Path(__file__).parents[3] / "fixtures" / "rows"
KEY = bytes(range(32))
ORIGIN = 1_700_000_000_000
PIPELINE = """version: 1
name: vectors
source: {kind: kafka, topic: events, bootstrap: "nowhere:9092", workers: {lanes: 2}}
schema: {key: {type: category, domain: [a, b, d, e, f, g, h, i, j, k, l, m]}}
privacy: {unit: event, epsilon: 2}
clock: {kind: wall, step: 1s, delay: 2s}
series:
  - {name: all, statistic: count, epsilon: 1}
  - {name: by_key, statistic: histogram, by: key, epsilon: 1}
"""
SOURCE: dict[int, list[tuple[int, str | None]]] = {
    0: [(0, '{"key": "a"}'), (400, '{"key": "b"}'), (900, "junk"), (1100, '{"key": "a"}'), (3500, '{"key": "c"}'),
        (2100, '{"key": "a"}'), (1400, '{"key": "b"}'), (6100, '{"key": "a"}'), (6200, '{"key": "b"}'), (8600, "junk")],
    1: [(100, None), (2200, '{"key": 7}'), (4900, '{"key": "b"}'), (6300, '{"key": "b"}'), (8700, '{"key": "a"}')],
}  # fmt: skip
"""By partition: when a record came, in ms after the origin, and its value."""
FIRST = {0: 8, 1: 4}
"""So many of them come before the second layout, which counts those with key b, and no longer all, from tick 5 on."""
ADDED = b"{name: bs, statistic: count, epsilon: 1/10, where: [{field: key, equals: b}]}"


def made() -> tuple[LaneHost, list[Pair], dict[int, list[Pair]]]:
    """The layout, and the rows of both lanes, as the product makes them of these records."""
    path = FOLDER / "pipeline.yaml"
    spec, keys = load(path), Sealer(KEY, "vectors").worker_keys()
    width = OpenRouter(spec, ORIGIN, None, keys.users).width
    layout = Layout(
        fingerprint(spec), COUNTING, 2, 0, 0, ORIGIN, (0, 1), "id of the source", "id of the rows", width, {0: 0, 1: 0},
        file=zlib.compress(zlib.decompress(text_of(spec)), 0),  # the same bytes by any zlib
    )  # fmt: skip
    host, rows = LaneHost(spec, keys, layout), dict[int, list[Pair]]()
    layouts = [laid(host)]
    for number in (0, 1):
        lane = host.lane(number)
        lane.begin({number: 0})
        lane.feed(number, raw_of(number)[: FIRST[number]])
        rows[number] = list(lane.rows())
    return host, layouts, rows


def laid(host: LaneHost) -> Pair:
    layout = host.layout
    stamp = Stamp(LAYOUT, -1, layout.tick, layout.epoch)
    headers, value = host.sealer.record(stamp, encoded(layout))
    return (*headers, ("part", b"0"), ("parts", b"1")), value


def made_on(former: LaneHost, rows: dict[int, list[Pair]]) -> LaneHost:
    """The host of the second layout, whose rows follow those of the first one in the log."""
    width = former.layout.width
    layout = msgspec.structs.replace(
        former.layout, epoch=1, tick=5, width=width + 1, places={0: 5, 1: 5}, positions={0: 7, 1: 3},
        added=((width, (5, "", ADDED)),), muted=((0, 1),),
    )  # fmt: skip
    host = LaneHost(former.spec, former.keys, layout)
    for number in (0, 1):
        lane = host.lane(number)
        places = lane.begin({number: 0})
        lane.feed(number, raw_of(number)[places[number] :])
        rows[number] += lane.rows()
    return host


def raw_of(partition: int) -> list[RawRecord]:
    return [
        RawRecord(offset, None if value is None else value.encode(), ORIGIN + came)
        for offset, (came, value) in enumerate(SOURCE[partition])
    ]


def line(log: str, partition: int, offset: int, pair: Pair) -> str:
    headers = {name: text.decode() for name, text in pair[0]}
    value = base64.b64encode(pair[1]).decode()
    return json.dumps(
        {"log": log, "partition": partition, "offset": offset, "headers": headers, "value": value}
    )


def lines_of(layouts: list[Pair], rows: dict[int, list[Pair]]) -> list[str]:
    return [
        *(line("layout", 0, at, pair) for at, pair in enumerate(layouts)),
        *(
            line("rows", lane, at, pair)
            for lane, log in rows.items()
            for at, pair in enumerate(log)
        ),
    ]


def vectors() -> dict[str, str]:
    """What the files of the folder hold; nonces are numbers here, for equal files."""
    numbers = count(1)
    seed, form.fresh_seed = form.fresh_seed, lambda: next(numbers).to_bytes(32)  # type: ignore[attr-defined]
    try:
        host, layouts, rows = made()
        now = made_on(host, rows)
        layouts.append(laid(now))
    finally:
        form.fresh_seed = seed  # type: ignore[attr-defined]
    keys = host.keys
    plains = {
        str(lane): [host.sealer.row(lane, form.Sealed(tuple(h), v))[1].hex() for h, v in log]
        for lane, log in rows.items()
    }
    told = {
        "pipeline": "vectors", "data_key": KEY.hex(), "rows_key": keys.rows.hex(), "origin": ORIGIN,
        "source": {str(at): [[ORIGIN + came, value] for came, value in log] for at, log in SOURCE.items()},
        "layouts": [encoded(each.layout).hex() for each in (host, now)], "rows": plains,
    }  # fmt: skip
    return {
        "pipeline.yaml": PIPELINE,
        "plain.json": json.dumps(told, indent=1) + "\n",
        "rows.jsonl": "\n".join(lines_of(layouts, rows)) + "\n",
    }


def test_the_vectors_are_those_that_the_code_makes() -> None:
    for name, text in vectors().items():
        assert (FOLDER / name).read_text() == text, name


class Page:
    """A reader, from docs/rows.md alone: the standard library, AES-GCM and MessagePack."""

    def __init__(self) -> None:
        self.told = json.loads((FOLDER / "plain.json").read_text())
        data_key, name = bytes.fromhex(self.told["data_key"]), self.told["pipeline"]
        self.name = name
        self.key = hmac.digest(data_key, f"stream-dp rows\n{name}".encode(), "sha256")

    def opened(self, headers: dict[str, str], value: bytes) -> bytes:
        place = "/".join(headers[name] for name in ("kind", "lane", "tick", "epoch"))
        bound = value[:1] + f"stream-dp/rows/{self.name}/{place}".encode()
        padded = AESGCM(self.key).decrypt(value[1:13], value[13:], bound)
        return padded[4 : 4 + int.from_bytes(padded[:4], "big")]

    def cells(self, cells: list[Any]) -> list[int]:
        kind, width, places, counts = cells
        assert kind == "cells"
        if not counts:
            return [0] * width
        size = len(counts) // (len(places) // 4 or width)
        numbers = [
            int.from_bytes(counts[at : at + size], "little", signed=True)
            for at in range(0, len(counts), size)
        ]
        where = [int.from_bytes(places[at : at + 4], "little") for at in range(0, len(places), 4)]
        sparse = dict(zip(where or range(width), numbers, strict=True))
        return [sparse.get(at, 0) for at in range(width)]


def test_a_reader_of_the_page_alone_reads_the_vectors() -> None:
    page = Page()
    assert page.key.hex() == page.told["rows_key"]
    logs: dict[int, list[bytes]] = {}
    layouts = list[Any]()
    for text in (FOLDER / "rows.jsonl").read_text().splitlines():
        said = json.loads(text)
        plain = page.opened(said["headers"], base64.b64decode(said["value"]))
        if said["log"] == "layout":
            assert plain.hex() == page.told["layouts"][len(layouts)]
            layout = msgspec.msgpack.decode(plain, strict=False)
            assert layout["kind"] == "layout"
            assert {"schema", "series"} <= json.loads(zlib.decompress(layout["file"])).keys()
            layouts.append((layout, hashlib.sha256(plain).digest()))
            continue
        logs.setdefault(said["partition"], []).append(plain)
    entries: dict[int, list[list[int]]] = {0: [], 1: []}
    (first, _), (second, _) = layouts
    assert (first["added"], first["muted"]) == ([], [])
    assert (second["added"], second["muted"]) == ([[14, [5, "", ADDED]]], [[0, 1]])
    assert [second[name] for name in ("epoch", "tick", "width")] == [1, 5, 15]
    for lane, plains in logs.items():
        assert [plain.hex() for plain in plains] == page.told["rows"][str(lane)]
        for tick, plain in enumerate(plains):
            row = msgspec.msgpack.decode(plain, strict=False)
            assert len(row) == 21
            layout, before = layouts[row[5]]
            assert row[:5] == ["row", layout["fingerprint"], layout["counting"], lane, tick]
            end = {at: place for at, place in layout["positions"].items() if at == lane}
            if tick > layout["tick"]:
                former = msgspec.msgpack.decode(plains[tick - 1], strict=False)
                before, end = hashlib.sha256(plains[tick - 1]).digest(), former[8]
            assert row[5] == (tick >= second["tick"])
            assert row[6:8] == [before, end]
            assert row[11][1] == layout["width"]
            entries[lane].append(
                [
                    *(page.cells(row[11])[at] for at in (0, 1, 2, 13)),
                    sum(page.cells(row[11])[14:]),
                    row[14],
                    row[15],
                    sum(d[4] for d in row[13]),
                ]
            )
    # by hand, from SOURCE and the page: all, a, b, other, bs; then records, late and dead ones of the row
    nothing = [0] * 8
    assert entries[0] == [
        [2, 1, 1, 0, 0, 3, 0, 1], [1, 1, 0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 3, 1, 0], [1, 0, 0, 1, 0, 0, 0, 0], nothing,
        [0, 0, 0, 0, 0, 2, 0, 0], [0, 1, 1, 0, 1, 0, 0, 0],
    ]  # fmt: skip
    assert entries[1] == [
        [0, 0, 0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0, 1], nothing, [0, 0, 0, 0, 0, 1, 0, 0], [1, 0, 1, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 1, 0, 0], [0, 0, 1, 0, 1, 0, 0, 0],
    ]  # fmt: skip
    sparse = ["cells", 14, b"\0\0\0\0\2\0\0\0", b"\1\1"]
    assert [row_at(logs[1], tick)[12] for tick in (3, 4)] == [{4: sparse}, {}]


def row_at(plains: list[bytes], tick: int) -> Any:
    return msgspec.msgpack.decode(plains[tick], strict=False)


class Log:
    """The vectors' log, as a file that tests change."""

    def __init__(self, folder: Path) -> None:
        self.host, self.layouts, self.rows = made()
        self.file, self.key = folder / "rows.jsonl", folder / "worker.key"
        write_private(self.key, self.host.keys.line)

    def row(self, lane: int, tick: int) -> LaneRow:
        headers, value = self.rows[lane][tick]
        return self.host.sealer.row(lane, form.Sealed(tuple(headers), value))[0]

    def sealed(self, row: LaneRow, **stamped: int) -> Pair:
        stamp = {"lane": row.lane, "tick": row.tick, "epoch": row.epoch} | stamped
        return self.host.sealer.record(Stamp(ROW, **stamped_in(stamp)), encoded(row))

    def written(self) -> Path:
        self.file.write_text("\n".join(lines_of(self.layouts, self.rows)))
        return self.file

    def wrong(self) -> list[tuple[int, int, str]]:
        checked = check_rows(str(self.written()), FOLDER / "pipeline.yaml", self.key)
        assert all(finding.topic == "vectors.private.rows" for finding in checked.findings)
        return [finding[1:] for finding in checked.findings]


def stamped_in(stamp: dict[str, int]) -> Any:
    return {name: stamp[name] for name in ("lane", "tick", "epoch")}


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def command(log: Log, *options: str) -> Any:
    given = ["rows", "check", str(log.written()), "--pipeline", str(FOLDER / "pipeline.yaml")]
    return CliRunner().invoke(app, [*given, "--key-file", str(log.key), *options])


def test_a_right_log_is_right_and_its_check_tells_nothing_exact(log: Log) -> None:
    log.rows[0].insert(2, log.rows[0][1])
    ended = command(log)
    assert ended.exit_code == 0
    assert ended.output.splitlines() == [
        "lane 0: ticks 0 to 4 count; 1 equal repeat (harmless)", "lane 1: ticks 0 to 4 count"
    ]  # fmt: skip
    said = json.loads(command(log, "--json").output)
    assert (said["findings"], said["wrong"]) == ([], 0)


def test_a_wrong_log_ends_with_4_and_a_place(log: Log) -> None:
    del log.rows[1][1]
    ended = command(log)
    assert isinstance(ended.exception, FailClosed)
    assert (
        "vectors.private.rows, partition 1, offset 1: it has tick 2, but tick 1 should come before it"
        in ended.output
    )


def changed(lane: int, tick: int, **change: Any) -> Callable[[Log], None]:
    def change_it(log: Log) -> None:
        log.rows[lane][tick] = log.sealed(msgspec.structs.replace(log.row(lane, tick), **change))

    return change_it


def repeated(lane: int, tick: int, **change: Any) -> Callable[[Log], None]:
    def repeat(log: Log) -> None:
        row = msgspec.structs.replace(log.row(lane, tick), **change)
        log.rows[lane].append(log.sealed(row))

    return repeat


def flipped(log: Log) -> None:
    headers, value = log.rows[0][4]
    log.rows[0][4] = headers, value[:-1] + bytes([value[-1] ^ 1])


def swapped_lanes(log: Log) -> None:
    log.rows[0][4] = log.rows[1][4]


def other_form(log: Log) -> None:
    row = log.row(0, 4)
    stamp = Stamp(ROW, 0, 4, 0)
    plain = encoded(row).replace(b"\x04\x00", b"\xcc\x04\x00", 1)
    log.rows[0][4] = log.host.sealer.record(stamp, plain)


def stamped_otherwise(log: Log) -> None:
    log.rows[0][4] = log.sealed(log.row(0, 4), tick=3)


def headless(log: Log) -> None:
    log.rows[0][4] = (), log.rows[0][4][1]


WRONG: dict[str, tuple[Callable[[Log], None], tuple[int, int], str]] = {
    "a flipped bit": (flipped, (0, 4), "cannot be decrypted"),
    "a row of another lane": (swapped_lanes, (0, 4), "cannot be decrypted"),
    "no headers": (headless, (0, 4), "neither an engine nor a worker has written"),
    "headers of another tick": (stamped_otherwise, (0, 4), "neither an engine nor a worker has written"),
    "another form": (other_form, (0, 4), "not have the required form"),
    "another file": (changed(0, 4, fingerprint="0" * 64), (0, 4), "another pipeline file"),
    "another version": (changed(0, 4, counting=3), (0, 4), "uses version 3 of the counting rules, but its engine "
    "uses version 2"),
    "another width": (changed(0, 4, cells=Cells(15, b"", b"")), (0, 4), "has 15 cells"),
    "a broken chain": (changed(0, 4, previous=bytes(32)), (0, 4), "`previous` is not the digest"),
    "a gap between rows": (changed(0, 4, begins={0: 6}), (0, 4), "`begins` is not the end"),
    "places that go back": (changed(0, 4, positions={0: 6}), (0, 4), "`positions` lies before `begins`"),
    "a partition of others": (changed(0, 4, positions={0: 7, 3: 0}), (0, 4), "a partition of another lane"),
    "an epoch to come": (changed(0, 4, epoch=1), (0, 4), "epoch 1, but no layout has begun"),
    "marks of a live clock": (changed(0, 4, marks={0: 4}), (0, 4), "`marks` must be empty"),
    "what is over is pending": (changed(0, 4, pending={4: Cells(14, b"", b"\1" * 14)}), (0, 4), "a tick that is over"),
    "numbers that cannot be": (changed(0, 4, late=1), (0, 4), "an impossible value"),
    "cells of another form": (changed(0, 4, cells=Cells(14, b"", bytes(14))), (0, 4), "the shorter of the two forms"),
    "cells that are none": (changed(0, 4, cells=Cells(14, b"", bytes(15))), (0, 4), "another form than this version"),
    "another row of a tick": (
        repeated(0, 2, late=2, records=4), (0, 5),
        "another row of tick 2 counts, at offset 2, and this row differs from it in records, late: rows must",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_with_its_place(log: Log, name: str) -> None:
    change, place, words = WRONG[name]
    assert log.wrong() == []
    change(log)
    found = log.wrong()
    assert place in [(lane, offset) for lane, offset, _ in found]
    assert any(words in what for lane, offset, what in found if (lane, offset) == place), found


def test_only_so_many_places_are_told(log: Log) -> None:
    bad = log.rows[0][4][0], b""
    log.rows[0] += [bad] * (MOST + 5)
    checked = check_rows(str(log.written()), FOLDER / "pipeline.yaml", log.key)
    assert (len(checked.findings), checked.wrong) == (MOST, MOST + 5)


def test_a_layout_that_goes_on_needs_its_row(log: Log) -> None:
    digests = {lane: form.digest(encoded(log.row(lane, 2))) for lane in (0, 1)}
    on = msgspec.structs.replace(log.host.layout, tick=3, rows=digests, places={0: 2, 1: 2})
    headers, value = log.host.sealer.record(Stamp(LAYOUT, -1, 3, 0), encoded(on))
    log.layouts.append(((*headers, ("part", b"0"), ("parts", b"1")), value))
    checked = check_rows(str(log.written()), FOLDER / "pipeline.yaml", log.key)
    assert checked.wrong == 0
    assert checked.lines[1] == (
        "lane 1: ticks 3 to 4 count; 2 rows from before this layout, of which only seal and form were checked"
    )
    log.rows[1] = log.rows[1][:2]
    ((*place, what),) = log.wrong()
    assert place == [1, 2]
    assert "according to the layout, a row must be here" in what


def test_a_new_epoch_counts_from_its_cut_on_and_rows_of_the_former_one_do_not(log: Log) -> None:
    now = made_on(log.host, log.rows)
    log.layouts.append(laid(now))
    late = msgspec.structs.replace(log.row(0, 4), tick=5)  # of a worker that has not heard
    log.rows[0].append(log.sealed(late))
    checked = check_rows(str(log.written()), FOLDER / "pipeline.yaml", log.key)
    assert (checked.wrong, checked.lines) == (0, [
        "lane 0: ticks 5 to 6 count; 6 rows from before this layout, of which only seal and form were checked",
        "lane 1: ticks 5 to 6 count; 5 rows from before this layout, of which only seal and form were checked",
    ])  # fmt: skip
    narrow = msgspec.structs.replace(log.row(0, 6), cells=log.row(0, 4).cells)
    log.rows[0][6] = log.sealed(narrow)
    assert log.wrong()[0][:2] == (0, 6)
    assert "it has 14 cells, but the layout has 15" in log.wrong()[0][2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("junk", ":1: this line is not a record of a log"),
        ('{"log": "rows"}', ":1: this line is not a record of a log"),
        ("", "a layout must come before the rows"),
    ],
)
def test_a_file_of_another_kind_is_refused(log: Log, text: str, words: str) -> None:
    log.file.write_text(text)
    with pytest.raises(UsageError, match=words):
        check_rows(str(log.file), FOLDER / "pipeline.yaml", log.key)
    with pytest.raises(
        UsageError, match=r"the rows topic of this pipeline is vectors\.private\.rows"
    ):
        check_rows("other.private.rows", FOLDER / "pipeline.yaml", log.key)


def test_a_host_refuses_what_a_lane_cannot_count(log: Log) -> None:
    host = log.host
    assert LaneHost.of(FOLDER / "pipeline.yaml", log.key, []) is None
    lane = host.lane(1)
    with pytest.raises(TypeError, match="before it reads"):
        lane.rows()
    with pytest.raises(UsageError, match=r"missing: \[1\]"):
        lane.begin({})
    with pytest.raises(UsageError, match="partition 2 does not belong to lane 1 but to lane 0"):
        lane.begin({1: 0, 2: 0})
    lane.begin({1: 0})
    with pytest.raises(FailClosed, match="did not stamp on arrival"):
        lane.feed(1, [RawRecord(0, b"{}", ORIGIN, timestamp_type=0)])
    behind = msgspec.structs.replace(host.layout, positions={1: 3}, behind={1: (1, 2)})
    with pytest.raises(FailClosed, match="in the middle of an open transaction"):
        LaneHost(host.spec, host.keys, behind).lane(1).begin({})
    for change, words in (
        ({"counting": COUNTING + 1}, "this worker uses version 2"),
        ({"fingerprint": "0" * 64}, "another pipeline file than this worker"),
        ({"lanes": 3}, "another pipeline file than this worker"),
        ({"width": 5}, "counts other series"),
    ):
        other = msgspec.structs.replace(host.layout, **change)
        with pytest.raises(FailClosed, match=words):
            LaneHost(host.spec, host.keys, other)


def test_a_partition_that_was_added_counts_from_its_first_record(log: Log) -> None:
    lane = log.host.lane(1)
    lane.begin({1: 0})
    lane.feed(3, [RawRecord(5, b'{"key": "a"}', ORIGIN + 10)])
    for partition in (1, 3):
        lane.feed(partition, [RawRecord(6, None, ORIGIN + 2500)])
    ((headers, value),) = lane.rows()
    row, _ = log.host.sealer.row(1, form.Sealed(tuple(headers), value))
    assert (row.records, row.positions) == (1, {1: 0, 3: 6})


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "pipeline.yaml").write_text(PIPELINE)
    for name, text in vectors().items():
        (FOLDER / name).write_text(text)
