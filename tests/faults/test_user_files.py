"""A pipeline file that protects users, run on a file, killed at fixed points, and run to its end."""

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from oracles.user_caps import Event, Mark, judge

from faults.cases import Case, make_key
from faults.checker import Expected
from stream_dp.cli.main import code_of

TICKS, CAP, WINDOW = 40, 2, 5
KEYS = ("a", "b", "other")
PIPELINE = """
version: 1
name: people
source: {kind: file, path: events.csv}
schema:
  time: {type: time}
  customer: {type: text}
  key: {type: category, domain: [a, b]}
privacy: {unit: user, user: customer, max_events: 2, per: 5h, epsilon: 8}
clock: {kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: 40}
journal: {kind: sqlite, path: pipeline.journal}
releases: {path: releases.jsonl}
series:
  - {name: by_key, statistic: histogram, by: key, method: tree, epsilon: 8}
"""
POINTS = ("before-commit:4", "mid-commit:3", "after-commit:3", "mid-publish:2", "after-publish:3")


def events() -> list[Event]:
    """Some in each tick, by few users, in the order of their times."""
    random = Random(7)
    users = [f"user {number}" for number in range(12)]
    return [
        Event(random.choice(users[: 1 + random.randrange(12)]), tick, random.choice(KEYS))
        for tick in range(TICKS)
        for _ in range(random.randrange(12))
    ]


def test_users_are_capped_as_the_oracle_says_through_kills(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    make_key(tmp_path)
    lines = [
        f"2026-01-{1 + e.tick // 24:02}T{e.tick % 24:02}:30:00Z,{e.user},{e.key}" for e in events()
    ]
    lines.insert(5, "2026-01-01T00:40:00Z,,a")
    (tmp_path / "events.csv").write_text("\n".join(["time,customer,key", *lines, ""]))
    case, seen = Case(tmp_path, Expected("people", 0, 3_600_000, TICKS, {}, (), ()), ()), b""
    for point in POINTS:
        ended = case.run("--until-end", "--dawdle", "2", "--crash", point)
        assert ended.returncode == -9, ended.stderr
        public = case.releases.read_bytes() if case.releases.exists() else b""
        whole = public[: public.rfind(b"\n") + 1]
        assert whole.startswith(seen)
        seen = whole
    case.finish()
    done = case.releases.read_bytes()
    assert done.startswith(seen)
    assert len(done.splitlines()) == TICKS
    for line in done.splitlines():
        keys = json.loads(line).keys() - {"not_private"}
        assert keys == {"v", "sequence", "series", "tick", "end", "values", "band", "confidence"}
    assert b"user 1" not in case.journal.read_bytes()

    log: list[Event | Mark] = []
    for tick in range(TICKS):
        log += [*(each for each in events() if each.tick == tick), Mark(tick)]
    expected, commits = judge({0: log}, CAP, WINDOW), case.left().commits
    rows: Counter[tuple[int, str]] = Counter()
    for commit in commits:
        for tick, row in zip(commit["ticks"], commit["rows"], strict=True):
            rows.update({(tick, key): n for key, n in zip(KEYS, row, strict=True) if n})
    assert rows == expected.rows
    assert sum(commit["capped"] for commit in commits) == expected.capped > 50
    letters = [letter for commit in commits for letter in commit["dead_letters"]]
    assert [(each[2], each[3], each[4]) for each in letters] == [("wrong_type", "customer", 1)]


def test_the_plan_says_what_is_remembered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pipeline.yaml"
    for text, words in (
        (PIPELINE, "remembers every user who counts, until the window is over"),
        (PIPELINE.replace("max_events: 2, per: 5h", "overall: 2, share: 1/4"), "1/4 of all users"),
    ):
        file.write_text(text)
        assert code_of(["plan", str(file), "--notes"]) == 0
        assert words in " ".join(capsys.readouterr().out.split())
