"""The live series of a running engine, as the HTTP API sees them: preview, create, halt, list.

Rules: a definition is handed over as it was sent, byte for byte; the engine's side decides what it means. What an
answer may hold is written in `serve.models.asked` and nothing else leaves, so an engine that says more cannot leak
it. Amounts are decimal strings. This file knows neither HTTP nor the engine.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

LARGEST_DEFINITION = 64 * 1024  # bytes


class LiveSeriesService(Protocol):
    """One engine's mechanisms. Calls may overlap; the server of live series puts them in order.

    A `definition` is a JSON object like an entry of `series:` in the pipeline file. `analyst` names whose quota pays,
    "" nobody's. `start` is the first tick that a series sees, `end` the first that it does not see (None: it runs);
    `start_time` and `end_time` are when these ticks begin (None: not known yet). `error` is the half-width expected at
    tick `error_tick` with `confidence`. Errors name keys and never repeat a value of the definition:

    Raises:
        UsageError: the definition is not one, or its name is taken; the text lists every problem with its key.
        BudgetRefused: it does not fit; the text says asked, spent, left, and the largest that would.
        UnknownMechanism: no mechanism of this name runs.
        FailClosed, WorldError: the engine is stopping, or could not make the charge durable.
    """

    async def create(self, definition: bytes, analyst: str) -> Mapping[str, Any]:
        """Charge, then create; the answer is `Created`. An error changed nothing."""
        ...

    async def halt(self, name: str) -> Mapping[str, Any]:
        """End it; under the pure and the basic filter this frees later ticks. The answer is `Halted`."""
        ...

    async def preview(self, definition: bytes, analyst: str) -> Mapping[str, Any]:
        """What `create` would do now, changing nothing: `Preview`; `spent` is in the filter's `unit`."""
        ...

    def queries(self) -> Sequence[Mapping[str, Any]]:
        """Every series, the file's too, each a `Query`."""
        ...
