"""Parts of the Faust integration without a broker: what is fed, which streams are refused, how an app ends."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import faust
import pytest
from mode import Service
from unit.integrations.test_faust_release_check import body

from stream_dp.errors import FailClosed, StreamDPError, UsageError
from stream_dp.integrations.faust import EngineStopped, attach, releases
from stream_dp.integrations.faust.attached import EngineService, payload_of, refuse_reordered
from stream_dp.integrations.faust.release_stream import stop_app

PIPELINE = """
version: 1
name: toy
source: {kind: kafka, topic: events, bootstrap: "127.0.0.1:1"}
schema: {kind: {type: category, domain: [red, green]}}
privacy: {epsilon: 1}
clock: {kind: wall, step: 1s}
series: [{name: all, statistic: count, epsilon: 0.5}]
"""


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline file, and the operator's key."""
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    monkeypatch.setenv("STREAM_DP_KEY_FILE", str(key))
    path = tmp_path / "toy.yaml"
    path.write_text(PIPELINE)
    return path


@pytest.fixture
def app(tmp_path: Path) -> faust.App:
    """An app that reaches no broker."""
    return faust.App("toy", broker="kafka://127.0.0.1:1", datadir=str(tmp_path / "data"))


async def later(value: Any) -> Mapping[str, Any]:
    """Enrich, as an app that looks something up."""
    return {"kind": value}


@pytest.mark.parametrize(
    ("enrich", "payload"),
    [
        (later, b'{"kind":"red"}'),
        (lambda value: {"kind": value}, b'{"kind":"red"}'),
        (lambda value: value.encode(), b"red"),
        (lambda _: None, None),
        (lambda value: int(value), b""),
        (lambda _: {"kind": object()}, b""),
    ],
)
async def test_what_is_made_of_a_value(enrich: Any, payload: bytes | None) -> None:
    assert await payload_of(enrich, "red") == payload


async def test_streams_that_repeat_or_reorder_are_refused(app: faust.App) -> None:
    def stream(**how: Any) -> faust.Stream[Any]:
        return cast("faust.Stream[Any]", app.stream(app.topic("raw"), **how))

    refuse_reordered(stream())
    with pytest.raises(UsageError, match="concurrency"):
        refuse_reordered(stream(concurrency_index=0))
    grouped = stream()
    grouped._chain(channel=app.channel())
    with pytest.raises(UsageError, match="grouped"):
        refuse_reordered(grouped)


def test_the_engine_is_a_service_of_the_app(app: faust.App, pipeline: Path) -> None:
    attached = attach(app, pipeline)
    (service,) = app._extra_services
    assert issubclass(service, EngineService)
    assert attached.releases().topic.get_topic_name() == "toy.releases"
    assert releases(app, pipeline).topic.get_topic_name() == "toy.releases"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            ("series:", "journal: {kind: sqlite, path: j}\nreleases: {path: r.jsonl}\nseries:"),
            "journal",
        ),
        (("version: 1", "version: 9"), "version"),
    ],
)
def test_a_pipeline_that_cannot_run_there_is_refused_at_once(
    app: faust.App, pipeline: Path, change: tuple[str, str], says: str
) -> None:
    pipeline.write_text(PIPELINE.replace(*change))
    with pytest.raises(UsageError, match=says):
        attach(app, pipeline)


def test_without_a_key_nothing_is_attached(
    app: faust.App, pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STREAM_DP_KEY_FILE")
    with pytest.raises(UsageError, match="key"):
        attach(app, pipeline)
    assert app._extra_services == []


class Part(Service):
    """A part of an app."""


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (FailClosed("the journal is gone"), 4, "the journal is gone"),
        (ValueError("a person's name"), StreamDPError.exit_code, "ValueError"),
    ],
)
async def test_an_app_ends_with_the_cause_and_its_code(
    caplog: pytest.LogCaptureFixture, error: Exception, code: int, says: str
) -> None:
    """The text of an error that is not ours may hold data: it is in no log and in no reason."""
    whole, part = Part(), Part()
    whole.add_dependency(part)
    await stop_app(part, error)
    reason = whole.crash_reason
    assert isinstance(reason, EngineStopped)
    assert (reason.code, says in str(reason)) == (code, True)
    assert says in caplog.text
    assert "person" not in caplog.text + repr(reason) + json.dumps(str(reason))


async def test_a_gap_in_the_releases_ends_the_app(app: faust.App, pipeline: Path) -> None:
    """An agent alone would be started again, behind the gap."""

    async def delivered() -> AsyncIterator[bytes]:
        for sequence in (1, 1, 3):
            yield body(sequence)

    given = releases(app, pipeline)(cast("faust.Stream[bytes]", delivered()))
    assert (await anext(given)).sequence == 1
    with pytest.raises(FailClosed, match="missing"):
        await anext(given)
    assert isinstance(app.crash_reason, EngineStopped)
    assert app.crash_reason.code == FailClosed.exit_code
