"""How a node reaches the JetStream APIs of others: by its router, or by a connection to nats-servers of its own.

A node with a NATS port, or one that is a leafnode, has all subjects at its router. A node that is a client of
nats-servers is connected to them for what it stores and answers; requests of its own take another connection, so
that a slow origin is in no other's way. It is made when an origin is first asked.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from streamlog.condition import FAULT
from streamlog.ingest.nats.error_counts import NatsErrorCounts
from streamlog.ingest.nats.errors import understood
from streamlog.ingest.nats.leaf import LeafLink
from streamlog.ingest.nats.options import NatsOptions
from streamlog.ingest.nats.server_link import ServerLink
from streamlog.ingest.nats.subscription_list import Subscriptions
from streamlog.jetstream.mirroring.origin_reader import IDENTITY
from streamlog.metrics import NodeMetrics
from streamlog.nats.router import Callback, Router, Subscription
from streamlog.nats.sockets import Sockets

logger = logging.getLogger(__name__)

Heard = Callable[[bytes, bytes, bytes, bytes], None]
"""Called with subject, reply subject, header block and payload."""
TOKEN_BYTES: Final = 12
OWN_API: Final = b".CONSUMER."
"""What a request about a consumer of this cluster begins with: there is no prefix."""
Ask = Callable[[str, str, str], Awaitable[tuple[dict[str, Any], str]]]
"""Called with RESET or INFO, a stream and a consumer of this cluster. Returns the reply, which is an error where it
fails, and the stream's identity."""


def new_token() -> str:
    """A part of a subject that cannot be guessed."""
    return secrets.token_hex(TOKEN_BYTES)


class OriginLink(Protocol):
    """Subscribes and publishes."""

    @property
    def is_open(self) -> bool: ...
    def listen(self, subject: str, heard: Heard) -> Callable[[], None]:
        """Returns what ends it."""

    def publish(
        self, subject: bytes, payload: bytes, reply: bytes = b"", block: bytes = b""
    ) -> None:
        """Dropped where the link is not open, as NATS itself drops messages."""

    async def run(self) -> None:
        """Be connected until cancelled."""


class RouterLink:
    """By the node's own router."""

    def __init__(self, router: Router, leaf: LeafLink | None) -> None:
        self._router = router
        self._leaf = leaf
        self._endpoint = Callback(router, failed=_failed, sees_shown=True)

    @property
    def is_open(self) -> bool:
        return self._leaf is None or self._leaf.is_open

    def listen(self, subject: str, heard: Heard) -> Callable[[], None]:
        subscription = Subscription(self._endpoint, subject.encode(), target=heard)
        self._router.add(subscription)
        return lambda: self._router.remove(subscription)

    def publish(
        self, subject: bytes, payload: bytes, reply: bytes = b"", block: bytes = b""
    ) -> None:
        self._router.publish(subject, payload, reply=reply, block=block)

    async def run(self) -> None:
        """The router is always there."""
        await asyncio.Event().wait()


class ClusterLink(RouterLink):
    """To consumers of this cluster, by the router. Their coordinator is asked without the API, where each request has
    a user: a stream reads its origins by its own right.
    """

    def __init__(self, router: Router, ask: Ask) -> None:
        super().__init__(router, None)
        self._ask_coordinator = ask
        self._asked = asyncio.Queue[tuple[bytes, bytes]]()
        """Of requests, the subjects and where they are answered. Each feed waits for its answer before the next one."""

    def publish(
        self, subject: bytes, payload: bytes, reply: bytes = b"", block: bytes = b""
    ) -> None:
        if subject.startswith(OWN_API):
            self._asked.put_nowait((subject, reply))
        else:
            super().publish(subject, payload, reply, block)

    async def run(self) -> None:
        """Ask until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                subject, reply = await self._asked.get()
                group.create_task(self._ask(subject, reply))

    async def _ask(self, subject: bytes, reply: bytes) -> None:
        verb, stream, consumer = subject.removeprefix(OWN_API).decode().split(".", 2)
        answer, identity = await self._ask_coordinator(verb, stream, consumer)
        block = b"NATS/1.0\r\n%b: %b\r\n\r\n" % (IDENTITY, identity.encode())
        self._router.publish(reply, json.dumps(answer).encode(), block=block)


class ServerOriginLink:
    """By a connection to the nats-servers that the node is a client of."""

    def __init__(
        self,
        options: NatsOptions,
        router: Router,
        sockets: Sockets,
        metrics: NodeMetrics,
        *,
        name: str,
    ) -> None:
        self._endpoint = Callback(router, failed=_failed, sees_shown=True)
        self._subscriptions = Subscriptions()
        self._complaints = NatsErrorCounts(metrics, "mirrors")
        self._login = options.login
        self._link = ServerLink(
            options,
            router,
            sockets,
            self._subscriptions,
            name=name,
            heeds_room=False,
            connected=_nothing,
            disconnected=lambda _: None,
            failed=self._complained,
        )

    @property
    def is_open(self) -> bool:
        return self._link.is_connected

    def listen(self, subject: str, heard: Heard) -> Callable[[], None]:
        return self._link.hear(Subscription(self._endpoint, subject.encode(), target=heard))

    def publish(
        self, subject: bytes, payload: bytes, reply: bytes = b"", block: bytes = b""
    ) -> None:
        place = b"%b %b" % (subject, reply) if reply else subject
        if block:
            sizes = (len(block), len(block) + len(payload))
            self._link.write(b"HPUB %b %d %d\r\n%b%b\r\n" % (place, *sizes, block, payload))
        else:
            self._link.write(b"PUB %b %d\r\n%b\r\n" % (place, len(payload), payload))

    async def run(self) -> None:
        try:
            await self._link.run()
        finally:
            self._link.close()

    def _complained(self, error: Exception) -> None:
        """``ingest`` tells of a NATS that is not there; once is enough."""
        complaint = understood(error, self._login)
        if not self._complaints.hear(complaint):
            logger.debug("NATS connection of mirrors", extra={"error": complaint.text})


def _nothing() -> None:
    pass


def _failed(error: Exception) -> None:
    logger.error(FAULT.logged_as("a message of an origin was not taken"), exc_info=error)
