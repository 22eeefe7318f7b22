import asyncio
import contextlib
import errno
import socket
import ssl
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from streamlog.client.addresses import reason
from streamlog.client.login import RENEW_AT, ClientLogin
from streamlog.client.security import NO_SECURITY, Security
from streamlog.client.tls_stream import TlsStream
from streamlog.client.versions import agreed_versions
from streamlog.client.wrong_protocol import stranger, why_closed
from streamlog.errors import (
    FrameTooLarge,
    MalformedFrame,
    NodeUnreachable,
    RequestTimedOut,
    UnsupportedVersion,
)
from streamlog.wire import control, fetch, registry
from streamlog.wire.cursor import Cursor
from streamlog.wire.errors import check
from streamlog.wire.framing import LENGTH_BYTES, frame
from streamlog.wire.header import encode_request_header, read_response_header
from streamlog.wire.registry import APIS, Api

CLIENT_ID: Final = "streamlog"
TIMEOUT_MS: Final = 30_000
FRAME_BYTES_MAX: Final = 1 << 30
_LENGTH: Final = struct.Struct(">i")
_BY_NAME: Final = APIS[registry.FETCH]._replace(version_max=fetch.TOPIC_IDS_FROM - 1)
_SPOKEN: Final = {**APIS, registry.FETCH: _BY_NAME}
_BY_ID: Final = {registry.FETCH: APIS[registry.FETCH]._replace(version_min=fetch.TOPIC_IDS_FROM)}
"""Topics are asked for by their names, but where whoever asks has their ids."""


class _NoTls(NodeUnreachable):
    """It said nothing at all when TLS was asked for."""


