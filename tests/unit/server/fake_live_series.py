"""A server of live series without an engine: it keeps a list and a budget of hundredths, and says more than it may."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stream_dp.errors import BudgetRefused, MostlyNoise, StreamDPError, UnknownMechanism, UsageError
from stream_dp.server.view import Sender

SECRET_COUNT = 471104
ALARMS = [{"name": "late", "usual": 25, "chance": 0.58, "keyed": True}]
TIME = "2026-01-18T06:04:00Z"
WRITES = (
    "POST /api/queries/preview", "POST /api/queries", "DELETE /api/queries/late", "POST /api/messages",
    "POST /api/series/total/ask",
)  # fmt: skip


class FakeLiveSeries:
    """Budget 1, one series of the file at 0.5; `now` is the next tick. `error`, if set, is raised by every write.

    `noise`, if set, is why what is created must be confirmed.
    """

    def __init__(self) -> None:
        self.now = 17
        self.error: Exception | None = None
        self.noise = ""
        self.asked: list[tuple[str, bytes | str, str]] = []
        self.senders: list[Sender] = []
        self.answer = b'{"v":1,"number":1,"id":"a","do":"list","tick":null,"end":"2026-01-01T00:00:00Z","answer":{}}'
        self.series: list[dict[str, Any]] = [
            self._entry("total", "count", "", 50, 0, created=False) | {"events": SECRET_COUNT}
        ]

    async def create(self, definition: bytes, analyst: str, sender: Sender) -> Mapping[str, Any]:
        self.senders.append(sender)
        wanted, cost = self._read("create", definition, analyst)
        if self.noise and not sender.accept_noise:
            raise MostlyNoise(f"series: {self.noise}")
        if cost > self.left:
            raise BudgetRefused(
                f"asked {cost / 100}, spent {1 - self.left / 100}, left {self.left / 100}, "
                f"largest that fits {self.left / 100}"
            )
        entry = self._entry(
            wanted["name"], wanted["statistic"], analyst, cost, self.now, created=True
        )
        self.series.append(entry)
        error = {"error": 17, "error_tick": 99, "confidence": 0.95}
        told = {"rule": "parallel over time", "left": self._left, "events": SECRET_COUNT}
        return {**entry, **told, **error}

    async def halt(self, name: str, sender: Sender) -> Mapping[str, Any]:
        self.senders.append(sender)
        self.asked.append(("halt", name, ""))
        if self.error is not None:
            raise self.error
        for entry in self.series:
            if entry["name"] == name and entry["end"] is None:
                entry |= {"end": self.now, "end_time": TIME}
                return {**self._halted(name), "left": self._left}
        raise UnknownMechanism("no query of this name runs")

    async def preview_halt(self, name: str, sender: Sender) -> Mapping[str, Any]:
        self.senders.append(sender)
        if self.error is not None:
            raise self.error
        if not any(entry["name"] == name for entry in self.series):
            raise UnknownMechanism("no query of this name runs")
        return {**self._halted(name), "left": self._left, "freed_everywhere": "0", "budget": "1"}

    def _halted(self, name: str) -> dict[str, Any]:
        given_back = {"records": "origin = {JFK}", "freed": "0.1", "largest": "0.5"}
        times = {"end": self.now, "end_time": TIME}
        return {"name": name, **times, **given_back, "events": SECRET_COUNT}

    async def message(self, text: bytes, signer: str) -> bytes:
        self.senders.append(Sender(signer))
        return self._answered("message", text)

    async def ask(self, name: str, parameters: bytes, sender: Sender) -> bytes:
        self.senders.append(sender)
        return self._answered(name, parameters)

    def _answered(self, what: str, said: bytes) -> bytes:
        self.asked.append((what, said, ""))
        if self.error is not None:
            raise self.error
        return self.answer

    async def preview(self, definition: bytes, analyst: str, sender: Sender) -> Mapping[str, Any]:
        self.senders.append(sender)
        _, cost = self._read("preview", definition, analyst)
        leaf = {
            "subject": "one counter",
            "rule": "proven mechanism",
            "source": "[HSV] Lemma 7.4",
            "guarantee": {"epsilon": cost / 100, "delta": 0, "neighbors": "add_remove"},
            "conditions": [{"name": "pure", "holds": True, "why": "no delta"}],
            "alternatives": [],
            "premises": [],
        }
        amounts = {"asked": str(cost / 100), "spent": str(1 - self.left / 100), "left": self._left}
        error = {"error": 17, "error_tick": 99, "error_unit": "events", "confidence": 0.95}
        return {
            "fits": cost <= self.left, **amounts, "largest": self._left, "unit": "epsilon", **error,
            **({"noise": self.noise, "false_alarms": ALARMS} if self.noise else {}),
            "derivation": {**leaf, "subject": "the query", "premises": [leaf]},
            "events": SECRET_COUNT,
        }  # fmt: skip

    def queries(self) -> Sequence[Mapping[str, Any]]:
        return self.series

    @property
    def left(self) -> int:
        running = [e for e in self.series if e["end"] is None]
        return 100 - sum(round(float(e["epsilon"]) * 100) for e in running)

    @property
    def _left(self) -> str:
        return str(self.left / 100)

    def _read(self, what: str, definition: bytes, analyst: str) -> tuple[dict[str, Any], int]:
        self.asked.append((what, definition, analyst))
        if self.error is not None:
            raise self.error
        try:
            wanted = json.loads(definition)
            cost = round(float(wanted["epsilon"]) * 100)
        except (ValueError, KeyError, TypeError):
            raise UsageError("epsilon: is missing; name: is missing") from None
        if any(entry["name"] == wanted["name"] for entry in self.series):
            raise UsageError("name: a series of this name exists")
        return {"statistic": "count", **wanted}, cost

    @staticmethod
    def _entry(
        name: str, statistic: str, analyst: str, cost: int, start: int, *, created: bool
    ) -> dict[str, Any]:
        return {
            "name": name, "statistic": statistic, "analyst": analyst, "epsilon": str(cost / 100), "start": start,
            "start_time": TIME, "end": None, "end_time": None, "created": created,
        }  # fmt: skip


def mapping_errors() -> list[tuple[StreamDPError, int]]:
    from stream_dp import errors

    return [
        (errors.UsageError("method: must be tree or hss"), 422),
        (errors.InvalidCost("epsilon: must be positive"), 422),
        (errors.NotDerivable("no rule applies"), 422),
        (errors.NoRoom("live series: ann has 2 of 2"), 409),
        (errors.BudgetRefused("asked 2, spent 0.5, left 0.5, largest 0.5"), 409),
        (errors.FailClosed("the journal is gone: restore it"), 503),
        (errors.WorldError("the disk is full"), 503),
    ]
