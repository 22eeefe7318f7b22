"""What of a read goes on where a part of it is refused."""

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from streamlog.ingest.admission.batches.batch_staging import RunBatch
from streamlog.ingest.admission.publish_headers import block_of
from streamlog.ingest.admission.refusal import PublishRefusal
from streamlog.ingest.liftbridge.translate import wish_of
from streamlog.ingest.pub_ack_format import Replies, iter_replies, pack_reply
from streamlog.record.codec import Record, RecordRun, iter_records


class KeptMessages(NamedTuple):
    """A message that goes on, as it was gathered."""

    position: int
    reply: bytes
    record: Record

    @property
    def subject(self) -> bytes:
        return self.record.headers[0][1] or b""

    @property
    def header_block(self) -> bytes:
        """Enough of it for a decision: all headers, in order."""
        return block_of(self.headers[1:], more=wish_of(self.reply))

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(name.encode(), value or b"") for name, value in self.record.headers]


class AdmittedMessages(NamedTuple):
    """What goes on, and what does not."""

    kept: list[KeptMessages]
    refused: Replies


def sift(run: RecordRun, replies: Replies, refused: Container[int]) -> AdmittedMessages:
    """Empty ``run``, of whose messages all go on but those at the positions ``refused``."""
    batch = run.seal(base_offset=0, leader_epoch=0, timestamp_ms=0)
    asked = dict(iter_replies(replies.packed))
    kept = [
        KeptMessages(record.offset, asked.pop(record.offset, b""), record)
        for record in iter_records(batch)
        if record.offset not in refused
    ]
    packed = b"".join(pack_reply(position, reply) for position, reply in asked.items())
    return AdmittedMessages(kept, Replies(packed, len(asked), replies.enveloped))


def with_whole_batches(
    refused: Mapping[int, PublishRefusal], in_run: Iterable[RunBatch]
) -> tuple[dict[int, RunBatch], dict[int, PublishRefusal], dict[int, bytes]]:
    """The batches of a run that go on, by the position of their first message; what is refused, by
    position: of a batch all of it, where any of it was; and who asked for the batches refused.
    """
    batches: dict[int, RunBatch] = {}
    more, asked_by = dict(refused), dict[int, bytes]()
    for batch in in_run:
        why = next((refused[place] for place in batch.positions if place in refused), None)
        if why is None:
            batches[batch.position] = batch
        else:
            more |= dict.fromkeys(batch.positions, why)
            asked_by[batch.positions[-1]] = batch.reply
    return batches, more, asked_by
