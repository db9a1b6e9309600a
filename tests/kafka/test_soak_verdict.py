"""What a soak has left, judged without the engine: the public log as every reader saw it, the journal, and the source.

A record that its brokers showed only after its tick had settled (its replicas were away) is late where the oracle,
which knows stamps alone, counts it: a tick may hold less than its log, and what is missing there must be late.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from faults.checker import unfounded
from faults.evidence import Evidence, EvidenceError, Public, opened, releases_of, sqlite_rows
from faults.kafka_evidence import journal_rows, public_log
from kafka.log_worlds import KINDS, Journalled, LivePipeline, says
from oracles.kafka_log import Range, Said

TICKS = 4


async def verdict(pipeline: LivePipeline, archive: Path) -> tuple[dict[str, int], list[str]]:
    """Figures of what a pipeline has left, its journal in an archive, and what is wrong with it."""
    rows = sqlite_rows(archive, "SELECT sequence, sealed FROM commits ORDER BY sequence")
    left = await journal_rows(pipeline.bootstrap, f"{pipeline.name}.private.journal")
    blobs = [blob for _, blob in rows]
    if left != rows[left[0][0] :]:
        raise EvidenceError("the topic does not hold the last commits of the archive")
    key = (pipeline.folder / "operator.key").read_bytes()
    commits = opened(blobs, key, pipeline.name)
    public = await public_log(pipeline.bootstrap, f"{pipeline.name}.releases")
    ticks = sum(len(commit["ticks"]) for commit in commits)
    grid = replace(pipeline.grid, horizon=ticks)
    log = await asyncio.to_thread(says, pipeline.bootstrap, pipeline.topic, grid)
    journal = Journalled.of(commits)
    figures = {
        "ticks": ticks, "records": sum(row[0] for row in journal.rows.values()),
        "late": journal.late, "later": journal.late - log.late, "dead": journal.dead.total(),
        "aborted public records": sum(not one.committed for one in public),
        "commits": len(blobs), "pruned": left[0][0], **told_of(commits),
    }  # fmt: skip
    return figures, list(judged(commits, public, log))


LIVE = {"one": ("red",), "two": ("green",), "both": ("red", "green"), "all": KINDS}
"""Series that come and go: what each counts."""


def definition(name: str, kinds: Sequence[str]) -> dict[str, Any]:
    where = [{"field": "kind", "one_of": list(kinds)}]
    return {"name": name, "statistic": "count", "where": where, "epsilon": "0.01"}


def live_ticks(
    commits: Sequence[dict[str, Any]],
) -> Iterator[tuple[int, int, Sequence[str], bool]]:
    """Yield the tick, the column, what is counted there, and whether it is its first tick, of each series that came
    while the engine ran.
    """
    changes = [change for commit in commits for change in commit["changes"]]
    ends = {change["number"]: change["end"] for change in changes if change["kind"] == "halted"}
    ticks = sum(len(commit["ticks"]) for commit in commits)
    for created in (change for change in changes if change["kind"] == "created"):
        (condition,) = json.loads(created["definition"])["where"]
        for tick in range(created["start"], min(ticks, ends.get(created["number"], ticks))):
            yield tick, created["column"], condition["one_of"], tick == created["start"]


def told_of(commits: Sequence[dict[str, Any]]) -> dict[str, int]:
    changes = Counter(change["kind"] for commit in commits for change in commit["changes"])
    return {
        "created": changes["created"], "halted": changes["halted"], "live ticks": sum(1 for _ in live_ticks(commits)),
    }  # fmt: skip


def of_two_versions(commits: Sequence[dict[str, Any]], rows: Any) -> Iterator[str]:
    """Series that came count the records that the file's histogram counts in the same tick, neither more nor fewer; in
    their first one those alone that were read behind the cut, so that they may be fewer.
    """
    for tick, column, kinds, first in live_ticks(commits):
        row = rows[tick]
        wanted = sum(row[1 + KINDS.index(kind)] for kind in kinds)
        found = row[column] if column < len(row) else None
        if found is None or found > wanted or (found < wanted and not first):
            yield f"tick {tick}, {kinds}: a series that came counts {found}, the file's {wanted}"


def judged(commits: Sequence[dict[str, Any]], public: Sequence[Public], log: Said) -> Iterator[str]:
    """Judge a journal, a public log and what the oracle says of the source up to the journal's last tick."""
    ticks = [tick for commit in commits for tick in commit["ticks"]]
    if ticks != list(range(len(ticks))):
        yield "the journal's ticks are not 0, 1, 2 ..."
    yield from unfounded(Evidence(list(commits), list(public)))
    if [one.body for one in public if one.committed] != [one[3] for one in releases_of(commits)]:
        yield "what is public is not what was journalled, in its order"
    journal, missing = Journalled.of(commits), 0
    yield from of_two_versions(commits, journal.rows)
    for tick, whole in journal.rows.items():
        found = whole[: 2 + len(KINDS)]
        counted = log.tick(tick)
        kinds = [counted[kind] for kind in KINDS]
        wanted = (counted.total(), *kinds, counted.total() - sum(kinds))
        missing += wanted[0] - found[0]
        if any(one > other for one, other in zip(found, wanted, strict=True)):
            yield f"tick {tick}: {found} in the journal, {wanted} in the log"
    if missing != journal.late - log.late:
        yield f"{missing} records are missing, {journal.late - log.late} more are late"
    if journal.dead.total() != log.dead_letters:
        yield f"{journal.dead.total()} dead letters, {log.dead_letters} in the log"


