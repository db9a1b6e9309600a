"""What a host of lanes must do, in whatever engine it runs: the conformance suite of docs/rows.md.

A host is one `RowsCase`. Each of `ROWS_CHECKS` raises an AssertionError that names the broken rule. Rules: a check
looks at a host through what it is fed and what it appends alone. What rows must say comes from a model of the log,
which is written from the contract and knows no lane. Each check fails on a host that is
broken on purpose (tests/conformance).
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Protocol, TypeAlias

import msgspec

from stream_dp.engine.lanes.rows import (
    COUNTING,
    LAYOUT,
    ROW,
    LaneChain,
    LaneRow,
    Layout,
    RowSealer,
    Sealed,
    Stamp,
    Verdict,
    digest,
    encoded,
)
from stream_dp.engine.tick_assembler import dense
from stream_dp.errors import FailClosed
from stream_dp.journal.keys import Sealer, WorkerKeys, write_private
from stream_dp.operate.run.hosted import LaneHost, Overtaken, Pair, RawRecord
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.user_homes import placement_of
from stream_dp.pipeline.yaml import load

ORIGIN, STEP, SETTLE = 1_700_000_000_000, 1000, 1000
LANES, LANE, MINE = 2, 1, (1, 3)
TICKS, EPOCH, CAP, WINDOW = 12, 3, 2, 4
KEYS = ("a", "b")
_WORLDS = 6
_KEY = bytes(range(32))
_PIPELINE = """
version: 1
name: rows-suite
source: {{kind: kafka, topic: suite, bootstrap: "nowhere:9092", workers: {{lanes: 2}}{keyed}}}
schema: {{key: {{type: category, domain: [a, b]}}{user}}}
privacy: {privacy}
clock: {{kind: wall, step: 1s, delay: 2s}}
series:
  - {{name: by_key, statistic: histogram, by: key, epsilon: 1}}
"""
_OF_EVENTS = _PIPELINE.format(keyed="", user="", privacy="{unit: event, epsilon: 1}")
_OF_USERS = _PIPELINE.format(
    keyed=", keyed_by: user", user=", user: {type: text}",
    privacy="{unit: user, user: user, max_events: 2, per: 4s, epsilon: 1}",
)  # fmt: skip
_ADDED = b"{name: of_b, statistic: count, epsilon: 1/10, where: [{field: key, equals: b}]}"
HOSTILE: tuple[bytes | None, ...] = (
    None, b"", b" ", b"7", b"null", b"[1]", b'"key"', b"{}", b"\xff\xfe", b"[" * 100_000, b'{"key":' * 5_000,
    b'{"key": 7}', b'{"key": NaN}', b'{"key": ["a"]}', b'{"key": "a"', b'{"key": "a"}{"key": "b"}',
    b'{"key": "a"} x', b'\0{"key": "a"}', b'{"key": "\xff"}', b"x" * 2_000_000,
)  # fmt: skip
"""Values that are no record of the suite's pipelines, whatever its privacy unit."""


class Lane(Protocol):
    """A lane of a host; see `HostedLane` for what its methods mean."""

    @property
    def place(self) -> int: ...
    def hear(self, headers: Iterable[tuple[str, bytes]], value: bytes) -> None: ...
    def begin(self, starts: Mapping[int, int]) -> Mapping[int, int]: ...
    def feed(self, partition: int, records: Sequence[RawRecord]) -> None: ...
    def quiet(self, partition: int, stamp: int, end: int) -> None: ...
    def rows(self) -> Sequence[Pair]: ...


class Opening(msgspec.Struct, frozen=True):
    """What a host is given: the pipeline file, a worker's keys, all records of the layout's log, and which lane."""

    pipeline: Path
    key_file: Path
    layouts: Sequence[Pair]
    lane: int


def ours(opening: Opening) -> Lane:
    """Make the product's own lane, as a worker has it."""
    host = LaneHost.of(opening.pipeline, opening.key_file, opening.layouts)
    if host is None:
        raise AssertionError("there is a layout")
    return host.lane(opening.lane)


@dataclass(frozen=True, slots=True)
class RowsCase:
    """A host: `make` makes a lane that has heard nothing. `overtaken` is what it raises where another row counted.
    `users` says whether it counts pipelines of users.
    """

    make: Callable[[Opening], Lane] = ours
    overtaken: type[Exception] = Overtaken
    users: bool = True


