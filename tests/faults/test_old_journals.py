"""What a released version wrote is read by this one, which goes on where it ended; what is newer is refused.

Every folder of tests/fixtures/journals is one released version. Where its journal stops being readable here, a kind,
a version or a meaning has changed: docs/formats.md tells what to do instead.
"""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fixtures.old_journals import FOLDERS, ledger, ready

from faults.cases import PRODUCT, Case
from faults.evidence import opened, releases_of, sealed_again, sqlite_rows
from stream_dp.operate.keys import sealer_for
from stream_dp.operate.run.running import Run
from stream_dp.operate.run.wiring import open_ports
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load

Change = Callable[[list[dict[str, Any]]], None]


@pytest.fixture(params=FOLDERS, ids=lambda folder: str(folder.name))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return ready(request.param, "embedded", tmp_path)


def blobs(case: Case) -> list[bytes]:
    rows = sqlite_rows(case.journal, "SELECT sealed FROM commits ORDER BY sequence")
    return [blob for (blob,) in rows]


def commits(case: Case) -> list[dict[str, Any]]:
    return opened(blobs(case), case.key, case.expected.pipeline)


def test_it_holds_what_a_journal_can_hold(case: Case) -> None:
    before = commits(case)
    assert before[0]["header"]["private"] is True
    series = {json.loads(release[3])["series"] for release in releases_of(before)}
    assert {"departures", "by_airline", "by_destination", "busiest", "late"} < series
    last = max(n for n, commit in enumerate(before) if commit["snapshot"])
    for some in (before[:last], before[last:]):
        assert {one["kind"] for c in some for one in c["changes"]} == {"created", "halted"}
    assert sum(len(commit["ticks"]) for commit in before[last + 1 :]) > 2
    assert any(commit["dead_letters"] for commit in before)
    assert {charge["analyst"] for commit in before for charge in commit["charges"]} == {"", "ann"}


def require_going_on(case: Case, patch: str = "") -> None:
    public, sealed, told = case.releases.read_bytes(), blobs(case), ledger(case)
    recorded = [release[3] for release in releases_of(commits(case))]
    assert len(public.splitlines()) < len(recorded)  # some were durable and not yet published

    done = case.run("--until-end", kit=False, patch=patch)

    assert done.returncode == 0, done.stderr
    assert case.releases.read_bytes().startswith(public)
    assert blobs(case)[: len(sealed)] == sealed
    assert case.releases.read_bytes().splitlines()[: len(recorded)] == recorded
    ticks = [tick for commit in commits(case) for tick in commit["ticks"]]
    assert ticks == list(range(case.expected.horizon))
    after = ledger(case)
    assert after["journal"] == "whole"
    assert told["ticks"] < after["ticks"] == case.expected.horizon
    assert [one | {"halt": None} for one in after["charges"]] == [
        one | {"halt": None} for one in told["charges"]
    ]  # what a halt gives back depends on the next tick


def test_it_is_read_and_goes_on(case: Case) -> None:
    require_going_on(case)


FIXTURES = Path(__file__).parents[1] / "fixtures"
FORMER_CHOICE, FORMER_SHAPE = FIXTURES / "former_choice", FIXTURES / "former_shape"
of_both = pytest.mark.parametrize("former", [FORMER_CHOICE, FORMER_SHAPE], ids=lambda f: f.name)
NEW_RULE = """
from stream_dp.pipeline import builder
before = builder._built
builder._built = lambda spec, first, meaning: before(spec, first, builder.Meaning.NOW)
"""
NEW_RULE_LIVE = """
from stream_dp.engine import proposals
proposals.Meaning = [proposals.Meaning.NOW]
"""


@of_both
def test_what_was_chosen_by_a_former_rule_stays(former: Path, tmp_path: Path) -> None:
    """Commit 2209c495 wrote the first: `auto` chose trees for series of the file and a live one, where an HSS is chosen
    now; `split: band` another share. Commit f55ea1ab wrote the second: nested trees of the file and of a live series
    have other shapes now.
    """
    case = ready(former, "embedded", tmp_path)
    [before] = {commit["header"]["parts"]["mechanisms"] for commit in commits(case)[:1]}
    now = build(load(case.pipeline))
    assert now.parts["mechanisms"] != before == build(now.spec, None, before).parts["mechanisms"]
    assert build(now.spec, None, "neither").parts == now.parts
    require_going_on(case)


@pytest.mark.parametrize(
    ("twin", "refused"),
    [
        (NEW_RULE, "changed: the mechanisms that this version"),
        (
            NEW_RULE_LIVE,
            "the charge for later differs from its price|later would run on with another",
        ),
    ],
)
@of_both
def test_a_pipeline_that_switches_its_mechanism_is_caught(
    former: Path, twin: str, refused: str, tmp_path: Path
) -> None:
    case = ready(former, "embedded", tmp_path)
    before = blobs(case)
    with pytest.raises(AssertionError, match=refused):
        require_going_on(case, twin)
    assert blobs(case) == before


@of_both
def test_a_new_journal_is_of_the_new_rule(former: Path, tmp_path: Path) -> None:
    case = ready(former, "embedded", tmp_path)
    case.journal.unlink()
    case.releases.unlink()
    case.finish()
    [header] = [commit["header"] for commit in commits(case)[:1]]
    assert header["parts"]["mechanisms"] == build(load(case.pipeline)).parts["mechanisms"]
    assert ledger(case)["journal"] == "whole"


