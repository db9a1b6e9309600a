"""Batches that nobody would send in good faith: headers that lie, packings with too little, too much or far too much.

Rules: as in hostile_records.py, whose list this one continues; `HOSTILE` is both. Bombs are built when asked for.
"""

import struct
from functools import partial

import cramjam
from kafka.hostile_records import GOOD, JUNK, RECORDS, Hostile, refused, taken
from kafka.raw_batches import (
    CODECS,
    CONTROL,
    GZIP,
    LZ4,
    SNAPPY,
    TRANSACTIONAL,
    ZSTD,
    RawBatch,
    gzipped,
    packed,
    plain,
    record,
    records,
)

MB = 1_000_000
BATCHES = (
    *(
        taken(f"attribute bit {bit}", RawBatch(records([GOOD, GOOD]), attributes=1 << bit), 2)
        for bit in (6, 7, 8, 15)
    ),
    refused("the broker's kind of stamp", RawBatch(records([GOOD]), attributes=0x08)),
    taken("no times", RawBatch(records([GOOD]), first_time=-1, last_time=-1), 1),
    taken("the end of time", RawBatch(records([GOOD]), first_time=2**62, last_time=2**62), 1),
    taken("an epoch without a producer", RawBatch(records([GOOD]), epoch=7), 1),
    taken(
        "an unregistered producer",
        RawBatch(records([GOOD]), producer=2**40, epoch=0, sequence=0),
        1,
    ),
    taken(
        "an unregistered producer, in the middle",
        RawBatch(records([GOOD]), producer=2**40 + 1, epoch=9, sequence=77),
        1,
    ),
    taken("another leader's epoch", RawBatch(records([GOOD]), leader_epoch=77), 1),
    refused("a base offset", RawBatch(records([GOOD]), base=5)),
    refused("a negative base offset", RawBatch(records([GOOD]), base=-9)),
    refused("transactional without a producer", RawBatch(records([GOOD]), 0, TRANSACTIONAL)),
    refused(
        "transactional, unregistered",
        RawBatch(records([GOOD]), attributes=TRANSACTIONAL, producer=2**41, epoch=0, sequence=0),
    ),
    refused(
        "a marker of a client",
        RawBatch(
            [record(struct.pack(">hi", 0, 0), key=struct.pack(">hh", 0, 1))],
            attributes=CONTROL | TRANSACTIONAL,
            producer=2**41,
            epoch=0,
        ),
    ),
    refused("a marker without a transaction", RawBatch(records([GOOD]), attributes=CONTROL)),
    refused("another checksum", RawBatch(records([GOOD]), crc=1)),
    *(refused(f"format {n}", RawBatch(records([GOOD]), magic=n)) for n in (0, 1, 3, 127)),
    refused("no records", RawBatch([])),
    refused("more records than said", RawBatch(records([GOOD] * 3), count=2)),
    refused("fewer records than said", RawBatch(records([GOOD] * 3), count=4)),
    refused("2**31 - 1 records", RawBatch(records([GOOD]), count=2**31 - 1)),
    refused("-1 records", RawBatch(records([GOOD]), count=-1, last_delta=0)),
    refused("a last delta too far", RawBatch(records([GOOD] * 3), last_delta=9)),
    refused("a last delta too near", RawBatch(records([GOOD] * 3), last_delta=0)),
    refused("cut", plain([GOOD] * 3).encoded()[:-5]),
    refused("two batches", plain([GOOD]).encoded() * 2),
    Hostile("bytes behind the batch", lambda: plain([GOOD]).encoded() + JUNK, good=1),
)


def _body(codec: int, count: int, body: bytes) -> RawBatch:
    """A batch of `count` records whose packed bytes are these."""
    return RawBatch([b""] * count, codec, body=body)


