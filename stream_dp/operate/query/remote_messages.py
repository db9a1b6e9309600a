"""Asks an engine that runs elsewhere by messages over Kafka, with a token or with the operator's key.

Rules: the engine decides and charges. If the pipeline file is at hand, a series is checked against it before it is
sent; otherwise the pipeline's name, the brokers' addresses and a token are enough.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import UNSET

from stream_dp.client.kafka_messages import talking
from stream_dp.client.message_text import fresh_id, message_text
from stream_dp.engine.messages.issued_tokens import id_of
from stream_dp.errors import UsageError
from stream_dp.journal.answer_body import read_answer
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.live.planner import canonical_series
from stream_dp.operate.keys import token_for
from stream_dp.operate.query.remote_series import accepting, definition_of, watch_json
from stream_dp.operate.run.settings import brokers_there, settings_at
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load, load_series
from stream_dp.records.endpoints import KafkaJournalSpec

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}", re.ASCII)
_FILES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class RemoteMessages:
    """The engine of the pipeline `name`, asked by `analyst`; the requests are those of `RemoteSeries`.

    `tell` is called while the client waits for brokers.

    Raises, in every method:
        UsageError: the series is not valid, or the engine refuses the message.
        BudgetRefused, FailClosed: raised by the engine.
        WorldError: the brokers, topics or engine do not answer in time.
    """

    name: str
    settings: KafkaSettings
    token: str = field(repr=False)
    analyst: str = ""
    spec: PipelineSpec | None = None
    tell: Callable[[str], None] = lambda line: None

    @classmethod
    def of(
        cls,
        pipeline: Path,
        bootstrap: str = "",
        key_file: Path | None = None,
        token_file: Path | None = None,
        analyst: str = "",
        tell: Callable[[str], None] = lambda line: None,
    ) -> "RemoteMessages":
        """Read the pipeline file, or take `pipeline` as a name.

        Raises:
            UsageError: there is neither file nor name; there is no token, or the analyst of a token is not named;
            or nothing names the brokers.
        """
        file = pipeline if pipeline.suffix in _FILES or pipeline.exists() else None
        if file is None and _NAME.fullmatch(str(pipeline)) is None:
            raise UsageError(f"{pipeline}: no pipeline file, and no name of a pipeline")
        spec = None if file is None else load(file)
        if spec is not None and not isinstance(spec.journal, KafkaJournalSpec):
            raise UsageError(
                f"--via kafka: {spec.name} has its journal in a file, and no topics of its own; ask it over HTTP"
            )
        settings, token = settings_at(bootstrap, file), token_for(spec, key_file, token_file)
        if id_of(token) and not analyst:
            raise UsageError(
                "--analyst: name whose token it is, such as --analyst ann: brokers do not say it, and the message does"
            )
        return cls(
            str(pipeline) if spec is None else spec.name,
            settings,
            token,
            analyst,
            spec,
            tell,
        )

    def create(self, series: str, *, accept_noise: bool = False) -> dict[str, Any]:
        return self._answered("create", accepting(accept_noise), self._definition(series))

    def preview(self, series: str) -> dict[str, Any]:
        return self._answered("preview", {}, self._definition(series))

    def halt(self, name: str) -> dict[str, Any]:
        return self._answered("halt", {"series": name})

    def queries(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._answered("list", {})["queries"]
        return found

    def ask(self, series: str, parameters: Mapping[str, Any], name: str = "") -> bytes:
        return self._told("ask", {"series": series, **parameters}, name=name)

    def watch(
        self, series: str, watch: str, name: str = "", *, accept_noise: bool = False
    ) -> dict[str, Any]:
        content = {"series": series, **accepting(accept_noise)}
        return self._answered("watch", content, watch_json(watch), name)

    def unwatch(self, series: str, watch: str, name: str = "") -> dict[str, Any]:
        return self._answered("unwatch", {"series": series, "watch": watch}, name=name)

    def _answered(
        self, do: str, content: Mapping[str, Any], definition: str = "", name: str = ""
    ) -> dict[str, Any]:
        found = read_answer(self._told(do, content, definition, name)).answer
        return {} if found is UNSET else dict(found)

    def _told(
        self, do: str, content: Mapping[str, Any], definition: str = "", name: str = ""
    ) -> bytes:
        name = name or fresh_id()
        text = message_text(do, content, name, self.analyst, definition)
        return asyncio.run(self._sent(text, name))

    async def _sent(self, text: str, name: str) -> bytes:
        await brokers_there(self.settings, self.tell)
        async with talking(self.settings, self.name, self.token) as messages:
            return await messages.answer(text, name)

    def _definition(self, series: str) -> str:
        """Return a series as JSON; JSON text stays unchanged."""
        content = definition_of(series, self.spec)
        try:
            if isinstance(json.loads(content), dict):
                return content.decode()
        except ValueError:
            pass
        if self.spec is None:
            raise UsageError(
                "--series: must be a JSON object where the pipeline file is not at hand"
            )
        return canonical_series(load_series(content, self.spec)).decode()
