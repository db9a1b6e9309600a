"""The judge of a run: recomputes everything from the source and compares. Imports nothing of the engine.

`findings` gives one line per broken rule, beginning with the rule's name; no line means that nothing was lost,
nothing counted twice, and every release exists in exactly one version, also among aborted records.
Without noise the values are recomputed too; with noise only the exact rows can be.
"""

import bisect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

from faults.evidence import Event, Evidence, Letter, content, letters_of, releases_of

Row: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SeriesRule:
    """What a series promises; `statistic` is count, histogram, hss, maximum or alerts."""

    name: str
    statistic: str
    by: str | None = None
    at_least: tuple[str, int] | None = None
    threshold: int = 0

    @property
    def feature(self) -> tuple[Any, ...]:
        """Series that count the same share their part of the row."""
        return self.by, self.at_least

    def counts(self, event: Mapping[str, Any]) -> bool:
        if self.at_least is None:
            return True
        value = event.get(self.at_least[0])
        return value is not None and value >= self.at_least[1]


@dataclass(frozen=True, slots=True)
class Expected:
    """What is public about a pipeline, and the kind of run that is judged."""

    pipeline: str
    origin: int
    step: int
    horizon: int
    domains: Mapping[str, Sequence[str]]
    series: tuple[SeriesRule, ...]
    charges: tuple[tuple[str, int], ...]
    zero_noise: bool = True
    private: bool = False
    letters: tuple[Letter, ...] = ()

    def keys(self, rule: SeriesRule) -> tuple[str, ...]:
        """The entries of a series' part of the row."""
        return ("",) if rule.by is None else (*self.domains[rule.by], "other")

    def slices(self) -> dict[str, slice]:
        """Where each series' part of the row lies: in order of first need."""
        found: dict[tuple[Any, ...], slice] = {}
        width = 0
        for rule in self.series:
            if rule.feature not in found:
                found[rule.feature] = slice(width, width + len(self.keys(rule)))
                width = found[rule.feature].stop
        return {rule.name: found[rule.feature] for rule in self.series}

    def rows(self, events: Sequence[Event]) -> list[Row]:
        slices = self.slices()
        distinct = {rule.feature: (rule, slices[rule.name]) for rule in self.series}
        rows = [[0] * max(s.stop for s in slices.values()) for _ in range(self.horizon)]
        index = {
            by: {key: i for i, key in enumerate(domain)} for by, domain in self.domains.items()
        }
        for event in events:
            for rule, where in distinct.values():
                if rule.counts(event.fields):
                    at = 0
                    if rule.by is not None:
                        known = index[rule.by]
                        at = known.get(event.fields[rule.by], len(known))
                    rows[event.tick][where.start + at] += 1
        return [tuple(row) for row in rows]

    def end(self, tick: int) -> int:
        """The end of a tick, ms since 1970."""
        return self.origin + (tick + 1) * self.step


@dataclass(slots=True)
class _Case:
    expected: Expected
    evidence: Evidence
    rows: list[Row]
    events: int
    releases: list[tuple[int, str, int, bytes]] = field(default_factory=list)


def findings(expected: Expected, events: Sequence[Event], evidence: Evidence) -> list[str]:
    """Everything that is wrong with a run that has come to its end."""
    case = _Case(expected, evidence, expected.rows(events), len(events))
    case.releases = releases_of(evidence.commits)
    rules: list[Callable[[_Case], Iterator[str]]] = [
        _ledger, _ticks, _rows, _seeds, _letters, _sequences, _bodies, _published, _records,
    ]  # fmt: skip
    if expected.zero_noise:
        rules.append(_values)
    found = [f"{rule.__name__[1:]}: {text}" for rule in rules for text in rule(case)]
    return [*found, *unfounded(evidence)]


