"""A collector of OpenTelemetry's traces on this machine: it keeps what comes, or lets whoever sends wait."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Values = dict[str, str | int]


@dataclass
class Collected:
    """What came: bodies as they are, and what they say. `hangs` holds answers back until it is set."""

    url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    hangs: threading.Event | None = None

    @property
    def requests(self) -> list[ExportTraceServiceRequest]:
        """All requests, read."""
        return [ExportTraceServiceRequest.FromString(body) for body in self.bodies]

    @property
    def spans(self) -> list[Span]:
        """All spans, in the order in which they began."""
        found = [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    @property
    def resources(self) -> list[Values]:
        """Whose spans they are."""
        return [
            values(resource.resource.attributes)
            for request in self.requests
            for resource in request.resource_spans
        ]


def values(attributes: Iterable[KeyValue]) -> Values:
    """Attributes as a dictionary."""
    found: Values = {}
    for each in attributes:
        kind = str(each.value.WhichOneof("value"))
        found[each.key] = getattr(each.value, kind)
    return found


@contextmanager
def collector(*, hangs: bool = False) -> Iterator[Collected]:
    """Collect on a port of 127.0.0.1 while the block runs."""
    found = Collected(hangs=threading.Event() if hangs else None)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.asked.set()
            if found.hangs is not None:
                found.hangs.wait()
            if self.path == "/v1/traces":
                found.bodies.append(body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found.url = f"http://127.0.0.1:{server.server_port}"
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield found
    finally:
        if found.hangs is not None:
            found.hangs.set()
        server.shutdown()
        server.server_close()
        serving.join()
