"""The checker catches what broken engines do: in doctored evidence, and in runs of engines broken on purpose."""

import ast
import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faults.cases import Case, flights
from faults.checker import findings, unfounded
from faults.evidence import Evidence, EvidenceError, Public, embedded, opened, sealed_again

INDEPENDENT = ("checker.py", "evidence.py", "kafka_evidence.py")
Doctor = Callable[[Evidence], None]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    made = flights(tmp_path_factory.mktemp("checker"), ticks=60)
    made.finish("--zero-noise")
    return made


@pytest.fixture
def evidence(case: Case) -> Evidence:
    return embedded(case.journal, case.releases, case.key, case.expected.pipeline)


def rules(found: list[str]) -> set[str]:
    return {line.partition(":")[0] for line in found}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_it_imports_nothing_of_the_engine(name: str) -> None:
    tree = ast.parse((Path(__file__).parent / name).read_text())
    imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    assert [module for module in imported if module.startswith("stream_dp")] == []


def test_a_sound_run_has_no_findings(case: Case, evidence: Evidence) -> None:
    assert findings(case.expected, case.events, evidence) == []


def commit_of(evidence: Evidence, tick: int) -> dict[str, Any]:
    return next(commit for commit in evidence.commits if tick in commit["ticks"])


def _lost_tick(evidence: Evidence) -> None:
    commit = commit_of(evidence, 7)
    at = commit["ticks"].index(7)
    for name in ("ticks", "rows", "seeds"):
        commit[name] = [*commit[name][:at], *commit[name][at + 1 :]]


def _bump(evidence: Evidence, tick: int, by: int) -> None:
    commit = commit_of(evidence, tick)
    at = commit["ticks"].index(tick)
    row = commit["rows"][at]
    commit["rows"] = [*commit["rows"]]
    commit["rows"][at] = [row[0] + by, *row[1:]]


def _doubled_event(evidence: Evidence) -> None:
    _bump(evidence, 20, 1)


def _moved_event(evidence: Evidence) -> None:
    _bump(evidence, 20, -1)
    _bump(evidence, 21, 1)


def _doubled_record(evidence: Evidence) -> None:
    evidence.public.insert(10, evidence.public[9])


def _lost_release(evidence: Evidence) -> None:
    del evidence.public[33]


def _swapped(evidence: Evidence) -> None:
    public = evidence.public
    public[4], public[5] = public[5], public[4]


def _other_version(evidence: Evidence) -> None:
    evidence.public[12] = replaced(evidence.public[12])


def _aborted_version(evidence: Evidence) -> None:
    evidence.public.insert(12, replaced(evidence.public[12])._replace(committed=False))


def _torn_version(evidence: Evidence) -> None:
    evidence.torn = evidence.public[12].body[:-8] + b"9"


def _charge_missing(evidence: Evidence) -> None:
    evidence.commits[0]["charges"] = []


def _charged_late(evidence: Evidence) -> None:
    evidence.commits[1]["charges"] = evidence.commits[0]["charges"]
    evidence.commits[0]["charges"] = []


def _charged_twice(evidence: Evidence) -> None:
    evidence.commits[1]["charges"] = evidence.commits[0]["charges"]


def _seed_again(evidence: Evidence) -> None:
    commit = evidence.commits[1]
    commit["seeds"] = [commit["seeds"][0]] * len(commit["seeds"])


def _letter_lost(evidence: Evidence) -> None:
    evidence.commits[1]["dead_letters"] = [["dead-letter", 0, "not_json", None, 1, [[5, 5]]]]


def _said_private(evidence: Evidence) -> None:
    evidence.commits[0]["header"]["private"] = True


def _wrong_key(evidence: Evidence) -> None:
    evidence.public[3] = evidence.public[3]._replace(key=b"departures", timestamp=0)


def _sequence_gap(evidence: Evidence) -> None:
    releases = evidence.commits[-1]["releases"]
    evidence.commits[-1]["releases"] = [[kind, r[0] + 1, *r[1:]] for kind, *r in releases]


def replaced(record: Public) -> Public:
    """The same release with another value: a second version."""
    said = json.loads(record.body)
    said["band"] += 1
    return record._replace(body=json.dumps(said, separators=(",", ":")).encode())


