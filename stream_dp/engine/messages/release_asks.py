"""Queries to a released series: a part of its last public release. Post-processing ([HSV] 2.14): it is free.

Rules: the answer is a function of the release's bytes and of public parameters. An error names the key at fault and
never its value. This file knows no mechanism, actor or journal.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET

from stream_dp.core.near_names import meant
from stream_dp.engine.made_series import MadeSeries
from stream_dp.engine.series import Series
from stream_dp.errors import UsageError
from stream_dp.journal.release import Rank, Released, Shape, WindowPart, read

Shown: TypeAlias = Series | MadeSeries
_TAKEN = ("keys", "from", "to")
_ENDS = ("band", "low", "high")


def selected(series: Shown, body: bytes, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a release of `series` says about the keys and the window that `parameters` name.

    Keys are chosen by `keys`, or by a range from `from` to `to` in the order of the series, both included; without
    these, all keys. `window` chooses one window of a series that has windows; without it, all windows.

    Raises:
        UsageError: other parameters, keys or a window that the series does not have, or keys of a series without
            any.
    """
    names = _windows(series, parameters)
    wanted = _chosen(series, {key: one for key, one in parameters.items() if key != "window"})
    released = read(body)
    return {
        "series": series.name,
        "sequence": released.sequence,
        "tick": released.tick,
        "end": released.end,
        **_shown(released, wanted, names),
        "confidence": released.confidence,
        **({"not_private": True} if released.not_private else {}),
    }


def _shown(released: Released, wanted: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    match released.shape:
        case Shape.SCALAR:
            named = {} if released.name is UNSET else {"name": released.name}
            return {**named, **_number(released)}
        case Shape.HISTOGRAM:
            return _numbers(released, wanted)
        case Shape.FLAGS:
            fired = set(released.fired or ())
            return {"fired": [key for key in wanted if key in fired], "band": released.band}
        case Shape.RANKS:
            return {"ranks": _ranks(released.ranks or (), wanted), "band": released.band}
        case Shape.WINDOWS:
            windows = released.windows or {}
            return {"windows": {name: _part(windows[name], wanted) for name in names}}


def _part(part: WindowPart, wanted: Sequence[str]) -> dict[str, Any]:
    if part.quantiles is not UNSET:
        told = msgspec.to_builtins(part.quantiles)
        return {"quantiles": {key: told[key] for key in wanted if key in told}, "band": part.band}
    if part.ranks is not UNSET:
        return {"ranks": _ranks(part.ranks, wanted), "band": part.band}
    return _number(part) if part.values is UNSET else _numbers(part, wanted)


def _number(part: WindowPart | Released) -> dict[str, Any]:
    """Return one value with its band, or with its two ends."""
    ends = {key: getattr(part, key) for key in _ENDS}
    return {"value": part.value, **{key: end for key, end in ends.items() if end is not UNSET}}


def _numbers(part: WindowPart | Released, wanted: Sequence[str]) -> dict[str, Any]:
    """Return the values of some keys with their band, or with the two ends of each."""
    values = part.values or {}
    told = {"values": {key: values[key] for key in wanted}}
    if part.lows is UNSET or part.highs is UNSET:
        return {**told, "band": part.band}
    ends = dict(zip(values, zip(part.lows, part.highs, strict=True), strict=True))
    lows, highs = zip(*(ends[key] for key in wanted), strict=True)
    return {**told, "lows": list(lows), "highs": list(highs)}


def _ranks(ranks: Sequence[Rank], wanted: Sequence[str]) -> list[dict[str, Any]]:
    """Return the ranks that these keys hold, in the order of the ranks."""
    asked = set(wanted)
    return [msgspec.to_builtins(rank) for rank in ranks if rank.name in asked]


def _windows(series: Shown, parameters: Mapping[str, Any]) -> Sequence[str]:
    """Return the names of the windows asked for, in the order of the series.

    Raises:
        UsageError: the series has no such window.
    """
    names = series.windows
    if "window" not in parameters:
        return names
    if not names:
        raise UsageError("window: this series has no windows")
    if parameters["window"] not in names:
        raise UsageError(f"window: is none of this series; it has {', '.join(names)}")
    return [parameters["window"]]


def _chosen(series: Shown, parameters: Mapping[str, Any]) -> Sequence[str]:
    """Return the keys asked for, in the order of the series.

    Raises:
        UsageError: see `selected`.
    """
    others = sorted(parameters.keys() - set(_TAKEN))
    if others:
        raise UsageError(
            f"{', '.join(others)}: not taken by a series that is answered from its releases; it takes keys, or from "
            "and to"
        )
    if not parameters:
        return series.keys
    scalar = isinstance(series, Series) and series.shape is Shape.SCALAR
    if scalar or not any(series.keys):
        raise UsageError(f"{', '.join(sorted(parameters))}: this series has one value and no keys")
    if "keys" in parameters:
        if len(parameters) > 1:
            raise UsageError("keys: cannot stand beside from and to")
        return _listed(series, parameters["keys"])
    places = {key: place for place, key in enumerate(series.keys)}
    first = _place(places, parameters, "from", 0)
    last = _place(places, parameters, "to", len(series.keys) - 1)
    if first > last:
        raise UsageError("from: lies behind to, in the order of the series' keys")
    return series.keys[first : last + 1]


def _listed(series: Shown, keys: Any) -> Sequence[str]:
    if (
        not isinstance(keys, list | tuple)
        or not keys
        or not all(isinstance(key, str) for key in keys)
    ):
        raise UsageError("keys: must be a list of one or more texts")
    wanted, there = set(keys), set(series.keys)
    if not wanted <= there:
        near = meant(next(key for key in keys if key not in there), series.keys)
        raise UsageError(f"keys: names what is no key of this series{near}")
    return [key for key in series.keys if key in wanted]


def _place(
    places: Mapping[str, int], parameters: Mapping[str, Any], name: str, default: int
) -> int:
    if name not in parameters:
        return default
    if not isinstance(parameters[name], str) or parameters[name] not in places:
        raise UsageError(f"{name}: is no key of this series{meant(parameters[name], places)}")
    return places[parameters[name]]
