"""What of a read goes on where a part of it is refused."""

from collections.abc import Container
from typing import Final, NamedTuple

from streamlog.ingest.opening import wish_of
from streamlog.ingest.replies import Replies, iter_replies, pack_reply
from streamlog.record.codec import Record, RecordRun, iter_records

BATCH_ID: Final = "Nats-Batch-Id"


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
        return b"NATS/1.0\r\n%b%b\r\n" % (b"".join(lines), wish_of(self.reply))

    @property
    def is_of_batch(self) -> bool:
        """Stored with others, all or none."""
        return any(name == BATCH_ID for name, _ in self.record.headers)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(name.encode(), value or b"") for name, value in self.record.headers]


class Sifted(NamedTuple):
    """What goes on, and what does not."""

    kept: list[Kept]
    refused: Replies


def sift(run: RecordRun, replies: Replies, refused: Container[int]) -> Sifted:
    """Empty ``run``, of whose messages all go on but those at the positions ``refused``."""
    batch = run.seal(base_offset=0, leader_epoch=0, timestamp_ms=0)
    asked = dict(iter_replies(replies.packed))
    kept = [
        Kept(record.offset, asked.pop(record.offset, b""), record)
        for record in iter_records(batch)
        if record.offset not in refused
    ]
    packed = b"".join(pack_reply(position, reply) for position, reply in asked.items())
    return Sifted(kept, Replies(packed, len(asked), replies.enveloped))
