"""What goes back to publishers."""

import asyncio
from collections.abc import Callable
from typing import Final

from streamlog.clock import wall_ms
from streamlog.ingest.acks.acks import build_acks, build_refusals, error_json, publication
from streamlog.ingest.acks.replies import Replies
from streamlog.ingest.admission.refusal import PublishRefusal, envelope_error
from streamlog.ingest.liftbridge import envelope
from streamlog.ingest.liftbridge.addresses import is_address, parted, unpack
from streamlog.metrics import NodeMetrics

NS_PER_MS: Final = 1_000_000


class PublisherAnswers:
    """Gathers acks and refusals; all of one turn of the event loop leave in one write."""

    def __init__(
        self,
        write: Callable[[bytes], None],
        metrics: NodeMetrics,
        *,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._write = write
        self._metrics = metrics
        self._now_ms = now_ms
        self._waiting: list[bytes] = []

    def acknowledge(self, head: bytes, replies: Replies, base_offset: int) -> None:
        """Positive acks, ``head`` being that of the stream's."""
        packed, reply_count, enveloped = replies
        if not reply_count:
            return
        self._metrics.publish_acked.count += reply_count
        if enveloped:
            packed, addresses = parted(packed)
            for position, address in addresses:
                offset = base_offset + position
                self._send(address.answers(b"%b%d}" % (head, offset + 1), self._stored(offset)))
        if packed:
            self._send(build_acks(packed, head, base_offset))

    def acknowledge_one(self, reply: bytes, answer: bytes, offset: int) -> None:
        """A positive ack that is not like the others: of a duplicate, or a batch."""
        if reply:
            self._answer(reply, answer, self._stored(offset))
            self._metrics.publish_acked.inc()

    def tell(self, subject: bytes, payload: bytes) -> None:
        """What is neither: part of a batch has come, or an advisory. Of these an envelope's inbox
        hears nothing."""
        if is_address(subject):
            subject = unpack(subject).reply
        if subject:
            self._send(publication(subject, payload))

    def refuse(self, stream: str, replies: Replies, count: int, refusal: PublishRefusal) -> None:
        """One refusal for all ``replies``; ``count`` messages are refused, asking or not."""
        self._metrics.publish_rejected.labels(refusal.reason).inc(count)
        packed, reply_count, enveloped = replies
        if reply_count and enveloped:
            packed, addresses = parted(packed)
            json, rest = _payload(stream, refusal), envelope.refused(envelope_error(refusal))
            for _, address in addresses:
                self._send(address.answers(json, rest))
        if packed:
            self._send(build_refusals(packed, _payload(stream, refusal)))

    def refuse_one(self, stream: str, reply: bytes, refusal: PublishRefusal) -> None:
        self._metrics.publish_rejected.labels(refusal.reason).inc()
        if reply:
            rest = envelope.refused(envelope_error(refusal))
            self._answer(reply, _payload(stream, refusal), rest)

    def _answer(self, reply: bytes, json: bytes, rest: bytes) -> None:
        """``rest``: the end of the Ack, where the message came in an envelope."""
        if is_address(reply):
            self._send(unpack(reply).answers(json, rest))
        else:
            self._send(publication(reply, json))

    def _stored(self, offset: int) -> bytes:
        return envelope.stored(offset, self._now_ms() * NS_PER_MS)

    def _send(self, data: bytes) -> None:
        """Nothing is left of an address that wants no answer of this kind."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        self._waiting.append(data)

    def flush(self) -> None:
        """Write what waits."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._write(waiting[0] if len(waiting) == 1 else b"".join(waiting))


def _payload(stream: str, refusal: PublishRefusal) -> bytes:
    return error_json(refusal.code, refusal.err_code, refusal.description, stream)
