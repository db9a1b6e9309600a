"""Spans to a collector, by OpenTelemetry's SDK; loaded where traces were asked for.

Rules: that a collector is not reached is said once, until it is reached again. Nothing global is set: spans of other
libraries, and of the program around, do not come here.
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
    """Sends spans to `endpoint`; people know it as `shown`."""

    def __init__(self, endpoint: str, shown: str) -> None:
        self._exporter, self._shown = OTLPSpanExporter(endpoint=endpoint), shown
        self._reached = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send them."""
        result = self._exporter.export(spans)
        reached = result is SpanExportResult.SUCCESS
        if self._reached and not reached:
            _log.warning("traces do not reach %s; the engine runs on without them", self._shown)
        self._reached = reached
        return result

    def shutdown(self) -> None:
        """Give the connection back."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # theirs


def provider_for(endpoint: str, shown: str, pipeline: str) -> TracerProvider:
    """Return what sends spans to `endpoint` (`shown` to people) as those of this pipeline, until it is shut down.

    OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES count before what is said here.
    """
    said = {
        "service.name": "stream-dp", "service.version": __version__, "stream_dp.pipeline": pipeline,
    }  # fmt: skip
    resource = Resource(said).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_Sender(endpoint, shown)))
    return provider
