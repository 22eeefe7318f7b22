"""What of a read goes on where too few replicas are in sync: messages that do not wait for them."""

from collections.abc import Container
from typing import NamedTuple

from streamlog.ingest.replies import Replies, iter_replies, pack_reply
from streamlog.record.codec import Record, RecordRun, iter_records


class Kept(NamedTuple):
    """A message that goes on, as it was gathered."""

    position: int
    reply: bytes
    record: Record

    @property
    def subject(self) -> bytes:
        return self.record.headers[0][1] or b""

    @property
    def header_block(self) -> bytes:
        """Enough of it for whoever judges: all headers, in order."""
        lines = (b"%b: %b\r\n" % (name, value) for name, value in self.headers[1:])
        return b"NATS/1.0\r\n%b\r\n" % b"".join(lines)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(name.encode(), value or b"") for name, value in self.record.headers]


class Sifted(NamedTuple):
    """What goes on, and what does not."""

    kept: list[Kept]
    refused: Replies
    refused_count: int


def sift(run: RecordRun, replies: Replies, keep: Container[int]) -> Sifted:
    """Empty ``run``, of whose messages those at the positions ``keep`` go on."""
    count = run.count
    batch = run.seal(base_offset=0, leader_epoch=0, timestamp_ms=0)
    asked = dict(iter_replies(replies.packed))
    kept = [
        Kept(record.offset, asked.pop(record.offset, b""), record)
        for record in iter_records(batch)
        if record.offset in keep
    ]
    packed = b"".join(pack_reply(position, reply) for position, reply in asked.items())
    return Sifted(kept, Replies(packed, len(asked)), count - len(kept))
