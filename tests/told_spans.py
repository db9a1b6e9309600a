"""Spans of a test, kept in memory as a collector would get them."""

from collections import Counter

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stream_dp.operate.observe.operator_figures import Traces


class ToldSpans:
    """`traces` tells of work; `ended` is what was told, in the order in which it ended."""

    def __init__(self) -> None:
        self._memory = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._memory))
        self.traces = Traces(self.provider.get_tracer("test"))

    @property
    def ended(self) -> tuple[ReadableSpan, ...]:
        return self._memory.get_finished_spans()

    def parents(self) -> Counter[tuple[str, str]]:
        """Each span with that of which it is a part; empty where it is a part of nothing."""
        names = {one.context.span_id: one.name for one in self.ended if one.context}
        return Counter(
            (one.name, names[one.parent.span_id] if one.parent else "") for one in self.ended
        )
