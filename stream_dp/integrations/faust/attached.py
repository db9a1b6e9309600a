"""What an app gets when a pipeline is attached to it, and the parts of that for an app that only reads or feeds."""

from collections.abc import Awaitable, MutableMapping
from pathlib import Path
from typing import Any

from faust import App, Stream

from stream_dp.errors import UsageError
from stream_dp.integrations.faust.asking import FaustQueries
from stream_dp.integrations.faust.engine_service import EngineOptions, engine_service
from stream_dp.integrations.faust.enriched import AgentSource, Enrich
from stream_dp.integrations.faust.origin_writer import Target
from stream_dp.integrations.faust.release_stream import ReleaseStream
from stream_dp.operate.query.query_token import token_for
from stream_dp.operate.run.run_pipeline import RunOptions
from stream_dp.operate.run.running import PRODUCT, Setup
from stream_dp.operate.run.settings import settings_for, settled
from stream_dp.pipeline.file.endpoints import KafkaJournalSpec, KafkaSourceSpec
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.pipeline.file.yaml import load
from stream_dp.pipeline.routing.user_placement import placement_of


class Attached:
    """A pipeline whose engine runs in an app; `queries` asks it, from any worker."""

    def __init__(self, app: App, spec: PipelineSpec, queries: FaustQueries) -> None:
        self._app = app
        self._spec = spec
        self.queries = queries

    def releases(self, seen: MutableMapping[str, Any] | None = None) -> ReleaseStream:
        """Return the releases for an agent; `seen`: see `ReleaseStream`."""
        source = settled(self._spec.source, KafkaSourceSpec)
        return ReleaseStream(self._app, settings_for(source), self._spec.name, seen)

    def from_agent(self, stream: Stream[Any], enrich: Enrich) -> Awaitable[None]:
        """Feed what `enrich` makes of each value of an agent's stream into the pipeline's source, exactly once.

        `enrich` returns a mapping (written as JSON), bytes as they are, or None for what is not to count; it must
        depend on its value alone, or one event changes what others count as.
        """
        return _agent_source(self._app, self._spec, enrich).feed(stream)


def attach(
    app: App,
    pipeline: str | Path,
    *,
    key_file: str | Path | None = None,
    token_file: str | Path | None = None,
    analyst: str = "",
    accept_new_guarantee: str = "",
    check: bool = True,
    setup: Setup = PRODUCT,
) -> Attached:
    """Run the engine of a pipeline as a service of this app, on its leader; other leaders stand by.

    `key_file` is the operator's key (default: `STREAM_DP_KEY_FILE`), `token_file` that of `analyst`'s token, for
    `queries` (default: the operator's). The others are those of `Pipeline.run`. Privacy claim: that of the plan, as
    of `stream-dp run --standby`: the same engine, journal and topics.

    Raises:
        UsageError: no valid pipeline, one without a Kafka journal, or no key.
    """
    path, key = Path(pipeline), None if key_file is None else Path(key_file)
    spec = _on_kafka(path)
    token = token_for(
        spec, None if token_file else key, None if token_file is None else Path(token_file)
    )
    queries = FaustQueries(
        settings_for(settled(spec.source, KafkaSourceSpec)), spec.name, token, analyst
    )
    options = EngineOptions(
        path,
        RunOptions(key_file=key, accepted=accept_new_guarantee, check=check, standby=True),
        setup,
    )
    app.service(engine_service(app, options, queries.close))
    return Attached(app, spec, queries)


def releases(
    app: App, pipeline: str | Path, seen: MutableMapping[str, Any] | None = None
) -> ReleaseStream:
    """Return the releases of a pipeline whose engine runs elsewhere, for an agent of this app.

    Raises:
        UsageError: no valid pipeline, or one without a Kafka journal.
    """
    spec = _on_kafka(Path(pipeline))
    source = settled(spec.source, KafkaSourceSpec)
    return ReleaseStream(app, settings_for(source), spec.name, seen)


async def from_agent(app: App, pipeline: str | Path, stream: Stream[Any], enrich: Enrich) -> None:
    """Feed a pipeline whose engine runs elsewhere: see `Attached.from_agent`.

    Raises:
        UsageError: no valid pipeline, one without a Kafka journal, or a stream that is not its topic's own.
    """
    await _agent_source(app, _on_kafka(Path(pipeline)), enrich).feed(stream)


def _agent_source(app: App, spec: PipelineSpec, enrich: Enrich) -> AgentSource:
    source = settled(spec.source, KafkaSourceSpec)
    target = Target(settings_for(source), spec.name, source.topic, placement_of(spec))
    return AgentSource(app, target, enrich)


def _on_kafka(path: Path) -> PipelineSpec:
    spec = load(path)
    if not isinstance(spec.journal, KafkaJournalSpec):
        raise UsageError(
            f"{spec.name}: in a Faust app the journal must lie in Kafka (journal: {{kind: kafka}}), so that any worker "
            "can take the engine over"
        )
    return spec
