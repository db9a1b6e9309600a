"""What is public of a pipeline beside its releases, as metrics: what it is, and its budget.

Rules: everything here stands in the answers of `/api/pipeline`, `/api/budget` and `/healthz`. Amounts are the decimals
there, read as numbers: to be shown, not to be reckoned with.
"""

from collections.abc import Mapping
from typing import Any

from stream_dp import __version__
from stream_dp.server.metrics.gauges import Described, Gauges

_PIPELINE = ("pipeline",)
_KIND = ("pipeline", "kind")
_EPSILON = "epsilon"

CONFIGURED = {
    "stream_dp_pipeline_info": Described(
        "The pipeline that runs: a digest of all that touches data or guarantee, and the version of stream_dp.",
        ("pipeline", "fingerprint", "version"),
    ),
    "stream_dp_series_info": Described(
        "A series that runs: what it tells, in words.",
        ("pipeline", "series", "statistic", "about", "title", "unit"),
    ),
    "stream_dp_tick_seconds": Described("The length of a tick in seconds.", _PIPELINE),
    "stream_dp_tick_delay_seconds": Described(
        "How long after its end a tick is published, on a wall clock.", _PIPELINE
    ),
    "stream_dp_catching_up": Described(
        "1 while the engine has lost its brokers and tries again: releases come late.", _PIPELINE
    ),
    "stream_dp_release_sequence": Described(
        "The number of the newest release over all series.", _PIPELINE
    ),
    "stream_dp_budget_epsilon": Described(
        "Epsilons: the total, the largest that one more series may cost (left), and, where the filter adds up "
        "epsilons, what is spent.",
        _KIND,
    ),
    "stream_dp_budget_delta": Described("Deltas: the total, spent, left.", _KIND),
    "stream_dp_budget_filter": Described(
        "What the filter adds up, in its unit: its capacity, what is spent, the most that ever was (peak).",
        (*_KIND, "unit"),
    ),
    "stream_dp_budget_odometer_epsilon": Described(
        "An epsilon that bounds what is lost so far.", _PIPELINE
    ),
    "stream_dp_budget_analyst_epsilon": Described(
        "Epsilons of an analyst's ledger: total, spent, left.", (*_KIND, "analyst")
    ),
    "stream_dp_budget_series_epsilon": Described(
        "The price of a series that runs.", ("pipeline", "series")
    ),
}
"""Every family that is no release's."""


def add_configured(
    gauges: Gauges, pipeline: Mapping[str, Any], catching_up: bool, sequence: int
) -> None:
    """Add what the pipeline is, from what `/api/pipeline` says of it."""
    name, clock = pipeline["name"], pipeline["clock"]
    gauges.set("stream_dp_pipeline_info", 1, name, pipeline["fingerprint"], __version__)
    gauges.set("stream_dp_tick_seconds", clock["step"], name)
    if clock.get("delay") is not None:
        gauges.set("stream_dp_tick_delay_seconds", clock["delay"], name)
    gauges.set("stream_dp_catching_up", catching_up, name)
    if sequence > 0:
        gauges.set("stream_dp_release_sequence", sequence, name)
    for series in pipeline["series"]:
        words = [str(series.get(key, "")) for key in ("statistic", "about", "title", "unit")]
        gauges.set("stream_dp_series_info", 1, name, series["name"], *words)


def add_budget(gauges: Gauges, name: str, budget: Mapping[str, Any]) -> None:
    """Add what was spent and what is left, from what `/api/budget` says."""
    unit = budget["unit"]
    for kind, amount in budget[_EPSILON].items():
        if kind != "spent" or unit == _EPSILON:
            gauges.set("stream_dp_budget_epsilon", float(amount), name, kind)
    for kind, amount in budget["delta"].items():
        gauges.set("stream_dp_budget_delta", float(amount), name, kind)
    added = {"capacity": budget["capacity"], "spent": budget[_EPSILON]["spent"]}
    for kind, amount in {**added, "peak": budget["peak"]}.items():
        gauges.set("stream_dp_budget_filter", float(amount), name, kind, unit)
    bound = budget.get("odometer", {}).get("bound")
    if bound is not None:
        gauges.set("stream_dp_budget_odometer_epsilon", float(bound), name)
    for analyst in budget["analysts"]:
        for kind, amount in analyst[_EPSILON].items():
            gauges.set(
                "stream_dp_budget_analyst_epsilon", float(amount), name, kind, analyst["name"]
            )
    for series in budget["series"]:
        gauges.set("stream_dp_budget_series_epsilon", float(series[_EPSILON]), name, series["name"])
