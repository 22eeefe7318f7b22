"""What a nats-server sends, built by hand; and what a parser made of it, taken apart."""

import importlib
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from streamlog.record.codec import Record, iter_records

SID: Final = 3


class Twin(NamedTuple):
    """One of the two implementations of ``ingest.frames``."""

    FrameParser: Any
    RecordCollector: Any
    Partitioner: Any
    murmur2: Any


def _twin(suffix: str) -> Twin:
    frames, collector, partitioner = (
        importlib.import_module(f"streamlog.ingest.parser.{name}{suffix}")
        for name in ("_frames", "_collector", "_partitioner")
    )
    keys = importlib.import_module(f"streamlog.record._keys{suffix}")
    return Twin(
        frames.FrameParser, collector.RecordCollector, partitioner.Partitioner, keys.murmur2
    )


PLAIN: Final = _twin("_plain")


def compiled() -> Twin | None:
    """None where it is not built."""
    try:
        return _twin("")
    except ImportError:
        return None


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
