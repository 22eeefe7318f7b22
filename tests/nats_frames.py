"""What a nats-server sends, built by hand; and what a parser made of it, taken apart."""

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from streamlog.ingest import frames
from streamlog.record.codec import Record, iter_records
from streamlog.record.compiled import keys
from tests.oracles import collector as oracle_collector
from tests.oracles import frames as oracle_frames
from tests.oracles import keys as oracle_keys
from tests.oracles import partitioner as oracle_partitioner

SID: Final = 3


class Twin(NamedTuple):
    """One of the two implementations of ``ingest.frames``."""

    FrameParser: Any
    RecordCollector: Any
    Partitioner: Any
    murmur2: Any


PLAIN: Final = Twin(
    oracle_frames.FrameParser,
    oracle_collector.RecordCollector,
    oracle_partitioner.Partitioner,
    oracle_keys.murmur2,
)
COMPILED: Final = Twin(frames.FrameParser, frames.RecordCollector, frames.Partitioner, keys.murmur2)


def msg(
    payload: bytes = b"", subject: bytes = b"orders", reply: bytes = b"", sid: int = SID
) -> bytes:
    fields = b" ".join(filter(None, (subject, b"%d" % sid, reply)))
    return b"MSG %b %d\r\n%b\r\n" % (fields, len(payload), payload)


def hmsg(block: bytes, payload: bytes = b"", reply: bytes = b"") -> bytes:
    fields = b" ".join(filter(None, (b"orders", b"%d" % SID, reply)))
    sizes = b"%d %d" % (len(block), len(block) + len(payload))
    return b"HMSG %b %b\r\n%b%b\r\n" % (fields, sizes, block, payload)


def block(*lines: bytes) -> bytes:
    return b"".join(line + b"\r\n" for line in (b"NATS/1.0", *lines, b""))


def records(inflow: Any) -> list[Record]:
    if not inflow.run.count:
        return []
    return list(iter_records(inflow.run.seal(base_offset=0, leader_epoch=0, timestamp_ms=0)))


def unpacked(replies: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(replies):
        delta, size = struct.unpack_from("<IH", replies, position)
        position += 6 + size
        yield delta, replies[position - size : position]
