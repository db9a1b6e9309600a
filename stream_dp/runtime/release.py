"""How the releases of a series look."""

from enum import StrEnum


class Shape(StrEnum):
    """What a release holds: one value, a value for each key, or the keys that fired."""

    SCALAR = "scalar"
    HISTOGRAM = "histogram"
    FLAGS = "flags"
