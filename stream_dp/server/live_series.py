"""The live series of a running engine, as the HTTP API sees them: preview, create, halt, list.

Rules: a definition is handed over as it was sent, byte for byte; the engine's side decides what it means. What an
answer may hold is written in `server.models.asked` and nothing else leaves, so an engine that says more cannot leak
it. Amounts are decimal strings. This file knows neither HTTP nor the engine.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

LARGEST_DEFINITION = 64 * 1024  # bytes


class Sender(NamedTuple):
    """Who asks: the analyst whose token was shown ("": the operator); and the `key` of the request, if it has one.

    `accept_noise`: what she creates shall run even if it fires mostly by noise.
    """

    signer: str = ""
    key: str = ""
    accept_noise: bool = False


BY_OPERATOR = Sender()
"""The operator, without a key."""


class LiveSeriesService(Protocol):
    """One engine's mechanisms. Calls may overlap; the server of live series puts them in order.

    The same request of a sender with the same `key` is done once and answered the same.

    A `definition` is a JSON object like an entry of `series:` in the pipeline file. `analyst` names whose quota pays,
    "" nobody's. `start` is the first tick that a series sees, `end` the first that it does not see (None: it runs);
    `start_time` and `end_time` are when these ticks begin (None: not known yet). `error` is the half-width expected at
    tick `error_tick` with `confidence`. Errors name keys and never repeat a value of the definition:

    Raises:
        UsageError: the definition is not one, or its name is taken; the text lists every problem with its key.
        MostlyNoise: it would fire mostly by noise, and the sender does not accept that.
        NotYours: the sender may not do this.  NotAccepted: too many, or the key was used for something else.
        BudgetRefused: it does not fit; the text says asked, spent, left, and the largest that would.
        NoRoom: there is none for one more live series of the payer's; the text says what to halt.
        UnknownMechanism: no mechanism of this name runs.
        FailClosed, WorldError: the engine is stopping, or could not make the charge durable.
    """

    async def create(self, definition: bytes, analyst: str, sender: Sender) -> Mapping[str, Any]:
        """Charge, then create; the answer is `Created`. An error changed nothing."""
        ...

    async def halt(self, name: str, sender: Sender) -> Mapping[str, Any]:
        """End it; under the pure and the basic filter this frees later ticks. The answer is `Halted`."""
        ...

    async def preview(self, definition: bytes, analyst: str, sender: Sender) -> Mapping[str, Any]:
        """What `create` would do now, changing nothing: `Preview`; `spent` is in the filter's `unit`."""
        ...

    async def message(self, text: bytes, signer: str) -> bytes:
        """Execute a message; return the exact bytes of its answer, which may be a refusal."""
        ...

    async def ask(self, name: str, parameters: bytes, sender: Sender) -> bytes:
        """Ask a series; return the exact bytes of the answer, which may be a refusal."""
        ...

    def queries(self) -> Sequence[Mapping[str, Any]]:
        """Every series, the file's too, each a `Query`."""
        ...
