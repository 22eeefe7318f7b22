"""The service: requests of JetStream's API in, one reply to each; and what other nodes ask."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from streamlog.admin.errors import ApiError, Refused
from streamlog.admin.leader import Leader, Lease, Partitions
from streamlog.admin.leaders import Leaders
from streamlog.admin.messages import direct_headers
from streamlog.admin.nodes import Nodes, encode_answer, encode_error, subject_of
from streamlog.admin.streams import Metadata
from streamlog.admin.verbs import Verbs, parse_body
from streamlog.config import NatsSection
from streamlog.errors import StreamlogError
from streamlog.ingest.servers import connect_options
from streamlog.model import NodeId

logger = logging.getLogger(__name__)

DEFAULT_PREFIX: Final = "$JS.API."
QUEUE_GROUP: Final = "streamlog-admin"
REQUESTS_MAX: Final = 64
"""Answered at once, of clients and of nodes each; more wait in a subscription's bounded queue."""

DRAIN_TIMEOUT_S: Final = 2.0
TOO_LARGE: Final = ApiError(500, 10051, "the reply is larger than NATS lets through")


class ManagementApi:
    """Answers for as long as ``run`` runs; waits for a NATS that is not there.

    Without the lease it leaves clients' requests to nodes that know better.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        nats: NatsSection,
        metadata: Metadata,
        partitions: Partitions,
        lease: Lease | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._node_id = node_id
        self._options = connect_options(nats, name=f"streamlog node {node_id} admin")
        self._domain = nats.domain
        self._leader = Leader(partitions, lease)
        nodes = Nodes(lambda: self._client, nats.domain)
        leaders = Leaders(node_id, self._leader, nodes, image=lambda: metadata.image)
        self._verbs = Verbs(metadata, leaders, domain=nats.domain, now_ms=now_ms)
        self._prefixes = [f"$JS.{nats.domain}.API."]
        if nats.default_api_prefix:
            self._prefixes.append(DEFAULT_PREFIX)
        self._client = Client()
        self._own: Subscription | None = None
        self._clients: list[Subscription] = []
        """What is subscribed to for clients; empty without the lease."""
        self._wanted = lease is None or lease.held
        self._changed = asyncio.Event()
        if lease is not None:
            lease.add_listener(self._lease_changed)
        self._stopping = False
        self._stopped = asyncio.Event()
        self._closed = asyncio.Event()
        self._slots = asyncio.Semaphore(REQUESTS_MAX)
        self._node_slots = asyncio.Semaphore(REQUESTS_MAX)
        self._requests: asyncio.TaskGroup | None = None
        self.is_ready = False
        """Requests are listened for, or will be as soon as NATS is back."""

    async def run(self) -> None:
        """Answer requests until ``stop``."""
        async with asyncio.TaskGroup() as group:
            self._requests = group
            connecting = group.create_task(self._stay_connected())
            await self._stopped.wait()
            connecting.cancel()

    async def stop(self) -> None:
        """Take no more requests, answer those that are here, close. May be called again."""
        if self._stopping:
            return
        client, self._stopping, self._wanted = self._client, True, False
        await self._listen_or_not(client)
        for _ in range(REQUESTS_MAX):
            await self._slots.acquire()
        if self._own is not None:
            await _end(client, self._own)
        for _ in range(REQUESTS_MAX):
            await self._node_slots.acquire()
        self._stopped.set()
        with contextlib.suppress(OSError):  # NATS is gone, too
            await client.close()

    async def _stay_connected(self) -> None:
        while True:
            self._closed.clear()
            try:
                await self._serve(self._client)
            except Exception:
                logger.exception("connecting to NATS failed")
                await self._client.close()
                await asyncio.sleep(self._options["reconnect_time_wait"])
            self._clients, self._own = [], None
            self._client = Client()

    async def _serve(self, client: Client) -> None:
        """Until the client is closed."""
        await client.connect(**self._options, error_cb=self._failed, closed_cb=self._client_closed)
        own = subject_of(self._domain, self._node_id, "*")
        self._own = await client.subscribe(own, cb=self._asked_by_node)
        await self._listen_or_not(client)
        await client.flush()
        self.is_ready = True
        logger.info("management API ready", extra={"prefixes": self._prefixes})
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._follow_lease(client))
            await self._closed.wait()
            following.cancel()

    async def _follow_lease(self, client: Client) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._listen_or_not(client)

    async def _listen_or_not(self, client: Client) -> None:
        """Nodes share the clients' requests, each of which is answered once."""
        if self._wanted and not self._clients:
            self._clients = [
                await client.subscribe(f"{prefix}>", queue=QUEUE_GROUP, cb=self._asked_by_client)
                for prefix in self._prefixes
            ]
        elif self._clients and not self._wanted:
            ended, self._clients = self._clients, []
            for subscription in ended:
                await _end(client, subscription)

    def _lease_changed(self, held: bool) -> None:
        if not self._stopping:
            self._wanted = held
            self._changed.set()

    # Requests: nats-py calls with one message at a time; they are answered side by side

    async def _asked_by_client(self, message: Msg) -> None:
        await self._take(message, self._slots, self._answer_client)

    async def _asked_by_node(self, message: Msg) -> None:
        """With slots of their own: clients' requests wait for those of other nodes."""
        await self._take(message, self._node_slots, self._answer_node)

    async def _take(
        self,
        message: Msg,
        slots: asyncio.Semaphore,
        answer: Callable[[Msg], Awaitable[None]],
    ) -> None:
        assert self._requests is not None, "run has begun"
        if message.reply:
            await slots.acquire()
            self._requests.create_task(self._within(slots, answer(message)))

    async def _within(self, slots: asyncio.Semaphore, answering: Awaitable[None]) -> None:
        try:
            await answering
        except nats.errors.Error as error:
            logger.warning("a management reply was not sent", extra={"error": str(error)})
        except Exception:
            logger.exception("a management request was not answered")
        finally:
            slots.release()

    async def _answer_client(self, message: Msg) -> None:
        prefix = next(prefix for prefix in self._prefixes if message.subject.startswith(prefix))
        verb = message.subject.removeprefix(prefix)
        if verb.startswith("DIRECT.GET."):
            await self._answer_direct(message, verb.removeprefix("DIRECT.GET."))
        else:
            reply = await self._verbs.reply(verb, message.data, message.headers or {})
            await message.respond(self._fitting(reply))

    async def _answer_direct(self, message: Msg, rest: str) -> None:
        """The message itself, or a status."""
        try:
            name, found = await self._verbs.direct(rest, message.data)
        except Refused as refused:
            code, _, description = refused.error
            status = {"Status": str(code), "Description": description}
            await self._client.publish(message.reply, b"", headers=status)
            return
        await self._client.publish(message.reply, found.data, headers=direct_headers(name, found))

    async def _answer_node(self, message: Msg) -> None:
        verb = message.subject.rpartition(".")[2]
        try:
            data = encode_answer(await self._leader.answer(verb, parse_body(message.data)))
            if len(data) > self._client.max_payload:
                raise Refused(TOO_LARGE)
        except Exception as error:
            if not isinstance(error, Refused | StreamlogError):
                logger.error("another node's request failed", extra={"verb": verb}, exc_info=error)
            data = encode_error(error)
        await message.respond(data)

    def _fitting(self, reply: dict[str, Any]) -> bytes:
        data = json.dumps(reply).encode()
        if len(data) > self._client.max_payload:
            data = json.dumps({"type": reply["type"], "error": TOO_LARGE.json()}).encode()
        return data

    async def _failed(self, error: Exception) -> None:
        """``ingest`` tells of a NATS that is not there; once is enough."""
        logger.debug("NATS connection of the management API", extra={"error": str(error)})

    async def _client_closed(self) -> None:
        self._closed.set()


async def _end(client: Client, subscription: Subscription) -> None:
    """No more is wanted; what is here already is handed on, so that nobody waits for nothing."""
    if client.is_connected:
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                await subscription.drain()  # type: ignore[no-untyped-call]
            return
        except (nats.errors.Error, OSError):  # a time-out, too
            pass
    client._remove_sub(subscription._id)  # lest it be said again at a reconnect
