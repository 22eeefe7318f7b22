"""One socket to one node, on an event loop."""

import asyncio
import contextlib
import errno
import socket
import ssl
from types import TracebackType
from typing import Any, Final, Self

from streamlog.client.addresses import reason
from streamlog.client.protocol import Call, ClientProtocol, Steps
from streamlog.client.security import NO_SECURITY, Security
from streamlog.client.tls_stream import TlsStream
from streamlog.errors import NodeUnreachable, RequestTimedOut
from streamlog.wire import api_messages, fetch
from streamlog.wire.cursor import Cursor
from streamlog.wire.framing import LENGTH_BYTES

TIMEOUT_MS: Final = 30_000


class _NoTls(NodeUnreachable):
    """It said nothing at all when TLS was asked for."""


class Connection:
    """One socket to one node. Requests wait for each other, so a long poll wants one of its own."""

    def __init__(
        self, sock: socket.socket, address: str, timeout_ms: int, tls: TlsStream | None = None
    ) -> None:
        self._sock = sock
        self._tls = tls  # encrypts and decrypts, if there is one
        self._timeout_ms = timeout_ms
        now = asyncio.get_running_loop().time
        self._protocol = ClientProtocol(address, now, by_tls=tls is not None)
        self._turn = asyncio.Lock()
        self._sending = asyncio.Lock()  # one frame after the other
        self._broken = False  # an answer may be half read or still come: not to be used again

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        timeout_ms: int = TIMEOUT_MS,
        security: Security = NO_SECURITY,
    ) -> Self:
        """Connects, agrees on versions, and logs in where that is wanted.

        Where security is ``permissive``, a node that says nothing when asked for TLS is used without.
        Raises NodeUnreachable, RequestTimedOut, AuthenticationFailed, UnsupportedMechanism.
        """
        context = security.tls()
        if context is not None and security.permissive:
            with contextlib.suppress(_NoTls):
                return await cls._opened(host, port, timeout_ms, security, context)
            context = None
        return await cls._opened(host, port, timeout_ms, security, context)

    @classmethod
    async def _opened(
        cls,
        host: str,
        port: int,
        timeout_ms: int,
        security: Security,
        context: ssl.SSLContext | None,
    ) -> Self:
        address = f"{host}:{port}"
        sock = await connected(host, port, timeout_ms)
        tls = None if context is None else TlsStream(sock, context, host, address)
        connection = cls(sock, address, timeout_ms, tls)
        try:
            if tls is not None:
                await connection._shake_hands(tls)
            steps = connection._protocol.open(security.login, permissive=security.permissive)
            await connection._carry_out(steps)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def address(self) -> str:
        """Of the node, as it was asked for."""
        return self._protocol.address

    @property
    def broken(self) -> bool:
        """Not to be used again: closed, here or by the node."""
        return self._broken or _at_end(self._sock)

    def close(self) -> None:
        self._broken = True
        self._sock.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def request(
        self, key: int, values: api_messages.Message, *, timeout_ms: int | None = None
    ) -> dict[str, Any]:
        """The answer as a dict; its error codes are the caller's to read.

        ``timeout_ms``: of silence, instead of the connection's. After any failure it is broken.
        """
        await self._renew()
        call = self._protocol.request(key, values)
        answer = await self._exchange(call, self._timeout_ms if timeout_ms is None else timeout_ms)
        return self._protocol.read(call, answer)

    async def fetch(
        self, request: fetch.FetchRequest, *, timeout_ms: int | None = None
    ) -> fetch.FetchResponse:
        """Record bytes as views into the answer. Waits longer by what the request lets the node.

        By the ids of its topics where it has them, else by their names. Raises UnsupportedVersion
        if the node does not know topics by their ids.
        """
        await self._renew()
        call = self._protocol.fetch(request)
        answer = await self._exchange(call, self._timeout_ms if timeout_ms is None else timeout_ms)
        return self._protocol.read_fetch(call, answer)

    async def hurry(self) -> None:
        """Has a fetch of a replica's session that waits at the node answered now: by another
        request, whose answer is passed over.
        """
        is_sent = False
        try:
            async with self._sending:
                self._check_open()
                await self._send(self._protocol.hurry())
                is_sent = True
        except (OSError, NodeUnreachable):
            pass  # the task that waits for an answer gets the error
        finally:
            self._broken = self._broken or not is_sent

    async def wait_closed(self) -> None:
        """Until the node is gone, or says so; nothing is to be asked any more."""
        byte = memoryview(bytearray(1024))
        with contextlib.suppress(OSError, NodeUnreachable):
            while await (
                asyncio.get_running_loop().sock_recv_into(self._sock, byte)
                if self._tls is None
                else self._tls.receive_into(byte)
            ):
                pass

    async def _shake_hands(self, tls: TlsStream) -> None:
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                await tls.shake_hands()
        except TimeoutError:
            raise RequestTimedOut(f"{self.address}: no TLS after {self._timeout_ms} ms") from None
        except (OSError, NodeUnreachable) as error:
            if isinstance(error, OSError):
                error = NodeUnreachable(f"{self.address}: TLS: {reason(error)}")
            if tls.has_heard:
                raise error from None
            raise _NoTls(str(error)) from None

    async def _renew(self) -> None:
        steps = self._protocol.renewal()
        if steps is not None:
            await self._carry_out(steps)

    async def _carry_out(self, steps: Steps) -> None:
        """After any failure the connection is of no use."""
        try:
            key, values = next(steps)
            while True:
                key, values = steps.send(await self.request(key, values))
        except StopIteration:
            pass
        except BaseException:
            self.close()
            raise

    async def _exchange(self, call: Call, timeout_ms: int) -> Cursor:
        """A request out, its answer's body in; after any failure the connection is closed."""
        timeout_ms += call.extra_ms
        async with self._turn:
            self._check_open()
            try:
                async with asyncio.timeout(timeout_ms / 1000) as silence:
                    async with self._sending:
                        self._check_open()
                        await self._send(call)
                    while True:
                        response = await self._receive_response(silence, timeout_ms)
                        body = self._protocol.body(call, response)
                        if body is not None:
                            return body
            except TimeoutError:
                self.close()
                raise self._protocol.timed_out(call, timeout_ms) from None
            except OSError as error:
                self.close()
                raise self._protocol.failed(error) from None
            except BaseException:
                self.close()
                raise

    async def _send(self, call: Call) -> None:
        if self._tls is None:
            await asyncio.get_running_loop().sock_sendall(self._sock, call.frame)
        else:
            await self._tls.send_all(call.frame)

    def _check_open(self) -> None:
        """Another task may have closed it meanwhile."""
        if self._broken:
            raise self._protocol.closed_here()

    async def _receive_response(self, silence: asyncio.Timeout, timeout_ms: int) -> memoryview:
        head = await self._receive(LENGTH_BYTES, silence, timeout_ms)
        return await self._receive(self._protocol.response_bytes(head), silence, timeout_ms)

    async def _receive(self, length: int, silence: asyncio.Timeout, timeout_ms: int) -> memoryview:
        """Straight into the buffer that is handed on: only the kernel copies record bytes.

        A large answer over a slow link may take as long as it takes, while something comes.
        """
        loop = asyncio.get_running_loop()
        whole = memoryview(bytearray(length))
        filled = 0
        while filled < length:
            self._check_open()
            if self._tls is None:
                count = await loop.sock_recv_into(self._sock, whole[filled:])
            else:
                count = await self._tls.receive_into(whole[filled:])
            if count == 0:
                raise self._protocol.closed_by_node()
            filled += count
            silence.reschedule(loop.time() + timeout_ms / 1000)
        return whole.toreadonly()


