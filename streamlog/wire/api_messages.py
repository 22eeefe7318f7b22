"""Requests and responses of every API but Fetch, as dicts under the field names of Kafka's schemas, in Python's
spelling (``throttle_time_ms`` is ``throttle_time``, in milliseconds).

Error codes are numbers. A handler writes the answer of the newest version; what an older one does not have
is left out.
"""

from collections.abc import Generator, Mapping
from functools import cache
from typing import Any, Final

from streamlog.errors import UnsupportedVersion
from streamlog.wire.cursor import Cursor
from streamlog.wire.registry import Api
from streamlog.wire.schema_codec import Entity, schemas

Message = Mapping[str, Any]

AT_ONCE_BYTES: Final = 4 * 1024
"""A request that is longer is read in steps."""
ELEMENTS_MAX: Final = 50_000
"""Of all arrays and tagged fields of one request together: each is carried out, or passed over,
which takes its time.
"""


def read_request(cursor: Cursor, api: Api, version: int) -> dict[str, Any]:
    """Raises MalformedFrame, and UnsupportedVersion where there is no schema any more.

    No more than ELEMENTS_MAX are read.
    """
    codec = _request_codec(api, version)
    cursor.limit(ELEMENTS_MAX)
    return codec.read(cursor)


def read_request_in_steps(
    cursor: Cursor, api: Api, version: int
) -> Generator[None, None, dict[str, Any]]:
    """As ``read_request``, of a large request; yields again and again, so that others have their turn."""
    codec = _request_codec(api, version)
    cursor.limit(ELEMENTS_MAX)
    if codec.read_steps is None:
        return codec.read(cursor)
    found: dict[str, Any] = yield from codec.read_steps(cursor)
    return found


@cache
def _request_codec(api: Api, version: int) -> Entity:
    codec = schemas().request(api.key, version)
    if codec is None:
        raise UnsupportedVersion(f"{api.name} version {version} is too old")
    return codec


@cache
def _response_codec(api: Api, version: int) -> Entity:
    codec = schemas().response(api.key, version)
    if codec is None:
        raise UnsupportedVersion(f"{api.name} version {version} is too old")
    return codec


def encode_request(api: Api, version: int, values: Message) -> bytes:
    out = bytearray()
    _request_codec(api, version).write(out, values)
    return bytes(out)


def read_response(cursor: Cursor, api: Api, version: int) -> dict[str, Any]:
    """Raises MalformedFrame."""
    return _response_codec(api, version).read(cursor)


def encode_response_in_steps(
    api: Api, version: int, values: Message
) -> Generator[None, None, bytes]:
    """As ``encode_response``; yields after some items of an array."""
    out = bytearray()
    codec = _response_codec(api, version)
    if codec.write_steps is None:
        codec.write(out, values)
    else:
        yield from codec.write_steps(out, values)
    return bytes(out)


def encode_response(api: Api, version: int, values: Message) -> bytes:
    out = bytearray()
    _response_codec(api, version).write(out, values)
    return bytes(out)
