"""kill -9 of an embedded engine while it is talked to: every message has one answer, in one version, over all kills."""

import hashlib
import hmac
import json
import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from faults.cases import Case, flights
from faults.checker import unfounded
from faults.evidence import Public, content
from faults.killing import DERIVED_HERE, Look, killed_at, killed_at_random, moved
from faults.talk_checker import Talk, answers_of, refusals_of, talk_findings, unfounded_answers
from stream_dp.files.sqlite import put_question

DAWDLE = ("--zero-noise", "--dawdle", "2")
POINTS = (
    "before-answer:1", "mid-answer:1", "after-answer:1", "before-commit:2", "mid-commit:2", "after-commit:2",
    "mid-answer:1", "after-commit:5",
)  # fmt: skip


class Talking:
    """One who sends messages to an engine through the file beside its journal."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.path = case.journal.with_name(f"{case.journal.name}.messages")
        self.queue: dict[int, str | None] = {}
        self.names = 0
        self.sent: list[bytes] = []

    def talk(self, chance: random.Random) -> None:
        """Send some messages: good ones, one that is refused, one that is none, and a copy of an old one."""
        for do in ("ask", "list", "ask", "preview", "nobody"):
            self._put(self._sealed(self._said(do)), good=True)
        self._put(b"no message" * chance.randint(0, 3), good=False)
        self._put(chance.choice(self.sent), good=False)

    def _said(self, do: str) -> dict[str, object]:
        match do:
            case "ask":
                return {"do": "ask", "series": "by_airline", "keys": ["UA", "AA"]}
            case "preview":
                dear = {"name": "dear", "statistic": "count", "epsilon": "1"}
                return {"do": "preview", "series": dear}
            case "nobody":
                return {"do": "ask", "series": "nobody"}
            case other:
                return {"do": other}

    def _sealed(self, said: dict[str, object]) -> bytes:
        """A message with its signature, by the words of the documentation."""
        self.names += 1
        until = (datetime.now(UTC) + timedelta(hours=9)).strftime("%Y-%m-%dT%H:%M:%SZ")
        message = json.dumps({"id": f"m{self.names}", "until": until, **said})
        name = self.case.expected.pipeline
        token = hmac.digest(self.case.key, f"stream-dp query\n{name}".encode(), "sha256").hex()
        signed = f"stream-dp message 1\n{name}\n{message}".encode()
        signature = hmac.digest(token.encode(), signed, hashlib.sha256).hex()
        return json.dumps({"v": 1, "message": message, "signature": signature}).encode()

    def _put(self, value: bytes, *, good: bool) -> None:
        put_question(self.path, value)
        place = len(self.queue) + 1
        self.queue[place] = json.loads(json.loads(value)["message"])["id"] if good else None
        self.sent.append(value)

    def heard(self) -> list[Public]:
        copy = self.path.with_name("copy-of-messages")
        moved(self.path, copy)
        with closing(sqlite3.connect(copy)) as database:
            rows = database.execute("SELECT number, body FROM answers ORDER BY number").fetchall()
        names = [content(body)["id"] for _, body in rows]
        keys = [None if name is None else name.encode() for name in names]
        return [Public(body, key=key) for (_, body), key in zip(rows, keys, strict=True)]

    def look(self) -> Look:
        async def now() -> list[str]:
            left = self.case.left()
            return unfounded(left) + unfounded_answers(self.heard(), answers_of(left.commits))

        return now

    def findings(self) -> list[str]:
        case = self.case
        talk = Talk(self.queue, self.heard(), answers_of(case.left().commits))
        return talk_findings(talk) + case.findings()


@pytest.mark.timeout(1000)
async def test_every_message_has_one_answer_over_kills(tmp_path: Path) -> None:
    """At fixed points, and at random moments between."""
    made, chance = flights(tmp_path, ticks=400), random.Random(11)
    case = Case(tmp_path, made.expected, made.events, DERIVED_HERE)
    talking = Talking(case)
    for number, point in enumerate(POINTS):
        talking.talk(chance)
        await killed_at(case, talking.look(), point, *DAWDLE)
        if number % 4 == 3:
            talking.talk(chance)
            assert await killed_at_random(case, chance, 4, talking.look(), *DAWDLE) > 0
    talking.talk(chance)
    case.finish(*DAWDLE)
    assert talking.findings() == []
    answers = [content(record.body) for record in talking.heard()]
    kinds = {part["kind"] for each in answers if "refused" in each for part in refusals_of(each)}
    # usage: asked before the first tick
    assert kinds - {"usage"} == {"unknown", "unreadable", "repeated"}
