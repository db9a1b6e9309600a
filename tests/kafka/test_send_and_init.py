"""`stream-dp send` brings a file, or standard input, into a topic; `stream-dp init` looks at what is there."""

import asyncio
import io
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from kafka.kafka_worlds import create, visible, writing

from stream_dp.cli.main import code_of
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.operate.sending import make_topic
from stream_dp.testing.kafka import fresh_topic_name

PIPELINE = """\
version: 1
name: {name}
source: {{kind: kafka, topic: {name}, bootstrap: "{kafka}"}}
schema:
  code: {{type: category, domain: ["007", "12"]}}
  amount: {{type: number, nullable: true}}
privacy: {{unit: event, neighbors: add_remove, epsilon: 1}}
clock: {{kind: wall, step: 1m, delay: 2s}}
series:
  - {{name: events, statistic: count, epsilon: 0.2}}
"""
ROWS = 600


@pytest.fixture
async def topic(kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A stamped topic, a CSV and a pipeline file for it in the working folder."""
    monkeypatch.chdir(tmp_path)
    name = fresh_topic_name("sent")
    await make_topic(KafkaSettings(kafka), name, 1, stamped=True)
    rows = [f"{('007', '12')[n % 2]},{n / 4 if n % 3 else ''},{n}" for n in range(ROWS)]
    written("rows.csv", "\n".join(["code,amount,n", *rows, ""]))
    written("pipeline.yaml", PIPELINE.format(name=name, kafka=kafka))
    return name


def written(name: str, text: str) -> None:
    Path(name).write_text(text)


def read(name: str) -> str:
    return Path(name).read_text()


async def values(kafka: str, topic: str) -> list[dict[str, object]]:
    return [json.loads(one.value) for one in await visible(kafka, topic)]


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))


def run(*arguments: str) -> int:
    return code_of(list(arguments))


async def off(*arguments: str) -> int:
    """A command line on a thread of its own: it runs a loop of its own."""
    return await asyncio.to_thread(run, *arguments)


async def test_a_csv_is_sent_with_the_types_of_the_schema(
    kafka: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await off("send", "rows.csv", "--pipeline", "pipeline.yaml") == 0
    assert f"NOT PRIVATE: {ROWS:,} records sent and acknowledged" in capsys.readouterr().err
    found = await values(kafka, topic)
    assert len(found) == ROWS
    assert {"code": "007", "amount": None} in found
    assert {"code": "12", "amount": 0.25} in found


async def test_a_csv_without_a_pipeline_is_sent_as_it_looks(
    kafka: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the pipeline is named, what comes before its first run is said to count nowhere."""
    note = f"Note: it seems that no run of {topic} has begun. Records that arrive before the first run do not count"
    assert await off("send", "rows.csv", "--pipeline", "pipeline.yaml") == 0
    assert capsys.readouterr().err.count(note) == 1
    other = await create(kafka, f"{topic}.other")
    assert await off("send", "rows.csv", "--topic", other, "--bootstrap", kafka) == 0
    assert "Note:" not in capsys.readouterr().err  # nobody said which pipeline
    found = await values(kafka, other)
    assert {"code": "007", "amount": None, "n": 0} in found
    assert {"code": 12, "amount": 0.25, "n": 1} in found
    assert sorted(row["n"] for row in found) == list(range(ROWS))  # type: ignore[type-var]
    await create(kafka, f"{topic}.private.journal")
    assert await off("send", "rows.csv", "--pipeline", "pipeline.yaml") == 0
    assert "Note:" not in capsys.readouterr().err


@pytest.mark.parametrize("csv", [True, False])
async def test_standard_input_is_told_by_its_first_line(
    kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch, csv: bool
) -> None:
    typed(monkeypatch, 'a,b\n1,"x, y"\n' if csv else '\n{"a": 1, "b": "x, y"}\n\n')
    assert await off("send", "-", "--topic", topic, "--bootstrap", kafka) == 0
    assert await values(kafka, topic) == [{"a": 1, "b": "x, y"}]


async def test_a_line_that_is_no_record_sends_nothing_of_a_file(
    kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written("bad.jsonl", '{"a": 1}\n[2]\n{"a": 3}\n')
    line = ("send", "bad.jsonl", "--topic", topic, "--bootstrap", kafka)
    assert await off(*line) == 2
    assert "bad.jsonl: line 2 is not a JSON object" in capsys.readouterr().err
    assert await values(kafka, topic) == []
    assert await off(*line, "--skip-bad") == 0
    assert "2 records sent and acknowledged, 1 line left out" in capsys.readouterr().err
    typed(monkeypatch, '{"a": 4}\nno\n{"a": 5}\n')
    assert await off("send", "-", "--topic", topic, "--bootstrap", kafka) == 2
    assert "standard input: line 2 is not a JSON object" in capsys.readouterr().err
    assert {row["a"] for row in await values(kafka, topic)} == {1, 3, 4}


async def test_a_topic_that_is_not_there_or_not_stamped_is_told(
    kafka: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await off("send", "rows.csv", "--topic", f"{topic}.no", "--bootstrap", kafka) == 5
    assert f"stream-dp topic {topic}.no" in capsys.readouterr().err
    other = await create(kafka, f"{topic}.plain")
    assert await off("send", "rows.csv", "--topic", other, "--bootstrap", kafka) == 0
    assert "do not stamp records on arrival" in capsys.readouterr().err


async def test_a_topic_is_looked_at(
    kafka: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await off("send", "rows.csv", "--topic", topic, "--bootstrap", kafka) == 0
    line = ("init", "--topic", topic, "--bootstrap", kafka, "--out", "first.yaml")
    assert await off(*line) == 0
    text = read("first.yaml")
    data = yaml.safe_load(text)
    assert data["source"] == {"kind": "kafka", "topic": topic, "bootstrap": kafka}
    assert data["clock"]["kind"] == "wall"
    assert {name: one["type"] for name, one in data["schema"].items()} == {
        "amount": "number", "n": "integer",
    }  # fmt: skip
    assert '# "code" holds values of several types' in text
    assert "do not stamp" not in capsys.readouterr().out
    assert await off("plan", "first.yaml") == 0


async def test_values_behind_a_schemas_number_are_checked_and_neither_sent_nor_guessed(
    kafka: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In Avro, a text and a number that may be null; one of a schema that the file does not name, and one cut."""
    fields = [{"name": "code", "type": "string"}, {"name": "amount", "type": ["null", "int"]}]
    written("7.avsc", json.dumps({"type": "record", "name": "R", "fields": fields}))
    text = PIPELINE.format(name=topic, kafka=kafka)
    written(
        "avro.yaml", text.replace('"}\n', '", values: {format: avro, schemas: {7: 7.avsc}}}\n', 1)
    )
    head = b"\0\0\0\0\7"
    async with writing(kafka) as producer:
        for value in (b"\x06007\2\4", b"\x0412\0", b"\x06007\2"):
            await producer.send_and_wait(topic, head + value)
        await producer.send_and_wait(topic, b"\0\0\0\0\x08\x0412\0")
    assert await off("send", "rows.csv", "--pipeline", "avro.yaml") == 2
    assert "reads values that are not plain JSON" in capsys.readouterr().err
    assert await off("init", "--topic", topic, "--bootstrap", kafka, "--out", "new.yaml") == 2
    assert "begins with a zero byte and the number of a schema" in capsys.readouterr().err
    assert await off("check", "avro.yaml", "--json") == 2  # half are dead
    told = json.loads(capsys.readouterr().out)
    assert told["records"] == 4
    assert {one["reason"]: one["records"] for one in told["reasons"]} == {
        "unknown_schema": 1, "unreadable_value": 1,
    }  # fmt: skip
    assert told["fields"][0]["fits"] == 2


BESIDE = """\
version: 1
name: {name}
source: {source}
schema:
  at: {{type: time}}
  user: {{type: text{key}}}
  tenant: {{type: category, domain: [a, b]{tenant}}}
  paid: {{type: integer, nullable: true{paid}}}
privacy: {{unit: user, user: user, max_events: 3, per: 1s, epsilon: 100}}
clock: {{kind: replay, field: at, start: 2020-01-01T00:00:00Z, step: 1s, horizon: 4}}
journal: {{kind: sqlite, path: {name}.journal}}
series:
  - {{name: by_tenant, statistic: histogram, by: tenant, epsilon: 60}}
  - {{name: paid, statistic: count, epsilon: 30, where: [{{field: paid, at_least: 5}}]}}
"""


async def test_fields_in_key_and_headers_count_as_they_do_in_the_value(
    kafka: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file is replayed into a topic, whose records have the user as their key; at this epsilon there is no noise."""
    lines = [
        {"at": f"2020-01-01T00:00:0{at % 4}Z", "user": f"u{at % 7}", "tenant": "abc"[at % 3]}
        | ({"paid": at % 9} if at % 2 else {})
        for at in range(80)
    ]
    written("rows.jsonl", "\n".join([*map(json.dumps, lines), ""]))
    headers = {"tenant": ", from_header: x-tenant", "paid": ", from_header: paid"}
    plain = {"key": "", "tenant": "", "paid": "", "source": "{kind: file, path: rows.jsonl}"}
    source = f'{{kind: kafka, topic: {topic}.b, bootstrap: "{kafka}", keyed_by: user}}'
    beside = {"key": ", from_key: true", "source": source, **headers}
    written("plain.yaml", BESIDE.format(name=f"{topic}.plain", **plain))
    written("beside.yaml", BESIDE.format(name=topic, **beside))
    assert await off("key", "stream-dp.key") == 0
    key = ("--key-file", "stream-dp.key")
    to = ("--topic", f"{topic}.b", "--create", "2")
    assert await off("replay", "rows.jsonl", "--pipeline", "beside.yaml", *to, *key) == 0
    for file in ("plain.yaml", "beside.yaml"):
        line = ("-m", "stream_dp", "run", file, "--until-end", "--yes", *key)
        engine = await asyncio.create_subprocess_exec(sys.executable, *line)
        assert await engine.wait() == 0
    first, second = (
        [json.loads(line) for line in read(f"{name}.releases.jsonl").splitlines()]
        for name in (f"{topic}.plain", topic)
    )
    assert len(first) == 8
    assert [each.get("values") or each["value"] for each in second] == [
        each.get("values") or each["value"] for each in first
    ]
    assert first[-2]["values"]["a"] > 10
    capsys.readouterr()
    assert await off("check", "beside.yaml", "--topic", f"{topic}.b", "--json", *key) == 0
    checked = json.loads(capsys.readouterr().out)
    assert checked["records"] == 80
    assert {one["field"]: one["fits"] for one in checked["fields"]} == {
        "at": 80, "user": 80, "tenant": 80, "paid": 40,
    }  # fmt: skip
    assert await off("check", "beside.yaml", "--data", "rows.jsonl") == 0
    assert await off("simulate", "beside.yaml", "--data", "rows.jsonl", "--runs", "1") == 0


async def test_init_proposes_fields_of_headers_and_of_a_key_that_no_value_repeats(
    kafka: str, topic: str
) -> None:
    await create(kafka, f"{topic}.named", message_timestamp_type="LogAppendTime")
    async with writing(kafka) as producer:
        for at in range(60):
            headers = [("tenant", (b"a", b"b")[at % 2]), ("n", b"%d" % at), ("bad", b"\xff")]
            headers += [("seldom", b"x")] * (at == 3)
            value = json.dumps({"n": at, "name": f"c{at % 30}"}).encode()
            for key, to in ((b"k%d" % at, topic), (b"c%d" % (at % 30), f"{topic}.named")):
                await producer.send(to, value, key=key, headers=headers)
    for to in (topic, f"{topic}.named"):
        out = f"{to}.yaml"
        assert await off("init", "--topic", to, "--bootstrap", kafka, "--out", out) == 0
    schema = yaml.safe_load(read(f"{topic}.yaml"))["schema"]
    assert schema["key"] == {"type": "text", "from_key": True}
    assert schema["tenant"] == {"type": "category", "domain": [], "from_header": "tenant"}
    assert schema["record_n"] == {"type": "integer", "from_header": "n"}
    assert set(schema) == {"n", "name", "key", "tenant", "record_n"}
    assert set(yaml.safe_load(read(f"{topic}.named.yaml"))["schema"]) == set(schema) - {"key"}


FRAMED = """\
version: 1
name: {topic}
source:
  {{kind: kafka, topic: {topic}, bootstrap: "{kafka}", values: {{format: json, ids: [{ids}]}}}}
schema: {{code: {{type: text}}}}
privacy: {{epsilon: 100}}
clock: {{kind: wall, step: 1s, delay: 500ms}}
journal: {{kind: sqlite, path: framed.journal}}
series: [{{name: all, statistic: count, epsilon: 60}}]
"""


def shown(pipeline: str) -> list[int]:
    path = Path(f"{pipeline}.releases.jsonl")
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["value"] for line in lines if line.endswith("}")]


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(900):
        if holds():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it does not come")


async def test_a_schema_is_added_to_a_pipeline_that_runs(
    kafka: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """At this epsilon there is no noise. Five records of schema 7 and three of 9 come under either file."""
    assert await off("key", "stream-dp.key") == 0
    for name, ids in (("old.yaml", "7"), ("new.yaml", "7, 9")):
        written(name, FRAMED.format(topic=topic, kafka=kafka, ids=ids))

    async def ran(file: str, before: int, after: int, *more: str) -> None:
        line = ("-m", "stream_dp", "run", file, "--yes", "--key-file", "stream-dp.key", *more)
        known = len(shown(topic))
        engine = await asyncio.create_subprocess_exec(sys.executable, *line)
        await until(lambda: len(shown(topic)) > known and shown(topic)[-1] == before)
        async with writing(kafka) as producer:
            for schema in (7, 9, 7, 9, 7, 7, 9, 7):
                await producer.send(topic, b'\0\0\0\0%c{"code":"x"}' % schema)
        await until(lambda: shown(topic)[-1] >= after)
        await asyncio.sleep(2.5)
        assert shown(topic)[-1] == after
        engine.send_signal(signal.SIGINT)
        assert await engine.wait() == 0

    key = ("--key-file", "stream-dp.key")
    await ran("old.yaml", 0, 5)
    capsys.readouterr()
    assert await off("plan", "new.yaml", "--against", "running", *key) == 6
    assert "+ schema 9: its records count from tick" in capsys.readouterr().out
    assert await off("plan", "new.yaml", "--against", "old.yaml") == 6
    await ran("new.yaml", 5, 13, "--apply")
    assert await off("plan", "new.yaml", "--against", "running", *key) == 0
    assert await off("plan", "old.yaml", "--against", "running", *key) == 2
    capsys.readouterr()
    assert await off("dead-letters", "new.yaml", "--json", *key) == 0
    assert "unknown_schema" in capsys.readouterr().out
