"""Headers of frames.

A request's header has version 2 (with tagged fields) where its API's version is flexible, else 1; a
response's has version 1 or 0 in the same way. ApiVersions answers with header version 0 always, since a
client that asks does not know yet what the node understands.
"""

import struct
from typing import Final, NamedTuple

from streamlog.errors import MalformedFrame
from streamlog.wire.cursor import Cursor, encode_string
from streamlog.wire.registry import API_VERSIONS, APIS, Api, find_api

CLIENT_ID_CHARS_MAX: Final = 1_000
"""It is remembered for each connection, and for each client that has a quota."""

_REQUEST: Final = struct.Struct(">hhi")
_RESPONSE: Final = struct.Struct(">i")


class RequestHeader(NamedTuple):
    """What a request says about itself."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None

    @property
    def flexible(self) -> bool:
        return self.api.is_flexible(self.version)


def read_request_header(cursor: Cursor) -> RequestHeader:
    """The header; the cursor is left at the body.

    Raises MalformedFrame, and UnsupportedVersion, except for an ApiVersions above ours: that one is
    answered, so its header is returned with the version it has, and its body must not be read.
    """
    key, version, correlation_id = cursor.unpack(_REQUEST)
    if key == API_VERSIONS and version > APIS[API_VERSIONS].version_max:
        return RequestHeader(APIS[API_VERSIONS], version, correlation_id, None)
    api = find_api(key, version)
    client_id = cursor.nullable_string(flexible=False)
    if client_id is not None and len(client_id) > CLIENT_ID_CHARS_MAX:
        raise MalformedFrame(f"a client id of {len(client_id)} characters")
    if version >= api.flexible_from:
        cursor.skip_tags()
    return RequestHeader(api, version, correlation_id, client_id)


def encode_request_header(api: Api, version: int, correlation_id: int, client_id: str) -> bytes:
    tags = b"\x00" if api.is_flexible(version) else b""
    fixed = _REQUEST.pack(api.key, version, correlation_id)
    return fixed + encode_string(client_id, flexible=False) + tags


def encode_response_header(api: Api, version: int, correlation_id: int) -> bytes:
    fixed = _RESPONSE.pack(correlation_id)
    return fixed + b"\x00" if version >= api.flexible_from and api.key != API_VERSIONS else fixed


def read_response_header(cursor: Cursor, api: Api, version: int) -> int:
    """The correlation id; the cursor is left at the body."""
    correlation_id = cursor.i32()
    if api.is_flexible(version) and api.key != API_VERSIONS:
        cursor.skip_tags()
    return correlation_id
