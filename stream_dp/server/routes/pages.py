"""The page and the reader of the OpenAPI document: files of the package, and no API.

Rules: nothing they load comes from elsewhere, and no script or style stands inside an HTML file. A file is served by
its name only, read once, before the first request.
"""

from collections.abc import Mapping
from importlib.resources import files

from fastapi import FastAPI
from fastapi.responses import Response

from stream_dp.server.refusals import Refused
from stream_dp.server.shield import POLICY

DOCS_POLICY = f"{POLICY}; img-src 'self' data:"
"""What the reader needs: its icons stand as data in its style sheet. Scripts and styles are files here too."""

_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


def add_pages(app: FastAPI) -> None:
    """Add the routes of the page (`/`) and of the reader (`/docs`)."""
    page, docs = _folder("page"), _folder("docs")

    @app.get("/docs", include_in_schema=False)
    async def docs_index() -> Response:
        return _file("index.html", docs, DOCS_POLICY)

    @app.get("/docs/{name}", include_in_schema=False)
    async def docs_file(name: str) -> Response:
        return _file(name, docs)

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return _file("index.html", page)

    @app.get("/{name}", include_in_schema=False)
    async def page_file(name: str) -> Response:
        return _file(name, page)


def _folder(name: str) -> Mapping[str, bytes]:
    folder = files("stream_dp.server") / name
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def _file(name: str, folder: Mapping[str, bytes], policy: str = POLICY) -> Response:
    if name not in folder:
        raise Refused(404, "no such page")
    media_type = _MEDIA_TYPES.get(name[name.rfind(".") :], "application/octet-stream")
    headers = {"cache-control": "no-cache", "content-security-policy": policy}
    return Response(folder[name], media_type=media_type, headers=headers)
