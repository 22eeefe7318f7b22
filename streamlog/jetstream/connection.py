"""nats-py's client, for requests of any client and answers with any headers; and its latency."""

import logging
import time
from collections.abc import Callable
from typing import Any, Final

import nats.errors
from nats.aio.msg import Msg
from nats.protocol import command

from streamlog.condition import Condition
from streamlog.ingest.nats.client import NatsClient

logger = logging.getLogger(__name__)

REPLY_NOT_UTF8: Final = Condition(
    "SL-0502",
    "a request's reply subject is not UTF-8",
    "correct the client that asks so",
    meaning="The answer to a request of the management API has nowhere to go.",
)


class AdminConnection(NatsClient):
    """Two things are other than in nats-py: neither a subject need be UTF-8 nor headers be any,
    since an error there would end the connection's reading for good; and a reply may carry a header
    block as it is.
    """

    async def _process_headers(self, headers: Any) -> dict[str, str] | None:
        """Those that nats-py cannot read are none."""
        try:
            found: dict[str, str] | None = await super()._process_headers(headers)
        except (IndexError, ValueError):
            return None
        return found

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg | None:
        """A name that is not UTF-8 is no stream's; no client can be answered at such a reply."""
        try:
            return self.msg_class(
                _client=self,
                _sid=sid,
                subject=subject.decode(errors="surrogateescape"),
                reply=reply.decode(),
                data=data,
                headers=headers,
            )
        except UnicodeDecodeError:
            logger.warning(REPLY_NOT_UTF8, extra={"reply": repr(reply)})
            return None

    async def send_block(self, subject: str, block: bytes, payload: bytes = b"") -> None:
        """A message whose headers are ``block``, from ``NATS/1.0`` to the empty line.

        Raises nats.errors.Error.
        """
        if not self.is_connected:
            raise nats.errors.ConnectionReconnectingError
        if len(block) + len(payload) > self.max_payload:
            raise nats.errors.MaxPayloadError  # the server would end the connection
        sent: Any = command.hpub_cmd(subject, "", block, payload)
        await self._send_command(sent)
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()


HANGS_S: Final = 5.0
"""One answer that is missing for so long counts by itself."""


class NatsLatency:
    """``asked`` and ``answered`` in turn; ``lost`` with the connection."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._asked_s: float | None = None
        self._last_s = self._before_s = 0.0

    def asked(self) -> None:
        self._asked_s = self._now_s()

    def answered(self) -> None:
        if self._asked_s is not None:
            self._before_s, self._last_s = self._last_s, self._now_s() - self._asked_s
            self._asked_s = None

    def lost(self) -> None:
        """Nothing is known of the next connection."""
        self._asked_s = None
        self._last_s = self._before_s = 0.0

    @property
    def seconds(self) -> float:
        """Of the last two answers the sooner, so that one that was late does not count. An answer
        that is awaited counts for as long as it has been missing.
        """
        pending_s = 0.0 if self._asked_s is None else self._now_s() - self._asked_s
        of_two_s = min(max(pending_s, self._before_s), self._last_s)
        return max(of_two_s, pending_s) if pending_s >= HANGS_S else of_two_s
