"""What has been derived of a series, as the claim of its creation query ([HSV] Def 4.1)."""

from stream_dp.core.relation import Claim
from stream_dp.core.row_relations import Stream, event
from stream_dp.mechanisms.serving import ones_of
from stream_dp.pipeline.builder import Chosen


def series_claim(chosen: Chosen) -> Claim | None:
    """Return the claim where the mechanism is not made for the pipeline's relation; None: its own guarantee."""
    mechanism, guarantee = chosen.mechanism, chosen.derivation.guarantee
    if guarantee == mechanism.guarantee:
        return None
    rows = event(guarantee.neighbors, mechanism.width, ones_of(mechanism))
    return Claim(guarantee.measure, Stream(rows))
