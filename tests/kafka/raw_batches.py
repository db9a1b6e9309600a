"""Record batches of format 2 built byte by byte: every field as wanted, the checksum right.

Rules: nothing is checked, for most of what is built here is wrong on purpose. A batch's length is that of its bytes
unless said otherwise; its count and last delta are those of its records unless said otherwise.
"""

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import cramjam
from aiokafka.record.util import calc_crc32c

GZIP, SNAPPY, LZ4, ZSTD = range(1, 5)
CODECS = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
TRANSACTIONAL, CONTROL = 0x10, 0x20
_XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_BLOCK = 2**15


def varint(number: int, width: int = 0) -> bytes:
    """A zig-zag number, at least `width` bytes long (longer than it need be, then)."""
    rest = (number << 1) ^ (number >> 63)
    shown = bytearray()
    while rest > 0x7F or len(shown) + 1 < width:
        shown.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*shown, rest])


def sized(content: bytes | None) -> bytes:
    """Bytes with their length before them, or null."""
    return varint(-1) if content is None else varint(len(content)) + content


Header = tuple[bytes, bytes | None]


def record(
    value: bytes | None,
    delta: int = 0,
    key: bytes | None = None,
    headers: Sequence[Header] = (),
    attributes: int = 0,
    time: int = 0,
    width: int = 0,
    tail: bytes | None = None,
) -> bytes:
    """A record with its length before it, which takes `width` bytes or more.

    `delta` and `time` are the distances from the batch's offset and time. `tail` is everything behind the key, instead
    of value and headers.
    """
    if tail is None:
        tail = sized(value) + varint(len(headers))
        tail += b"".join(sized(name) + sized(content) for name, content in headers)
    body = struct.pack(">B", attributes) + varint(time) + varint(delta) + sized(key) + tail
    return varint(len(body), width) + body


def records(contents: Sequence[bytes | None]) -> list[bytes]:
    return [record(value, delta) for delta, value in enumerate(contents)]


def packed(codec: int, plain: bytes) -> bytes:
    """The bytes packed as a producer of that codec would."""
    ways: dict[int, Callable[[bytes], bytes]] = {
        0: bytes,
        GZIP: gzipped,
        SNAPPY: _xerial,
        LZ4: _lz4,
        ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
    }
    return ways[codec](plain)


def gzipped(plain: bytes) -> bytes:
    writer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return writer.compress(plain) + writer.flush()


def _lz4(plain: bytes) -> bytes:
    """One frame of blocks that know nothing of each other: brokers read no others."""
    writer = cramjam.lz4.Compressor(level=9, content_checksum=False, block_linked=False)
    writer.compress(plain)
    return bytes(writer.finish())


def _xerial(plain: bytes) -> bytes:
    """Blocks of 32 KiB behind the header of snappy-java."""
    shown = _XERIAL
    for at in range(0, len(plain), _BLOCK):
        block = bytes(cramjam.snappy.compress_raw(plain[at : at + _BLOCK]))
        shown += struct.pack(">i", len(block)) + block
    return shown


@dataclass(frozen=True, slots=True)
class RawBatch:
    """A batch to be: its records' bytes, packed or not, and the fields of its header; None is what is right."""

    records: Sequence[bytes] = field(repr=False)
    codec: int = 0
    attributes: int = 0
    body: bytes | None = field(default=None, repr=False)
    count: int | None = None
    last_delta: int | None = None
    base: int = 0
    first_time: int = 1_700_000_000_000
    last_time: int = 1_700_000_000_000
    producer: int = -1
    epoch: int = -1
    sequence: int = -1
    leader_epoch: int = -1
    magic: int = 2
    crc: int | None = None

    def encoded(self) -> bytes:
        count = len(self.records) if self.count is None else self.count
        last = count - 1 if self.last_delta is None else self.last_delta
        body = self.body if self.body is not None else packed(self.codec, b"".join(self.records))
        checked = struct.pack(
            ">HiqqqhiI",
            self.codec | self.attributes,
            last,
            self.first_time,
            self.last_time,
            self.producer,
            self.epoch & 0xFFFF if self.epoch >= 2**15 else self.epoch,
            self.sequence,
            count & 0xFFFFFFFF,
        )
        checked += body
        crc = calc_crc32c(checked) if self.crc is None else self.crc
        head = struct.pack(
            ">qiibI", self.base, len(checked) + 9, self.leader_epoch, self.magic, crc
        )
        return head + checked


def plain(contents: Sequence[bytes | None], codec: int = 0) -> RawBatch:
    return RawBatch(records(contents), codec)