@dataclass(slots=True)
class Left:
    """What an engine has left, and the log that it read."""

    commits: list[dict[str, Any]]
    public: list[Public]
    log: Said

    def findings(self) -> list[str]:
        return list(judged(self.commits, self.public, self.log))


def body(tick: int, value: int) -> bytes:
    return json.dumps({"sequence": tick, "series": "all", "value": value}).encode()


def rightly() -> Left:
    letter = ["dead-letter", 0, "not_json", None, 1, [[7, 7]]]
    commits = [
        {
            "ticks": [tick],
            "rows": [[2, 2, 0, 0, 0]],
            "late": int(tick == 1),
            "dead_letters": [letter] if tick == 2 else [],
            "changes": [],
            "releases": [["release", tick, "all", tick, body(tick, tick)]],
        }
        for tick in range(TICKS)
    ]
    public = [Public(body(tick, tick), True, b"all", 0) for tick in range(TICKS)]
    ticks = {tick: Counter(red=2) for tick in range(TICKS)}
    return Left(commits, public, Said(ticks, [Range(0, 7, 7)], 1))


def with_live(left: Left) -> None:
    """A series that counts red ones in two ticks."""
    said = json.dumps(definition("one", ("red",))).encode()
    for tick, commit in enumerate(left.commits):
        created = {"kind": "created", "number": 2, "definition": said, "start": 1, "column": 5}
        halted = {"kind": "halted", "number": 2, "end": 3}
        commit["changes"] = {0: [created], 2: [halted]}.get(tick, [])
        if tick:
            commit["rows"] = [[*commit["rows"][0], 2 if tick < 3 else 0]]


def test_a_series_that_came_counts_what_the_file_counts() -> None:
    left = rightly()
    with_live(left)
    assert left.findings() == []
    assert told_of(left.commits) == {"created": 1, "halted": 1, "live ticks": 2}
    broken = [(1, [2, 2, 0, 0, 0]), (1, [2, 2, 0, 0, 0, 3])]
    for tick, row in (*broken, (2, [2, 2, 0, 0, 0, 1]), (2, [2, 2, 0, 0, 0, 4])):
        left = rightly()
        with_live(left)
        left.commits[tick]["rows"] = [row]
        (found,) = left.findings()
        assert "a series that came" in found


def test_a_record_that_was_shown_late_is_late_and_no_fault() -> None:
    left = rightly()
    assert left.findings() == []
    left.commits[1] |= {"rows": [[1, 1, 0, 0, 0]], "late": 2}
    assert left.findings() == []


def _another_tick(left: Left) -> None:
    left.commits[1]["rows"], left.commits[2]["rows"] = [[1, 1, 0, 0, 0]], [[3, 3, 0, 0, 0]]


def _skipped_tick(left: Left) -> None:
    del left.commits[2], left.public[2]


BROKEN: dict[str, Callable[[Left], object]] = {
    "a record forgotten": lambda left: left.commits[1].update(rows=[[1, 1, 0, 0, 0]]),
    "a record twice": lambda left: left.commits[1].update(rows=[[3, 3, 0, 0, 0]]),
    "a late one in its tick": lambda left: left.commits[1].update(rows=[[3, 3, 0, 0, 0]], late=0),
    "another kind": lambda left: left.commits[1].update(rows=[[2, 1, 1, 0, 0]]),
    "another tick": _another_tick,
    "a dead letter dropped": lambda left: left.commits[2].update(dead_letters=[]),
    "a release less": lambda left: left.public.pop(2),
    "a release twice": lambda left: left.public.append(left.public[-1]),
    "another version": lambda left: left.public.insert(1, Public(body(1, 17), False, b"all", 0)),
    "a tick skipped": _skipped_tick,
}


@pytest.mark.parametrize("broken", BROKEN)
def test_what_a_broken_engine_leaves_is_found(broken: str) -> None:
    left = rightly()
    BROKEN[broken](left)
    assert left.findings() != []
