"""The route that a monitoring system scrapes: what is public, as OpenMetrics. No part of the API's document."""

from fastapi import FastAPI, Request
from fastapi.responses import Response

from stream_dp.serve.metrics.exposition import Exposition
from stream_dp.serve.view import PublicView

PATH = "/metrics"


def add_metrics(app: FastAPI, view: PublicView) -> None:
    """Add the route that tells `view` to Prometheus and its like."""
    exposition = Exposition(view)

    @app.get(PATH, include_in_schema=False)
    async def metrics(request: Request) -> Response:
        text, form = await exposition.text(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": form, "vary": "accept"})
