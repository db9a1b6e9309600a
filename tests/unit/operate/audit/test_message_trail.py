"""What is shown of a journal: who asked what and when, the loss of users; and Gaussian series from file to releases."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from unit.live.live_series_worlds import SEALER
from unit.live.message_worlds import IDS, SCRIPT, WITH_ANALYSTS, MessageWorld
from unit.operate.audit.trace_worlds import blobs
from unit.pipeline.routing.user_worlds import FOR_EVER, PIPELINE, specification

from stream_dp import Pipeline
from stream_dp.accounting.situations import Alive
from stream_dp.engine.history import read_summary
from stream_dp.journal.keys import make_key
from stream_dp.operate.audit import ledger_view
from stream_dp.operate.audit.journal_access import Sealed
from stream_dp.operate.audit.ledger_view import ledger_json, loss_json
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.derivations import Part


async def test_the_trail_says_who_asked_what_and_when(monkeypatch: pytest.MonkeyPatch) -> None:
    world = MessageWorld(WITH_ANALYSTS, script=SCRIPT)
    await world.live()

    async def opened(*_: object) -> Any:
        return world.built.spec, SEALER

    monkeypatch.setattr(ledger_view, "opened", opened)

    async def commits(*_: object) -> Sealed:
        return Sealed(0, blobs(world))

    monkeypatch.setattr(ledger_view, "sealed_commits", commits)
    trail = [entry async for entry in ledger_view.message_trail(Path("unused"), None, print)]
    answers = world.said()
    for key in ("number", "tick", "end"):
        assert [entry[key] for entry in trail] == [answer[key] for answer in answers]
    assert [entry["id"] for entry in trail if entry["id"] is not None] == IDS
    assert sum(entry.get("records", 0) for entry in trail) == 3
    keys = ("analyst", "do", "series", "refused")
    shown = {entry["id"]: tuple(entry[key] for key in keys) for entry in trail}
    assert shown["c2"] == ("ann", "create", "anns", None)
    assert shown["b1"] == ("bob", "ask", "anns", "forbidden")
    assert shown["w1"] == ("", "ask", "watched", None)
    assert shown["h1"] == ("", "halt", "large", None)
    for private in ("threshold", "above", "values", str(10**6), str(10**5)):
        assert private not in json.dumps(trail)


async def test_the_ledger_counts_messages_by_analyst() -> None:
    world = MessageWorld(WITH_ANALYSTS, script=SCRIPT)
    await world.live()
    summary = await read_summary(blobs(world), SEALER, "shop")
    found = {
        (each["analyst"], each["do"]): (each["answered"], each["refused"])
        for each in ledger_json(world.built, summary)["messages"]
    }
    assert found == {
        ("", ""): (0, len([each for each in world.said() if each["id"] is None])),
        ("", "ask"): (4, 4), ("", "create"): (1, 1), ("", "halt"): (1, 0), ("", "list"): (1, 0),
        ("ann", "create"): (1, 0), ("ann", "preview"): (1, 0), ("bob", "ask"): (0, 1),
    }  # fmt: skip


WINDOWED = PIPELINE["privacy"]  # windows of four ticks
IN_TURN = [Alive(8 * at, 8 * at + 3) for at in range(3)]
IN_ONE = [Alive(4, 4), Alive(5, 5), Alive(6, None)]
AT_ONCE = [Alive(0, None)] * 3


def bound(privacy: object, times: list[Alive]) -> Fraction:
    built = build(specification(privacy=privacy))
    parts = [Part(built.chosen[0].derivation, time) for time in times]
    return Fraction(loss_json(built, parts)["loss"]["bound"])


@pytest.mark.parametrize(
    ("times", "expected"), [(IN_TURN, 2), (IN_ONE, 2), (AT_ONCE, 6), (AT_ONCE[:1], 2)]
)
@pytest.mark.parametrize("privacy", [WINDOWED, FOR_EVER])
def test_parts_never_alive_at_once_do_not_add_up(
    privacy: object, times: list[Alive], expected: int
) -> None:
    """Each of a user's events costs a k-th; the sum of all three, 6, was shown for all of these."""
    assert bound(privacy, times) == expected


GAUSSIAN = """
version: 1
name: shop
source: {{kind: file, path: orders.jsonl}}
schema:
  time: {{type: time}}
  country: {{type: category, domain: [AT, DE]}}
privacy: {{unit: event, neighbors: {relation}, epsilon: 1, delta: 1e-6, filter: {name}}}
clock: {{kind: replay, field: time, start: 2024-01-01T00:00:00Z, step: 1h, horizon: 12}}
journal: {{kind: sqlite, path: shop.journal}}
series:
  - {{name: orders, statistic: count, epsilon: 0.5, method: gaussian}}
  - {{name: by_country, statistic: histogram, by: country, epsilon: 0.5, method: gaussian}}
"""

HSS = """
  - {name: orders, statistic: histogram, by: country, epsilon: 0.5, method: hss, counter: gaussian}
  - {name: busiest, statistic: maximum, by: country, epsilon: 0.5, method: hss, counter: gaussian}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path / "home"))
    key = tmp_path / "key"
    make_key(key)
    monkeypatch.setenv("STREAM_DP_KEY_FILE", str(key))
    records = [
        {"time": f"2024-01-01T{hour:02d}:{minute:02d}:00Z", "country": ["AT", "DE"][minute % 2]}
        for hour in range(12)
        for minute in range(0, 60, 3)
    ]
    (tmp_path / "orders.jsonl").write_text("\n".join(map(json.dumps, records)))
    return tmp_path


def written(
    folder: Path, name: str, relation: str = "add_remove", series: str | None = None
) -> Path:
    """The file with this filter, and these series instead of its own."""
    path, text = folder / "pipeline.yaml", GAUSSIAN.format(name=name, relation=relation)
    if series:
        text = text.partition("series:\n")[0] + f"series:{series}"
    path.write_text(text)
    return path


@pytest.mark.parametrize("series", [None, HSS], ids=["counter", "hss"])
async def test_it_goes_on_with_the_same_bytes(folder: Path, series: str | None) -> None:
    """Committed ticks are computed again from their seeds at each start; the HSS holds its counter's state."""
    path, seen = written(folder, "zcdp", series=series), []
    for most in (5, 9, 100):
        async with Pipeline.load(path).running() as releases:
            async for release in releases:
                seen.append(release)
                if len(seen) >= most:
                    break
    bodies = (folder / "shop.releases.jsonl").read_bytes().splitlines()
    assert len(bodies) == 24
    assert {release.body for release in seen} <= set(bodies)
