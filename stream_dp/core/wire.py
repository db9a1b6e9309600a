"""The names under which values are written: a kind and a version on each class, never the class's own name.

Rules: the meaning of a kind and version never changes, and a kind is never reused for something else. A field may
be added with a default that keeps the old meaning; any other change raises the version. The label is on the class
itself and is not inherited, because a subclass is something else. docs/formats.md has all rules.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from stream_dp.errors import NotDerivable

T = TypeVar("T")


def takes_no_subclass(cls: type[T]) -> type[T]:
    """Forbid subclasses of a class and return it, because what is proven of a class is proven of that class alone.

    A subclass could override the attribute a proof rests on and still pass a type check. Measures, guarantees,
    derivations and situations are closed. Mechanisms are not closed; their derivations check the exact class
    (`mechanisms.checks`). The decorator goes above `@dataclass`.

    >>> from stream_dp.core.guarantee import PureDP
    >>> class Free(PureDP): ...
    Traceback (most recent call last):
    stream_dp.errors.NotDerivable: PureDP may have no subclass, but Free is one: a proof holds only for its exact class. Write a class of its own with its own rules
    """  # noqa: E501  an error text is one line

    def refuse(subclass: type, /, **_options: Any) -> None:
        raise NotDerivable(
            f"{cls.__name__} may have no subclass, but {subclass.__name__} is one: a proof holds "
            "only for its exact class. Write a class of its own with its own rules"
        )

    setattr(cls, "__init_subclass__", classmethod(refuse))  # noqa: B010  mypy lets nobody assign it
    return cls


_LABEL = "__wire__"


@dataclass(frozen=True, slots=True)
class Wire:
    """A kind, its version, and the labels of the classes on which its behaviour rests."""

    kind: str
    version: int
    rests_on: tuple["Wire", ...] = ()

    @property
    def all_below(self) -> frozenset[tuple[str, int]]:
        """Kind and version of all labels that this one rests on, directly or not."""
        direct = {(label.kind, label.version) for label in self.rests_on}
        return frozenset(direct).union(*(label.all_below for label in self.rests_on))


def wire(
    kind: str, version: int, *, rests_on: tuple[type, ...] = ()
) -> Callable[[type[T]], type[T]]:
    """Decorate a class with its kind and version; the decorator goes above `@dataclass`.

    `rests_on` are labelled classes that the class uses without having them as fields: a new version of one of them
    changes the fingerprint of every mechanism that rests on it.
    """
    label = Wire(kind, version, tuple(wire_of(below) for below in rests_on))

    def labelled(cls: type[T]) -> type[T]:
        setattr(cls, _LABEL, label)
        return cls

    return labelled


def is_labelled(cls: type) -> bool:
    return isinstance(vars(cls).get(_LABEL), Wire)


def wire_of(cls: type) -> Wire:
    """Return the label of this very class (TypeError: it has no label of its own)."""
    label = vars(cls).get(_LABEL)
    if not isinstance(label, Wire):
        raise TypeError(
            f"{cls.__name__} has no kind and version to be written under; give it @wire(kind, version)"
        )
    return label
