"""The live series of a running engine, as the HTTP API sees them: preview, create, halt, list.

Rules: a definition is passed on byte for byte; the engine interprets it. Only the keys of an answer that
`server.models.asked` lists are sent, so an engine that returns more cannot leak it. Amounts are decimal strings. This
file knows neither HTTP nor the engine.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

LARGEST_DEFINITION = 64 * 1024  # bytes


class Sender(NamedTuple):
    """The sender of a request: the analyst of the token ("": the operator), and the request's `key` ("": none).

    `accept_noise`: create the series even if it would fire mostly by noise.
    """

    signer: str = ""
    key: str = ""
    accept_noise: bool = False


BY_OPERATOR = Sender()


class LiveSeriesService(Protocol):
    """The live series of one engine. Calls may overlap; the service puts them in order.

    The same request of a sender with the same `key` is done once and answered the same.

    A `definition` is a JSON object like an entry of `series:` in the pipeline file. `analyst` names whose quota
    pays, "" for nobody's. `server.models.asked` says what the keys of an answer mean. Errors name keys and never
    repeat a value of the definition:

    Raises:
        UsageError: the definition is not valid, or its name is taken; the text lists every problem with its key.
        MostlyNoise: the series would fire mostly by noise, and the sender does not accept that.
        NotYours: the sender has no right to do this.
        NotAccepted: there are too many requests, or the key was used for another request.
        BudgetRefused: the price does not fit; the text states asked, spent, left, and the largest that would fit.
        NoRoom: the payer may have no more live series; the text says which to halt.
        UnknownMechanism: no mechanism of this name runs.
        FailClosed, WorldError: the engine is stopping, or could not make the charge durable.
    """

    async def create(self, definition: bytes, analyst: str, sender: Sender) -> Mapping[str, Any]:
        """Charge, then create; return a `Created`. After an error nothing has changed."""
        ...

    async def halt(self, name: str, sender: Sender) -> Mapping[str, Any]:
        """End the series, which frees budget for later ticks. Return a `Halted`."""
        ...

    async def preview_halt(self, name: str, sender: Sender) -> Mapping[str, Any]:
        """Return as `HaltPreview` what `halt` would give back, changing nothing."""
        ...

    async def preview(self, definition: bytes, analyst: str, sender: Sender) -> Mapping[str, Any]:
        """Return as `Preview` what `create` would do now, changing nothing; `spent` is in the filter's `unit`."""
        ...

    async def message(self, text: bytes, signer: str) -> bytes:
        """Execute a message; return the exact bytes of its answer, which may be a refusal."""
        ...

    async def ask(self, name: str, parameters: bytes, sender: Sender) -> bytes:
        """Ask a series; return the exact bytes of the answer, which may be a refusal."""
        ...

    def queries(self) -> Sequence[Mapping[str, Any]]:
        """Return all series, including the file's, each as a `Query`."""
        ...