@dataclass(frozen=True, slots=True)
class _Event:
    """A record of the model: its entry of the row (None: it cannot be read), its user and its stamp."""

    entry: int | None
    user: str
    stamp: int

    @property
    def tick(self) -> int:
        return (self.stamp - ORIGIN) // STEP


_Log: TypeAlias = Sequence[tuple[_Event, RawRecord]]


@dataclass(slots=True)
class _Said:
    """What a row must say."""

    tick: int
    begins: dict[int, int] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    cells: Counter[int] = field(default_factory=Counter)
    pending: dict[int, Counter[int]] = field(default_factory=dict)
    records: int = 0
    late: int = 0
    dead: int = 0
    capped: int = 0


def _way_of(log: _Log, *, users: bool) -> tuple[list[tuple[int, int]], list[str]]:
    """Return the ticks that pass in a partition, each with the offset before which it does, and what records are."""
    over, marks, kinds = -1, list[tuple[int, int]](), list[str]()
    used = Counter[tuple[str, int]]()
    for offset, (event, _) in enumerate(log):
        passed = (event.stamp - SETTLE - ORIGIN) // STEP - 1
        if passed > over:
            over = passed
            marks.append((over, offset))
        kind = "dead" if event.entry is None else "late" if event.tick <= over else "counts"
        if users and kind == "counts":
            used[event.user, event.tick // WINDOW] += 1
            if used[event.user, event.tick // WINDOW] > CAP:
                kind = "capped"
        kinds.append(kind)
    return marks, kinds


def _model(logs: Mapping[int, _Log], *, users: bool, behind: _Said | None = None) -> list[_Said]:
    """Return what the rows of all ticks that are over must say, from the contract alone; with `behind`, those of an
    epoch that begins behind this row, where nothing is pending.
    """
    ways = {partition: _way_of(log, users=users) for partition, log in logs.items()}
    passes = {partition: marks for partition, (marks, _) in ways.items()}
    kinds = {partition: kinds for partition, (_, kinds) in ways.items()}
    said = list[_Said]()
    begin = before = dict.fromkeys(logs, 0) if behind is None else behind.positions
    first = 0 if behind is None else behind.tick + 1
    for tick in range(first, min(marks[-1][0] if marks else -1 for marks in passes.values()) + 1):
        row = _Said(tick, before if tick else {})
        for partition, log in logs.items():
            end = next(offset for over, offset in passes[partition] if over >= tick)
            row.positions[partition] = end
            for offset, (event, _) in enumerate(log[:end]):
                kind, entry = kinds[partition][offset], event.entry
                if offset < begin[partition]:
                    continue
                if offset >= before[partition]:
                    row.records += kind in ("counts", "late")
                    row.late += kind == "late"
                    row.dead += kind == "dead"
                    row.capped += kind == "capped"
                if kind == "counts" and entry is not None and event.tick == tick:
                    row.cells[entry] += 1
                elif kind == "counts" and entry is not None and event.tick > tick:
                    row.pending.setdefault(event.tick, Counter())[entry] += 1
        before = row.positions
        said.append(row)
    return said


class _World:
    """A pipeline, its layout, the records of a lane's partitions, and the lane's log of rows."""

    def __init__(
        self, case: RowsCase, folder: Path, seed: int, *, users: bool = False, hostile: float = 0.1
    ) -> None:
        self.case, self.random, self.users = case, Random(seed), users  # noqa: S311 - worlds of a test
        self._folder = folder
        self.pipeline = folder / "pipeline.yaml"
        self.pipeline.write_text(_OF_USERS if users else _OF_EVENTS)
        self.spec = load(self.pipeline)
        self.keys = Sealer(_KEY, self.spec.name).worker_keys()
        self.sealer = RowSealer(self.keys.rows, self.spec.name)
        width = OpenRouter(self.spec, ORIGIN, None, self.keys.users).width
        self.layout = Layout(
            fingerprint(self.spec),
            COUNTING,
            LANES,
            EPOCH,
            0,
            ORIGIN,
            tuple(range(4)),
            "source",
            "topic",
            width,
            dict.fromkeys(range(LANES), 0),
        )
        place = placement_of(self.spec)
        people = [f"user {number}" for number in range(40)]
        homes = place([json.dumps({"user": name}).encode() for name in people], range(4))
        self.people = {
            at: [p for p, home in zip(people, homes, strict=True) if home == at] for at in MINE
        }
        self.logs = {partition: self._log_of(partition, hostile) for partition in MINE}
        self.log: list[Pair] = []
        self.former: list[Layout] = []

    def _log_of(self, partition: int, hostile: float) -> list[tuple[_Event, RawRecord]]:
        """Records with stamps that may step back, as after a change of leader; the last one ends all ticks."""
        random, log, clock = self.random, list[tuple[_Event, RawRecord]](), ORIGIN
        while clock < ORIGIN + TICKS * STEP + SETTLE:
            stamp = max(ORIGIN, clock - random.choice((0, 0, 0, 0, 0, 1800)))
            log.append(self._record(partition, len(log), stamp, hostile))
            clock += random.choice((0, 10, 90, 90, 400, 400, 2600))
        log.append(self._record(partition, len(log), ORIGIN + (TICKS + 1) * STEP, 0))
        return log

    def _record(
        self, partition: int, offset: int, stamp: int, hostile: float
    ) -> tuple[_Event, RawRecord]:
        random = self.random
        if random.random() < hostile:
            return _Event(None, "", stamp), RawRecord(offset, random.choice(HOSTILE), stamp)
        key = random.choice((*KEYS, "none of them"))
        user = random.choice(self.people[partition][:3])
        value = json.dumps({"key": key, "user": user, "more": [1, {"x": None}]}).encode()
        entry = KEYS.index(key) if key in KEYS else len(KEYS)
        return _Event(entry, user, stamp), RawRecord(offset, value, stamp)

    @property
    def model(self) -> list[_Said]:
        return _model(self.logs, users=self.users)

    def opening(self, layout: Layout | None = None, keys: WorkerKeys | None = None) -> Opening:
        """Return what a lane is made with: all layouts, the newest of which is `layout`."""
        keys, laid = keys or self.keys, [*self.former, self.layout]
        if layout is not None:
            laid.append(layout)
        key_file = self._folder / f"{digest(keys.line).hex()}.key"
        if not key_file.exists():
            write_private(key_file, keys.line)
        layouts = list[Pair]()
        for each in laid:
            stamp = Stamp(LAYOUT, -1, each.tick, each.epoch)
            headers, value = self.sealer.record(stamp, encoded(each))
            layouts.append(((*headers, ("part", b"0"), ("parts", b"1")), value))
        return Opening(self.pipeline, key_file, layouts, LANE)

    def opened(self, layout: Layout | None = None) -> tuple[Lane, Mapping[int, int]]:
        """Return a lane that has heard the log, and where it reads on."""
        lane = self.case.make(self.opening(layout))
        for headers, value in self.log[lane.place :]:
            lane.hear(headers, value)
        return lane, lane.begin(dict.fromkeys(MINE, 0))

    def batches(
        self, places: Mapping[int, int], most: int = 20
    ) -> Iterator[tuple[int, list[RawRecord]]]:
        """Yield all records from these places on, in pieces of any size, the partitions in any order."""
        left = {at: [record for _, record in log[places[at] :]] for at, log in self.logs.items()}
        while any(left.values()):
            partition = self.random.choice([at for at, records in left.items() if records])
            size = self.random.randint(1, most)
            piece, left[partition] = left[partition][:size], left[partition][size:]
            yield partition, piece

    def append(self, lane: Lane) -> list[Pair]:
        """Append what a lane made, let it hear that, and return it."""
        made: list[Pair] = [(tuple(headers), value) for headers, value in lane.rows()]
        self.log += made
        for pair in made:
            lane.hear(*pair)
        return made

    def run(self) -> None:
        """Read to the end with one lane."""
        lane, places = self.opened()
        for partition, records in self.batches(places):
            lane.feed(partition, records)
            self.append(lane)

    def row(self, pair: Pair) -> tuple[LaneRow, bytes]:
        try:
            return self.sealer.row(LANE, Sealed(tuple(pair[0]), pair[1]))
        except FailClosed as error:
            raise AssertionError(
                f"every row that is appended opens and says what it is: {error}"
            ) from None

    def verdicts(self) -> list[Verdict]:
        chain = LaneChain(self.layout, LANE)
        return [chain.take(*self.row(pair)) for pair in self.log]

    def counting(self) -> list[tuple[LaneRow, bytes]]:
        """Return the rows that count."""
        verdicts = self.verdicts()
        return [
            self.row(p)
            for p, verdict in zip(self.log, verdicts, strict=True)
            if verdict is Verdict.COUNTS
        ]

    def require_model(self) -> None:
        """Check that the rows that count say what the model says, tick by tick."""
        rows, model = [row for row, _ in self.counting()], self.model
        _require(
            [row.tick for row in rows] == [said.tick for said in model],
            "each tick that is over has one row",
        )
        for row, said in zip(rows, model, strict=True):
            _require_said(row, said, self.layout.width)
        _require(
            [encoded(row) for row in rows] == [plain for _, plain in self.counting()],
            "rows have one form",
        )


def _require_said(row: LaneRow, said: _Said, width: int) -> None:
    def counts(of: Mapping[int, int]) -> list[int]:
        return [of.get(entry, 0) for entry in range(len(KEYS) + 1)]

    where = f"tick {said.tick}"
    _require(row.positions == said.positions, f"a row ends where its tick was over ({where})")
    _require(row.begins == said.begins, f"a row begins where the one before ended ({where})")
    entries = dense(row.cells.row(), width).tolist()[: len(KEYS) + 1]
    _require(entries == counts(said.cells), f"a row has the counts of its tick ({where})")
    pending = {
        tick: dense(cells.row(), width).tolist()[: len(KEYS) + 1]
        for tick, cells in row.pending.items()
    }
    wanted = {tick: counts(entries) for tick, entries in sorted(said.pending.items())}
    _require(pending == wanted, f"what was read for later ticks is pending ({where})")
    _require(row.late == said.late, f"what comes after its tick is late ({where})")
    _require(row.records == said.records, f"every record that can be read is counted ({where})")
    _require(
        sum(letter.records for letter in row.dead) == said.dead,
        f"what cannot be read is a dead letter ({where})",
    )
    _require(row.capped == said.capped, f"caps of users hold ({where})")


@contextmanager
def _worlds(case: RowsCase, *, users: bool = True, hostile: float = 0.1) -> Iterator[list[_World]]:
    """Yield some worlds; with `users`, also of pipelines of users, where the host counts these."""
    kinds = (False, True) if users and case.users else (False,)
    with TemporaryDirectory() as folder:
        worlds = list[_World]()
        for seed in range(_WORLDS):
            for of_users in kinds:
                own = Path(folder) / f"{seed}-{of_users}"
                own.mkdir()
                worlds.append(_World(case, own, seed, users=of_users, hostile=hostile))
        yield worlds


def check_counts(case: RowsCase) -> None:
    """Check that rows say what the log holds: ticks, positions, counts, late records, caps."""
    with _worlds(case, hostile=0) as worlds:
        for world in worlds:
            world.run()
            world.require_model()


def check_hostile(case: RowsCase) -> None:
    """Check that a record that cannot be read stops nothing, changes only itself, and is counted."""
    with _worlds(case, hostile=0.4) as worlds:
        for world in worlds:
            try:
                world.run()
            except AssertionError:
                raise
            except Exception as error:
                raise AssertionError("no record stops a lane, whatever it holds") from error
            world.require_model()


def check_order(case: RowsCase) -> None:
    """Check that rows do not depend on the order of partitions, nor on how records are split."""
    with _worlds(case) as worlds:
        for world in worlds:
            world.run()
            first = [plain for _, plain in world.counting()]
            for most in (1, 1_000):
                world.log.clear()
                lane, places = world.opened()
                for partition, records in world.batches(places, most):
                    lane.feed(partition, records)
                    world.append(lane)
                again = [plain for _, plain in world.counting()]
                _require(
                    again == first, "rows do not depend on when and in which pieces records come"
                )


def check_repeats(case: RowsCase) -> None:
    """Check that records that are delivered again do not count again."""
    with _worlds(case) as worlds:
        for world in worlds:
            lane, places = world.opened()
            came = defaultdict[int, list[RawRecord]](list)
            for partition, records in world.batches(places):
                came[partition] += records
                back = world.random.randint(0, 30)
                lane.feed(partition, records)
                lane.feed(partition, came[partition][-back - len(records) :])
                world.append(lane)
            world.require_model()


def check_kills(case: RowsCase) -> None:
    """Check that a lane that is killed at any moment is made again from the log alone, byte for byte."""
    with _worlds(case) as worlds:
        for world in worlds:
            world.run()
            whole = [plain for _, plain in world.counting()]
            world.log.clear()
            done, lives = False, 0
            while not done:
                lane, places = world.opened()
                rows = world.counting()
                ends = rows[-1][0].positions if rows else dict.fromkeys(MINE, 0)
                _require(
                    dict(places) == ends, "a lane goes on where the last row that counts ended"
                )
                lives += 1
                for partition, records in world.batches(places):
                    lane.feed(partition, records)
                    made = list(lane.rows())
                    if (
                        lives < 40 and world.random.random() < 0.15
                    ):  # some of what it made is in the log
                        world.log += [
                            (tuple(h), v) for h, v in made[: world.random.randint(0, len(made))]
                        ]
                        break
                    for headers, value in made:
                        world.log.append((tuple(headers), value))
                        lane.hear(*world.log[-1])
                else:
                    done = True
            taken = [plain for _, plain in world.counting()]
            _require(
                taken == whole, "whoever takes a lane over writes the same rows, byte for byte"
            )
            world.require_model()


def check_two_writers(case: RowsCase) -> None:
    """Check that two hosts of one lane, of which one is behind, write nothing but the rows that count, and repeats."""
    with _worlds(case) as worlds:
        for world in worlds:
            (fast, places), (slow, also) = world.opened(), world.opened()
            behind, late = world.batches(also), list[Pair]()
            for partition, records in world.batches(places):
                fast.feed(partition, records)
                late += world.append(fast)
                if world.random.random() < 0.5 and (more := next(behind, None)) is not None:
                    slow.feed(*more)
                    for pair in late:
                        slow.hear(*pair)
                    late.clear()
                    for pair in world.append(slow):
                        fast.hear(*pair)
            known = {Verdict.COUNTS, Verdict.REPEATED}
            _require(set(world.verdicts()) <= known, "a host that is behind writes repeats at most")
            world.require_model()


def check_contested(case: RowsCase) -> None:
    """Check that a host whose row is not the one that counts begins again behind that one."""
    with _worlds(case, users=False) as worlds:
        for world in worlds:
            lane, places = world.opened()
            overtaken = False
            for partition, records in world.batches(places):
                lane.feed(partition, records)
                made = [(tuple(h), v) for h, v in lane.rows()]
                if not made:
                    continue
                row, _ = world.row(made[0])
                other = msgspec.structs.replace(row, late=row.late + 1, records=row.records + 1)
                stamp = Stamp(ROW, LANE, row.tick, EPOCH)
                world.log.append(world.sealer.record(stamp, encoded(other)))
                try:
                    lane.hear(*world.log[-1])
                except case.overtaken:
                    overtaken = True
                break
            _require(overtaken, "a host notices that another row counts than its own")
            lane, places = world.opened()
            for partition, records in world.batches(places):
                lane.feed(partition, records)
                world.append(lane)
            ticks = [row.tick for row, _ in world.counting()]
            _require(ticks == [said.tick for said in world.model], "and goes on behind that one")


def check_foreign_rows(case: RowsCase) -> None:
    """Check that rows of other epochs, files and versions are passed over."""
    with _worlds(case, users=False) as worlds:
        for world in worlds:
            world.run()
            own, world.log = world.log, []
            for pair in own[:5]:
                row, _ = world.row(pair)
                for change in (
                    {"epoch": EPOCH - 1},
                    {"fingerprint": "0" * 64},
                    {"counting": COUNTING + 1},
                ):
                    other = msgspec.structs.replace(row, late=row.late + 1, **change)
                    stamp = Stamp(ROW, LANE, row.tick, other.epoch)
                    world.log.append(world.sealer.record(stamp, encoded(other)))
                world.log.append(pair)
            lane, places = world.opened()
            for partition, records in world.batches(places):
                lane.feed(partition, records)
                world.append(lane)
            plains = [plain for _, plain in world.counting()]
            _require(
                plains == [world.row(pair)[1] for pair in own],
                "rows of another epoch, file or version do not count",
            )


def check_layouts(case: RowsCase) -> None:
    """Check that a lane goes on behind the row that a layout names, and not at all where that is missing."""
    with _worlds(case, users=False) as worlds:
        for world in worlds:
            world.run()
            whole = list(world.log)
            tick = 5
            row, plain = world.row(whole[tick - 1])
            on = msgspec.structs.replace(
                world.layout,
                tick=tick,
                places={0: 0, LANE: tick - 1},
                rows={0: bytes(32), LANE: digest(plain)},
            )
            world.log = whole[:tick]
            lane, places = world.opened(on)
            _require(
                dict(places) == row.positions, "a lane goes on behind the row that its layout names"
            )
            for partition, records in world.batches(places):
                lane.feed(partition, records)
                world.append(lane)
            made = [world.row(pair)[1] for pair in world.log]
            _require(
                made == [world.row(pair)[1] for pair in whole], "and writes the rows that follow it"
            )
            world.log = whole[: tick - 1]
            try:
                world.opened(on)
            except Exception:  # noqa: BLE001, S112 - of whatever kind it is
                continue
            raise AssertionError(
                "a lane does not begin where the row that its layout names is missing"
            )


def check_epochs(case: RowsCase) -> None:
    """Check that a lane counts what the newest layout says, behind its cut, and no row of the former one, which a
    writer that has not heard of the new one goes on to write.
    """
    with _worlds(case, users=False) as worlds:
        for world in worlds:
            world.run()
            behind, column = world.model[4], world.layout.width
            added = (column, (behind.tick + 1, "", _ADDED))
            world.former.append(world.layout)
            world.layout = msgspec.structs.replace(
                world.layout, epoch=EPOCH + 1, tick=behind.tick + 1, width=column + 1, added=(added,),
                muted=((0, 1),), positions={0: 0, 2: 0} | behind.positions, places={0: 0, LANE: 3},
            )  # fmt: skip
            world.run()
            rows = [row for row, _ in world.counting()]
            model = _model(world.logs, users=False, behind=behind)
            _require(
                [row.tick for row in rows] == [said.tick for said in model],
                "each tick that is over has one row of the newest epoch",
            )
            for row, said in zip(rows, model, strict=True):
                of_b = said.cells[1]
                for counted in (said.cells, *said.pending.values()):
                    counted[0] = 0  # is muted
                said.pending = {tick: left for tick, left in said.pending.items() if left.total()}
                _require_said(row, said, column + 1)
                entries = dense(row.cells.row(), column + 1).tolist()
                _require(entries[column] == of_b, "a row counts what its layout adds")


def check_key(case: RowsCase) -> None:
    """Check that a host with another key appends nothing."""
    with _worlds(case, users=False) as worlds:
        world = worlds[0]
        world.run()
        other = Sealer(_KEY[::-1], world.spec.name).worker_keys()
        rows_alone = world.keys._replace(rows=other.rows)
        for keys in (other, rows_alone):
            try:
                lane = case.make(world.opening(keys=keys))
                for headers, value in world.log[:3]:
                    lane.hear(headers, value)
                places = lane.begin(dict.fromkeys(MINE, 0))
                made = 0
                for partition, records in world.batches(places):
                    lane.feed(partition, records)
                    made += len(lane.rows())
            except Exception:  # noqa: BLE001, S112 - of whatever kind it is
                continue
            _require(made == 0, "a host with another key appends nothing")


def check_silence(case: RowsCase) -> None:
    """Check that a silent partition ends its ticks by the brokers' clocks, once all that they held was fed."""
    with _worlds(case, users=False) as worlds:
        for world in worlds:
            silent = MINE[1]
            world.logs[silent] = world.logs[silent][:3]
            lane, places = world.opened()
            stamp = ORIGIN + 20 * STEP
            for partition, records in world.batches({**places, silent: 3}):
                lane.feed(partition, records)
                lane.quiet(silent, stamp, 3)
                world.append(lane)
            _require(world.log == [], "no tick ends where not all that the brokers hold was read")
            lane.feed(silent, [record for _, record in world.logs[silent]])
            lane.quiet(silent, stamp, 3)
            world.append(lane)
            rows = [row for row, _ in world.counting()]
            _require(len(rows) >= TICKS, "a silent partition ends its ticks by the brokers' clocks")
            closing = _Event(None, "", stamp), RawRecord(3, b"", stamp)
            logs = {**world.logs, silent: [*world.logs[silent], closing]}
            for row, said in zip(rows, _model(logs, users=False), strict=False):
                _require_said(row, said, world.layout.width)


def check_lanes(case: RowsCase) -> None:
    """Check that a lane takes the records of its own partitions alone."""
    with _worlds(case, users=False) as worlds:
        world = worlds[0]
        lane, _ = world.opened()
        try:
            lane.feed(0, [RawRecord(0, b'{"key": "a"}', ORIGIN)])
        except Exception:  # noqa: BLE001 - of whatever kind it is
            return
        raise AssertionError("a lane refuses records of partitions that are in another lane")


ROWS_CHECKS: tuple[Callable[[RowsCase], None], ...] = (
    check_counts,
    check_hostile,
    check_order,
    check_repeats,
    check_kills,
    check_two_writers,
    check_contested,
    check_foreign_rows,
    check_layouts,
    check_epochs,
    check_key,
    check_silence,
    check_lanes,
)


def _require(held: bool, rule: str) -> None:
    if not held:
        raise AssertionError(rule)
