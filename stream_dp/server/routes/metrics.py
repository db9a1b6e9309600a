"""The route that a monitoring system scrapes: what is public, as OpenMetrics."""

from enum import Enum

from fastapi import FastAPI, Request
from fastapi.responses import Response

from stream_dp.server.metrics.exposition import Exposition
from stream_dp.server.metrics.gauges import FORMS
from stream_dp.server.refusals import refusals
from stream_dp.server.view import PublicView

PATH = "/metrics"
_TAGS: list[str | Enum] = ["releases"]
_LINE = 'stream_dp_release_value{key="",pipeline="flights",series="departures",window=""} 1203.0\n'
_FORMS = {form: {"schema": {"type": "string"}, "example": _LINE} for form in FORMS}


def add_metrics(app: FastAPI, view: PublicView) -> None:
    """Add the route that tells `view` to Prometheus and its like."""
    exposition = Exposition(view)

    @app.get(
        PATH,
        tags=_TAGS,
        summary="The newest releases and the budget, for Prometheus",
        operation_id="get_metrics",
        response_class=Response,
        responses={
            200: {
                "description": "OpenMetrics where the request accepts it, else the older plain text.",
                "content": _FORMS,
            },
            **refusals(503),
        },
    )
    async def metrics(request: Request) -> Response:
        text, form = await exposition.text(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": form, "vary": "accept"})
