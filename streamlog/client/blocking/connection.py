import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, NoReturn, Self

from streamlog.client.addresses import reason
from streamlog.client.login import RENEW_AT, ClientLogin
from streamlog.client.versions import agreed_versions
from streamlog.client.wrong_protocol import stranger
from streamlog.errors import (
    BrokenInvariant,
    FrameTooLarge,
    MalformedFrame,
    NodeUnreachable,
    RequestTimedOut,
    UnsupportedVersion,
)
from streamlog.tls.errors import trouble
from streamlog.wire import control, registry
from streamlog.wire import fetch as wire
from streamlog.wire.cursor import Cursor
from streamlog.wire.errors import check
from streamlog.wire.framing import LENGTH_BYTES, frame
from streamlog.wire.header import encode_request_header, read_response_header
from streamlog.wire.registry import APIS, Api

CLIENT_ID: Final = "streamlog-spark"
TIMEOUT_MS: Final = 10_000
"""Of silence."""
FRAME_BYTES_MAX: Final = 1 << 30
_LENGTH: Final = struct.Struct(">i")


Room = Callable[[int], bytearray]


class _Awaited(NamedTuple):
    """A request whose answer is still to come."""

    api: Api
    version: int
    correlation_id: int
    timeout_ms: int


class BlockingConnection:
    """One socket to one node, for one thread. After any failure it is closed."""

    def __init__(self, sock: socket.socket, address: str, timeout_ms: int) -> None:
        self._sock = sock
        self._address = address
        self._timeout_ms = timeout_ms
        self._log_in_again: tuple[float, ClientLogin] | None = None  # when, monotonic, and as whom
        self._correlation_id = 0
        self._is_agreed = False  # on versions: it is a node, or Kafka
        self._versions: Mapping[int, int] = {}  # the highest that both sides speak, by API key
        self._throttle_ms = 0  # for so long the node takes nothing in after its last answer
        self._awaited: _Awaited | None = None
        self._closed = False

    @classmethod
    def open(
        cls,
        host: str,
        port: int,
        *,
        timeout_ms: int = TIMEOUT_MS,
        tls: ssl.SSLContext | None = None,
        login: ClientLogin | None = None,
    ) -> Self:
        """Connects, agrees on versions, and logs in where that is wanted.

        Raises NodeUnreachable, RequestTimedOut, AuthenticationFailed, UnsupportedMechanism.
        """
        address = f"{host}:{port}"
        connection = cls(_connected(host, port, timeout_ms, tls), address, timeout_ms)
        try:
            connection._agree()
            if login is not None:
                connection._log_in(login)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def broken(self) -> bool:
        """Not to be used again: closed, here or by the node."""
        if self._closed or self._awaited is not None:
            return self._closed
        poll = select.poll()  # select itself knows no socket above 1,023
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))  # nothing was asked, so what comes is the end

    def close(self) -> None:
        self._closed = True
        self._awaited = None
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def request(
        self, key: int, values: control.Message, *, timeout_ms: int | None = None
    ) -> dict[str, Any]:
        """The answer as a dict; its error codes are the caller's to read.

        ``timeout_ms``: of silence, instead of the connection's. Produce goes this way, too: record
        bytes in, error codes out.
        """
        if self._log_in_again is not None:
            self._renew()
        api, version = self._agreed(key)
        body = control.encode_request(api, version, values)
        self._send(api, version, body, self._timeout_ms if timeout_ms is None else timeout_ms)
        cursor = self._answer()
        return control.read_response(cursor, api, version)

    def fetch(self, request: wire.FetchRequest) -> wire.FetchResponse:
        """Record bytes as views into the answer. Waits longer by what the request lets the node."""
        self.send_fetch(request)
        return self.receive_fetch()

    def send_fetch(self, request: wire.FetchRequest) -> None:
        """The node works on it while the caller does something else; then ``receive_fetch``."""
        if self._log_in_again is not None:
            self._renew()
        api, version = self._agreed(registry.FETCH)
        body = wire.encode_request(request, version)
        self._send(api, version, body, self._timeout_ms + request.max_wait_ms)

    def receive_fetch(self, room: Room = bytearray) -> wire.FetchResponse:
        """``room``: gives the bytes for an answer of so many. One that gives the same again spares
        the making of them; what was received there before is then overwritten.
        """
        _, version = self._agreed(registry.FETCH)
        response = wire.read_response(self._answer(room), version)
        self._throttle_ms = response.throttle_ms
        return response

    def fetches_by_id(self) -> bool:
        """Whether a topic is named by its id in a fetch, so that its successor is not mistaken."""
        return self._agreed(registry.FETCH)[1] >= wire.TOPIC_IDS_FROM

    def _agree(self) -> None:
        self._versions = {registry.API_VERSIONS: APIS[registry.API_VERSIONS].version_min}
        answer = self.request(registry.API_VERSIONS, {})
        check(answer["error_code"], self._address)
        self._versions = agreed_versions(answer, APIS)
        self._is_agreed = True

    def _log_in(self, login: ClientLogin) -> None:
        """After any failure the connection is of no use."""
        steps = login.steps(self._address)
        try:
            key, values = next(steps)
            while True:
                key, values = steps.send(self.request(key, values))
        except StopIteration as end:
            if end.value > 0:
                self._log_in_again = time.monotonic() + end.value * RENEW_AT / 1000, login
        except BaseException:
            self.close()
            raise

    def _renew(self) -> None:
        """Logs in again in good time before the session ends (KIP-368)."""
        if self._log_in_again is None:
            return
        due_s, login = self._log_in_again
        if time.monotonic() >= due_s:
            self._log_in_again = None
            self._log_in(login)

    def _agreed(self, key: int) -> tuple[Api, int]:
        version = self._versions.get(key)
        if version is None:
            raise UnsupportedVersion(f"{self._address} does not speak our {APIS[key].name}")
        return APIS[key], version

    def _send(self, api: Api, version: int, body: bytes, timeout_ms: int) -> None:
        if self._awaited is not None:
            raise BrokenInvariant("the last answer has not been received")
        if self._closed:
            raise NodeUnreachable(f"{self._address}: the connection is closed")
        timeout_ms, self._throttle_ms = timeout_ms + self._throttle_ms, 0
        self._correlation_id += 1
        self._awaited = _Awaited(api, version, self._correlation_id, timeout_ms)
        header = encode_request_header(api, version, self._correlation_id, CLIENT_ID)
        try:
            self._sock.settimeout(timeout_ms / 1000)
            self._sock.sendall(frame(header, body))
        except OSError as error:
            self._fail(error, api, timeout_ms)
        except BaseException:
            self.close()
            raise

    def _answer(self, room: Room = bytearray) -> Cursor:
        """The body of the answer to what was sent last."""
        assert self._awaited is not None, "nothing has been asked"
        api, version, correlation_id, timeout_ms = self._awaited
        try:
            head = self._receive(LENGTH_BYTES)
            if not self._is_agreed and (said := stranger(head)) is not None:
                raise MalformedFrame(f"{self._address}: {said}")
            (length,) = _LENGTH.unpack(head)
            if not 0 <= length <= FRAME_BYTES_MAX:
                raise FrameTooLarge(f"{self._address}: an answer of {length} bytes")
            cursor = Cursor(self._receive(length, room))
            found = read_response_header(cursor, api, version)
            if found != correlation_id:
                raise MalformedFrame(f"{self._address}: answer {found}, not {correlation_id}")
        except OSError as error:
            self._fail(error, api, timeout_ms)
        except BaseException:
            self.close()
            raise
        self._awaited = None
        return cursor

    def _receive(self, length: int, room: Room = bytearray) -> memoryview:
        """Straight into the buffer that is handed on: only the kernel copies record bytes."""
        whole = memoryview(room(length))[:length]
        filled = 0
        while filled < length:
            count = self._sock.recv_into(whole[filled:])
            if count == 0:
                raise NodeUnreachable(f"{self._address}: closed the connection")
            filled += count
        return whole.toreadonly()

    def _fail(self, error: OSError, api: Api, timeout_ms: int) -> NoReturn:
        self.close()
        if isinstance(error, TimeoutError):
            text = f"{self._address}: {api.name} after {timeout_ms} ms"
            raise RequestTimedOut(text) from None
        if isinstance(error, ssl.SSLError):
            raise NodeUnreachable(f"{self._address}: TLS: {trouble(error)}") from None
        raise NodeUnreachable(f"{self._address}: {reason(error)}") from None


def _connected(host: str, port: int, timeout_ms: int, tls: ssl.SSLContext | None) -> socket.socket:
    """Tries each address of the host in turn. Raises NodeUnreachable and RequestTimedOut."""
    try:
        sock = socket.create_connection((host, port), timeout_ms / 1000)
    except TimeoutError:
        raise RequestTimedOut(f"{host}:{port}: no connection after {timeout_ms} ms") from None
    except OSError as error:
        raise NodeUnreachable(f"{host}:{port}: {reason(error)}") from None
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock if tls is None else tls.wrap_socket(sock, server_hostname=host)
    except TimeoutError:
        sock.close()
        raise RequestTimedOut(f"{host}:{port}: no TLS after {timeout_ms} ms") from None
    except OSError as error:
        sock.close()
        raise NodeUnreachable(f"{host}:{port}: TLS: {trouble(error)}") from None
