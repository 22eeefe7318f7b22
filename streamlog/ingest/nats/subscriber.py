"""What is listened to, on one connection that is made again for as long as it is wanted."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from streamlog.condition import FAULT
from streamlog.ingest.frames import IngestEndpoint, Partitioner, RecordCollector
from streamlog.ingest.nats.connection import AroundRead, InFlightBytes, IngestClient
from streamlog.ingest.nats.connection_state import ConnectionState
from streamlog.ingest.nats.options import NatsOptions
from streamlog.ingest.nats.subscription_list import (
    SubjectFilter,
    Subscription,
    Subscriptions,
    unsubscribe_commands,
)
from streamlog.nats.router import Router
from streamlog.nats.router import Subscription as RoutedSubscription

logger = logging.getLogger(__name__)

ROUND_TRIP_TIMEOUT_S: Final = 2.0


class Subscriber:
    """The ingest's subscriptions: at the node's own router, and at the NATS servers that the node is a
    client of, if it has any. There they outlive connections.

    Invariant: a sid that has ended is never said again, but is heard until NATS knows of its end.
    """

    def __init__(
        self,
        *,
        access: NatsOptions | None,
        router: Router,
        name: str,
        read_buffer_bytes: int,
        room: InFlightBytes,
        outage: ConnectionState,
        around_read: AroundRead | None = None,
    ) -> None:
        self._around_read = around_read
        self._access = access
        self._name = name
        self._read_buffer_bytes = read_buffer_bytes
        self._room = room
        self._outage = outage
        self._router = router
        self._endpoint = IngestEndpoint(router)
        self._routed: dict[int, RoutedSubscription] = {}
        """By sid: those at the router."""
        self._subscriptions = Subscriptions()
        self._client: IngestClient | None = None
        """None: there is no link to NATS, and all is known."""
        if access is not None:
            self._begin_client(access)
        self._closed = asyncio.Event()
        """The current client has ended for good."""
        self._ended: list[int] = []
        """Sids of which messages may still come."""
        self._said = asyncio.Event()
        """There is something that NATS has perhaps not heard yet ..."""
        self._said_count = 0
        """... of all that was ever said."""
        self._heard_count = 0
        """So much of it was there before a round trip that has ended, answered or not."""
        self._waiting: list[asyncio.Future[None]] = []
        self.is_known = access is None
        """The server that is connected, or was last, has answered since it was told all that was
        listened to then."""

    def __len__(self) -> int:
        return len(self._subscriptions)

    @property
    def is_heard(self) -> bool:
        """NATS knows all that is wanted, and what is not any more; or it is not there."""
        return not self._said.is_set()

    def replace(
        self,
        sids: Sequence[int],
        sources: Sequence[SubjectFilter],
        target: RecordCollector | Partitioner,
    ) -> tuple[int, ...]:
        """Subscribe ``target``, which has ``sids``, to ``sources`` and to nothing else; its sids from
        now on. What begins is told to the server in one write, or when it is there, and before what
        ends: between two sources that overlap nothing is lost.
        """
        subscriptions = self._subscriptions
        heard = {subscriptions.source(sid): sid for sid in sids}
        missing = (it for it in sources if it not in heard)
        begun = [subscriptions.add(Subscription(it.subject, target, it.queue)) for it in missing]
        for sid in begun:
            subject, queue = subscriptions.source(sid)
            routed = self._endpoint.subscribe(
                subject.encode(), target, queue=(queue or "").encode()
            )
            self._routed[sid] = routed
        if begun and self._client is not None:
            subscriptions.bind(self._client.parser, begun)
            self._client.write(subscriptions.commands(begun))
            self._say()
        ended = [sid for source, sid in heard.items() if source not in sources]
        self.end(ended)
        return (*(sid for sid in sids if sid not in ended), *begun)

    def end(self, sids: Iterable[int]) -> None:
        """Listen no longer. What is under way still comes, and its receiver refuses it."""
        ended = list(sids)
        if ended:
            self._unsubscribe(ended)
            if self._client is not None:
                self._ended += ended
                self._say()

    async def round_trip(self) -> None:
        """All that was said is at the server, and all that it had sent before is received; or it
        is not there, or does not answer in time.
        """
        if self._client is not None:
            await self._client.round_trip(ROUND_TRIP_TIMEOUT_S)

    async def wait_heard(self) -> None:
        """All that was said by now is at the server; or it is not there, or does not answer in
        time. Callers that wait at the same time share a round trip.
        """
        said = self._said_count
        while self._heard_count < said and self._said.is_set():
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting

    async def run(self) -> None:
        """Be connected, until cancelled; wait for a NATS that is not there."""
        if self._access is None:
            await asyncio.Event().wait()
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._stay_connected(self._access))
            group.create_task(self._settle())

    async def end_all(self) -> None:
        """Listen to nothing more; what was under way is received when this returns."""
        client, sids = self._client, self._subscriptions.sids()
        self._unsubscribe(sids)
        if client is not None:
            await client.round_trip(ROUND_TRIP_TIMEOUT_S)
            client.forget(sids)

    async def close(self) -> None:
        self._outage.closed()
        if self._client is not None:
            await self._client.close()

    def write(self, data: bytes) -> None:
        """To the present connection; lost without one."""
        if self._client is not None:
            self._client.write(data)

    # Its tasks

    async def _stay_connected(self, access: NatsOptions) -> None:
        while True:
            client = self._linked
            self._closed.clear()
            try:
                await client.connect(
                    **access.options(self._name),
                    no_echo=True,
                    error_cb=self._outage.failed,
                    disconnected_cb=self._outage.disconnected,
                    closed_cb=self._client_closed,
                )
                await self._closed.wait()
            except Exception:
                logger.exception(FAULT.logged_as("connecting to NATS failed"))
                await client.close()
                await asyncio.sleep(access.reconnect_wait_s)
            self._begin_client(access)

    async def _settle(self) -> None:
        """Once NATS has heard all that was said, nothing comes any more that is not wanted."""
        try:
            while True:
                await self._said.wait()
                client, said, ended = self._linked, self._said_count, len(self._ended)
                answered = await client.round_trip(ROUND_TRIP_TIMEOUT_S)
                client.forget(self._ended[:ended])
                del self._ended[:ended]
                self.is_known |= answered
                if self._said_count == said and (answered or not client.is_connected):
                    self._said.clear()
                self._heard_count = said
                self._tell_waiting()
        finally:
            self._said.clear()
            self._tell_waiting()

    def _tell_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _unsubscribe(self, sids: list[int]) -> None:
        """Nothing more is wanted of them, nor at a reconnect; what is under way still comes."""
        for sid in sids:
            self._subscriptions.remove(sid)
            self._router.remove(self._routed.pop(sid))
        self.write(unsubscribe_commands(sids))

    def _say(self) -> None:
        self._said_count += 1
        self._said.set()

    @property
    def _linked(self) -> IngestClient:
        assert self._client is not None, "there is a link to NATS"
        return self._client

    def _begin_client(self, access: NatsOptions) -> None:
        self._client = IngestClient(
            access,
            self._subscriptions,
            in_flight=self._room,
            connected=self._connected,
            read_buffer_bytes=self._read_buffer_bytes,
            around_read=self._around_read,
        )

    def _connected(self) -> None:
        self.is_known = False
        self._say()  # by the client, just now
        self._outage.connected(self._linked.connected_url, subscriptions=len(self))

    async def _client_closed(self) -> None:
        self._closed.set()
