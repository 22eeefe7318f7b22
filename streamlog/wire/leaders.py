"""Who leads, told to who asked another node; in answers to Fetch and Produce (KIP-951)."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from streamlog.wire.cursor import NO_TAGS, Cursor, encode_array_length, encode_string, encode_tags

NODES_TAG: Final = 0
_I32: Final = struct.Struct(">i")
_LEADER: Final = struct.Struct(">ii")


class CurrentLeader(NamedTuple):
    """Of a partition."""

    leader_id: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    """Where one of the leaders told is reached."""

    node_id: int
    host: str
    port: int
    rack: str | None


def encode_leader(leader: CurrentLeader) -> bytes:
    """What a partition's tagged field holds."""
    return _LEADER.pack(*leader) + NO_TAGS


def read_leader(cursor: Cursor) -> CurrentLeader:
    return CurrentLeader(*cursor.unpack(_LEADER))


def encode_nodes(nodes: Sequence[NodeEndpoint]) -> bytes:
    """The tagged fields that end an answer."""
    if not nodes:
        return NO_TAGS
    out = bytearray(encode_array_length(len(nodes), flexible=True))
    for node_id, host, port, rack in nodes:
        out += _I32.pack(node_id) + encode_string(host, flexible=True) + _I32.pack(port)
        out += encode_string(rack, flexible=True) + NO_TAGS
    return encode_tags({NODES_TAG: bytes(out)})


def read_nodes(cursor: Cursor) -> Sequence[NodeEndpoint]:
    """Out of the tagged fields that end an answer."""
    found = cursor.tags().get(NODES_TAG)
    if found is None:
        return ()
    return tuple(_read_node(found) for _ in range(found.array_length(flexible=True)))


def _read_node(cursor: Cursor) -> NodeEndpoint:
    node_id, host, port = cursor.i32(), cursor.string(flexible=True), cursor.i32()
    node = NodeEndpoint(node_id, host, port, cursor.nullable_string(flexible=True))
    cursor.skip_tags()
    return node
