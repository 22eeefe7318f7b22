"""A node's sockets on simulated TCP: what the client and the server of streamlog need of one."""

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import Executor

from streamlog.errors import NodeUnreachable, RequestTimedOut
from streamlog.kafka.net.channel import ChannelEnded, SliceTruncated
from streamlog.log.segment.file_slice import FileSlice
from streamlog.model import NodeId
from streamlog.wire.framing import FrameSplitter
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.tcp import KAFKA_PORT, Endpoint, Tcp

RECEIVE_BYTES = 64 * 1024
PORT = KAFKA_PORT


def host_name(node_id: NodeId) -> str:
    return f"n{node_id}"


class SimSocket:
    """One side of a connection, as an event loop uses it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._waiter: asyncio.Future[None] | None = None
        endpoint.on_change = self.wake

    async def connect(self, address: object) -> None:
        """It is connected when it is made."""

    async def send_all(self, data: bytes) -> None:
        self._endpoint.send(bytes(data))

    async def receive(self, length: int) -> bytes:
        """At least a byte; b"" at the end. Raises ConnectionResetError, OSError once closed."""
        endpoint = self._endpoint
        while not endpoint.buffer:
            if endpoint.closed:
                raise OSError(9, "Bad file descriptor")
            if endpoint.broken:
                raise ConnectionResetError(104, "Connection reset by peer")
            if endpoint.ended:
                return b""
            await self.wait()
        return endpoint.take(length)

    def recv(self, length: int, flags: int) -> bytes:
        """To see whether the other side is there. Raises BlockingIOError, OSError."""
        assert flags == socket.MSG_PEEK
        if self._endpoint.broken or self._endpoint.closed:
            raise ConnectionResetError(104, "Connection reset by peer")
        if not self._endpoint.buffer and not self._endpoint.ended:
            raise BlockingIOError
        return bytes(self._endpoint.buffer[:length])

    async def wait(self) -> None:
        """Until something has come, or the end."""
        assert self._waiter is None, "two wait for one socket"
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def close(self) -> None:
        self._endpoint.close()
        self.wake()

    def fileno(self) -> int:
        return self._endpoint.fileno()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class SimChannel:
    """In the place of ``kafka.net.channel.SocketChannel``."""

    path = "sendfile"
    is_encrypted = False
    peer_subject = None
    is_receiving = False
    """So that an answer that comes late waits for its turn."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.sock = SimSocket(endpoint)
        self.host = endpoint.host
        self.heard: Callable[[], None] | None = None
        self._endpoint = endpoint
        self._ended: Exception | None = None
        endpoint.on_change = self._arrived

    async def open(self) -> None:
        """Nothing comes before the first request."""

    async def receive(
        self,
        unless: Callable[[], bool] = lambda: False,
        at_once: Callable[[bytes], bool] | None = None,
        frames: FrameSplitter | None = None,
    ) -> bytes | None:
        """None once ``unless`` holds, which is asked again at each ``wake``. Whatever comes has a turn of the task, and
        is fed to the frames there.
        """
        endpoint = self._endpoint
        while not unless():
            self._raise_if_ended()
            if endpoint.buffer or endpoint.closed or endpoint.broken or endpoint.ended:
                data = await self.sock.receive(RECEIVE_BYTES)
                self._raise_if_ended()
                return data
            await self.sock.wait()
        return None

    def wake(self) -> None:
        self.sock.wake()

    def send_at_once(self, data: bytes) -> int:
        """Never."""
        return 0

    async def send(self, data: bytes | bytearray, *, more: bool = False) -> None:
        self._raise_if_ended()
        if data:
            self._endpoint.send(bytes(data))

    async def send_slice(self, part: FileSlice, readers: Executor) -> None:
        """In the place of sendfile: what the file has when there is room for it is sent."""
        host = self.host
        if (late_us := host.sends_late_us - host.events.now_us) > 0:
            await asyncio.sleep(late_us / 1e6)
        data = part.read()
        if len(data) < len(part):
            raise SliceTruncated(f"the file ends {len(part) - len(data)} bytes before its slice")
        await self.send(data)

    def listen(self) -> None:
        """What has come already is told at once."""
        self._arrived()

    def peer_has_left(self) -> bool | None:
        try:
            return not self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError:
            return True

    def _arrived(self) -> None:
        if self.heard is not None:
            self.heard()
        else:
            self.sock.wake()

    def end(self, reason: Exception | None = None) -> None:
        self._ended = self._ended or reason or ChannelEnded()
        self.sock.wake()

    def close(self) -> None:
        self.sock.close()

    def _raise_if_ended(self) -> None:
        if self._ended is not None:
            raise self._ended


def read_warm(part: FileSlice) -> bytearray | None:
    """In the place of a copy of what is small: None while that is not sent at once."""
    host = Host.current
    assert host is not None
    return None if host.sends_late_us > host.events.now_us else bytearray(part.read())


async def connected(tcp: Tcp, host: str, port: int, timeout_ms: int) -> SimSocket:
    """A socket that is connected. Raises NodeUnreachable, RequestTimedOut."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return SimSocket(await called(tcp, host, port))
    except ConnectionRefusedError:
        unreachable = NodeUnreachable(f"{host}:{port}: Connection refused")
        unreachable.refused = True
        raise unreachable from None
    except TimeoutError:
        raise RequestTimedOut(f"{host}:{port}: no connection after {timeout_ms} ms") from None


async def called(tcp: Tcp, host: str, port: int) -> Endpoint:
    """This machine's side of a new connection. Raises ConnectionRefusedError."""
    source = Host.current
    assert source is not None
    done: asyncio.Future[Endpoint] = asyncio.get_running_loop().create_future()

    def accepted(endpoint: Endpoint) -> None:
        if done.done():
            endpoint.close()
        else:
            done.set_result(endpoint)

    def refused() -> None:
        if not done.done():
            done.set_exception(ConnectionRefusedError(111, "Connection refused"))

    tcp.connect(source, NodeId(int(host[1:])), accepted, refused, port=port)
    return await done
