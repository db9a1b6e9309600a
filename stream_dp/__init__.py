"""Live, differentially private statistics from event streams, under one stated guarantee.

The public face: everything a program needs, by one import. ``import stream_dp`` itself loads nothing else; a name loads
its module when it is first used. The names stand in `__init__.pyi`, once; what is not there may change without notice.
`docs/python.md` is a tour.

Examples
--------
>>> import stream_dp as sdp
>>> budget = sdp.Budget(epsilon=1, schema={"amount": {"type": "number"}})
>>> orders = budget.series(sdp.Mean(of="amount", clamp=(0, 240)), epsilon="0.1", horizon=8760)
>>> orders.add({"amount": 19.95})
>>> release = orders.release()
>>> release.tick, release.confidence, budget.left
(0, 0.95, Fraction(9, 10))
"""

from functools import cache as _cache
from importlib import import_module as _import_module

__version__ = "0.1.0"


@_cache
def _places() -> dict[str, tuple[str, str]]:
    """Return the module of each public name, and its name there, as the stub imports it."""
    import ast  # not before a name is used
    from pkgutil import get_data

    stub = ast.parse(get_data(__name__, "__init__.pyi") or b"")
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: (str(node.module), alias.name) for node in imports for alias in node.names}


def __getattr__(name: str) -> object:
    """Load a public name, or that of a statistic, when it is first used (PEP 562)."""
    if name == "__all__":
        return sorted(_places())
    value: object
    if name in _places():
        module, attribute = _places()[name]
        value = getattr(_import_module(module), attribute)
    elif name[:1].isupper():
        value = _import_module(f"{__name__}.python.statistic").named(name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*_places(), "__version__"])