def unfounded(evidence: Evidence) -> list[str]:
    """What is visible and not durable as those bytes; holds at every moment, also between crashes."""
    durable = {sequence: body for sequence, _, _, body in releases_of(evidence.commits)}
    found = []
    for record in evidence.public:
        sequence = content(record.body)["sequence"]
        if durable.get(sequence) != record.body:
            state = "committed" if record.committed else "aborted"
            found.append(f"versions: release {sequence} is visible ({state}) with other bytes")
    if evidence.torn and not any(body.startswith(evidence.torn) for body in durable.values()):
        found.append("versions: a torn line is the beginning of no durable release")
    return found


def _ledger(case: _Case) -> Iterator[str]:
    """Charges come once, with the header, in a commit of their own before anything else."""
    if not case.evidence.commits:
        yield "the journal is empty"
        return
    first = case.evidence.commits[0]
    header = first["header"]
    if header is None or header["pipeline"] != case.expected.pipeline:
        yield "the first commit has no header of this pipeline"
    elif header["private"] != case.expected.private:
        yield "the header says the wrong thing about the noise"
    if first["ticks"] or first["releases"]:
        yield "the first commit charges and steps at once"
    charges = [(c["name"], c["epsilon"], c["delta"]) for c in first["charges"]]
    if charges != [(name, epsilon, 0) for name, epsilon in case.expected.charges]:
        yield f"the first commit charges {charges}"
    if any(commit["charges"] or commit["header"] for commit in case.evidence.commits[1:]):
        yield "something is charged after the first commit"


def _ticks(case: _Case) -> Iterator[str]:
    ticks = [tick for commit in case.evidence.commits for tick in commit["ticks"]]
    if ticks != list(range(case.expected.horizon)):
        yield "the ticks are not 0, 1, 2, ... up to the horizon, each once"
    for commit in case.evidence.commits[1:]:
        sizes = {len(commit[name]) for name in ("ticks", "rows", "seeds")}
        if len(sizes) != 1:
            yield f"commit {commit['sequence']} has not one row and one seed for each tick"


def _rows(case: _Case) -> Iterator[str]:
    """Every event counts once, in its tick, in each series that selects it."""
    for commit in case.evidence.commits:
        for tick, row in zip(commit["ticks"], commit["rows"], strict=False):
            if tick < len(case.rows) and tuple(row) != case.rows[tick]:
                yield f"tick {tick} has another row than its events give"
    if sum(commit["records"] for commit in case.evidence.commits) != case.events:
        yield "the number of records differs from the source's"
    if any(commit["late"] for commit in case.evidence.commits):
        yield "something was late"


def _seeds(case: _Case) -> Iterator[str]:
    seeds = [bytes(seed) for commit in case.evidence.commits for seed in commit["seeds"]]
    if len(set(seeds)) != len(seeds) or any(len(seed) != 32 for seed in seeds):
        yield "a seed is used twice, or is not of 32 bytes"


def _letters(case: _Case) -> Iterator[str]:
    """The dead letters are those expected, each at its place."""
    if Counter(letters_of(case.evidence.commits)) != Counter(case.expected.letters):
        yield "the commits hold other dead letters than expected"


def _sequences(case: _Case) -> Iterator[str]:
    """Releases are numbered 1, 2, ..., ticks first, then series."""
    order = [(t, rule.name) for t in range(case.expected.horizon) for rule in case.expected.series]
    if [(tick, series) for _, series, tick, _ in case.releases] != order:
        yield "the journal's releases are not one per tick and series, in order"
    if [release[0] for release in case.releases] != list(range(1, len(case.releases) + 1)):
        yield "the journal's releases are not numbered 1, 2, 3, ..."


def _bodies(case: _Case) -> Iterator[str]:
    for sequence, series, tick, body in case.releases:
        said = content(body)
        if (said["sequence"], said["series"], said["tick"]) != (sequence, series, tick):
            yield f"release {sequence} says it is something else"
        if said["end"] != _text(case.expected.end(tick)):
            yield f"release {sequence} names another end of its tick"
        if said.get("not_private", False) == case.expected.private:
            yield f"release {sequence} says the wrong thing about its noise"


def _published(case: _Case) -> Iterator[str]:
    """What readers of committed records see is the journal's releases, all of them, once, in order."""
    seen = [record.body for record in case.evidence.public if record.committed]
    if seen != [body for _, _, _, body in case.releases]:
        yield "the public log is not the journal's releases in their order"
    if case.evidence.torn:
        yield "the public file ends with a torn line"


