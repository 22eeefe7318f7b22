"""``python -m compatibility.api_versions HOST:PORT``: see the package."""

import socket
import struct
import sys

from compatibility.api_versions.differences import KAFKA_VERSION, Versions, differences
from streamlog.wire import api_messages
from streamlog.wire.cursor import Cursor
from streamlog.wire.header import encode_request_header, read_response_header
from streamlog.wire.registry import API_VERSIONS, APIS

TIMEOUT_S = 10.0
_LENGTH = struct.Struct(">i")


def listed(host: str, port: int) -> dict[int, Versions]:
    """What a node answers to ApiVersions in version 0, which every broker knows. Raises OSError."""
    api = APIS[API_VERSIONS]
    request = encode_request_header(api, 0, 1, "compatibility") + api_messages.encode_request(
        api, 0, {}
    )
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        connection.sendall(_LENGTH.pack(len(request)) + request)
        with connection.makefile("rb") as stream:
            (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
            cursor = Cursor(stream.read(length))
    read_response_header(cursor, api, 0)
    answer = api_messages.read_response(cursor, api, 0)
    return {
        it["api_key"]: Versions(it["min_version"], it["max_version"]) for it in answer["api_keys"]
    }


def main() -> int:
    if len(sys.argv) != 2 or not sys.argv[1].rpartition(":")[2].isdigit():
        print("usage: python -m compatibility.api_versions HOST:PORT", file=sys.stderr)
        return 2
    host, _, port = sys.argv[1].rpartition(":")
    found = differences(listed(host, int(port)), {key: api.name for key, api in APIS.items()})
    print(f"{'key':>3}  {'API':32} {'Kafka ' + KAFKA_VERSION:12} {'here':8} reason")
    for it in found:
        kafka, node = (str(each or "-") for each in (it.kafka, it.node))
        print(f"{it.key:>3}  {it.name:32} {kafka:12} {node:8} {it.reason or 'NONE'}")
    return int(any(not it.reason for it in found))


sys.exit(main())
