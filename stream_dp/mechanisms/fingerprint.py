"""What a mechanism does, as a short text: a state goes on with no other.

Rules: the fingerprint is made of kinds, versions and parameters by name, exact and in canonical bytes, never of class
names or `repr`. The version of a mechanism stands above its class (`wire`): raise it with any change of its noise, its
thresholds, its error band or the order of its draws, in its own file or in a function that only it uses. A mechanism
that rests on another (`rests_on`) gets a new fingerprint with it. A parameter may be added with a default that means
what was always done; it is left out at its default.
"""

import hashlib
from typing import Any

from stream_dp.core.mechanism import Mechanism
from stream_dp.core.serial import canonical


def mechanism_fingerprint(mechanism: Mechanism[Any]) -> str:
    """SHA-256, in hex, of the mechanism with its parameters and of all that it rests on.

    Raises:
        TypeError: it, or a parameter, has no kind and version.
    """
    return hashlib.sha256(b"stream_dp mechanism 1\n" + canonical(mechanism)).hexdigest()