def _records(case: _Case) -> Iterator[str]:
    """A record's key is its series, its timestamp the end of its tick."""
    for record in case.evidence.public:
        if record.key is not None:
            said = content(record.body)
            end = case.expected.end(said["tick"])
            if (record.key.decode(), record.timestamp) != (said["series"], end):
                yield f"release {said['sequence']} has another key or timestamp"


def _values(case: _Case) -> Iterator[str]:
    """Without noise every value follows from the source."""
    slices = case.expected.slices()
    for rule in case.expected.series:
        rows = [row[slices[rule.name]] for row in case.rows]
        bodies = [content(body) for _, name, _, body in case.releases if name == rule.name]
        wrong = _JUDGES[rule.statistic](rule, case.expected.keys(rule), rows, bodies)
        yield from (f"{rule.name} at tick {tick}" for tick in wrong)


def _totals(rows: Sequence[Row]) -> list[Row]:
    totals = [rows[0]] if rows else []
    for row in rows[1:]:
        totals.append(tuple(a + b for a, b in zip(totals[-1], row, strict=True)))
    return totals


def _answers(keys: Sequence[str], body: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The values of a release in the order of `keys`, 1 for each that fired; None where it has others."""
    if "value" in body:
        return (body["value"],)
    if "fired" in body:
        flags = tuple(int(key in body["fired"]) for key in keys)
        in_order = [key for key, flag in zip(keys, flags, strict=True) if flag]
        return flags if in_order == body["fired"] else None
    return tuple(body["values"].values()) if tuple(body["values"]) == tuple(keys) else None


def _exact(
    _: SeriesRule, keys: Sequence[str], rows: Sequence[Row], bodies: Sequence[Mapping[str, Any]]
) -> Iterator[int]:
    totals = _totals(rows)
    for body in bodies:
        if _answers(keys, body) != totals[body["tick"]]:
            yield body["tick"]


def _interval(
    rule: SeriesRule, keys: Sequence[str], rows: Sequence[Row], bodies: Sequence[Mapping[str, Any]]
) -> Iterator[int]:
    """Each entry as it exactly was at some tick, never an earlier one than before, and within the band."""
    totals = [tuple(0 for _ in keys), *_totals(rows)]
    if rule.statistic == "maximum":
        totals = [(max(total),) for total in totals]
    columns = [list(column) for column in zip(*totals, strict=True)]
    since = [0] * len(columns)
    for body in bodies:
        answer, now = _answers(keys, body), body["tick"] + 1
        if answer is None or len(answer) != len(columns):
            yield body["tick"]
            continue
        pairs = list(zip(columns, answer, strict=True))
        since = [max(at, bisect.bisect_left(*pair)) for at, pair in zip(since, pairs, strict=True)]
        if any(
            at > now or column[at] != value or abs(value - column[now]) > body["band"]
            for at, (column, value) in zip(since, pairs, strict=True)
        ):
            yield body["tick"]


def _alerts(
    rule: SeriesRule, keys: Sequence[str], rows: Sequence[Row], bodies: Sequence[Mapping[str, Any]]
) -> Iterator[int]:
    counts = [0] * len(keys)
    for row, body in zip(rows, bodies, strict=False):
        counts = [a + b for a, b in zip(counts, row, strict=True)]
        due = tuple(count >= rule.threshold for count in counts)
        if "fired" not in body or _answers(keys, body) != due:
            yield body["tick"]
        counts = [0 if count >= rule.threshold else count for count in counts]


_JUDGES: dict[str, Callable[..., Iterator[int]]] = {
    "count": _exact,
    "histogram": _exact,
    "hss": _interval,
    "maximum": _interval,
    "alerts": _alerts,
}


def _text(moment: int) -> str:
    text = datetime.fromtimestamp(moment / 1000, UTC).isoformat(
        timespec="milliseconds" if moment % 1000 else "seconds"
    )
    return text.replace("+00:00", "Z")
