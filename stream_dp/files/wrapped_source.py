"""A source that passes all calls to another one: the base of wrappers.

Rules: this class adds nothing. A wrapper overrides only the methods that it changes.
"""

from collections.abc import Sequence

from stream_dp.engine.ports import NOTHING_BEHIND, Batch, Behinds, Positions, Source


class WrappedSource:
    """The `Source` port over `source`: every call is passed on, with its errors."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def name(self) -> str:
        """The source's name."""
        return self._source.name

    @property
    def identity(self) -> str:
        """The source's identity."""
        return self._source.identity

    @property
    def grows(self) -> bool:
        """Whether the source grows."""
        return self._source.grows

    async def open(self, origin: int) -> tuple[int, ...]:
        """Open the source and return its partitions."""
        return await self._source.open(origin)

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        """Seek in the source."""
        await self._source.seek(positions, behind)

    async def read(self) -> Sequence[Batch]:
        """Read the source."""
        return await self._source.read()

    async def close(self) -> None:
        """Close the source."""
        await self._source.close()
