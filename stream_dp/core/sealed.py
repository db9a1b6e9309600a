"""A sealed value: it is stored and passed on, never read.

A composite mechanism holds the states of its sub-mechanisms inside its own state. They are sealed so that it cannot
read them: its answers and decisions must follow from answers alone ([HSV] 6.3). Rules: only three places open a
state: `core.composition`, to step it; `core.serial`, to write it; and exact checks. tests/architecture lists all
callers of `inside_of`; a mechanism that calls it is broken. An error's text never holds the value. This file knows
no mechanism.
"""

from typing import Any, NoReturn

from stream_dp.errors import TaintError


class SealedState:
    """Holds a value that only the composition reads; every other use raises `TaintError`.

    >>> SealedState(3) == 3
    Traceback (most recent call last):
    stream_dp.errors.TaintError: the state of a sub-mechanism is sealed: read it only through the composition that owns the sub-mechanism
    """  # noqa: E501  an error text is one line

    __slots__ = ("__value",)
    __array_priority__ = 1_000.0

    def __init__(self, value: object) -> None:
        object.__setattr__(self, "_SealedState__value", value)

    def _refused(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TaintError(
            "the state of a sub-mechanism is sealed: read it only through the composition that "
            "owns the sub-mechanism"
        )

    def __getattribute__(self, name: str) -> Any:
        """Refuse every attribute except those by which Python tells types apart."""
        if name == "__class__":
            return SealedState
        return object.__getattribute__(self, "_refused")()

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refused
    __hash__ = None  # type: ignore[assignment]
    __len__ = __iter__ = __contains__ = __reversed__ = __getitem__ = _refused
    __int__ = __float__ = __complex__ = __index__ = __round__ = _refused
    __repr__ = __str__ = __format__ = __bytes__ = _refused
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = __abs__ = _refused
    __array__ = __array_ufunc__ = __array_function__ = _refused
    __reduce_ex__ = __copy__ = __deepcopy__ = _refused
    __setattr__ = __delattr__ = __setitem__ = __delitem__ = _refused


def inside_of(sealed: SealedState) -> Any:
    """Return the sealed value, for the composition and the codec; a mechanism that calls this is broken."""
    return object.__getattribute__(sealed, "_SealedState__value")