_BOTH = b"".join(records([GOOD, GOOD]))
_FIRST, _SECOND = record(GOOD, 0), record(GOOD, 1)
_DAMAGED = tuple(
    refused(f"{name}, {how}", _body(codec, 2, body))
    for name, codec in CODECS.items()
    for how, body in (
        ("which it is not", _BOTH),
        ("cut", packed(codec, _BOTH)[:-9]),
        ("with one record more than said", packed(codec, _BOTH + record(GOOD, 2))),
        ("with one record less than said", packed(codec, _FIRST)),
        ("with bytes behind the records", packed(codec, _BOTH + JUNK)),
    )
)
_TRAILING = (
    taken("gzip, trailing bytes", _body(GZIP, 2, gzipped(_BOTH) + JUNK), 2),
    taken("gzip, trailing zeros", _body(GZIP, 2, gzipped(_BOTH) + bytes(512)), 2),
    taken("gzip, an empty member behind", _body(GZIP, 2, gzipped(_BOTH) + gzipped(b"")), 2),
    taken("gzip, an empty member before", _body(GZIP, 2, gzipped(b"") + gzipped(_BOTH)), 2),
    taken("gzip, in two members", _body(GZIP, 2, gzipped(_FIRST) + gzipped(_SECOND)), 2),
    taken("lz4, trailing bytes", _body(LZ4, 2, packed(LZ4, _BOTH) + JUNK), 2),
    taken("lz4, a second frame", _body(LZ4, 2, packed(LZ4, _BOTH) * 2), 2),
    refused("lz4, in two frames", _body(LZ4, 2, packed(LZ4, _FIRST) + packed(LZ4, _SECOND))),
    refused("lz4, linked blocks", _body(LZ4, 2, bytes(cramjam.lz4.compress(_BOTH)))),
    refused("zstd, trailing bytes", _body(ZSTD, 2, packed(ZSTD, _BOTH) + JUNK)),
    taken("zstd, in two frames", _body(ZSTD, 2, packed(ZSTD, _FIRST) + packed(ZSTD, _SECOND)), 2),
    taken(
        "zstd, behind a frame to skip",
        _body(ZSTD, 2, struct.pack("<II", 0x184D2A50, 8) + JUNK + packed(ZSTD, _BOTH)),
        2,
    ),
    refused("snappy, trailing bytes", _body(SNAPPY, 2, packed(SNAPPY, _BOTH) + JUNK)),
    taken("snappy, one raw block", _body(SNAPPY, 2, bytes(cramjam.snappy.compress_raw(_BOTH))), 2),
    *(refused(f"codec {n}", _body(n, 2, _BOTH)) for n in (5, 6, 7)),
)


def _bomb(codec: int, megabytes: int) -> RawBatch:
    """One good record, then one whose value is large and of zeros alone."""
    return RawBatch([record(GOOD), record(bytes(megabytes * MB), 1)], codec)


def _crowd(codec: int, number: int) -> RawBatch:
    value = GOOD[:-1] + b" " * 180 + b"}"
    return RawBatch([record(value, delta) for delta in range(number)], codec)


_BOMBS = (
    *(
        Hostile(f"a bomb of 64 MB in {name}", partial(_bomb, codec, 64), dead=2)
        for name, codec in CODECS.items()
        if codec != SNAPPY  # it packs twenty to one: such a batch is larger than brokers take
    ),
    Hostile("18 MB in snappy", partial(_bomb, SNAPPY, 18), dead=2),
    Hostile("20 MB of good records in zstd", partial(_crowd, ZSTD, 100_000), dead=100_000),
    Hostile("10 MB of good records in gzip", partial(_crowd, GZIP, 50_000), good=50_000),
)
_READ_AT_MOST = 2**17
_MANY = tuple(
    Hostile(f"{number:,} nulls", partial(RawBatch, [record(None)] * number), dead=number)
    for number in (_READ_AT_MOST, _READ_AT_MOST + 1)
)
HOSTILE: tuple[Hostile, ...] = (*RECORDS, *BATCHES, *_DAMAGED, *_TRAILING, *_BOMBS, *_MANY)
