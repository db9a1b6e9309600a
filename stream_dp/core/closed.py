"""Closed classes: what is proven of a class is proven of that class alone, so some classes forbid subclasses.

A subclass could override the attribute a proof rests on, and still pass a type check. Rules: measures, guarantees,
derivations and situations are closed. Mechanisms are not closed; their derivations check the exact class
(`mechanisms.exact_class`). This file knows no class by name.
"""

from typing import Any, TypeVar

from stream_dp.errors import NotDerivable

T = TypeVar("T")


def takes_no_subclass(cls: type[T]) -> type[T]:
    """Forbid subclasses of a class and return it; a decorator that goes above `@dataclass`.

    >>> from stream_dp.core.guarantee import PureDP
    >>> class Free(PureDP): ...
    Traceback (most recent call last):
    stream_dp.errors.NotDerivable: PureDP takes no subclass, and Free would be one: what is proven of a class is proven of it alone; write a class of its own, with rules of its own
    """  # noqa: E501  an error text is one line

    def refuse(subclass: type, /, **_options: Any) -> None:
        raise NotDerivable(
            f"{cls.__name__} takes no subclass, and {subclass.__name__} would be one: what is proven of a class is "
            "proven of it alone; write a class of its own, with rules of its own"
        )

    setattr(cls, "__init_subclass__", classmethod(refuse))  # noqa: B010  mypy lets nobody assign it
    return cls
