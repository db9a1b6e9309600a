"""The public view of a run: its file, plan, budget and series for API and page.

Rules: everything here is public: the pipeline file, charges, and what was released.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from stream_dp.accounting.subledgers import MAIN
from stream_dp.core.time import moment_text
from stream_dp.engine.messages.issued_tokens import IssuedToken, IssuedTokens
from stream_dp.errors import FailClosed, WorldError
from stream_dp.operate.budget_view import api_budget, judged_plan_json
from stream_dp.operate.run.live_series import Attempt, EngineLiveSeries
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.promise import unit_json
from stream_dp.pipeline.report import condition_json, promise_json
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records.endpoints import ReplayClock, WallClock
from stream_dp.records.groupings import keys_of, most_ones
from stream_dp.records.schema import CategoryField, ListField, TimeField
from stream_dp.server.view import Behind, PublicView, ReleaseLog, TokenHolder, TokenReader
from stream_dp.statistics import STATISTICS, Series
from stream_dp.statistics.parts.series_spec import SeriesSpec

KINDS: Mapping[str, str] = {
    "by": "grouping", "of": "amount", "plus": "values", "minus": "values", "clamp": "range", "buckets": "whole",
    "at": "shares", "k": "whole", "rank": "whole", "level": "whole", "threshold": "whole", "below": "flag",
    "windows": "windows", "every": "windows", "running": "flag", "hop": "window",
}  # fmt: skip
"""The form element for each key of a definition."""
_EVERYWHERE = ("statistic", "name", "epsilon", "delta", "where")


def askable_json(spec: PipelineSpec) -> dict[str, Any]:
    """Return the fields of the schema, and the statistics with their keys, for `GET /api/schema`.

    They are public: in the pipeline file, or the same for all pipelines. Keys that a form cannot show are left out,
    and so are statistics that require such a key; a definition of a live series may still use all of them.
    """
    fields = [
        {"name": name, "type": field.type, **_of_field(field)}
        for name, field in spec.fields.items()
        if not isinstance(field, TimeField)
    ]
    statistics = map(_statistic, STATISTICS)
    return {"fields": fields, "statistics": list(filter(None, statistics))}


def _of_field(field: Any) -> dict[str, Any]:
    own: dict[str, Any] = {"nullable": field.nullable}
    if isinstance(field, CategoryField | ListField):
        own["domain"] = list(field.domain)
    if isinstance(field, ListField):
        own["most"] = field.most
    return own


def _statistic(kind: type[SeriesSpec]) -> dict[str, Any] | None:
    """Return a statistic with its keys; None if a form cannot ask it, or a running engine cannot create it."""
    own = {key: field for key, field in kind.model_fields.items() if key not in _EVERYWHERE}
    required = [key for key, field in own.items() if field.is_required()]
    priced = kind.model_fields["epsilon"].is_required()
    remembers = kind.identifier is not SeriesSpec.identifier
    if remembers or not priced or any(key not in KINDS for key in required):
        return None
    words = (kind.__doc__ or "").partition("\n\n")[0]
    return {
        "statistic": kind.model_fields["statistic"].default,
        "about": " ".join(words.split()),
        "keys": [
            {
                "key": key,
                "kind": "values_of" if key == "of" and "plus" in own else KINDS[key],
                "required": key in required,
            }
            for key in KINDS
            if key in own
        ],
    }


def public_view(
    built: Built,
    shown: Callable[[], Attempt],
    catching_up: Callable[[], bool],
    log: ReleaseLog,
    token_of: Callable[[str], str],
    issued: IssuedTokens,
    behind: Callable[[], Behind | None] = lambda: None,
) -> PublicView:
    """Return the public view of the attempt that `shown` returns and of the releases in `log`.

    `catching_up` says whether the engine has lost its brokers. `token_of` returns the token of an analyst, and of
    the operator (""). `issued` are the tokens that the operator has made; a holder of one may create live series.
    `behind` says how late public ticks are.
    """
    planned, schema = judged_plan_json(built), askable_json(built.spec)
    live_series = EngineLiveSeries(built, shown, catching_up)

    def versions() -> dict[str, int]:
        registry = shown().engine.admission.registry
        return {live.series.name: live.series.version for live in registry.live}

    def running() -> list[Series]:
        planner = shown().words.planner
        first = [series for series in built.spec.series if series.name in first_names()]
        return [*first, *(proposal.series for proposal in planner.running.values())]

    def first_names() -> set[str]:
        """The series of the first file that run: all, unless the file was changed."""
        return {series.name for series in shown().engine.admission.registry.first}

    def plan() -> dict[str, Any]:
        names = first_names()
        return {
            **planned,
            "series": [
                *(series for series in planned["series"] if series["name"] in names),
                *live_series.planned(),
            ],
            "promise": promise_json(built, live_series.promise()),
        }

    def budget() -> dict[str, Any]:
        prices = [(series.name, series.price) for series in running()]
        return api_budget(built.spec, shown().engine.admission.subledgers, prices)

    return PublicView(
        pipeline=lambda: pipeline_json(built, running(), log.ticks, versions()),
        plan=plan,
        budget=budget,
        log=log,
        live_series=live_series,
        token=token_of(MAIN),
        analysts={analyst.name: token_of(analyst.name) for analyst in built.spec.privacy.analysts},
        schema=lambda: schema,
        issued=lambda text: _holder(issued, text, shown().engine.now),
        readers=lambda text: reader_of(issued, text, shown().engine.now),
        catching_up=catching_up,
        behind=behind,
    )


def _holder(issued: IssuedTokens, text: str, now: int) -> TokenHolder | None:
    """Return the holder of an issued token, or None if the token was not issued."""
    token = _looked_up(issued.shown, text)
    if token is None:
        return None
    return TokenHolder(token.analyst, token.id, token.expires, token.state(now))


def reader_of(issued: IssuedTokens, text: str, now: int) -> TokenReader | None:
    """Return whose reading token this is, None if it is none."""
    token = _looked_up(issued.shown_reading, text)
    return None if token is None else TokenReader(token.reader, token.id, token.state(now))


def _looked_up(look: Callable[[str], IssuedToken | None], text: str) -> IssuedToken | None:
    """Look a token up. If the list cannot be read, the error does not name its place: only the operator may know it."""
    try:
        return look(text)
    except (FailClosed, WorldError):
        raise WorldError(
            "the list of tokens cannot be read now, so nothing was done; tell the operator"
        ) from None


def pipeline_json(
    built: Built, series: Iterable[Series], ticks: int = 0, versions: Mapping[str, int] = MappingProxyType({})
) -> dict[str, Any]:  # fmt: skip
    """Return the public configuration and the running `series` for `GET /api/pipeline`; `ticks` are public. `versions`
    are those of the series that run, by name.
    """
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
            **({"zone": zone} if (zone := _zone(spec)) else {}),
        },
        "over": ticks == spec.clock.horizon,
        "series": [_series_json(spec, one) | _version(versions.get(one.name, 1)) for one in series],
    }


def _version(version: int) -> dict[str, int]:
    return {"version": version} if version > 1 else {}


def _zone(spec: PipelineSpec) -> str:
    """Return the time zone of the records' times, of the clock's field first; empty if none is named."""
    times = [field for field in spec.fields.values() if isinstance(field, TimeField)]
    first = spec.fields.get(spec.clock.field) if isinstance(spec.clock, ReplayClock) else None
    times.sort(key=lambda field: field is not first)
    return next((field.zone for field in times if field.zone is not None), "")


def _series_json(spec: PipelineSpec, series: Series) -> dict[str, Any]:
    described, by = series.described(), series.grouped_by
    described["parameters"] = series.parameters_by(spec.fields)
    if by is None:
        return described
    ones = most_ones(spec.fields, by)
    many = {"about": f"{series.about}, an event in up to {ones}", "most": ones} if ones > 1 else {}
    return {**described, **many, "domain": list(keys_of(spec.fields, by))}
