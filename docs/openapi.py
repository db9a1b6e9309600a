"""Writes `openapi.json`, of a server that takes queries and asks who reads: `python docs/openapi.py`.

The tests compare the committed copy with what this makes.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from stream_dp.server.access import Access
from stream_dp.server.api import create_app
from stream_dp.server.refusals import document
from stream_dp.server.view import PublicView, ReleaseLog, Sender

COPY = Path(__file__).with_name("openapi.json")


class Nobody:
    """Live series of which only the routes are wanted."""

    async def create(self, definition: bytes, analyst: str, sender: Sender) -> NoReturn:
        """Never called."""
        raise NotImplementedError

    async def halt(self, name: str, sender: Sender) -> NoReturn:
        """Never called."""
        raise NotImplementedError

    async def preview(self, definition: bytes, analyst: str, sender: Sender) -> NoReturn:
        """Never called."""
        raise NotImplementedError

    async def message(self, text: bytes, signer: str) -> NoReturn:
        """Never called."""
        raise NotImplementedError

    async def ask(self, name: str, parameters: bytes, sender: Sender) -> NoReturn:
        """Never called."""
        raise NotImplementedError

    def queries(self) -> Sequence[Mapping[str, Any]]:
        """Return nothing."""
        return ()


def text() -> str:
    """Return the document as it is committed."""
    view = PublicView(dict, dict, dict, ReleaseLog(), Nobody(), "token")
    return (
        json.dumps(
            document(create_app(view, frozenset(), None, Access(reads="known"))),
            indent=1,
            ensure_ascii=False,
        )
        + "\n"
    )


if __name__ == "__main__":
    COPY.write_text(text())
