"""What goes back to publishers."""

import asyncio
from collections.abc import Callable

from streamlog.ingest.acks import (
    ack_json,
    build_acks,
    build_refusals,
    error_json,
    publication,
)
from streamlog.ingest.refusal import Refusal
from streamlog.ingest.replies import Replies
from streamlog.metrics import NodeMetrics


class Answers:
    """Gathers acks and refusals; all of one turn of the event loop leave in one write."""

    def __init__(self, write: Callable[[bytes], None], metrics: NodeMetrics) -> None:
        self._write = write
        self._metrics = metrics
        self._waiting: list[bytes] = []

    def acknowledge(self, head: bytes, replies: Replies, base_offset: int) -> None:
        """Positive acks, ``head`` being that of the stream's."""
        packed, reply_count = replies
        if reply_count:
            self._send(build_acks(packed, head, base_offset))
            self._metrics.acks.count += reply_count

    def acknowledge_duplicate(self, stream: str, reply: bytes, offset: int) -> None:
        """The sequence of the first message with that id."""
        if reply:
            self._send(publication(reply, ack_json(stream, offset + 1, duplicate=True)))
            self._metrics.acks.inc()

    def refuse(self, stream: str, replies: Replies, count: int, refusal: Refusal) -> None:
        """One refusal for all ``replies``; ``count`` messages are refused, asking or not."""
        self._metrics.refusals.labels(refusal.reason).inc(count)
        if replies.reply_count:
            self._send(build_refusals(replies.packed, _payload(stream, refusal)))

    def refuse_one(self, stream: str, reply: bytes, refusal: Refusal) -> None:
        self._metrics.refusals.labels(refusal.reason).inc()
        if reply:
            self._send(publication(reply, _payload(stream, refusal)))

    def _send(self, data: bytes) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        self._waiting.append(data)

    def flush(self) -> None:
        """Write what waits."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._write(waiting[0] if len(waiting) == 1 else b"".join(waiting))


def _payload(stream: str, refusal: Refusal) -> bytes:
    return error_json(refusal.code, refusal.err_code, refusal.description, stream)
