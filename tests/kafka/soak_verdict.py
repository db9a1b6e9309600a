"""What a soak has left, judged without the engine: the public log as every reader saw it, the journal, and the source.

Rules: lost is what the log holds and nobody counted, refused or found late; twice is what was counted more often than
it is there, or published in two committed records; two versions are two contents of one (series, tick), committed or
not. A record that its brokers showed only after its tick had settled (its replicas were away) is late where the oracle,
which knows stamps alone, counts it: `later` says how many.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from faults.evidence import Public, content, opened, releases_of
from faults.kafka_evidence import journal_blobs, public_log
from kafka.log_worlds import KINDS, Journalled, LivePipeline, says
from oracles.kafka_log import Grid, Said


@dataclass(slots=True)
class Verdict:
    """Figures of a soak, and its faults in words."""

    ticks: int = 0
    records: int = 0
    late: int = 0
    later: int = 0
    dead: int = 0
    lost: int = 0
    twice: int = 0
    in_two_versions: int = 0
    aborted_public_records: int = 0
    faults: list[str] = field(default_factory=list)


async def verdict(pipeline: LivePipeline) -> Verdict:
    """Judge what a pipeline has left."""
    blobs = await journal_blobs(pipeline.bootstrap, f"{pipeline.name}.private.journal")
    commits = opened(blobs, (pipeline.folder / "operator.key").read_bytes(), pipeline.name)
    public = await public_log(pipeline.bootstrap, f"{pipeline.name}.releases")
    ticks = sum(len(commit["ticks"]) for commit in commits)
    own = pipeline.grid
    grid = Grid(own.origin, own.step, own.delay, ticks)
    log = await asyncio.to_thread(says, pipeline.bootstrap, pipeline.topic, grid)
    return judged(commits, public, log)


def judged(commits: Sequence[dict[str, Any]], public: Sequence[Public], log: Said) -> Verdict:
    """Judge a journal, a public log and what the oracle says of the source up to the journal's last tick."""
    made = Verdict()
    ticks = [tick for commit in commits for tick in commit["ticks"]]
    made.ticks = len(ticks)
    if ticks != list(range(len(ticks))):
        made.faults.append("the journal's ticks are not 0, 1, 2 ...")
    _published(commits, public, made)
    _counted(Journalled.of(commits), log, made)
    return made


def _published(commits: Sequence[dict[str, Any]], public: Sequence[Public], made: Verdict) -> None:
    versions: defaultdict[tuple[str, int], set[bytes]] = defaultdict(set)
    seen: Counter[tuple[str, int]] = Counter()
    for one in public:
        shown = content(one.body)
        place = (shown["series"], shown["tick"])
        versions[place].add(one.body)
        seen[place] += one.committed
    made.aborted_public_records = sum(not one.committed for one in public)
    made.in_two_versions = sum(len(bodies) > 1 for bodies in versions.values())
    made.twice += sum(count - 1 for count in seen.values() if count > 1)
    journalled = [body for *_, body in releases_of(commits)]
    visible = [one.body for one in public if one.committed]
    if visible != journalled:
        made.faults.append("what is public is not what was journalled, in its order")
    made.lost += len(set(journalled) - set(visible))


def _counted(journal: Journalled, log: Said, made: Verdict) -> None:
    made.late, made.dead = journal.late, journal.dead.total()
    made.later = journal.late - log.late
    missing, lacking = 0, list[str]()
    for tick, found in journal.rows.items():
        counted = log.tick(tick)
        kinds = [counted[kind] for kind in KINDS]
        wanted = (counted.total(), *kinds, counted.total() - sum(kinds))
        made.records += found[0]
        missing += max(0, wanted[0] - found[0])
        made.twice += max(0, found[0] - wanted[0])
        if found != wanted:
            only_lacks = all(one <= other for one, other in zip(found, wanted, strict=True))
            where = lacking if only_lacks and found[0] < wanted[0] else made.faults
            where.append(f"tick {tick}: {found} in the journal, {wanted} in the log")
    made.lost += max(0, missing - made.later) + max(0, log.dead_letters - made.dead)
    made.twice += max(0, made.later - missing) + max(0, made.dead - log.dead_letters)
    if missing != made.later:  # else they are late, and that is told
        made.faults += lacking
