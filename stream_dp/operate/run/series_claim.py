"""The derived guarantee of a series as the claim of its creation query ([HSV] Def 4.1)."""

from stream_dp.core.relation import Claim
from stream_dp.core.row_relations import Stream
from stream_dp.pipeline.builder import Chosen


def series_claim(chosen: Chosen, start: int = 0) -> Claim | None:
    """Return a series' claim if its mechanism is made for another relation; None: its own guarantee holds.

    `start` is the first tick of the series.
    """
    mechanism, guarantee = chosen.mechanism, chosen.derivation.guarantee
    if guarantee == mechanism.guarantee:
        return None
    relation, users = guarantee.neighbors, guarantee.users
    law = mechanism.rows
    rows = law.relation(relation) if users is None else law.of_users(relation, users, start)
    return Claim(guarantee.measure, Stream(rows))
