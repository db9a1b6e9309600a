"""What may exist once only: a budget and a running mechanism.

Rules: a copy would spend the same budget again, or give one tick two releases. So copying and pickling are refused, and
a forked process, which inherits a copy, refuses every use. This file knows neither budgets nor mechanisms.
"""

import os
from typing import NoReturn

from stream_dp.errors import FailClosed


class Single:
    """Something of which there is one, in one process."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process = os.getpid()

    def _require_own_process(self) -> None:
        """Refuse a copy that came with a fork.

        Raises
        ------
        FailClosed
            This is another process than the one it was made in.
        """
        if os.getpid() != self._process:
            raise FailClosed(
                f"a {type(self).__name__} was inherited by a forked process: it stays with the process that made it; "
                "send counts there, or make a budget of its own here, whose guarantee adds up with the other"
            )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise FailClosed(
            f"a {type(self).__name__} is neither copied nor pickled: budget and noise would be used twice"
        )
