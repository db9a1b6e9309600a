"""The public view that the tests of the server have, for the tests of its client."""

from unit.server.conftest import log, release, view

__all__ = ["log", "release", "view"]
