"""Asks an engine that runs elsewhere by messages over Kafka, with a token or with the operator's key.

Rules: the engine decides and charges. If the pipeline file is at hand, a series is checked against it before it is
sent; otherwise the pipeline's name, the brokers' addresses and a token are enough.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stream_dp.client.kafka_messages import talking
from stream_dp.client.message_text import fresh_id, message_text
from stream_dp.engine.messages.issued_tokens import id_of
from stream_dp.errors import UsageError
from stream_dp.operate.keys import token_for
from stream_dp.operate.query.remote_series import (
    RemoteEngine,
    accepting,
    definition_of,
    is_json_object,
    told_in,
)
from stream_dp.operate.run.settings import brokers_there, settings_at
from stream_dp.pipeline.yaml import canonical_series, load, load_series
from stream_dp.records.endpoints import KafkaJournalSpec

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}", re.ASCII)
_FILES = (".yaml", ".yml")


class RemoteMessages(RemoteEngine):
    """The engine of a pipeline file, or of the pipeline named `pipeline`, asked by `analyst`.

    `tell` is called while the client waits for brokers.
    """

    def __init__(
        self,
        pipeline: Path,
        bootstrap: str = "",
        key_file: Path | None = None,
        token_file: Path | None = None,
        analyst: str = "",
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        file = pipeline if pipeline.suffix in _FILES or pipeline.exists() else None
        if file is None and _NAME.fullmatch(str(pipeline)) is None:
            raise UsageError(f"{pipeline}: is neither a pipeline file nor the name of a pipeline")
        spec = None if file is None else load(file)
        if spec is not None and not isinstance(spec.journal, KafkaJournalSpec):
            raise UsageError(
                f"--via kafka: {spec.name} has its journal in a file and has no topics of its own; "
                "use --via http"
            )
        self._settings = settings_at(bootstrap, file)
        self._token = token_for(spec, key_file, token_file)
        if id_of(self._token) and not analyst:
            raise UsageError(
                "--analyst: name the analyst who owns this token, such as --analyst ann; a message names its sender"
            )
        self._name = str(pipeline) if spec is None else spec.name
        self._analyst, self._spec, self._tell = analyst, spec, tell

    def create(self, series: str, *, accept_noise: bool = False) -> dict[str, Any]:
        return self._answered("create", accepting(accept_noise), self._definition(series))

    def preview(self, series: str) -> dict[str, Any]:
        return self._answered("preview", {}, self._definition(series))

    def preview_halt(self, name: str) -> dict[str, Any]:
        raise UsageError(
            "--preview: a halt can be previewed only with --via http. With --via kafka, the answer to the halt says "
            "how much budget it freed. `stream-dp ledger` says how much a halt of each series would free"
        )

    def halt(self, name: str) -> dict[str, Any]:
        return self._answered("halt", {"series": name})

    def queries(self) -> list[dict[str, Any]]:
        queries: list[dict[str, Any]] = self._answered("list", {})["queries"]
        return queries

    def _answered(
        self, do: str, content: Mapping[str, Any], definition: str = ""
    ) -> dict[str, Any]:
        return dict(told_in(self._line(do, content, "", definition))[1])

    def _line(self, do: str, content: Mapping[str, Any], name: str, definition: str = "") -> bytes:
        name = name or fresh_id()
        text = message_text(do, content, name, self._analyst, definition)
        return asyncio.run(self._sent(text, name))

    async def _sent(self, text: str, name: str) -> bytes:
        await brokers_there(self._settings, self._tell)
        async with talking(self._settings, self._name, self._token) as messages:
            return await messages.answer(text, name)

    def _definition(self, series: str) -> str:
        """Return a series as JSON; JSON text stays unchanged."""
        content = definition_of(series, self._spec)
        if is_json_object(content):
            return content.decode()
        if self._spec is None:
            raise UsageError(
                "--series: without the pipeline file, the series must be a JSON object"
            )
        return canonical_series(load_series(content, self._spec)).decode()
