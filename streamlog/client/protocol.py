"""What is said on one connection to a node: frames, versions, the login, and what went wrong. Pure.

Both shells, ``connection`` on an event loop and ``blocking`` without one, have a ``ClientProtocol``
for each socket. It makes the bytes to be sent and reads those received; the shell moves them.
"""

import ssl
import struct
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, NamedTuple

from streamlog.client.addresses import reason
from streamlog.client.security import ClientLogin
from streamlog.errors import (
    FrameTooLarge,
    MalformedFrame,
    NodeUnreachable,
    RequestTimedOut,
    UnsupportedVersion,
)
from streamlog.tls.errors import trouble
from streamlog.wire import api_messages, registry
from streamlog.wire import fetch as wire
from streamlog.wire.cursor import Cursor
from streamlog.wire.errors import check
from streamlog.wire.framing import frame
from streamlog.wire.header import encode_request_header, read_response_header
from streamlog.wire.registry import APIS, Api

CLIENT_ID: Final = "streamlog"
RESPONSE_BYTES_MAX: Final = 1 << 30
RENEW_AT: Final = 0.85
"""The part of a session's lifetime after which the client logs in again (KIP-368)."""
_LENGTH: Final = struct.Struct(">i")
_BY_NAME: Final = APIS[registry.FETCH]._replace(version_max=wire.TOPIC_IDS_FROM - 1)
_SPOKEN: Final = {**APIS, registry.FETCH: _BY_NAME}
_BY_ID: Final = {registry.FETCH: APIS[registry.FETCH]._replace(version_min=wire.TOPIC_IDS_FROM)}
"""A Fetch names topics by their names, unless the caller has their ids."""
_TLS_KINDS: Final = (0x15, 0x16)
"""An alert and a handshake (RFC 8446, section 5.1); the byte after it is TLS's major version."""
_TLS_MAJOR: Final = 3

Steps = Generator[tuple[int, api_messages.Message], dict[str, Any], None]
"""Requests to be sent, each for its answer."""


class Call(NamedTuple):
    """A request, whose answer is read with it."""

    api: Api
    version: int
    correlation_id: int
    frame: bytes
    extra_ms: int
    """The node may take so much longer than the connection's timeout: a long poll, a quota."""


