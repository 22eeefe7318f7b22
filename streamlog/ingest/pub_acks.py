"""What publishers are told: acks, refusals, advisories. ``pub_ack_format`` has the bytes."""

from collections.abc import Callable
from typing import Final, Protocol

from streamlog.clock import wall_ms
from streamlog.ingest.admission.refusal import PublishRefusal, envelope_error
from streamlog.ingest.liftbridge import envelope
from streamlog.ingest.liftbridge.addresses import is_address, parted, unpack
from streamlog.ingest.liftbridge.envelope_codec import build_enveloped_acks
from streamlog.ingest.pub_ack_format import ROUTED, Replies, error_json, publication
from streamlog.metrics import NodeMetrics
from streamlog.nats.router import Router

NS_PER_MS: Final = 1_000_000


class ReplyWriter(Protocol):
    """Takes whole protocol lines; NATS, as far as answers go."""

    @property
    def write(self) -> Callable[[bytes], None]: ...


class PubAcks:
    """Gives acks and refusals: over the link to NATS, or through the router. Both gather what is written in a
    turn of the event loop.
    """

    def __init__(
        self,
        link: ReplyWriter,
        metrics: NodeMetrics,
        router: Router,
        *,
        is_linked: bool = True,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        """``is_linked``: what is written to ``link`` comes to all who subscribe at NATS, this node included."""
        self._link = link
        self._is_linked = is_linked
        self._metrics = metrics
        self._router = router
        self._now_ms = now_ms

    def acknowledge(self, head: bytes, replies: Replies, base_offset: int) -> None:
        """Positive acks, ``head`` being that of the stream's."""
        packed, reply_count, enveloped = replies
        if not reply_count:
            return
        self._metrics.publish_acked.count += reply_count
        if enveloped:
            committed_ns = self._now_ms() * NS_PER_MS
            acks, packed = build_enveloped_acks(
                packed, head, base_offset, committed_ns, self._router
            )
            if acks:
                self._link.write(acks)
        if packed and (lines := self._router.acknowledge(packed, head, base_offset)):
            self._link.write(lines)

    def acknowledge_one(self, reply: bytes, answer: bytes, offset: int) -> None:
        """A positive ack that is not like the others: of a duplicate, or a batch."""
        if reply:
            self._answer(reply, answer, self._stored(offset))
            self._metrics.publish_acked.inc()

    def tell(self, reply: bytes, payload: bytes) -> None:
        """Neither an ack nor a refusal: part of a batch has come. An envelope's inbox gets none."""
        if is_address(reply):
            reply = unpack(reply).reply
        if reply:
            self._send(reply, payload)

    def advise(self, subject: bytes, payload: bytes) -> None:
        """An advisory, for subscribers on either side."""
        if self._is_linked:
            self._router.tell_clients(subject, payload)
            self._link.write(publication(subject, payload))
        else:
            self._router.publish(subject, payload)

    def refuse(self, stream: str, replies: Replies, count: int, refusal: PublishRefusal) -> None:
        """One refusal for all ``replies``; ``count`` messages are refused, asking or not."""
        self._metrics.publish_rejected.labels(refusal.reason).inc(count)
        packed, reply_count, enveloped = replies
        json = _payload(stream, refusal)
        if reply_count and enveloped:
            packed, addresses = parted(packed)
            rest = envelope.refused(envelope_error(refusal))
            for _, address in addresses:
                for reply, payload in address.answers(json, rest):
                    self._send(reply, payload)
        if packed and (lines := self._router.respond(packed, json)):
            self._link.write(lines)

    def refuse_one(self, stream: str, reply: bytes, refusal: PublishRefusal) -> None:
        self._metrics.publish_rejected.labels(refusal.reason).inc()
        if reply:
            rest = envelope.refused(envelope_error(refusal))
            self._answer(reply, _payload(stream, refusal), rest)

    def _answer(self, reply: bytes, json: bytes, rest: bytes) -> None:
        """``rest``: the end of the Ack, where the message came in an envelope."""
        if is_address(reply):
            for subject, payload in unpack(reply).answers(json, rest):
                self._send(subject, payload)
        else:
            self._send(reply, json)

    def _stored(self, offset: int) -> bytes:
        return envelope.stored(offset, self._now_ms() * NS_PER_MS)

    def _send(self, reply: bytes, payload: bytes) -> None:
        if reply.startswith(ROUTED):
            self._router.reply(reply[len(ROUTED) :], payload)
        else:
            self._link.write(publication(reply, payload))


def _payload(stream: str, refusal: PublishRefusal) -> bytes:
    return error_json(refusal.code, refusal.err_code, refusal.description, stream)
