"""[HSV] Algorithm 4 line by line with given noise values, written from the paper alone.

As a finite machine with exact laws it is in `stream_dp.verify.exact.exact_sparse_vector`, which
`stream-dp audit --rules` plays.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

Row: TypeAlias = tuple[int, ...]
OfTime: TypeAlias = Callable[[int, int], int]
Q: TypeAlias = Callable[[Sequence[int]], int]


def alg4(
    rows: Sequence[Row],
    q: Q,
    gamma: OfTime,
    xi: OfTime,
    taus: Sequence[int],
    nus: Sequence[int],
    checks: Sequence[int],
    counter: OfTime,
) -> list[tuple[int, int]]:
    """The paper's lines: (out, Thresh) after each step.

    `counter(j, i)`: the noise of counter i after its j-th update. h is clipped at 0 ([HSV] asks for q on N^d).
    """
    width = len(rows[0])
    exact, h, c = [0] * width, [0] * width, [0] * width
    out, j, svt = q(h), 1, list(h)
    threshold = gamma(1, j)
    tau, answers = taus[0], []
    for t, x in enumerate(rows, start=1):
        c = [a + b for a, b in zip(c, x, strict=True)]
        svt = [a + b for a, b in zip(svt, x, strict=True)]
        exact = [a + b for a, b in zip(exact, x, strict=True)]
        if q(svt) + nus[t - 1] > threshold + tau:
            both = [a + b for a, b in zip(c, h, strict=True)]
            if q(both) + checks[j - 1] > threshold - xi(t, j):
                threshold = threshold + gamma(t, j)
            h = [max(0, a + counter(j, i)) for i, a in enumerate(exact)]
            out = q(h)
            svt = list(h)
            c = [0] * width
            j = j + 1
            tau = taus[j - 1]
            threshold = threshold - gamma(t, j - 1) + gamma(t, j)
        threshold = threshold - gamma(t, j) + gamma(t + 1, j)
        answers.append((out, threshold))
    return answers