@pytest.mark.parametrize(
    ("doctor", "rule"),
    [
        (_lost_tick, "ticks"),
        (_doubled_event, "rows"),
        (_moved_event, "rows"),
        (_doubled_record, "published"),
        (_lost_release, "published"),
        (_swapped, "published"),
        (_other_version, "versions"),
        (_aborted_version, "versions"),
        (_torn_version, "versions"),
        (_charge_missing, "ledger"),
        (_charged_late, "ledger"),
        (_charged_twice, "ledger"),
        (_seed_again, "seeds"),
        (_letter_lost, "letters"),
        (_said_private, "ledger"),
        (_wrong_key, "records"),
        (_sequence_gap, "sequences"),
    ],
)
def test_it_finds_what_was_doctored(
    case: Case, evidence: Evidence, doctor: Doctor, rule: str
) -> None:
    doctored = deepcopy(evidence)
    doctor(doctored)
    doctored.commits = opened(
        sealed_again(doctored.commits, case.key, case.expected.pipeline),
        case.key,
        case.expected.pipeline,
    )
    assert rule in rules(findings(case.expected, case.events, doctored))


@pytest.mark.parametrize("index", range(5))
@pytest.mark.parametrize("change", [-1, 1])
def test_it_finds_a_value_off_by_one(
    case: Case, evidence: Evidence, index: int, change: int
) -> None:
    """In the journal and in public alike, so that only the value itself is wrong."""
    changed = deepcopy(evidence)
    at = 5 * 50 + index  # each of the five series at tick 50
    said = json.loads(changed.public[at].body)
    if "value" in said:
        said["value"] += change
    elif "fired" in said:
        said["fired"] = said["fired"][1:] if said["fired"] else ["other"]
    else:
        said["values"][next(iter(said["values"]))] += change
    body = json.dumps(said, separators=(",", ":")).encode()
    changed.public[at] = changed.public[at]._replace(body=body)
    for commit in changed.commits:
        for release in commit["releases"]:
            if release[1] == at + 1:
                release[4] = body
    assert rules(findings(case.expected, case.events, changed)) == {"values"}


def test_it_finds_an_event_the_engine_never_saw(case: Case, evidence: Evidence) -> None:
    found = rules(findings(case.expected, case.events[1:], evidence))
    assert {"rows", "values"} <= found


@pytest.mark.parametrize("damage", ["byte", "key", "order", "cut", "name"])
def test_it_opens_no_damaged_journal(case: Case, evidence: Evidence, damage: str) -> None:
    name = case.expected.pipeline
    blobs = sealed_again(evidence.commits, case.key, name)
    key = case.key
    match damage:
        case "byte":
            blobs[1] = blobs[1][:-1] + bytes([blobs[1][-1] ^ 1])
        case "key":
            key = bytes(32)
        case "order":
            blobs = [blobs[1], blobs[0]]
        case "cut":
            blobs = blobs[1:]
        case "name":
            name = "another"
    with pytest.raises(EvidenceError):
        opened(blobs, key, name)


PUBLISH_FIRST = """
from stream_dp.engine.gate import Gate
async def commit(self, commit, sealed):
    await self.publish(commit.releases)
    await self.ports.journal.append(commit, sealed)
Gate.commit = commit
"""
# Twenty positions, not one: the hours of a night are empty, and skipping an empty hour loses nothing.
SKIPS_RECORDS = """
from stream_dp.files.files import FileSource
seek = FileSource.seek
async def skip(self, positions, behind):
    await seek(self, {0: positions[0] + 20} if positions else {}, behind)
FileSource.seek = skip
"""
DIES_ON_THE_WAY = ("--until-end", "--dawdle", "2", "--crash", "before-commit:12")


def test_it_finds_an_engine_that_publishes_before_it_commits(tmp_path: Path) -> None:
    case = flights(tmp_path, ticks=100, block=1)
    assert case.run(*DIES_ON_THE_WAY, patch=PUBLISH_FIRST).returncode == -9
    left = embedded(case.journal, case.releases, case.key, case.expected.pipeline)
    assert rules(unfounded(left)) == {"versions"}
    assert case.run("--until-end").returncode == 4  # and the engine does not go on from there


def test_it_finds_an_engine_that_loses_records_at_a_restart(tmp_path: Path) -> None:
    case = flights(tmp_path, ticks=100, block=1)
    options = ("--zero-noise", *DIES_ON_THE_WAY)
    assert case.run(*options, patch=SKIPS_RECORDS).returncode == -9
    assert case.run("--zero-noise", "--until-end", patch=SKIPS_RECORDS).returncode == 0
    assert "rows" in rules(case.findings())
    assert findings(replace(case.expected, zero_noise=False), case.events, embedded(
        case.journal, case.releases, case.key, case.expected.pipeline)) != []  # fmt: skip