def told_by(case: Case, command: str, *options: str, status: int = 0) -> str:
    """What a command says of the pipeline file."""
    start = f"from {PRODUCT} import start; start()"
    done = subprocess.run(
        [sys.executable, "-c", start, command, str(case.pipeline), *options],
        env=case.environment(), capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    return done.stdout


def snapshots_compared(case: Case) -> int:
    """In how many snapshots the trace of its journal is found again."""
    trace = told_by(case, "audit", "--trace", str(case.journal), "--json")
    return int(json.loads(trace)["snapshots"])


def derived(case: Case) -> dict[str, str]:
    """The rule behind each series of a file that may be changed, and behind each live one, as the ledger shows it."""
    waiting, found = [ledger(case)["derivation"]], dict[str, str]()
    for step in waiting:
        waiting += step["premises"]
        found[step["subject"]] = step["rule"]
    return {name: found[name] for name in ("chosen", "split", "later", "anew") if name in found}


def test_a_changed_file_and_all_that_reads_its_journal_keep_the_former_choice(
    tmp_path: Path,
) -> None:
    """Changed by `--apply` before it goes on: the series of the first file and the live one stay, a new one comes."""
    case = ready(FORMER_CHOICE, "embedded", tmp_path)
    shown = json.loads(case.pipeline.read_text())
    shown["series"].append(shown["series"][0] | {"name": "anew"})
    case.pipeline.write_text(json.dumps(shown))
    told_by(case, "plan", "--against", "running", status=6)

    done = case.run("--until-end", "--apply", kit=False)

    assert done.returncode == 0, done.stderr
    told_by(case, "plan", "--against", "running")
    tree, hss = "sparse parallel composition", "composite mechanism"
    assert derived(case) == {"chosen": tree, "split": hss, "later": tree, "anew": hss}
    assert snapshots_compared(case) > 0


FORMER_STATES = FIXTURES / "former_states"
EVERY_THIRD = "from stream_dp.engine import engine; engine.SNAPSHOT_TICKS = 3"


def test_states_that_know_no_ages_go_on_and_are_compared_without_them(tmp_path: Path) -> None:
    """Commit 2209c495 wrote it: an HSS bin by bin, in snapshots of version 1. Columns that cross no more keep none."""
    case = ready(FORMER_STATES, "embedded", tmp_path)
    assert snapshots_compared(case) == 2
    require_going_on(case, EVERY_THIRD)
    assert snapshots_compared(case) > 2


async def test_checkpoints_with_states_that_know_no_ages_let_a_journal_be_pruned(
    tmp_path: Path,
) -> None:
    case = ready(FORMER_STATES, "embedded", tmp_path)
    spec = load(case.pipeline)
    ports = open_ports(spec, sealer_for(spec, tmp_path / "operator.key"), marks=tmp_path / "marks")
    await ports.journal.open()
    newer, older = ports.journal.checkpoints()
    await Run(build(spec), ports).engine.tried(newer, older)
    await ports.journal.close()


def refused(case: Case) -> str:
    """Run it: exit 4, one line, and everything is as it was."""
    before = (case.releases.read_bytes(), blobs(case))
    done = case.run("--until-end", kit=False)
    assert (done.returncode, done.stdout) == (4, ""), done.stderr
    assert done.stderr.startswith("stream-dp: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "use the version that wrote it" in done.stderr
    assert (case.releases.read_bytes(), blobs(case)) == before
    return done.stderr


def test_newer_tables_and_newer_releases_are_refused(case: Case) -> None:
    lines = case.releases.read_bytes().splitlines(keepends=True)
    newer = lines[-1].replace(b'"v":1,', b'"v":99,')
    case.releases.write_bytes(b"".join([*lines[:-1], newer]))
    assert "has form 99 of releases" in refused(case)
    case.releases.write_bytes(b"".join(lines))
    with closing(sqlite3.connect(case.journal)) as database, database:
        database.execute("PRAGMA user_version = 99")
    assert "tables of version 99" in refused(case)


def _first(before: list[dict[str, Any]]) -> None:
    before[0]["version"] = 99


def _last(before: list[dict[str, Any]]) -> None:
    before[-1] |= {"version": 99, "rows": "in another form"}


def _state(before: list[dict[str, Any]]) -> None:
    snapshot = [commit["snapshot"] for commit in before if commit["snapshot"]][-1]
    state = msgspec.msgpack.decode(snapshot["states"][0])
    snapshot["states"][0] = msgspec.msgpack.encode({**state, "version": 99})


def _kind(before: list[dict[str, Any]]) -> None:
    snapshot = [commit["snapshot"] for commit in before if commit["snapshot"]][-1]
    state = msgspec.msgpack.decode(snapshot["states"][0])
    snapshot["states"][0] = msgspec.msgpack.encode({**state, "$": "quantile-state"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_first, "commit 0 of the journal of journal-of-0-1-0 has version 99"),
        (_last, "has version 99"),
        (_state, "has version 99"),
        (_kind, "has a part of the kind 'quantile-state'"),
    ],
)
def test_what_a_newer_version_wrote_is_refused(case: Case, change: Change, message: str) -> None:
    """Sealed with the right key in an unbroken chain."""
    before = commits(case)
    change(before)
    with closing(sqlite3.connect(case.journal)) as database, database:
        for number, blob in enumerate(sealed_again(before, case.key, case.expected.pipeline)):
            database.execute("UPDATE commits SET sealed = ? WHERE sequence = ?", (blob, number))
    assert message in refused(case)
