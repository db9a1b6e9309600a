"""Taint: private values that a composite mechanism may only add and pass on.

A composite mechanism that runs on tainted rows through a `TaintedComposition` shows, while it runs, the destination
and response properties of [HSV] 6.3: no message is chosen, addressed or answered by private data. Rules: a
composite may add and slice rows and pass them to a sub-mechanism. Any operation that lets a value decide, leave or
be formatted raises `TaintError`, whose text never contains the value. The states of sub-mechanisms never reach the
composite; each state of the composition is used once, and noise is the composite's own. An instrument for tests:
production runs the same code on plain arrays and sealed states.
"""

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy as np

from stream_dp.core.composition import (
    Ask,
    Child,
    CompositionMessage,
    CompositionState,
    ConcurrentComposition,
    Create,
)
from stream_dp.core.mechanism import IntArray, Mechanism, Message, Noise, Query, Update
from stream_dp.errors import TaintError

Plain: TypeAlias = "IntArray | np.int64 | int"
S = TypeVar("S")


def _refused(what: str) -> Any:
    def method(self: "Tainted", *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TaintError(f"{what} a tainted value: private data may only be added and passed on")

    return method


class Tainted:
    """A private int64 array or integer.

    >>> row = Tainted(np.array([1, 2])) + 1
    >>> bool(row[0])
    Traceback (most recent call last):
    stream_dp.errors.TaintError: branching on a tainted value: private data may only be added and passed on
    """

    __slots__ = ("_value",)
    __array_priority__ = 1_000.0

    def __init__(self, value: Plain) -> None:
        object.__setattr__(self, "_value", value)

    def __add__(self, other: "Tainted | Plain") -> "Tainted":
        """Return the sum, tainted."""
        return Tainted(reveal(self) + (reveal(other) if isinstance(other, Tainted) else other))

    __radd__ = __add__

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any
    ) -> "Tainted":
        """Handle plain array + tainted value; refuse every other numpy function."""
        if ufunc is not np.add or method != "__call__" or options:
            raise TaintError("numpy work on a tainted value other than a fresh sum")
        left, right = (reveal(x) if isinstance(x, Tainted) else x for x in inputs)
        return Tainted(left + right)

    def __getitem__(self, place: int | slice) -> "Tainted":
        """Return a part at a public place, tainted."""
        parts = (place.start, place.stop, place.step) if isinstance(place, slice) else (place,)
        if any(isinstance(part, Tainted) for part in parts):
            raise TaintError("the place taken from a row depends on private data")
        value = reveal(self)
        if not isinstance(value, np.ndarray):
            raise TypeError("a tainted integer has no parts")
        return Tainted(value[place])

    __bool__ = _refused("branching on")
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refused("comparing")
    __hash__ = _refused("hashing")
    __len__ = _refused("measuring")
    __iter__ = __contains__ = __reversed__ = _refused("looking into")
    __int__ = __float__ = __complex__ = __round__ = _refused("converting")
    __trunc__ = __floor__ = __ceil__ = __index__ = _refused("converting")
    __repr__ = __str__ = __format__ = __bytes__ = _refused("formatting")
    __array__ = __array_function__ = _refused("numpy work on")
    __reduce_ex__ = __copy__ = __deepcopy__ = _refused("copying out")
    __setattr__ = __delattr__ = __setitem__ = __delitem__ = _refused("changing")
    __getattr__ = _refused("reading an attribute of")
    __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = __abs__ = _refused("calculating with")
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = _refused("calculating with")
    __mod__ = __rmod__ = __divmod__ = __rdivmod__ = _refused("calculating with")
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _refused("calculating with")
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refused("calculating with")
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __invert__ = _refused("calculating with")
    __iadd__ = _refused("changing")  # it would write into the sender's row


def reveal(value: Tainted) -> Any:
    """Return the value inside, for tests and for `TaintedComposition`; a mechanism that calls this is broken."""
    return object.__getattribute__(value, "_value")


class Elsewhere:
    """Stands in for a sub-mechanism's state, which a composite must not open."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        """Raise TaintError."""
        raise TaintError("a composite opened the state of a sub-mechanism")


@dataclass(frozen=True, slots=True)
class TaintedComposition(ConcurrentComposition):
    """The composition in which private data reaches the sub-mechanisms, and no other part of a composite.

    The states it returns are empty: the real ones stay here, each until the next message to it. If `noise` is
    given, sub-mechanisms may only draw from it.
    """

    noise: Noise | None = None
    _heads: list[tuple[CompositionState, CompositionState]] = field(
        default_factory=list, repr=False, compare=False
    )

    def init(self, noise: Noise | None = None) -> CompositionState:
        """Return the first state, without mechanisms."""
        return self._hand_out(ConcurrentComposition.init(self, noise))

    def step(
        self, state: CompositionState, message: CompositionMessage, noise: Noise
    ) -> tuple[CompositionState, IntArray | None]:
        """Take a message as the composition does; only an update's row may be private.

        Raises:
            TaintError: a destination, a created mechanism's parameter or a threshold is tainted; a state is used a
            second time (a repeated question has new noise, and the mean of many answers has none); the noise is not
            the composite's own.
        """
        if isinstance(message, Create) and _holds_taint(message.mechanism):
            raise TaintError(
                "a mechanism was created with a parameter that depends on private data"
            )
        if not isinstance(message, Create) and isinstance(message.index, Tainted):
            raise TaintError("the destination of a message depends on private data")
        if isinstance(message, Ask):
            message = Ask(message.index, _entering(message.message))
        if self.noise is not None and noise is not self.noise:
            raise TaintError("a sub-mechanism was handed other noise than the composite's own")
        place = self._place(state)
        after, answer = ConcurrentComposition.step(self, self._heads[place][1], message, noise)
        del self._heads[place]
        return self._hand_out(after), answer

    def _hand_out(self, state: CompositionState) -> CompositionState:
        """Return an empty state that stands for this one."""
        live = {index: Child(child.mechanism, Elsewhere()) for index, child in state.live.items()}
        shown = CompositionState(state.created, live)
        self._heads.append((shown, state))
        return shown

    def _place(self, shown: CompositionState) -> int:
        """Return the index of the real state for this one."""
        for place, (head, _) in enumerate(self._heads):
            if head is shown:
                return place
        raise TaintError("an earlier state of the composition was used again, or one made by hand")


def _entering(message: Message | CompositionMessage) -> Message | CompositionMessage:
    """Return the message with its row unwrapped; refuse a tainted threshold."""
    match message:
        case Update(row) if isinstance(row, Tainted):
            return Update(reveal(row))
        case Query() if _holds_taint(message):
            raise TaintError("a query's threshold or columns depend on private data")
    return message


def _holds_taint(value: object) -> bool:
    if isinstance(value, tuple | list):
        return any(_holds_taint(item) for item in value)
    if is_dataclass(value):
        return any(_holds_taint(getattr(value, f.name)) for f in fields(value))
    return isinstance(value, Tainted)


def tainted_step(
    mechanism: Mechanism[S], state: S, message: Message, noise: Noise
) -> tuple[S, IntArray | None]:
    """Run one step of a composite on a tainted input row.

    Raises:
        TaintError: the mechanism decided by private data, or answered with it.
    """
    if isinstance(message, Update):
        message = Update(Tainted(message.row))  # type: ignore[arg-type]  # stands in for a row
    state, answer = mechanism.step(state, message, noise)
    if _holds_taint(answer) or (isinstance(answer, np.ndarray) and answer.dtype == object):
        raise TaintError("the answer is private data")
    return state, answer
