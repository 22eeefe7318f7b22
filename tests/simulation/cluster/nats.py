"""A NATS server, and the node's connection to it: at most once, in order while it lasts.

``SimServerLink`` stands in the place of ``ingest.nats.server_link.ServerLink``; its connection, and all that is
behind it, is the real one.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from streamlog.ingest.nats.subscription_list import Subscriptions, unsubscribe_commands
from streamlog.nats.router import Router
from streamlog.nats.server_connection import ServerConnection
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.links import NATS, Links
from tests.simulation.events import Events

NOTICE_US_MAX = 3_000_000
"""How long a side may believe in a connection over which nothing comes."""
RETRY_S = 0.25


class _Line:
    """One connection. What is sent over a cut link is lost, and so is the connection, soon."""

    def __init__(self, nats: "SimNats", host: Host, client: "SimServerLink") -> None:
        self.subscriptions: dict[int, str] = {}
        self.at_server = True
        """The server believes in it."""
        self.at_client = True
        self._nats = nats
        self._host = host
        self._client = client
        self._life = host.life
        self._due_us = [0, 0]

    @property
    def node_id(self) -> int:
        return self._host.node_id

    @property
    def is_live(self) -> bool:
        return self._host.life == self._life

    def to_client(self, data: bytes) -> None:
        def arrive() -> None:
            if self.is_live and self.at_client:
                self._host.after(0, lambda: self._client.take_in(self, data))

        self._send(0, (NATS, self.node_id), arrive)

    def to_server(self, data: bytes) -> None:
        self._send(1, (self.node_id, NATS), lambda: self._nats.take_in(self, data))

    def _send(self, way: int, link: tuple[int, int], arrive: Callable[[], None]) -> None:
        events, links = self._nats.events, self._nats.links
        self._due_us[way] = max(self._due_us[way], events.now_us + links.delay_us(*link))

        def deliver() -> None:
            if links.is_cut(*link):
                self._lose()
            elif self.at_server:
                arrive()

        events.after(self._due_us[way] - events.now_us, deliver)

    def _lose(self) -> None:
        """Nothing comes any more; each side notices by itself."""
        events, rng = self._nats.events, self._nats.rng
        events.after(rng.randint(0, NOTICE_US_MAX), self.end_at_client)
        events.after(rng.randint(0, NOTICE_US_MAX), self.end_at_server)
        self._due_us = [1 << 62, 1 << 62]

    def end_at_server(self) -> None:
        if self.at_server:
            self.at_server = False
            self._nats.lines.remove(self)
            self.end_at_client()

    def end_at_client(self) -> None:
        if self.at_client:
            self.at_client = False
            if self.is_live:
                self._host.after(0, lambda: self._client.lost(self))


class SimNats:
    """The server. A message goes to every subscription that matches it, be it by wildcards."""

    def __init__(
        self, events: Events, links: Links, rng: random.Random, answer: Callable[[bytes], None]
    ) -> None:
        """``answer`` gets every publication of a node: ``PUB`` lines, one or more."""
        self.events = events
        self.links = links
        self.rng = rng
        self.lines: list[_Line] = []
        self._answer = answer
        self.said: Callable[[bytes], None] = lambda _lines: None
        """Gets the same when a node writes it, whether it comes or not."""

    def publish(self, subject: str, reply: str, head: bytes, body: bytes) -> int:
        """How many subscriptions it goes to."""
        sizes = f"{len(head)} {len(head) + len(body)}"
        count = 0
        for line in tuple(self.lines):
            for sid in [sid for sid, it in line.subscriptions.items() if _matches(it, subject)]:
                start = f"HMSG {subject} {sid} {reply} {sizes}\r\n".encode()
                line.to_client(start + head + body + b"\r\n")
                count += 1
        return count

    def connect(self, host: Host, client: "SimServerLink") -> _Line | None:
        place = host.node_id
        if self.links.is_cut(place, NATS) or self.links.is_cut(NATS, place):
            return None
        line = _Line(self, host, client)
        self.lines.append(line)
        return line

    def take_in(self, line: _Line, data: bytes) -> None:
        """Lines of the protocol from a node."""
        while data:
            first, _, rest = data.partition(b"\r\n")
            fields = first.decode().split(" ")
            match fields[0]:
                case "SUB":
                    line.subscriptions[int(fields[-1])] = fields[1]
                case "UNSUB":
                    line.subscriptions.pop(int(fields[1]), None)
                case "PING":
                    line.to_client(b"PONG\r\n")
                case "PUB":
                    size = int(fields[2]) + 2
                    self._answer(first + b"\r\n" + rest[:size])
                    rest = rest[size:]
            data = rest

    def process_ended(self, host: Host, kernel: bool) -> None:
        for line in [line for line in self.lines if line.node_id == host.node_id]:
            line.at_client = False
            notice_us = 1_000 if kernel else self.rng.randint(0, NOTICE_US_MAX)
            self.events.after(notice_us, line.end_at_server)


def _matches(known: str, subject: str) -> bool:
    if "*" not in known and not known.endswith(".>"):
        return known == subject
    tokens, wanted = subject.split("."), known.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        tokens, rest = tokens[: len(wanted)], tokens[len(wanted) :]
        if not rest:
            return False
    return len(tokens) == len(wanted) and all(
        it in ("*", token) for it, token in zip(wanted, tokens, strict=True)
    )


class SimServerLink:
    """What ``ingest.nats.subscriber`` needs of its link."""

    nats: SimNats
    """Set on the class for as long as a world is played."""

    def __init__(
        self,
        _options: object,
        router: Router,
        _sockets: object,
        subscriptions: Subscriptions,
        *,
        connected: Callable[[], None],
        **_: Any,
    ) -> None:
        assert Host.current is not None
        self._host = Host.current
        self._router = router
        self._told_connected = connected
        self._subscriptions = subscriptions
        self._line: _Line | None = None
        self._pongs: list[asyncio.Future[bool]] = []
        self._is_closed = False
        self._waiting: list[bytes] = []
        """Answers that leave at the end of this turn."""
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self._connection = self._new_connection()

    @property
    def is_connected(self) -> bool:
        return self._line is not None

    connected_url = None

    async def run(self) -> None:
        await self._connect()
        await asyncio.Event().wait()

    def close(self) -> None:
        self._is_closed = True
        if self._line is not None:
            self._line.end_at_server()
        self._line = None

    def subscribe(self, sids: Sequence[int]) -> None:
        if self._line is not None:
            self._bind(sids)
            self._say(self._subscriptions.commands(sids))

    def unsubscribe(self, sids: Iterable[int]) -> None:
        self._say(unsubscribe_commands(sids))

    def forget(self, sids: Iterable[int]) -> None:
        for sid in sids:
            self._connection.unbind(sid)

    def write(self, data: bytes) -> None:
        if data:
            if not self._waiting:
                self._loop.call_soon(self._flush)
            self._waiting.append(data)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self.nats.said(b"".join(waiting))
            self._say(b"".join(waiting))

    def _flush_connection(self) -> None:
        """Marks are sent by the connection itself."""
        self._say(self._connection.take_output())

    def _say(self, data: bytes) -> None:
        if data and self._line is not None:
            self._line.to_server(data)

    async def round_trip(self, timeout_s: float) -> bool:
        if self._line is None:
            return False
        pong: asyncio.Future[bool] = self._loop.create_future()
        self._pongs.append(pong)
        self._flush()
        self._connection.ping()
        self._flush_connection()
        try:
            async with asyncio.timeout(timeout_s):
                return await pong
        except TimeoutError:
            return False

    def take_in(self, line: _Line, data: bytes) -> None:
        """One read of the socket."""
        if line is not self._line:
            return
        self._loop.call_soon(self._feed, data)

    def lost(self, line: _Line) -> None:
        if line is self._line:
            self._line = None
            for pong in self._pongs:
                if not pong.done():
                    pong.set_result(False)
            self._pongs.clear()
            self._tasks.append(self._loop.create_task(self._connect()))

    def _feed(self, data: bytes) -> None:
        """One turn."""
        self._router.begin_turn()
        self._connection.feed(data)
        self._router.end_turn()

    # As the session of its connection

    def ponged(self) -> None:
        if self._pongs:
            pong = self._pongs.pop(0)
            if not pong.done():
                pong.set_result(True)

    def informed(self, _: bytes) -> None:
        raise AssertionError

    refused = informed

    def violated(self, error: Exception) -> None:
        raise error

    def too_slow(self) -> None:
        raise AssertionError

    def broken(self, error: OSError) -> None:
        raise error

    async def _connect(self) -> None:
        while not self._is_closed:
            self._line = self.nats.connect(self._host, self)
            if self._line is not None:
                self._connection.close()
                self._connection = self._new_connection()
                self._bind(self._subscriptions.sids())
                self._say(self._subscriptions.commands(self._subscriptions.sids()))
                self._told_connected()
                return
            await asyncio.sleep(RETRY_S)

    def _new_connection(self) -> ServerConnection:
        connection = ServerConnection(self._router)
        connection.session = self
        connection.flushed = self._flush_connection
        self._router.join_marks(connection)
        return connection

    def _bind(self, sids: Iterable[int]) -> None:
        for sid in sids:
            self._connection.bind(sid, self._subscriptions.subscription(sid))
