"""A hint: users' records lie elsewhere because their producers place them in another way than is declared.

Rules: how many records show it is exact, so NOT PRIVATE.
"""

from collections.abc import Sequence

from stream_dp.operate.check.hints import Hint
from stream_dp.operate.check.sample import Sample
from stream_dp.pipeline.file.endpoints import KafkaSourceSpec
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.pipeline.routing.user_homes import PARTITIONERS
from stream_dp.pipeline.routing.user_placement import placement_of


def partitioner_hints(spec: PipelineSpec, sample: Sample, astray: Sequence[int]) -> list[Hint]:
    """Return which other partitioner explains where most of these records lie, given by position, if one does."""
    if not astray or not isinstance(spec.source, KafkaSourceSpec):
        return []
    payloads = [sample.payloads[at] for at in astray]
    lie = [sample.places[at][0] for at in astray]
    found = []
    for other in sorted(PARTITIONERS.keys() - {spec.source.partitioner}):
        source = spec.source.model_copy(update={"partitioner": other})
        put = placement_of(spec.model_copy(update={"source": source}))(payloads, sample.partitions)
        explained = sum(map(int.__eq__, put, lie))
        if 2 * explained > len(lie):
            says = f"records lie where `partitioner: {other}` puts their users; declare that in `source:`"
            found.append(Hint(says, explained))
    return found
