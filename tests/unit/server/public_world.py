"""What a small pipeline says of itself, in the forms of the API: for tests that need a whole view.

Rules: `test_serve_models` holds these forms against the product's own; a test changes copies.
"""

from typing import Any


def clock() -> dict[str, Any]:
    start = "2013-01-01T10:00:00Z"
    return {"kind": "replay", "start": start, "step": 3600.0, "delay": None, "horizon": 8760}


def series(name: str, **more: Any) -> dict[str, Any]:
    """A series as `/api/pipeline` shows it, a count unless told otherwise."""
    words: dict[str, Any] = {
        "shape": "scalar",
        "about": "count so far",
        "meaning": None,
        "parameters": {},
    }
    return {"name": name, "statistic": "count", "by": None, **words, **more}


def pipeline(name: str = "flights", *entries: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name, "public_data": False, "unit": "event", "neighbors": "add_remove", "fingerprint": "f1",
        "over": False, "clock": clock(), "series": list(entries),
    }  # fmt: skip


def derivation(subject: str = "one counter", *premises: dict[str, Any]) -> dict[str, Any]:
    return {
        "subject": subject,
        "rule": "proven mechanism",
        "source": "[HSV] Lemma 7.4",
        "guarantee": {"epsilon": 0.5, "delta": 0, "neighbors": "add_remove"},
        "conditions": [{"name": "pure", "holds": True, "why": "no delta"}],
        "alternatives": [],
        "premises": list(premises),
    }


def plan() -> dict[str, Any]:
    tree = derivation("everything", derivation())
    error = {"tick": 8759, "error": 160, "confidence": 0.95}
    total = {"name": "total", "mechanism": "Counter", "why": "", "epsilon": 0.5, "delta": 0}
    return {
        "epsilon": 0.5, "delta": 0, "unit": "event", "neighbors": "add_remove", "horizon": 8760,
        "series": [{**total, "predicted_error": [error]}], "derivation": tree,
        "promise": {"epsilon": 1, "delta": 0, "filter": "pure", "derivation": tree},
    }  # fmt: skip


def budget() -> dict[str, Any]:
    return {
        "epsilon": {"total": "1", "spent": "0.5", "left": "0.5"},
        "delta": {"total": "0", "spent": "0", "left": "0"},
        "filter": "pure",
        "unit": "epsilon",
        "capacity": "1",
        "peak": "0.5",
        "heaviest": "",
        "frees": True,
        "odometer": {"bound": "0.5", "delta": "0", "claim": "fix an epsilon beforehand"},
        "analysts": [
            {"name": "ann", "epsilon": {"total": "0.2", "spent": "0", "left": "0.2"}, "records": ""}
        ],
        "series": [{"name": "total", "epsilon": "0.5"}],
    }