class ClientProtocol:
    """One connection. ``now``: a clock that never goes back, in seconds."""

    def __init__(
        self,
        address: str,
        now: Callable[[], float],
        *,
        client_id: str = CLIENT_ID,
        by_tls: bool = False,
    ) -> None:
        self.address = address
        self._now = now
        self._client_id = client_id
        self._by_tls = by_tls
        self._login: ClientLogin | None = None
        self._login_due_s: float | None = None
        self._correlation_id = 0
        self._versions: Mapping[int, int] = {}  # the highest that both sides speak, by API key
        self._fetch_by_id: int | None = None  # the highest version of Fetch with topic ids
        self._unread: set[int] = set()  # requests whose answers are not awaited
        self._throttle_ms = 0  # the node reads nothing for so long after its last answer
        self._is_agreed = False  # on versions: the other side is a node, or Kafka
        self._is_known = False  # it has answered more than that

    # The beginning

    def open(self, login: ClientLogin | None, *, permissive: bool = False) -> Steps:
        """Versions are agreed, then ``login`` logs in.

        ``permissive``: a node that knows no login is used without one.
        Raises AuthenticationFailed, UnsupportedMechanism.
        """
        self._login = login
        self._versions = {registry.API_VERSIONS: APIS[registry.API_VERSIONS].version_min}
        answer = yield registry.API_VERSIONS, {}
        check(answer["error_code"], self.address)
        self._versions = agreed_versions(answer, _SPOKEN)
        self._fetch_by_id = agreed_versions(answer, _BY_ID).get(registry.FETCH)
        self._is_agreed = True
        if login is not None:
            yield from self._log_in(login, permissive=permissive)

    def renewal(self) -> Steps | None:
        """The next login, if it is due: well before the session ends (KIP-368)."""
        if self._login is None or self._login_due_s is None or self._now() < self._login_due_s:
            return None
        self._login_due_s = None  # one request renews the session for all
        return self._log_in(self._login)

    def _log_in(self, login: ClientLogin, *, permissive: bool = False) -> Steps:
        lifetime_ms = yield from login.steps(self.address, permissive=permissive)
        if lifetime_ms > 0:
            self._login_due_s = self._now() + lifetime_ms * RENEW_AT / 1000

    # Requests

    def request(self, key: int, values: api_messages.Message) -> Call:
        """Raises UnsupportedVersion."""
        api, version = self._agreed(key)
        return self._call(api, version, api_messages.encode_request(api, version, values))

    def fetch(self, request: wire.FetchRequest) -> Call:
        """By the ids of the topics where the request has them, else by their names.

        Raises UnsupportedVersion.
        """
        if request.is_by_id:
            api, version = APIS[registry.FETCH], self._fetch_by_id
            if version is None:
                raise UnsupportedVersion(f"{self.address} does not know topics by their ids")
        else:
            api, version = self._agreed(registry.FETCH)
        body = wire.encode_request(request, version)
        return self._call(api, version, body, extra_ms=request.max_wait_ms)

    def hurry(self) -> Call:
        """A request whose answer is passed over: a node answers a waiting fetch of the same
        connection before it.
        """
        api = APIS[registry.API_VERSIONS]
        call = self._call(
            api, api.version_min, api_messages.encode_request(api, api.version_min, {})
        )
        self._unread.add(call.correlation_id)
        return call

    @property
    def fetches_by_id(self) -> bool:
        """A Fetch may name a topic by its id, so that its successor is not mistaken for it.

        Raises UnsupportedVersion where there is no common version of Fetch.
        """
        if self._fetch_by_id is None:
            self._agreed(registry.FETCH)
        return self._fetch_by_id is not None

    def _agreed(self, key: int) -> tuple[Api, int]:
        version = self._versions.get(key)
        if version is None:
            raise UnsupportedVersion(f"{self.address} does not speak our {APIS[key].name}")
        return APIS[key], version

    def _call(self, api: Api, version: int, body: bytes, *, extra_ms: int = 0) -> Call:
        self._correlation_id += 1
        header = encode_request_header(api, version, self._correlation_id, self._client_id)
        extra_ms, self._throttle_ms = extra_ms + self._throttle_ms, 0
        return Call(api, version, self._correlation_id, frame(header, body), extra_ms)

    # Answers

    def response_bytes(self, head: bytes | memoryview) -> int:
        """The length of the frame that begins with these four bytes.

        Raises MalformedFrame where something other than a node answers; FrameTooLarge.
        """
        if not self._is_agreed and (said := other_protocol(head)) is not None:
            raise MalformedFrame(f"{self.address}: {said}")
        (length,) = _LENGTH.unpack(head)
        if not 0 <= length <= RESPONSE_BYTES_MAX:
            raise FrameTooLarge(f"{self.address}: an answer of {length} bytes")
        return int(length)

    def body(self, call: Call, response: memoryview) -> Cursor | None:
        """The body of the answer to ``call``; None: of one that is passed over, the next is to be
        read. Raises MalformedFrame.
        """
        if self._unread and int.from_bytes(response[:4], "big", signed=True) in self._unread:
            self._unread.remove(int.from_bytes(response[:4], "big", signed=True))
            return None
        cursor = Cursor(response)
        found = read_response_header(cursor, call.api, call.version)
        if found != call.correlation_id:
            raise MalformedFrame(f"{self.address}: answer {found}, not {call.correlation_id}")
        return cursor

    def read(self, call: Call, body: Cursor) -> dict[str, Any]:
        self._is_known = self._is_agreed
        return api_messages.read_response(body, call.api, call.version)

    def read_fetch(self, call: Call, body: Cursor) -> wire.FetchResponse:
        """Record bytes are views into the answer."""
        response = wire.read_response(body, call.version)
        self._throttle_ms = response.throttle_ms
        return response

    # Failures

    def timed_out(self, call: Call, timeout_ms: int) -> RequestTimedOut:
        return RequestTimedOut(f"{self.address}: {call.api.name} after {timeout_ms} ms")

    def failed(self, error: OSError) -> NodeUnreachable:
        if isinstance(error, ssl.SSLError):
            return NodeUnreachable(f"{self.address}: TLS: {trouble(error)}")
        return NodeUnreachable(f"{self.address}: {reason(error)}")

    def closed_here(self) -> NodeUnreachable:
        return NodeUnreachable(f"{self.address}: the connection is closed")

    def closed_by_node(self) -> NodeUnreachable:
        """With what may be the reason: a node without an answer wants TLS, or a login."""
        hint = ""
        if not self._is_agreed and not self._by_tls:
            hint = "; it may want TLS (commands: --tls or --tls-ca)"
        elif self._is_agreed and not self._is_known and self._login is None:
            hint = "; it may want a login (commands: --user and --password-file)"
        return NodeUnreachable(f"{self.address}: closed the connection{hint}")


def agreed_versions(answer: Mapping[str, Any], spoken: Mapping[int, Api]) -> dict[int, int]:
    """The highest that both speak, by API key, out of a node's answer to ApiVersions.

    An API without a common version is left out.
    """
    theirs = {entry["api_key"]: entry for entry in answer["api_keys"]}
    return {
        key: min(api.version_max, theirs[key]["max_version"])
        for key, api in spoken.items()
        if key in theirs
        and theirs[key]["min_version"] <= api.version_max
        and theirs[key]["max_version"] >= api.version_min
    }


def other_protocol(head: bytes | memoryview) -> str | None:
    """What answers there instead of a node, by the four bytes that would be an answer's length;
    None: they are that, or nothing known.
    """
    start = bytes(head[:4])
    if start == b"INFO":
        return "a nats-server answers there; name the port of a node's socket API (kafka.port)"
    if start == b"HTTP":
        return "HTTP is spoken there; name the port of a node's socket API (kafka.port)"
    if start[0] in _TLS_KINDS and start[1] == _TLS_MAJOR:
        return "TLS is spoken there; have this side speak it, too (commands: --tls or --tls-ca)"
    return None
