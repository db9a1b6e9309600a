"""The public view of a run: its file, plan, budget and series for API and page.

Rules: everything here is public: the pipeline file, charges, and what was released.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

from stream_dp.accounting.subledgers import MAIN
from stream_dp.core.moments import moment_text
from stream_dp.engine.messages.issued_tokens import IssuedTokens
from stream_dp.errors import FailClosed, WorldError
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.operate.budget_view import api_budget
from stream_dp.operate.query.askable import askable_json
from stream_dp.operate.run.attempt import Attempt, CurrentLiveSeries
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.pipeline.promise import unit_json
from stream_dp.pipeline.report import condition_json, plan_json, promise_json
from stream_dp.records.endpoints import WallClock
from stream_dp.records.groupings import keys_of, most_ones
from stream_dp.server.holders import TokenHolder
from stream_dp.server.view import PublicView, ReleaseLog
from stream_dp.statistics import Series


def public_view(
    built: Built,
    shown: Callable[[], Attempt],
    catching_up: Callable[[], bool],
    log: ReleaseLog,
    token_of: Callable[[str], str],
    issued: IssuedTokens,
) -> PublicView:
    """Return the public view of the attempt that `shown` returns and of the releases in `log`.

    `catching_up` says whether the engine has lost its brokers. `token_of` returns the token of an analyst, and of
    the operator (""). `issued` are the tokens that the operator has made; a holder of one may create live series.
    """
    planned, asked = plan_json(built), askable_json(built.spec)

    def plan() -> dict[str, Any]:
        live_series = shown().live_series
        return {
            **planned,
            "series": [*planned["series"], *live_series.planned()],
            "promise": promise_json(built, live_series.promise()),
        }

    def prices() -> list[tuple[str, Fraction]]:
        return [(series.name, series.price) for series in running_series(built, shown().planner)]

    return PublicView(
        pipeline=lambda: pipeline_json(built, running_series(built, shown().planner), log.ticks),
        plan=plan,
        budget=lambda: api_budget(built.spec, shown().engine.admission.subledgers, prices()),
        log=log,
        live_series=CurrentLiveSeries(shown, catching_up),
        token=token_of(MAIN),
        analysts={each.name: token_of(each.name) for each in built.spec.privacy.analysts},
        schema=lambda: asked,
        issued=lambda text: _holder(issued, text, shown().engine.now),
        catching_up=catching_up,
    )


def _holder(issued: IssuedTokens, text: str, now: int) -> TokenHolder | None:
    """Return the holder of an issued token, or None if the token was not issued.

    Raises:
        WorldError: the list of tokens cannot be read; the error does not name its place, which only the operator
        may know.
    """
    try:
        found = issued.shown(text)
    except (FailClosed, WorldError):
        raise WorldError(
            "the engine cannot read its list of tokens now; nothing was done, tell the operator"
        ) from None
    return (
        None
        if found is None
        else TokenHolder(found.analyst, found.id, found.expires, found.state(now))
    )


def running_series(built: Built, planner: LiveSeriesPlanner) -> list[Series]:
    """Return the series of the file, then the live series that run."""
    asked = (proposal.series for proposal in planner.running.values())
    return [*built.spec.series, *asked]


def pipeline_json(built: Built, series: Iterable[Series], ticks: int = 0) -> dict[str, Any]:
    """Return the public configuration and the running `series` for `GET /api/pipeline`; `ticks` are public."""
    spec = built.spec
    return {
        "name": spec.name,
        "public_data": spec.public_data,
        **unit_json(spec),
        "neighbors": str(spec.relation),
        **condition_json(spec),
        "fingerprint": built.fingerprint,
        "clock": {
            "kind": spec.clock.kind,
            "start": None if spec.clock.start is None else moment_text(spec.clock.start),
            "step": spec.clock.step / 1000,
            "delay": spec.clock.delay / 1000 if isinstance(spec.clock, WallClock) else None,
            "horizon": spec.clock.horizon,
        },
        "over": ticks == spec.clock.horizon,
        "series": [_series_json(spec, each) for each in series],
    }


def _series_json(spec: PipelineSpec, series: Series) -> dict[str, Any]:
    described, by = series.described(), series.grouped_by
    described["parameters"] = series.parameters_by(spec.fields)
    if by is None:
        return described
    ones = most_ones(spec.fields, by)
    many = {"about": f"{series.about}, an event in up to {ones}", "most": ones} if ones > 1 else {}
    return {**described, **many, "domain": list(keys_of(spec.fields, by))}
