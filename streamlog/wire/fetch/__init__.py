"""Fetch, versions 4 to 18, by hand: the request and the response that move all the bytes.

A response is a frame with holes: the record bytes are not here but in segment files.
``encode_response`` gives the bytes before, between and after the holes, so that a shell sends them
in turn. From version 12 on a byte of (no) tagged fields comes after each partition's records.

    v5   the request names the replica's log start, the response the leader's
    v7   fetch sessions (KIP-227): what has not changed since the last request is left out
    v9   the client's leader epoch
    v11  the client's rack; the response's preferred replica (-1: this node)
    v12  the epoch of the last batch fetched; a diverging epoch may come back
    v13  topics have ids instead of names (KIP-516)
    v15  a replica's id goes to a tagged field, with its node epoch (KIP-903)
    v16  the response says where the leaders that it tells of are reached (KIP-951)

Our nodes ask for partitions by topic id, in the newest version: a name may be that of another
stream by the time that the leader reads it. They ask for the metadata log, which has no id, by name
in version 12; its member's folder (KIP-853) travels there as the tagged field that it is from v17
on.
"""

from streamlog.wire.fetch.request import (
    CONSUMER,
    NEW_SESSION,
    NO_SESSION,
    NOT_TOLD,
    SESSIONLESS,
    TOPIC_IDS_FROM,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    TopicIdPartition,
    encode_request,
    next_session_epoch,
    read_request,
    read_request_in_steps,
)
from streamlog.wire.fetch.response import (
    NO_REPLICA,
    NODES_FROM,
    FetchedPartition,
    FetchedRecords,
    FetchedTopic,
    FetchResponse,
    FetchSnapshot,
    encode_response,
    read_response,
)

__all__ = [
    "CONSUMER",
    "NEW_SESSION",
    "NODES_FROM",
    "NOT_TOLD",
    "NO_REPLICA",
    "NO_SESSION",
    "SESSIONLESS",
    "TOPIC_IDS_FROM",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchSnapshot",
    "FetchTopic",
    "FetchedPartition",
    "FetchedRecords",
    "FetchedTopic",
    "TopicIdPartition",
    "encode_request",
    "encode_response",
    "next_session_epoch",
    "read_request",
    "read_request_in_steps",
    "read_response",
]
