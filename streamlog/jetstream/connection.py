"""nats-py's client, for requests of strangers and answers that are more than it can write."""

import logging
from typing import Any

import nats.errors
from nats.aio.msg import Msg
from nats.protocol import command

from streamlog.ingest.nats.client import NatsClient

logger = logging.getLogger(__name__)


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
        """A name that is not UTF-8 is no stream's; nobody can be answered at such a reply."""
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
            logger.warning("a request's reply subject is not UTF-8", extra={"reply": repr(reply)})
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
