"""The public face of a run: what the API and the page show of its file, its plan, its budget and its series.

Rules: everything here is public: the pipeline file, charges, and what was released.
"""

from fractions import Fraction
from typing import Any

from stream_dp.app.budget_view import api_budget
from stream_dp.app.live_series import EngineLiveSeries
from stream_dp.app.tick_times import TickTimes
from stream_dp.core.moments import moment_text
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.layout import keys_of
from stream_dp.pipeline.live_series import LiveSeriesPlanner
from stream_dp.pipeline.report import condition_json, plan_json, promise_json
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.statistics import Series
from stream_dp.runtime.engine import Engine
from stream_dp.serve.view import PublicView, ReleaseLog


def public_view(
    built: Built, engine: Engine, planner: LiveSeriesPlanner, log: ReleaseLog, token: str
) -> PublicView:
    """Return what may be seen of `engine`, which publishes into `log`; who holds `token` may create live series."""
    planned = plan_json(built)
    live_series = EngineLiveSeries(built, engine, planner, TickTimes(built.spec, log))

    def prices() -> list[tuple[str, Fraction]]:
        return [(series.name, series.epsilon) for series in running_series(built, planner)]

    return PublicView(
        pipeline=lambda: pipeline_json(built, planner),
        plan=lambda: {
            **planned,
            "series": [*planned["series"], *live_series.planned()],
            "promise": promise_json(built, live_series.promise()),
        },
        budget=lambda: api_budget(built.spec, engine.admission.subledgers, prices()),
        log=log,
        live_series=live_series,
        token=token,
    )


def running_series(built: Built, planner: LiveSeriesPlanner) -> list[Series]:
    """Return the series of the file, then the live series that run."""
    asked = (proposal.series for proposal in planner.running.values())
    return [*(chosen.spec for chosen in built.chosen), *asked]


def pipeline_json(built: Built, planner: LiveSeriesPlanner) -> dict[str, Any]:
    """Return the public configuration and the series that run, for `GET /api/pipeline`."""
    spec = built.spec
    return {
        "name": spec.name,
        "public_data": spec.public_data,
        "unit": spec.privacy.unit,
        "neighbors": str(spec.relation),
        **condition_json(spec),
        "fingerprint": built.fingerprint,
        "clock": {
            "kind": spec.clock.kind,
            "start": None if spec.clock.start is None else moment_text(spec.clock.start),
            "step": spec.clock.step / 1000,
            "horizon": spec.clock.horizon,
        },
        "series": [_series_json(spec, series) for series in running_series(built, planner)],
    }


def _series_json(spec: PipelineSpec, series: Series) -> dict[str, Any]:
    by = series.grouped_by
    domain = {} if by is None else {"domain": list(keys_of(spec, by))}
    return {**series.described(), **domain}