async def connected(host: str, port: int, timeout_ms: int) -> socket.socket:
    """Tries each address of the host in turn. Raises NodeUnreachable and RequestTimedOut."""
    loop = asyncio.get_running_loop()
    problem: OSError | None = None
    refusals = others = 0
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            for family, kind, protocol, _, address in await loop.getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            ):
                sock = socket.socket(family, kind, protocol)
                try:
                    sock.setblocking(False)
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    await loop.sock_connect(sock, address)
                except OSError as error:
                    sock.close()
                    problem = error
                    refused = error.errno == errno.ECONNREFUSED
                    refusals, others = refusals + refused, others + (not refused)
                except BaseException:
                    sock.close()
                    raise
                else:
                    return sock
    except TimeoutError:
        raise RequestTimedOut(f"{host}:{port}: no connection after {timeout_ms} ms") from None
    except UnicodeError:  # "." and the like, which Python does not ask for
        raise NodeUnreachable(f"{host}:{port}: the host cannot be a name") from None
    except OSError as error:  # the name does not resolve
        problem = error
    why = "no address" if problem is None else reason(problem)
    unreachable = NodeUnreachable(f"{host}:{port}: {why}")
    unreachable.refused = refusals > 0 and others == 0
    raise unreachable


def _at_end(sock: socket.socket) -> bool:
    """Whether the other side has closed it; nothing is taken out of it."""
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
