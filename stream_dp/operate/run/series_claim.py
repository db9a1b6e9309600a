"""What has been derived of a series, as the claim of its creation query ([HSV] Def 4.1)."""

from stream_dp.core.relation import Claim
from stream_dp.core.row_relations import Stream, user
from stream_dp.mechanisms.serving import event_rows, ones_of
from stream_dp.pipeline.builder import Chosen


def series_claim(chosen: Chosen, start: int = 0) -> Claim | None:
    """Return the claim where the mechanism is not made for the pipeline's relation; None: its own guarantee.

    `start` is the first tick that the series sees.
    """
    mechanism, guarantee = chosen.mechanism, chosen.derivation.guarantee
    if guarantee == mechanism.guarantee:
        return None
    relation, ones, users = guarantee.neighbors, ones_of(mechanism), guarantee.users
    if users is None:
        rows = event_rows(mechanism, relation)
    elif hasattr(mechanism, "event_rows"):
        rows = event_rows(mechanism, relation, users.cap)
    else:
        rows = user(
            relation, users.cap, users.window, width=mechanism.width, ones=ones, first=start
        )
    return Claim(guarantee.measure, Stream(rows))
