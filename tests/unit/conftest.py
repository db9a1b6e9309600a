"""What tests of more than one folder need: a small valid pipeline, as the YAML reader hands it over; dear values."""

from typing import Any

import pytest

from stream_dp.operate.demo import flights_folder
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.verify.exact_checks.table import RuleFinding, findings


@pytest.fixture(scope="session")
def certified() -> tuple[RuleFinding, ...]:
    """Every rule on its instances, as `stream-dp audit --rules` compares them: half a minute."""
    return tuple(findings())


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


@pytest.fixture
def year() -> PipelineSpec:
    """The flights of the example over their year, by four series of two epsilons together."""
    hss = {"by": "destination", "method": "hss", "expected_events": "350000"}
    late = [{"field": "delay", "at_least": "60"}]
    series = [
        {"name": "departures", "statistic": "count", "epsilon": "0.2"},
        {"name": "by_destination", "statistic": "histogram", "epsilon": "1", **hss},
        {"name": "busiest_destination", "statistic": "maximum", "epsilon": "0.5", **hss},
        {
            "name": "late_departures",
            "statistic": "alerts",
            "by": "airline",
            "where": late,
            "threshold": "100",
            "epsilon": "0.3",
        },
    ]
    example = load(flights_folder() / "pipeline.yaml").model_dump(by_alias=True, exclude_unset=True)
    example["privacy"].pop("expect")  # guesses of the example's series
    return PipelineSpec.model_validate({**example, "series": series})
