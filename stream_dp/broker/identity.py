"""What a data folder holds: the id and size of its cluster, decided on the first start."""

import base64
import json
import uuid
from pathlib import Path

from stream_dp.core.how_many import how_many
from stream_dp.errors import UsageError, WorldError


def read_or_decide(data_dir: Path, nodes: int) -> str:
    """The cluster id of the folder.

    Raises:
        UsageError: it holds another number of nodes.
        WorldError: its file is damaged.
    """
    path = data_dir / "cluster.json"
    if not path.exists():
        _write(path, nodes)
    try:
        held = json.loads(path.read_text(encoding="ascii"))
        cluster_id, held_nodes = str(held["id"]), int(held["nodes"])
    except (ValueError, KeyError, TypeError) as error:
        raise WorldError(f"{path}: unreadable; restore it or take another folder") from error
    if held_nodes != nodes:
        raise UsageError(
            f"{data_dir}: holds a Kafka of {how_many(held_nodes, 'node')}, not {nodes}; "
            f"use --nodes {held_nodes} or another folder"
        )
    return cluster_id


def _write(path: Path, nodes: int) -> None:
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"id": cluster_id, "nodes": nodes}), encoding="ascii")
    fresh.replace(path)
