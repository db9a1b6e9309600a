"""Where Kafka is and how to log in: a flag before the environment, the environment before the pipeline file."""

from pathlib import Path

import pytest

from stream_dp.cli.main import code_of
from stream_dp.errors import UsageError
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.security import KafkaSecurity
from stream_dp.operate.run.settings import settings_at, settings_for
from stream_dp.records.endpoints import KafkaSourceSpec, Security

SOURCE = KafkaSourceSpec(
    topic="t",
    bootstrap="file:1",
    security=Security(
        protocol="SASL_SSL",
        mechanism="PLAIN",
        username="engine",
        password_file=Path("/file/password"),
        ca_file=Path("/file/ca"),
    ),
)
PIPELINE = """\
version: 1
name: flights
source: {kind: kafka, topic: flights, bootstrap: "file:1", security: {protocol: SSL, ca_file: ca.pem}}
schema: {time: {type: time}}
privacy: {epsilon: 1}
clock: {kind: wall, step: 1m}
series: [{name: n, statistic: count, epsilon: 1}]
"""


def test_every_key_of_the_file_reaches_the_client() -> None:
    assert KafkaSecurity.__dataclass_fields__.keys() == Security.model_fields.keys()
    assert settings_for(SOURCE) == KafkaSettings(
        "file:1",
        KafkaSecurity(
            "SASL_SSL",
            "PLAIN",
            "engine",
            password_file=Path("/file/password"),
            ca_file=Path("/file/ca"),
        ),
    )
    assert settings_for(KafkaSourceSpec(topic="t", bootstrap="k:1")) == KafkaSettings("k:1")


def test_the_environment_counts_before_the_file_and_a_flag_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STREAM_DP_KAFKA_BOOTSTRAP", "environment:1")
    monkeypatch.setenv("STREAM_DP_KAFKA_PASSWORD_FILE", "mounted/password")
    monkeypatch.setenv("STREAM_DP_KAFKA_MECHANISM", "SCRAM-SHA-512")
    found = settings_for(SOURCE)
    assert found.bootstrap == "environment:1"
    assert found.security == KafkaSecurity(
        "SASL_SSL", "SCRAM-SHA-512", "engine", Path("mounted/password"), ca_file=Path("/file/ca")
    )
    assert settings_for(SOURCE, "flag:1").bootstrap == "flag:1"


def test_a_wrong_variable_is_named_and_its_value_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STREAM_DP_KAFKA_PASSWORD", "swordfish")
    with pytest.raises(UsageError, match="STREAM_DP_KAFKA_PASSWORD is not known") as caught:
        settings_for(SOURCE)
    assert "swordfish" not in str(caught.value)
    monkeypatch.delenv("STREAM_DP_KAFKA_PASSWORD")
    monkeypatch.setenv("STREAM_DP_KAFKA_PROTOCOL", "SSL")
    monkeypatch.setenv("STREAM_DP_KAFKA_TOKEN", "eyJhbGciOiJub25lIn0")
    with pytest.raises(UsageError) as caught:
        settings_for(SOURCE)
    assert str(caught.value).startswith("STREAM_DP_KAFKA_TOKEN: must be package.module:function")
    monkeypatch.delenv("STREAM_DP_KAFKA_TOKEN")
    with pytest.raises(UsageError) as caught:
        settings_for(SOURCE)
    assert str(caught.value).splitlines() == [
        "source.security.mechanism: does not go with protocol SSL",
        "source.security.username: does not go with protocol SSL",
        "source.security.password_file: does not go with protocol SSL",
    ]


def test_without_a_pipeline_a_flag_or_the_environment_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="--bootstrap, --pipeline or STREAM_DP_KAFKA_BOOTSTRAP"):
        settings_at("", None)
    assert settings_at("k:1", None) == KafkaSettings("k:1")
    file = tmp_path / "flights.yaml"
    file.write_text(PIPELINE)
    secured = KafkaSecurity("SSL", ca_file=tmp_path / "ca.pem")
    assert settings_at("", file) == KafkaSettings("file:1", secured)
    assert settings_at("k:1", file) == KafkaSettings("k:1", secured)
    monkeypatch.setenv("STREAM_DP_KAFKA_BOOTSTRAP", "k:2")
    assert settings_at("", None) == KafkaSettings("k:2")


@pytest.mark.parametrize("address", ["nonsense", "k:port", "k:1,", "k:99999"])
def test_an_address_that_is_none_is_bad_usage(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert code_of(["topic", "t", "--bootstrap", address]) == 2
    assert "--bootstrap: must be host:port" in capsys.readouterr().err
    monkeypatch.setenv("STREAM_DP_KAFKA_BOOTSTRAP", address)
    assert code_of(["topic", "t"]) == 2
    assert "STREAM_DP_KAFKA_BOOTSTRAP: must be host:port" in capsys.readouterr().err
