"""The operator's port of a run: figures that are NOT PRIVATE, beside the engine, for who holds the operator's token.

Rules: there is none unless it was asked for. Where it can be reached from elsewhere it takes a token of its own: the
operator's, which may spend the budget, does not travel for a scraper. It is there as long as the process runs, also
while it stands by or catches up: that is when it is looked at.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from stream_dp.errors import UsageError
from stream_dp.journal.keys import Sealer, read_token
from stream_dp.operate.observe.operator_figures import OperatorFigures

LOCAL = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class FiguresPort:
    """Where the figures are told (0: any free port), and to whom: holders of the token in `token_file`, else of the
    operator's. `opened` learns the address. `hosts`: further names by which a scraper may call it.
    """

    port: int
    token_file: Path | None = None
    opened: Callable[[str], None] = lambda url: None
    host: str = LOCAL
    hosts: frozenset[str] = frozenset()


@asynccontextmanager
async def figures_told(
    asked: FiguresPort | None, pipeline: str, figures: OperatorFigures, sealer: Sealer
) -> AsyncIterator[None]:
    """Tell the figures while the context is open, if that was asked for.

    Raises:
        UsageError: no token in the file, or one that others can read; none of its own on an address that others reach;
            or the extra `serve` is missing.
        WorldError: the port is taken.
    """
    if asked is None:
        yield
        return
    from stream_dp.server.operator_server import OperatorServer  # who asks, loads it
    from stream_dp.server.server import require_extra

    require_extra()
    if asked.host != LOCAL and asked.token_file is None:
        raise UsageError(
            f"--operator-host {asked.host}: others reach it there, so it takes a token of its own: name it with "
            "--operator-token-file"
        )
    from stream_dp.operate.observe.operator_metrics import figures_text

    token = sealer.query_token() if asked.token_file is None else read_token(asked.token_file)
    server = OperatorServer(
        lambda accepted: figures_text(pipeline, figures, accepted), token, asked.hosts
    )
    await server.start(asked.port, asked.host)
    try:
        asked.opened(server.url)
        yield
    finally:
        await server.stop()
