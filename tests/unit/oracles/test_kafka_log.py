"""The oracle of a source's log, rule by rule, on logs that are written down here."""

import struct
from collections import Counter
from collections.abc import Sequence

from oracles.kafka_log import Grid, Range, Said, said
from oracles.log_frames import ABORT, COMMIT, Frame

GRID = Grid(origin=1_000, step=100, delay=80, horizon=10)  # a tick's mark: 40 after its end
CONTROL, TRANSACTIONAL, LZ4 = 0x20, 0x10, 3


def judge(value: bytes | None) -> str | None:
    return None if value is None or value == b"junk" else value.decode()


class Log:
    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def data(self, stamp: int, *shown: str | None, producer: int = -1, codec: int = 0) -> "Log":
        body = b"".join(map(_record, shown))
        kind = codec | (TRANSACTIONAL if producer >= 0 else 0)
        return self._more(stamp, kind, producer, len(shown), body)

    def end(self, stamp: int, producer: int, kind: int) -> "Log":
        body = bytes([0, 0, 0, 8]) + struct.pack(">hh", 0, kind) + b"\x01\x00"
        body = bytes([2 * len(body)]) + body
        return self._more(stamp, CONTROL | TRANSACTIONAL, producer, 1, body)

    def _more(self, stamp: int, kind: int, producer: int, count: int, body: bytes) -> "Log":
        base = self.frames[-1].last + 1 if self.frames else 0
        self.frames.append(Frame(base, kind, count - 1, stamp, producer, 0, count, body))
        return self


def _record(shown: str | None) -> bytes:
    value = b"\x01" if shown is None else bytes([2 * len(shown)]) + shown.encode()
    body = bytes(3) + b"\x01" + value + b"\x00"
    return bytes([2 * len(body)]) + body


def read(*logs: Log) -> Said:
    return said({n: log.frames for n, log in enumerate(logs)}, GRID, judge)


def ticks(found: Said) -> dict[int, dict[str, int]]:
    return {number: dict(counter) for number, counter in found.ticks.items()}


def test_a_batch_counts_in_the_tick_of_its_stamp() -> None:
    log = Log().data(999, "a", "junk").data(1_000, "a", "b").data(1_099, "a").data(1_100, "b")
    found = read(log)
    assert ticks(found) == {0: {"a": 2, "b": 1}, 1: {"b": 1}}
    assert (found.late, found.dead) == (0, [])


def test_partitions_are_added_up_and_each_has_marks_of_its_own() -> None:
    ahead, behind = Log().data(1_500, "a"), Log().data(1_050, "a").data(1_500, "b")
    assert ticks(read(ahead, behind)) == {0: {"a": 1}, 5: {"a": 1, "b": 1}}


def test_a_record_behind_the_mark_of_its_tick_is_late() -> None:
    """The mark of tick 0 lies before the first batch with a stamp of 1,140 or more, of any kind."""
    assert read(Log().data(1_139, "a").data(1_099, "a")).late == 0
    assert read(Log().data(1_140, "a").data(1_099, "a")).late == 1
    assert read(Log().end(1_140, 7, ABORT).data(1_099, "a", "junk", "b")).late == 2
    assert read(Log().data(1_140, "junk").data(1_099, "junk")).dead_letters == 2


def test_a_transaction_counts_by_its_batches_where_its_marker_is_met() -> None:
    log = Log().data(1_010, "a", producer=7).data(1_110, "a", "junk", producer=7).data(1_111, "b")
    log.end(1_139, 7, COMMIT)
    assert ticks(read(log)) == {0: {"a": 1}, 1: {"a": 1, "b": 1}}
    assert read(log).dead == [Range(0, 2, 2)]


def test_it_is_late_where_the_marker_lies_behind_the_mark() -> None:
    log = Log().data(1_010, "a", producer=7).data(1_110, "a", producer=7).end(1_140, 7, COMMIT)
    assert (ticks(read(log)), read(log).late) == ({1: {"a": 1}}, 1)
    passed = Log().data(1_010, "a", producer=7).data(1_140, "b").end(1_139, 7, COMMIT)
    assert read(passed).late == 1


def test_what_is_aborted_or_never_ended_counts_nowhere() -> None:
    log = Log().data(1_010, "a", "junk", producer=7).data(1_020, "a", "junk", producer=8)
    log.end(1_030, 7, ABORT).data(1_300, "b")
    found = read(log)
    assert (ticks(found), found.late, found.dead) == ({3: {"b": 1}}, 0, [])


def test_markers_end_what_their_producer_began_and_nothing_else() -> None:
    log = Log().data(1_010, "a", producer=7).data(1_011, "b", producer=8).end(1_012, 9, COMMIT)
    log.end(1_013, 8, COMMIT).end(1_014, 8, COMMIT).data(1_015, "c", producer=8)
    log.end(1_016, 8, ABORT).end(1_017, 7, COMMIT)
    assert ticks(read(log)) == {0: {"a": 1, "b": 1}}


def test_markers_of_another_kind_end_nothing() -> None:
    log = Log().data(1_010, "a", producer=7).end(1_011, 7, 2).end(1_012, 7, COMMIT)
    assert ticks(read(log)) == {0: {"a": 1}}


def test_a_transaction_from_before_the_origin_counts_where_its_batches_do() -> None:
    log = Log().data(990, "a", producer=7).data(1_010, "b", producer=7).end(1_020, 7, COMMIT)
    assert ticks(read(log)) == {0: {"b": 1}}


def test_a_batch_that_cannot_be_unpacked_is_dead_from_its_base_to_its_last_offset() -> None:
    log = Log().data(1_010, "a").data(1_020, "a", "b", "c", codec=LZ4).data(1_030, None, "junk")
    found = read(log)
    assert (ticks(found), found.dead) == ({0: {"a": 1}}, [Range(0, 1, 3), Range(0, 4, 5)])


def test_nothing_behind_the_mark_of_the_last_tick_is_read() -> None:
    log = Log().data(1_999, "a", "junk").data(2_040, "a", "junk").data(1_999, "a", "junk")
    found = read(log)
    assert (ticks(found), found.late, found.dead_letters) == ({9: {"a": 1}}, 0, 1)


def test_stamps_that_jump_pass_all_marks_between() -> None:
    assert [GRID.passed(s) for s in (0, 1_139, 1_140, 1_239, 1_240, 2_040, 9_999)] == [
        -1, -1, 0, 0, 1, 9, 9,
    ]  # fmt: skip


def test_one_record_more_changes_one_tick_by_one() -> None:
    """The oracle itself is a function record by record: what the pair test asks of the engine."""

    def with_values(first: Sequence[str]) -> Said:
        log = Log().data(1_010, *first).data(1_050, "b", producer=7).data(1_220, "a")
        return read(log.end(1_221, 7, COMMIT))

    one, two = with_values(["a"]), with_values(["a", "c"])
    assert two.tick(0) - one.tick(0) == Counter("c")
    assert (one.late, one.tick(2)) == (two.late, two.tick(2))
