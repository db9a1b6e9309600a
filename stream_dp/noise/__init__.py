"""Exact integer noise from a cryptographic bit stream.

Rules: no float and no division that rounds anywhere below; randomness comes from a 32-byte seed and
from nowhere else; a recorded seed means the same samples for ever. Imports only `errors`.
"""

from stream_dp.noise.bits import fresh_seed
from stream_dp.noise.stream import NoiseStream

__all__ = ["NoiseStream", "fresh_seed"]
