"""Places, the lock of a data folder, and what is refused before any Java starts."""

import json
from pathlib import Path

import pytest

from stream_dp.broker import LocalKafka, cache_dir, state_dir
from stream_dp.broker.process import read_or_decide, take
from stream_dp.errors import UsageError, WorldError
from stream_dp.testing.kafka import fresh_topic_name, missing


def test_one_variable_moves_both_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path))
    assert (cache_dir(), state_dir()) == (tmp_path / "cache", tmp_path / "state")
    monkeypatch.delenv("STREAM_DP_HOME")
    assert {cache_dir().name, state_dir().name} == {"stream-dp"}


async def test_a_folder_has_one_holder(tmp_path: Path) -> None:
    lock = await take(tmp_path / "data")
    with pytest.raises(WorldError, match="another Kafka uses this data folder"):
        await take(tmp_path / "data", patience=0)
    lock.release()
    (await take(tmp_path / "data", patience=0)).release()


def test_the_number_of_nodes_stays(tmp_path: Path) -> None:
    first = read_or_decide(tmp_path, 1)
    assert len(first) == 22
    assert read_or_decide(tmp_path, 1) == first
    with pytest.raises(UsageError, match="--nodes 1"):
        read_or_decide(tmp_path, 3)


@pytest.mark.parametrize("text", ["", "[]", json.dumps({"id": "x"})])
def test_a_broken_cluster_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(WorldError, match=r"cluster\.json"):
        read_or_decide(tmp_path, 1)


@pytest.mark.parametrize(("nodes", "port"), [(2, None), (0, None), (1, 0), (1, 65536), (3, 65534)])
def test_bad_arguments(tmp_path: Path, nodes: int, port: int | None) -> None:
    with pytest.raises(UsageError):
        LocalKafka(tmp_path, nodes=nodes, port=port)


def test_no_address_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not started"):
        _ = LocalKafka(tmp_path).bootstrap


def test_missing_skips_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DP_REQUIRE", "browser")
    with pytest.raises(pytest.skip.Exception, match="no jars"):
        missing("kafka", "no jars")
    monkeypatch.setenv("STREAM_DP_REQUIRE", "kafka, browser")
    with pytest.raises(pytest.fail.Exception, match="no jars"):
        missing("kafka", "no jars")


def test_topic_names_are_fresh() -> None:
    assert fresh_topic_name("a") != fresh_topic_name("a")
