"""Pipelines on the broker that asks for a login: their files, their records, and the commands that are run on them."""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from kafka.secured_broker import CREATE, TOPIC, TRANSACTION, USERS, WRITE, Secured, grant, needed

from stream_dp.cli.main import code_of

TICKS = 3
_LITERAL = 3


class SecuredWorld(NamedTuple):
    """A pipeline NAME that comes in by WAY, in a folder with its key and its data."""

    secured: Secured
    folder: Path
    name: str
    way: str

    @property
    def topic(self) -> str:
        return f"{self.name}-events"

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.yaml"

    def write(self, *, wall: bool = False, **security: Any) -> "SecuredWorld":
        """Write the file, with changes to `source.security`; None leaves a key out."""
        said = {**self.secured.yaml(self.way), **{k: str(v) for k, v in security.items() if v}}
        said = {key: value for key, value in said.items() if security.get(key, "") is not None}
        replay = {"kind": "replay", "field": "time", "start": "2026-01-01T00:00:00Z"}
        clock = (
            {"kind": "wall", "step": "1s"} if wall else {**replay, "step": "1h", "horizon": TICKS}
        )
        source = {"kind": "kafka", "topic": self.topic, "bootstrap": self.secured.at(self.way)}
        pipeline = {
            "version": 1,
            "name": self.name,
            "source": {**source, "security": said},
            "schema": {"time": {"type": "time"}},
            "privacy": {"epsilon": "1"},
            "clock": clock,
            "series": [{"name": "n", "statistic": "count", "epsilon": "1"}],
        }
        self.file.write_text(yaml.safe_dump(pipeline))
        return self

    def data(self) -> Path:
        """A file of records, one in each tick."""
        path = self.folder / "data.jsonl"
        times = [f"2026-01-01T0{hour}:10:00Z" for hour in range(TICKS)]
        path.write_text("".join(f"{json.dumps({'time': time})}\n" for time in times))
        return path

    def grant(self, *, without: Sequence[tuple[int, int]] = (), feeding: bool = True) -> None:
        """Grant what the documentation says, without some (kind, right); and what makes and feeds the topic."""
        user = USERS[self.way]
        grants = [
            one for one in needed(user, self.name, self.topic) if (one[0], one[3]) not in without
        ]
        if feeding:
            feed = f"{self.topic}.stream-dp-feed"
            grants += [(TOPIC, self.topic, _LITERAL, right, user) for right in (WRITE, CREATE)]
            grants.append((TRANSACTION, feed, _LITERAL, WRITE, user))
        asyncio.run(grant(self.secured, grants))

    def feed(self) -> int:
        """Feed the topic by `replay`; return its exit code."""
        where = ("--topic", self.topic, "--pipeline", self.file, "--key-file", self.key())
        return self.command("replay", self.data(), *where)

    def command(self, *arguments: object) -> int:
        """Run a command; return its exit code."""
        return code_of([str(one) for one in arguments])

    def key(self) -> Path:
        path = self.folder / "operator.key"
        if not path.exists():
            path.write_bytes(os.urandom(32))
            path.chmod(0o600)
        return path
