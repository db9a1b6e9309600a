"""Where the programs that feed a pipeline's topic put its records: `replay`, and an agent of an app.

Rules: where users are protected, a record lies in its user's partition, because the guard makes a dead letter of it
elsewhere. Otherwise, and where a record names nobody, its content decides. The partition is a function of the
record alone.
"""

from collections.abc import Sequence
from operator import attrgetter

from stream_dp.engine.ticks.placement import Placement, by_content
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.pipeline.routing.user_homes import homes_of
from stream_dp.pipeline.routing.user_names import UserNames, naming_field
from stream_dp.records.decoder import RecordDecoder


def placement_of(spec: PipelineSpec) -> Placement:
    """Return the placement of this pipeline's records."""
    user = spec.privacy.user
    return by_content if user is None else _ByUser(spec, user)


class _ByUser:
    def __init__(self, spec: PipelineSpec, user: str) -> None:
        self._spec = spec
        self._decoder = RecordDecoder(naming_field(spec, user))
        self._user_of = attrgetter(self._decoder.attribute(user))

    def __call__(self, payloads: Sequence[bytes], partitions: Sequence[int]) -> list[int]:
        homes = homes_of(self._spec, partitions)
        placed = by_content(payloads, partitions)
        decoded = self._decoder.decode(payloads)
        names = UserNames.of(map(self._user_of, decoded.records))
        found = homes.of(names.texts).tolist()
        for position, home, long in zip(decoded.positions, found, names.long.tolist(), strict=True):
            if not long:
                placed[position] = home
        return placed
