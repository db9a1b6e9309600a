"""The operator's port of a run: figures that are NOT PRIVATE, for holders of the operator's token.

Rules: the port exists only if it was asked for. If other machines can reach it, it needs a token of its own: the
operator's token can spend the budget, so a scraper must not carry it. The port is open as long as the process runs,
also while the engine stands by or catches up, because operators look at the figures then.
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
    """Port and host of the figures (0: any free port). Readers need the token in `token_file`, else the operator's.

    `opened` receives the address. `hosts` are further host names that a scraper may use.
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
    """Serve the figures while the context is open, if they were asked for.

    Raises:
        UsageError: the token file has no token, or others can read it; there is no own token although other
        machines can reach the address; or the extra `serve` is missing.
        WorldError: the port is taken.
    """
    if asked is None:
        yield
        return
    from stream_dp.server.operator_server import OperatorServer  # loaded only if asked for
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
