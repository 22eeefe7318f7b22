"""What is listened to, on one connection that is made again for as long as it is wanted."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from streamlog.ingest.frames import IngestEndpoint, Partitioner, RecordCollector
from streamlog.ingest.nats.connection_state import ConnectionState
from streamlog.ingest.nats.options import NatsOptions
from streamlog.ingest.nats.server_link import ServerLink
from streamlog.ingest.nats.subscription_list import SubjectFilter, Subscriptions
from streamlog.nats.domain import in_domain
from streamlog.nats.router import Router
from streamlog.nats.sockets import Sockets

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
        sockets: Sockets,
        name: str,
        outage: ConnectionState,
        domain_prefix: bytes = b"",
        left_out: Callable[[], None] | None = None,
    ) -> None:
        """``domain_prefix``: by which clients of these servers write to buckets, too. ``left_out``: see
        ``IngestEndpoint``.
        """
        self._outage = outage
        self._domain_prefix = b"" if access is None else domain_prefix
        self._router = router
        self._endpoint = IngestEndpoint(router, left_out=left_out)
        self._subscriptions = Subscriptions()
        self._link: ServerLink | None = None
        """None: the node is no client of NATS, and all is known."""
        if access is not None:
            self._link = ServerLink(
                access,
                router,
                sockets,
                self._subscriptions,
                name=name,
                echo=False,
                is_marked=True,
                domain_prefix=domain_prefix,
                connected=self._connected,
                disconnected=outage.disconnected,
                failed=outage.failed,
            )
        self.write: Final[Callable[[bytes], None]] = (
            _lost if self._link is None else self._link.write
        )
        """To the present connection, at the end of this turn; lost without one."""
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
        sources = [
            SubjectFilter(subject, it.queue or None)
            for it in sources
            for subject in (it.subject, in_domain(it.subject, self._domain_prefix))
            if subject is not None
        ]
        heard = {self._source(sid): sid for sid in sids}
        begun = [self._begin(it, target) for it in sources if it not in heard]
        if begun and self._link is not None:
            self._link.subscribe(begun)
            self._say()
        ended = [sid for source, sid in heard.items() if source not in sources]
        self.end(ended)
        return (*(sid for sid in sids if sid not in ended), *begun)

    def end(self, sids: Iterable[int]) -> None:
        """Listen no longer. What is under way still comes, and its receiver refuses it."""
        ended = list(sids)
        if ended:
            self._unsubscribe(ended)
            if self._link is not None:
                self._ended += ended
                self._say()

    async def round_trip(self) -> None:
        """All that was said is at the server, and all that it had sent before is received; or it
        is not there, or does not answer in time.
        """
        if self._link is not None:
            await self._link.round_trip(ROUND_TRIP_TIMEOUT_S)

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
        if self._link is None:
            await asyncio.Event().wait()
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._link.run())
            group.create_task(self._settle(self._link))

    async def end_all(self) -> None:
        """Listen to nothing more; what was under way is received when this returns."""
        link, sids = self._link, self._subscriptions.sids()
        self._unsubscribe(sids)
        if link is not None:
            await link.round_trip(ROUND_TRIP_TIMEOUT_S)
            link.forget(sids)

    async def close(self) -> None:
        self._outage.closed()
        if self._link is not None:
            self._link.close()

    async def _settle(self, link: ServerLink) -> None:
        """Once NATS has heard all that was said, nothing comes any more that is not wanted."""
        try:
            while True:
                await self._said.wait()
                said, ended = self._said_count, len(self._ended)
                answered = await link.round_trip(ROUND_TRIP_TIMEOUT_S)
                link.forget(self._ended[:ended])
                del self._ended[:ended]
                self.is_known |= answered
                if self._said_count == said and (answered or not link.is_connected):
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
            self._router.remove(self._subscriptions.remove(sid))
        if self._link is not None:
            self._link.unsubscribe(sids)

    def _say(self) -> None:
        self._said_count += 1
        self._said.set()

    def _source(self, sid: int) -> SubjectFilter:
        it = self._subscriptions.subscription(sid)
        return SubjectFilter(it.subject.decode(), it.queue.decode() or None)

    def _begin(self, source: SubjectFilter, target: RecordCollector | Partitioner) -> int:
        subject, queue = source.subject.encode(), (source.queue or "").encode()
        return self._subscriptions.add(self._endpoint.subscribe(subject, target, queue=queue))

    def _connected(self) -> None:
        self.is_known = False
        self._say()  # by the link, just now
        assert self._link is not None, "it is connected"
        self._outage.connected(self._link.connected_url, subscriptions=len(self))


def _lost(_: bytes) -> None:
    """The node is no client of NATS."""