class Connection:
    """One socket to one node. Requests wait for each other, so a long poll wants one of its own."""

    def __init__(
        self, sock: socket.socket, address: str, timeout_ms: int, tls: TlsStream | None = None
    ) -> None:
        self._sock = sock
        self._tls = tls  # what is said goes through it, if there is one
        self._address = address
        self._timeout_ms = timeout_ms
        self._log_in_again: tuple[float, ClientLogin] | None = (
            None  # when, in loop time, and as whom
        )
        self._turn = asyncio.Lock()
        self._sending = asyncio.Lock()  # one frame after the other
        self._correlation_id = 0
        self._versions: Mapping[int, int] = {}  # the highest that both sides speak, by API key
        self._fetch_by_id: int | None = None  # likewise, of Fetch by the topics' ids
        self._unread: set[int] = set()  # requests whose answers nobody waits for
        self._is_agreed = False  # on versions: it is a node, or Kafka
        self._is_known = False  # it has answered more than that
        self._has_login = False  # one was asked for
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

        Where security is ``optional``, it goes without TLS to who says nothing when asked for it.
        Raises NodeUnreachable, RequestTimedOut, AuthenticationFailed, UnsupportedMechanism.
        """
        context = security.tls()
        if context is not None and security.optional:
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
        connection._has_login = security.login is not None
        try:
            if tls is not None:
                await connection._shake_hands(tls)
            await connection._agree()
            if security.login is not None:
                await connection._log_in(security.login, optional=security.optional)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def address(self) -> str:
        """Of the node, as it was asked for."""
        return self._address

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
        self, key: int, values: control.Message, *, timeout_ms: int | None = None
    ) -> dict[str, Any]:
        """The answer as a dict; its error codes are the caller's to read.

        ``timeout_ms``: of silence, instead of the connection's. After any failure it is broken.
        """
        if self._log_in_again is not None:
            await self._renew()
        api, version = self._agreed(key)
        body = control.encode_request(api, version, values)
        if timeout_ms is None:
            timeout_ms = self._timeout_ms
        answer = await self._exchange(api, version, body, timeout_ms)
        self._is_known = self._is_agreed
        return control.read_response(answer, api, version)

    async def fetch(
        self, request: fetch.FetchRequest, *, timeout_ms: int | None = None
    ) -> fetch.FetchResponse:
        """Record bytes as views into the answer. Waits longer by what the request lets the node.

        By the ids of its topics where it has them, else by their names. Raises UnsupportedVersion
        if the node does not know topics by their ids.
        """
        if self._log_in_again is not None:
            await self._renew()
        if request.is_by_id:
            api, version = APIS[registry.FETCH], self._fetch_by_id
            if version is None:
                raise UnsupportedVersion(f"{self._address} does not know topics by their ids")
        else:
            api, version = self._agreed(registry.FETCH)
        body = fetch.encode_request(request, version)
        if timeout_ms is None:
            timeout_ms = self._timeout_ms
        answer = await self._exchange(api, version, body, timeout_ms + request.max_wait_ms)
        return fetch.read_response(answer, version)

    async def hurry(self) -> None:
        """Has a fetch of a replica's session that waits at the node answered now: by another
        request, whose answer is passed over.
        """
        api = APIS[registry.API_VERSIONS]
        body = control.encode_request(api, api.version_min, {})
        is_sent = False
        try:
            async with self._sending:
                self._check_open()
                header = self._next_header(api, api.version_min)
                self._unread.add(self._correlation_id)
                data = frame(header, body)
                if self._tls is None:
                    await asyncio.get_running_loop().sock_sendall(self._sock, data)
                else:
                    await self._tls.send_all(data)
                is_sent = True
        except (OSError, NodeUnreachable):
            pass  # whoever waits for an answer hears of it
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
            raise RequestTimedOut(f"{self._address}: no TLS after {self._timeout_ms} ms") from None
        except (OSError, NodeUnreachable) as error:
            if isinstance(error, OSError):
                error = NodeUnreachable(f"{self._address}: TLS: {reason(error)}")
            if tls.has_heard:
                raise error from None
            raise _NoTls(str(error)) from None

    async def _agree(self) -> None:
        self._versions = {registry.API_VERSIONS: APIS[registry.API_VERSIONS].version_min}
        answer = await self.request(registry.API_VERSIONS, {})
        check(answer["error_code"], self._address)
        self._versions = agreed_versions(answer, _SPOKEN)
        self._is_agreed = True
        self._fetch_by_id = agreed_versions(answer, _BY_ID).get(registry.FETCH)

    async def _log_in(self, login: ClientLogin, *, optional: bool = False) -> None:
        """After any failure the connection is of no use."""
        steps = login.steps(self._address, optional=optional)
        try:
            key, values = next(steps)
            while True:
                key, values = steps.send(await self.request(key, values))
        except StopIteration as end:
            if end.value > 0:
                due_s = asyncio.get_running_loop().time() + end.value * RENEW_AT / 1000
                self._log_in_again = due_s, login
        except BaseException:
            self.close()
            raise

    async def _renew(self) -> None:
        """Logs in again in good time before the session ends (KIP-368)."""
        if self._log_in_again is None:
            return
        due_s, login = self._log_in_again
        if asyncio.get_running_loop().time() >= due_s:
            self._log_in_again = None  # it is enough if one request does it
            await self._log_in(login)

    def _agreed(self, key: int) -> tuple[Api, int]:
        version = self._versions.get(key)
        if version is None:
            raise UnsupportedVersion(f"{self._address} does not speak our {APIS[key].name}")
        return APIS[key], version

    async def _exchange(self, api: Api, version: int, body: bytes, timeout_ms: int) -> Cursor:
        """A request out, its answer's body in; after any failure the connection is closed."""
        async with self._turn:
            self._check_open()
            try:
                async with asyncio.timeout(timeout_ms / 1000) as silence:
                    async with self._sending:
                        self._check_open()
                        header = self._next_header(api, version)
                        correlation_id = self._correlation_id
                        data = frame(header, body)
                        if self._tls is None:
                            loop = asyncio.get_running_loop()
                            await loop.sock_sendall(self._sock, data)
                        else:
                            await self._tls.send_all(data)
                    cursor = Cursor(await self._receive_answer(silence, timeout_ms))
                    found = read_response_header(cursor, api, version)
                    if found != correlation_id:
                        problem = f"{self._address}: answer {found}, not {correlation_id}"
                        raise MalformedFrame(problem)
                    return cursor
            except TimeoutError:
                self.close()
                raise RequestTimedOut(
                    f"{self._address}: {api.name} after {timeout_ms} ms"
                ) from None
            except OSError as error:
                self.close()
                raise NodeUnreachable(f"{self._address}: {reason(error)}") from None
            except BaseException:
                self.close()
                raise

    def _check_open(self) -> None:
        """Another task may have closed it meanwhile."""
        if self._broken:
            raise NodeUnreachable(f"{self._address}: the connection is closed")

    def _next_header(self, api: Api, version: int) -> bytes:
        self._correlation_id += 1
        return encode_request_header(api, version, self._correlation_id, CLIENT_ID)

    async def _receive_answer(self, silence: asyncio.Timeout, timeout_ms: int) -> memoryview:
        """The next that somebody waits for."""
        while True:
            answer = await self._receive_frame(silence, timeout_ms)
            correlation_id = int.from_bytes(answer[:4], "big", signed=True)
            if correlation_id not in self._unread:
                return answer
            self._unread.remove(correlation_id)

    async def _receive_frame(self, silence: asyncio.Timeout, timeout_ms: int) -> memoryview:
        head = await self._receive(LENGTH_BYTES, silence, timeout_ms)
        if not self._is_agreed and (said := stranger(head)) is not None:
            raise MalformedFrame(f"{self._address}: {said}")
        (length,) = _LENGTH.unpack(head)
        if not 0 <= length <= FRAME_BYTES_MAX:
            raise FrameTooLarge(f"{self._address}: an answer of {length} bytes")
        return await self._receive(length, silence, timeout_ms)

    def _why_closed(self) -> str:
        return why_closed(
            is_first=not self._is_agreed, by_tls=self._tls is not None, has_login=self._has_login
        )

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
                hint = "" if self._is_known else self._why_closed()
                raise NodeUnreachable(f"{self._address}: closed the connection{hint}")
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
