"""The HTTP API: the routes, what surrounds them, and the OpenAPI document that describes them.

Rules: an answer holds what `PublicView` holds and nothing else. No page of this server loads anything from elsewhere.
Every answer but files of the package is `no-store`.
"""

from typing import TYPE_CHECKING

from fastapi import FastAPI

from stream_dp.server.broadcast import Broadcast
from stream_dp.server.openapi import ABOUT, add_document
from stream_dp.server.refusals import add_refusals, refusals
from stream_dp.server.routes.analysts import add_analysts
from stream_dp.server.routes.configuration import add_configuration
from stream_dp.server.routes.metrics import add_metrics
from stream_dp.server.routes.pages import add_pages
from stream_dp.server.routes.queries import add_queries
from stream_dp.server.routes.series import add_series, add_stream
from stream_dp.server.routes.talk import add_messages
from stream_dp.server.shield import Shield
from stream_dp.server.view import PublicView

if TYPE_CHECKING:
    from fastapi.telemetry import TelemetryConfig

SILENT: "TelemetryConfig" = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "auto_configure": False,
}
"""FastAPI's own telemetry, which tells whole addresses and errors to whatever the program around has set up."""


def create_app(
    view: PublicView, allowed_hosts: frozenset[str], broadcast: Broadcast | None = None
) -> FastAPI:
    """Answer with `view`, for requests to `allowed_hosts` (names without a port)."""
    app = FastAPI(
        **ABOUT,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=refusals(421, 500),
        telemetry=SILENT,
    )
    app.add_middleware(Shield, allowed_hosts=allowed_hosts)
    add_refusals(app)
    add_series(app, view)
    add_stream(app, broadcast or Broadcast(view))
    add_configuration(app, view)
    add_queries(app, view)
    add_analysts(app, view)
    add_messages(app, view)
    add_document(app)
    add_metrics(app, view)
    add_pages(app)
    return app
