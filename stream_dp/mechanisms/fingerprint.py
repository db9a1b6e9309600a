"""A short text that identifies what a mechanism does; a state may continue only under the same fingerprint.

Rules: the fingerprint is computed from kinds, versions and parameters by name, exact and in canonical bytes, never
from class names or `repr`. The version of a mechanism stands above its class (`wire`): raise it with any change of
its noise, its thresholds, its error band or the order of its draws, in its own file or in a function that only it
uses. A mechanism that rests on another one (`rests_on`) gets a new fingerprint together with it. A parameter may be
added with a default that keeps the old behaviour; a parameter at its default is left out.
"""

import hashlib
from typing import Any

from stream_dp.core.mechanism import Mechanism
from stream_dp.core.serial import canonical


def mechanism_fingerprint(mechanism: Mechanism[Any]) -> str:
    """Return the SHA-256, in hex, of the mechanism, its parameters and all classes that it rests on.

    Raises:
        TypeError: the mechanism or a parameter has no kind and version.
    """
    return hashlib.sha256(b"stream_dp mechanism 1\n" + canonical(mechanism)).hexdigest()
