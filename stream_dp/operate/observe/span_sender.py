"""Sends spans to a collector by OpenTelemetry's SDK; imported only if traces were asked for.

Rules: an unreachable collector is reported once, until it is reached again. No global provider is set, so spans of
other libraries and of the surrounding program are not sent.
"""

import logging
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from stream_dp import __version__

_log = logging.getLogger(__name__)


class _Sender(SpanExporter):
    """Sends spans to `endpoint`; messages name it `shown`."""

    def __init__(self, endpoint: str, shown: str) -> None:
        self._exporter, self._shown = OTLPSpanExporter(endpoint=endpoint), shown
        self._reached = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        reached = result is SpanExportResult.SUCCESS
        if self._reached and not reached:
            _log.warning("traces do not reach %s; the engine runs on without them", self._shown)
        self._reached = reached
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # theirs


def provider_for(endpoint: str, shown: str, pipeline: str) -> TracerProvider:
    """Return a provider that sends this pipeline's spans to `endpoint`, which messages call `shown`.

    OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override the values set here.
    """
    own = {
        "service.name": "stream-dp", "service.version": __version__, "stream_dp.pipeline": pipeline,
    }  # fmt: skip
    resource = Resource(own).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_Sender(endpoint, shown)))
    return provider
