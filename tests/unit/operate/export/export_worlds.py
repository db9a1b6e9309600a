"""Releases of every form in a file, and the pipeline that they are of."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PIPELINE = """\
version: 1
name: shop
source: {kind: file, path: orders.jsonl}
schema: {time: {type: time}, country: {type: category, domain: [AT, DE]}}
privacy: {epsilon: 1}
clock: {kind: replay, field: time, start: 2024-01-01T00:00:00Z, step: 1h, horizon: 12}
series: [{name: orders, statistic: count, epsilon: 0.5}]
"""
FORMS: list[dict[str, Any]] = [
    {"value": 12, "band": 4},
    {"values": {"AT": 7, 'D"E, \n': 0}, "band": 3},
    {"fired": ["AT"], "counts": {"AT": 51}, "counts_band": 9, "band": 12},
    {"fired": [], "band": 12},
    {"value": 0.125, "low": 0.1, "high": None},
    {"values": {"AT": None, "DE": 2.5}, "lows": [None, 2], "highs": [None, 3]},
    {"value": 80, "name": "DE", "band": 8},
    {"ranks": [{"name": "DE", "value": 80, "tied": ["AT"]}, {"name": "AT", "value": 75, "tied": ["DE"]}], "band": 8},
    {"windows": {"tick": {"value": 2, "band": 4}, "24h": {"values": {"AT": 9}, "band": 5}}},
    {"windows": {"24h": {"quantiles": {
        "0.5": {"value": 10, "low": 8, "high": 12}, "0.9": {"value": 33.5, "low": 30, "high": 40},
    }, "band": 6}}},
]  # fmt: skip
ROWS = 14
"""How many numbers `FORMS` tell."""


def body(sequence: int, said: dict[str, Any]) -> bytes:
    """The bytes of a release of a series of its own, an hour after the one before."""
    head = {"v": 1, "sequence": sequence, "series": f"s{sequence % len(FORMS)}"}
    tick = sequence // len(FORMS)
    when = {"tick": tick, "end": f"2024-01-01T{tick + 1:02d}:00:00Z"}
    return json.dumps({**head, **when, **said, "confidence": 0.95}).encode()


def bodies(ticks: Iterable[int]) -> list[bytes]:
    return [body(tick * len(FORMS) + at, said) for tick in ticks for at, said in enumerate(FORMS)]


def changed(found: list[bytes], first: int) -> list[bytes]:
    """The same releases, but those of s0 are of version 2 from this tick on."""
    read = [json.loads(each) for each in found]
    return [
        json.dumps({**each, "version": 2}).encode()
        if each["series"] == "s0" and each["tick"] >= first
        else whole
        for each, whole in zip(read, found, strict=True)
    ]


def published(folder: Path, found: list[bytes]) -> Path:
    """The pipeline's file, with these releases beside it; who follows sees all of them or none."""
    whole = folder / "whole"
    whole.write_bytes(b"".join(each + b"\n" for each in found))
    whole.replace(folder / "shop.releases.jsonl")
    path = folder / "shop.yaml"
    path.write_text(PIPELINE)
    return path
