"""Traces of a run, as a collector gets them: which spans there are, of what they are parts, and nothing of any record.

A secret stands in every record, and numbers of records that occur nowhere else; the twins tell a count and a value.
"""

import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from unit.cli.conftest import BROKEN, GOOD, HIDDEN, Site

from stream_dp.engine.gate import Gate
from stream_dp.errors import WorldError
from stream_dp.journal.commit import Commit
from stream_dp.operate.observe import operator_figures
from stream_dp.operate.observe.operator_figures import ERROR, NAMED, OUTCOME, SPANS

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
        return [ExportTraceServiceRequest.FromString(body) for body in self.bodies]

    @property
    def spans(self) -> list[Span]:
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
        return [
            values(resource.resource.attributes)
            for request in self.requests
            for resource in request.resource_spans
        ]


def values(attributes: Iterable[KeyValue]) -> Values:
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


ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
RUN = ("run", "--until-end")
SENDERS = ("the last traces", "OtelBatchSpan")
ALLOWED = {OUTCOME, ERROR, *NAMED.values()}


def require_clean(found: Collected) -> None:
    """Find what may not be in a trace."""
    assert found.spans
    for body in found.bodies:
        assert HIDDEN.encode() not in body
    for span in found.spans:
        said = values(span.attributes)
        assert said.keys() <= ALLOWED, said
        assert {each for each in said.values() if isinstance(each, int)} <= {*range(6), 200, 404}
        assert not {GOOD, BROKEN, GOOD + BROKEN} & {*said.values()}
        assert (list(span.events), list(span.links), span.status.message) == ([], [], "")
        assert span.name in SPANS or re.fullmatch(r"GET( /[\w/{}.]*)?", span.name), span.name
    for resource in found.resources:
        assert resource.keys() == {"service.name", "service.version", "stream_dp.pipeline"}


def parents(spans: list[Span]) -> Counter[tuple[str, str]]:
    """Each span with that of which it is a part; empty where it is a part of nothing."""
    by_id = {span.span_id: span.name for span in spans}
    return Counter((span.name, by_id.get(span.parent_span_id, "")) for span in spans)


@pytest.fixture(autouse=True)
def senders() -> Iterator[None]:
    """A thread that outlives its run says nothing in the logs of other tests' runs."""
    yield
    for thread in threading.enumerate():
        if thread.name.startswith(SENDERS):
            thread.join(100)
            assert not thread.is_alive()


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collected]:
    monkeypatch.setattr(operator_figures, "LAST_S", 100.0)
    with collector() as found:
        monkeypatch.setenv(ENDPOINT, found.url)
        yield found


def test_a_variable_alone_is_nothing(secretive: Site, collected: Collected) -> None:
    said = secretive.command(*RUN)
    assert (said.code, "Traces" in said.err) == (0, False)
    assert not collected.asked.is_set()


def test_a_run_tells_its_work_and_nothing_of_its_records(
    secretive: Site, collected: Collected
) -> None:
    said = secretive.command(*RUN, "--traces")
    assert said.code == 0
    assert f"Traces (NOT PRIVATE) go to {collected.url}/v1/traces" in said.err
    require_clean(collected)
    spans = collected.spans
    found = parents(spans)
    ticks = found["tick", ""]
    assert found == {
        ("recovery", ""): 1,
        ("lease", "recovery"): 1,
        ("commit", "recovery"): 1,  # what is charged at a first start
        ("tick", ""): ticks,
        ("commit", "tick"): ticks,
        ("publish", "tick"): 2,  # the blocks of 4 ticks that the file declares
    }
    told = {name: [values(one.attributes) for one in spans if one.name == name] for name in SPANS}
    assert [each["stream_dp.tick"] for each in told["publish"]] == [3, 5]
    assert told["tick"][-1]["stream_dp.tick"] == 5
    assert {values(one.attributes)[OUTCOME] for one in spans} == {"done"}
    assert {one["stream_dp.pipeline"] for one in collected.resources} == {"clicks"}
    assert {one["service.name"] for one in collected.resources} == {"stream-dp"}


def test_what_fails_is_told_by_the_class_of_its_error(
    secretive: Site, collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(self: Gate, commit: Commit, sealed: bytes) -> None:
        raise WorldError(f"the journal has no room for {HIDDEN}")

    monkeypatch.setattr(Gate, "commit", refused)
    assert secretive.command(*RUN, "--traces").code == WorldError.exit_code
    require_clean(collected)
    (recovery,) = (one for one in collected.spans if one.name == "recovery")
    assert values(recovery.attributes) == {OUTCOME: "failed", ERROR: "WorldError"}
    assert recovery.status.code == Status.STATUS_CODE_ERROR


def test_json_lines_say_where_traces_go(secretive: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_figures, "LAST_S", 100.0)
    with collector() as found:
        monkeypatch.setenv(ENDPOINT, found.url.replace("//", f"//ann:{HIDDEN}@"))
        said = secretive.command(*RUN, "--traces", "--log-format", "json")
    assert said.code == 0
    assert f'"url": "{found.url}/v1/traces"' in said.err
    assert HIDDEN not in said.err
    require_clean(found)


def leaking(monkeypatch: pytest.MonkeyPatch, what: Callable[[Commit], str | int]) -> None:
    async def commit(self: Gate, commit: Commit, sealed: bytes) -> None:
        with self.ports.spans("commit", tick=what(commit)):
            await self.ports.journal.append(commit, sealed)
        self.durable += 1
        await self.publish(commit.releases)

    monkeypatch.setattr(Gate, "commit", commit)


def test_a_run_that_tells_more_is_stopped(
    secretive: Site, collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaking(monkeypatch, lambda commit: commit.records)
    assert secretive.command(*RUN, "--traces").code == 1
    require_clean(collected)


@pytest.mark.parametrize("what", [lambda c: c.records, lambda c: f"{HIDDEN} in {c.sequence}"])
def test_a_run_that_is_allowed_to_tell_more_is_caught(
    secretive: Site,
    collected: Collected,
    monkeypatch: pytest.MonkeyPatch,
    what: Callable[[Commit], str | int],
) -> None:
    leaking(monkeypatch, what)
    monkeypatch.setattr(operator_figures, "SPANS", {**SPANS, "commit": frozenset({"tick"})})
    assert secretive.command(*RUN, "--traces").code == 0
    with pytest.raises(AssertionError):
        require_clean(collected)


def test_a_collector_that_hangs_holds_up_nothing(
    secretive: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with collector(hangs=True) as found:
        monkeypatch.setenv(ENDPOINT, found.url)
        said = secretive.command(*RUN, "--traces")
        assert found.hangs is not None
        assert not found.hangs.is_set()  # it has not answered yet, and the run is over
        assert found.asked.wait(100)  # by a thread that outlives the run
    assert said.code == 0
    assert len(secretive.releases) == 18
    assert "Queue full" not in said.err


def test_without_the_extra_it_says_what_to_install(
    secretive: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    said = secretive.command(*RUN, "--traces")
    assert said.code == 2
    assert "pip install 'stream_dp[otel]'" in said.err
    monkeypatch.setenv(ENDPOINT, "unix:/tmp/it")
    said = secretive.command(*RUN, "--traces")
    assert (said.code, "--traces: " in said.err) == (2, True)
    assert secretive.releases == []
