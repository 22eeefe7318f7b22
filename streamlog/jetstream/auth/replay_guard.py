"""A request signed by a known key is carried out once, whichever node it comes to.

Each node remembers what it has seen, which says nothing of what others have. So each asks the
controller, too, before anything is done or told.
"""

import logging
from typing import Protocol

from nats.aio.msg import Msg

from streamlog.authz.signature import KEY, NONCE, TIME
from streamlog.errors import AuthenticationFailed, InvalidRequest
from streamlog.metadata.commands import Command, SpendNonce
from streamlog.metadata.forwarding import Granted

logger = logging.getLogger(__name__)


class CommandSender(Protocol):
    """What is needed of ``metadata.service.MetadataService``."""

    async def request(self, command: Command) -> Granted: ...


class ReplayGuard:
    """Of requests whose signatures were found right."""

    def __init__(self, metadata: CommandSender, window_ms: int) -> None:
        self._metadata = metadata
        self._window_ms = window_ms

    async def check(self, message: Msg) -> None:
        """Raises AuthenticationFailed, and what asking the controller does."""
        headers = message.headers or {}
        if KEY not in headers:
            return
        command = SpendNonce(
            signer=headers[KEY],
            nonce=headers[NONCE],
            signed_ms=int(headers[TIME]),
            window_ms=self._window_ms,
        )
        try:
            granted = await self._metadata.request(command)
        except InvalidRequest as error:  # a controller of before it knew that
            logger.debug("signed request not told to the controller", extra={"error": str(error)})
            return
        if refusal := str(granted.result["refusal"]):
            raise AuthenticationFailed(refusal)
