"""What a soak has left, judged without the engine: the public log as every reader saw it, the journal, and the source.

Rules: lost is what the log holds and nobody counted, refused or found late; twice is what was counted more often than
it is there, or published in two committed records; two versions are two contents of one (series, tick), committed or
not. A record that its brokers showed only after its tick had settled (its replicas were away) is late where the oracle,
which knows stamps alone, counts it: `later` says how many.
"""

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from faults.evidence import content, opened, releases_of
from faults.kafka_evidence import journal_blobs, public_log
from kafka.log_worlds import KINDS, Journalled, LivePipeline, says
from oracles.kafka_log import Grid


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
    """Judge what a pipeline has left; the grid of the source is that of the ticks that were journalled."""
    made = Verdict()
    blobs = await journal_blobs(pipeline.bootstrap, f"{pipeline.name}.private.journal")
    commits = opened(blobs, (pipeline.folder / "operator.key").read_bytes(), pipeline.name)
    ticks = [tick for commit in commits for tick in commit["ticks"]]
    made.ticks = len(ticks)
    if ticks != list(range(len(ticks))):
        made.faults.append("the journal's ticks are not 0, 1, 2 ...")
    await _public(pipeline, commits, made)
    await _counted(pipeline, Journalled.of(commits), made)
    return made


async def _public(pipeline: LivePipeline, commits: list[dict[str, object]], made: Verdict) -> None:
    public = await public_log(pipeline.bootstrap, f"{pipeline.name}.releases")
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
    if visible != journalled[: len(visible)]:
        made.faults.append("what is public is not what was journalled, in its order")
    made.lost += len(journalled) - len(visible)


async def _counted(pipeline: LivePipeline, journal: Journalled, made: Verdict) -> None:
    grid = Grid(pipeline.grid.origin, pipeline.grid.step, pipeline.grid.delay, made.ticks)
    log = await asyncio.to_thread(says, pipeline.bootstrap, pipeline.topic, grid)
    missing = Counter[str]()
    more = Counter[str]()
    for tick in range(made.ticks):
        counted = log.tick(tick)
        wanted = [counted.total(), *(counted[kind] for kind in KINDS)]
        wanted.append(counted.total() - sum(wanted[1:]))
        found = journal.rows[tick]
        made.records += found[0]
        missing["records"] += max(0, wanted[0] - found[0])
        more["records"] += max(0, found[0] - wanted[0])
        if found != tuple(wanted):
            made.faults.append(f"tick {tick}: {found} in the journal, {tuple(wanted)} in the log")
    made.late, made.dead = journal.late, journal.dead.total()
    made.later = journal.late - log.late
    made.lost += max(0, missing["records"] - made.later) + max(0, log.dead_letters - made.dead)
    made.twice += more["records"] + max(0, made.dead - log.dead_letters)
    if missing["records"] == made.later:  # late, and that is told: no fault
        made.faults = [one for one in made.faults if not one.startswith("tick ")]
