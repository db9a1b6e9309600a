"""Exact integer noise from a cryptographic bit stream.

Rules: no float and no division that rounds anywhere below; randomness comes only from a 32-byte seed; a recorded
seed gives the same samples for ever. This package imports only `errors`.
"""

from stream_dp.noise.bits import fresh_seed
from stream_dp.noise.stream import NoiseStream

__all__ = ["NoiseStream", "fresh_seed"]
