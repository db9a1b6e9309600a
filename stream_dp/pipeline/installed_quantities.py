"""Quantities that installed packages offer to pipeline files, as entry points of the group `stream_dp.quantities`.

Rules: a file names what a package of this installation offers, and nothing else: no text of a file, or of a request for
a live series, can have another module imported. A function counts from the moment on at which `register_quantity` has
tested it. This file knows no statistic.
"""

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import UsageError
from stream_dp.mechanisms.quantity_checks import Function
from stream_dp.mechanisms.registered_quantity import RegisteredQuantity, register_quantity

GROUP = "stream_dp.quantities"


def offered(name: str) -> EntryPoint:
    """Return the entry point of this name.

    Raises:
        UsageError: no package offers it, or several do.
    """
    every = entry_points(group=GROUP)
    found = {(each.value, getattr(each.dist, "name", "")): each for each in every.select(name=name)}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise UsageError(f"several installed packages offer '{name}': uninstall all but one")
    known = ", ".join(sorted(every.names)) or "none is"
    raise UsageError(
        f"no installed package offers '{name}' (entry points of the group {GROUP}; installed: {known})"
    )


def function_of(name: str) -> Function:
    """Import the function that is offered under this name.

    Raises:
        UsageError: there is none, or it cannot be imported; no text of the package's errors is repeated.
    """
    found: Any = offered(name)
    try:
        return found.load()  # type: ignore[no-any-return]
    except Exception as error:  # noqa: BLE001 - code of others
        raise UsageError(
            f"'{name}' ({found.value}) cannot be imported ({type(error).__name__}); mend or reinstall its package"
        ) from None


def installed_quantity(
    name: str, width: int, ones: int, lipschitz: int, version: int
) -> RegisteredQuantity:
    """Return the quantity of this name for rows of `width` entries and events of `ones` ones, tested.

    What is asked of a replacement holds of an event that is gone, so it is tested under `replace` and serves both.

    Raises:
        UsageError: as `function_of`, or a property does not hold.
    """
    return register_quantity(
        f"{name}_of_{width}_by_{ones}",
        function_of(name),
        width=width,
        neighbors=Neighbors.REPLACE,
        ones=ones,
        lipschitz=lipschitz,
        version=version,
    )
