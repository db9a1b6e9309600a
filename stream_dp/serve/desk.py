"""The desk: where a running engine is asked to preview, create and halt mechanisms.

Rules: a definition is handed over as it was sent, byte for byte; the desk decides what it means. What an answer may
hold is listed here and nothing else leaves (`chosen`), so an engine that says more cannot leak it. Amounts are
decimal strings. This file knows neither HTTP nor the engine.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

LARGEST_DEFINITION = 64 * 1024  # bytes

CREATED = ("name", "start", "epsilon", "rule", "left")
HALTED = ("name", "end", "left")
PREVIEWED = (
    "fits", "asked", "spent", "left", "largest", "last_tick", "error", "confidence", "derivation",
)  # fmt: skip
QUERY = ("name", "statistic", "analyst", "epsilon", "start", "end", "created")


class Desk(Protocol):
    """One engine's mechanisms. Calls may overlap; the desk puts them in order.

    A `definition` is a JSON object like an entry of `series:` in the pipeline file. `analyst` names whose quota pays,
    "" nobody's. Errors name keys and never repeat a value of the definition:

    Raises:
        UsageError: the definition is not one, or its name is taken; the text lists every problem with its key.
        BudgetRefused: it does not fit; the text says asked, spent, left, and the largest that would.
        UnknownMechanism: no mechanism of this name runs.
        FailClosed, WorldError: the engine is stopping, or could not make the charge durable.
    """

    async def create(self, definition: bytes, analyst: str) -> Mapping[str, Any]:
        """Charge, then create: {name, start (its first tick), epsilon, rule, left}; an error changed nothing."""
        ...

    async def halt(self, name: str) -> Mapping[str, Any]:
        """End it; under the pure filter this frees later ticks: {name, end (first tick it does not see), left}."""
        ...

    async def preview(self, definition: bytes, analyst: str) -> Mapping[str, Any]:
        """What `create` would do, changing nothing: {fits, asked, spent, left, largest, last_tick, error (half-width
        expected then), confidence, derivation}.
        """
        ...

    def queries(self) -> Sequence[Mapping[str, Any]]:
        """Every series, the file's too: {name, statistic, analyst, epsilon, start, end (None: runs), created}."""
        ...


def chosen(answer: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """The documented part of an answer.

    >>> chosen({"name": "late", "events": 4711, "left": "0.4"}, HALTED)
    {'name': 'late', 'left': '0.4'}
    """
    return {key: answer[key] for key in keys if key in answer}
