"""The operator's figures as metrics: exact and NOT PRIVATE, as each name and help text says.

Rules: only the guarded operator's port serves them (`figures_beside`), never the public port. They count the
durable commits of this process and start at 0 with it.
"""

from stream_dp.operate.observe.operator_figures import OperatorFigures
from stream_dp.server.metrics.gauges import Described, Gauges, content_type

_MARK = "NOT PRIVATE: "
_PREFIX = "stream_dp_not_private_"
_LABELS = ("pipeline",)
_FIGURES = {
    "records_total": Described("Records that were counted, late ones too.", _LABELS),
    "late_records_total": Described("Records that came after their tick was closed.", _LABELS),
    "dead_records_total": Described(
        "Records that could not be used, by reason and field.", (*_LABELS, "reason", "field")
    ),
    "capped_records_total": Described(
        "Records that count nowhere, for their user had as many as count.", _LABELS
    ),
    "commits_total": Described("Durable commits of the journal.", _LABELS),
    "restarts_total": Described("Attempts after the first, each after an outage.", _LABELS),
    "since_commit_seconds": Described("Seconds since the last durable commit.", _LABELS),
    "lag": Described(
        "Places of the topic between the last commit and what the brokers are known to hold.",
        _LABELS,
    ),
}
FAMILIES = {
    f"{_PREFIX}{name}": each._replace(help=f"{_MARK}{each.help}") for name, each in _FIGURES.items()
}
"""Every family of the operator's port."""


def figures_text(pipeline: str, figures: OperatorFigures, accepted: str) -> tuple[bytes, str]:
    """Return the figures in a format that this `Accept` header allows, and the content type of that format."""
    gauges = Gauges(FAMILIES)

    def tell(name: str, value: float | None, *labels: str) -> None:
        if value is not None:
            gauges.set(f"{_PREFIX}{name}", value, pipeline, *labels)

    tell("records_total", figures.records)
    tell("late_records_total", figures.late)
    for (reason, field), records in sorted(figures.dead_by_reason.items()):
        tell("dead_records_total", records, reason, field)
    tell("capped_records_total", figures.capped)
    tell("commits_total", figures.commits)
    tell("restarts_total", figures.restarts)
    tell("since_commit_seconds", figures.since_commit)
    tell("lag", figures.lag)
    return gauges.written(accepted), content_type(accepted)
