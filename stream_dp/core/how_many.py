"""A number with its noun as people write it; the only place that decides this."""


def how_many(number: int, noun: str, several: str | None = None) -> str:
    """Return a number with its noun; `several` is the plural, by default the noun with an s.

    >>> how_many(1, "tick"), how_many(1200, "tick"), how_many(0, "entry", "entries")
    ('1 tick', '1,200 ticks', '0 entries')
    """
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"
