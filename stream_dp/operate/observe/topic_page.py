"""The page made from published releases alone, without the engine: many viewers and no load on the engine.

Rules: the page knows the pipeline file and the published releases, needs no key and cannot write. Where reading is
closed, it knows readers' tokens by the list of tokens, and no analyst's, which take the key. For a series
created after the start it shows the content of its releases; only the engine knows who created it and its price.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stream_dp import __version__
from stream_dp.core.wording import Progress, unseen
from stream_dp.errors import Outage, UsageError
from stream_dp.journal.release import (
    KeysUnknown,
    Released,
    ReleaseReader,
    Shape,
    by_key,
    read_head,
    release_of,
)
from stream_dp.kafka.client.clients import backing_off
from stream_dp.operate.budget_view import OF_THE_FILE, api_budget, judged_plan_json
from stream_dp.operate.keys import issued_for, require_analysts
from stream_dp.operate.observe.lifecycle_log import TellEvent, silent
from stream_dp.operate.observe.public_view import pipeline_json, reader_of
from stream_dp.operate.published_bodies import Backlog, all_published, find_keys, published
from stream_dp.operate.run.run_pipeline import KEPT_RELEASES
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.server.access import OPEN, Access
from stream_dp.server.server import PageServer
from stream_dp.server.view import PublicView, ReleaseLog

_LOOK_S = 0.5
_LONGEST_WAIT_S = 10.0
READING = "Reading the published releases"
LIVE = "created while the engine ran"
UNKNOWN = (
    "This page reads only published numbers. Only the engine knows what this series counts, for whom, and at what "
    "price."
)


class TopicPage:
    """The public view of a pipeline for a page without an engine."""

    def __init__(self, built: Built, keep: int = KEPT_RELEASES) -> None:
        self._built = built
        self._plan = judged_plan_json(built)
        self._reading = False
        self._others: dict[str, Mapping[str, Any]] = {}
        self._versions: dict[str, int] = {}
        self._keep = keep
        self._known = frozenset(series.name for series in built.spec.series)
        self.log = ReleaseLog(keep)

    @property
    def spec(self) -> PipelineSpec:
        return self._built.spec

    @property
    def name(self) -> str:
        return self.spec.name

    def view(self) -> PublicView:
        built = self._built
        prices = [(series.name, series.price) for series in built.spec.series]
        issued = issued_for(built.spec, None)
        return PublicView(
            pipeline=self._pipeline,
            plan=lambda: self._plan,
            budget=lambda: api_budget(built.spec, built.subledgers(), prices, OF_THE_FILE),
            log=self.log,
            catching_up=lambda: not self._reading,
            behind=Backlog(built.spec, self.log),
            readers=lambda text: reader_of(issued, text, time.time_ns() // 1_000_000),
        )

    async def follow(
        self, bootstrap: str = "", tell: TellEvent = silent, progress: Progress = unseen
    ) -> None:
        """Read published releases for ever, and begin again after an outage of the brokers; raises as `published`."""
        waits = backing_off(_LONGEST_WAIT_S)
        while True:
            try:
                beyond = self.log.last_sequence
                spec = self._built.spec
                async for bodies in published(spec, beyond, _LOOK_S, bootstrap, self._keep):
                    for body in bodies:
                        await self._take(body, bootstrap)
                    if not self._reading:
                        progress(READING, max(0, self.log.last_sequence), 0, "release")
                    if not bodies:
                        progress("")
                        if not self._reading:
                            tell("running")
                        self._reading, waits = True, backing_off(_LONGEST_WAIT_S)
            except Outage:
                if self._reading:
                    tell("catching up")
                self._reading = False
                await asyncio.sleep(next(waits))

    async def _take(self, body: bytes, bootstrap: str) -> None:
        release, version = release_of(body), read_head(body).version
        new = version > self._versions.get(release.series, 0)
        self._versions[release.series] = version
        if release.series not in self._known and new:
            reader = ReleaseReader({})
            try:
                released = reader.read(body)
            except KeysUnknown:
                await find_keys(reader, body, all_published(self._built.spec, bootstrap))
                released = reader.read(body)
            self._others[release.series] = _described(released)
        if self.log.last_sequence < 0:
            self.log.begins_with(release.sequence)
        self.log.append(release)

    def _pipeline(self) -> Mapping[str, Any]:
        series = self._built.spec.series
        configured = pipeline_json(self._built, series, self.log.ticks, self._versions)
        return {**configured, "series": [*configured["series"], *self._others.values()]}


async def serve_page(
    pipeline: Path,
    port: int,
    host: str = "127.0.0.1",
    access: Access = OPEN,
    bootstrap: str = "",
    opened: Callable[[str], None] = lambda url: None,
    tell: TellEvent = silent,
    progress: Progress = unseen,
) -> None:
    """Serve the page of PIPELINE.yaml, or of each such file in a folder, from its published releases until cancelled.

    `opened` receives the address. `access` says who may read, and further host names. `bootstrap` replaces the file's
    brokers. `tell` receives phases only; `progress` receives the number of releases read until the newest is reached.
    """
    pages, folder = _pages(pipeline)
    require_analysts(access, *(page.spec for page in pages))
    tell("starting", pipeline=", ".join(page.name for page in pages), version=__version__)
    several = {page.name: page.view() for page in pages}
    server = PageServer(several if folder else pages[0].view(), access)
    await server.start(host, port)
    opened(server.url)
    try:
        await asyncio.gather(*(page.follow(bootstrap, tell, progress) for page in pages))
    finally:
        with suppress(asyncio.CancelledError):
            await server.stop()


def _pages(place: Path) -> tuple[list[TopicPage], bool]:
    """Return the page of a file, or of each pipeline file in a folder, and whether it is one.

    Raises UsageError if two files have one name.
    """
    folder = place.is_dir()
    files = sorted(place.glob("*.y*ml")) if folder else [place]
    if not files:
        raise UsageError(f"{place}: there is no pipeline file (*.yaml) in this folder")
    pages = [TopicPage(build(load(file))) for file in files]
    twice = [name for name, many in Counter(page.name for page in pages).items() if many > 1]
    if twice:
        raise UsageError(f"{place}: more than one file has `name: {twice[0]}`")
    return pages, folder


def _described(release: Released) -> Mapping[str, Any]:
    """Return what a release reveals about its series, in the form of `GET /api/pipeline`."""
    first = next(iter(release.windows.values())) if release.windows else release
    keys = list(by_key(first))
    return {
        "name": release.series,
        "statistic": "live",
        "by": "key" if keys or release.shape is Shape.FLAGS else None,
        "shape": str(release.shape),
        **({"windows": list(release.windows)} if release.windows else {}),
        "about": LIVE,
        "description": UNKNOWN,
        "meaning": None,
        "parameters": {},
        **({"domain": keys} if keys else {}),
        **({"version": release.version} if release.version > 1 else {}),
    }
