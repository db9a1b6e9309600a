"""A small valid pipeline, as the YAML reader hands it over: all text."""

from typing import Any

import pytest


@pytest.fixture
def data() -> dict[str, Any]:
    """Fresh for each test, to be changed at will."""
    return {
        "version": "1",
        "name": "flights",
        "source": {"kind": "kafka", "topic": "flights", "bootstrap": "127.0.0.1:9092"},
        "schema": {
            "time": {"type": "time"},
            "airline": {"type": "category", "domain": ["AA", "NO", "UA"]},
            "destination": {"type": "category", "domain": ["ATL", "BOS"], "nullable": "true"},
            "delay": {"type": "integer", "nullable": "true"},
            "fare": {"type": "number"},
            "note": {"type": "text", "nullable": "true"},
            "late": {"type": "boolean"},
        },
        "privacy": {"unit": "event", "neighbors": "add_remove", "epsilon": "2"},
        "clock": {
            "kind": "replay",
            "field": "time",
            "start": "2013-01-01T10:00:00Z",
            "step": "1h",
            "horizon": "100",
        },
        "series": [
            {"name": "departures", "statistic": "count", "epsilon": "0.2"},
            {
                "name": "by_destination",
                "statistic": "histogram",
                "by": "destination",
                "method": "tree",
                "epsilon": "1",
            },
            {
                "name": "late_departures",
                "statistic": "alerts",
                "by": "airline",
                "where": [{"field": "delay", "at_least": "60"}],
                "threshold": "100",
                "epsilon": "0.3",
            },
        ],
    }
