"""Ids, offsets, names of mechanisms: the few values that every package shares."""

import re
from typing import Final, Literal, NamedTuple, NewType, get_args
from uuid import UUID

NodeId = NewType("NodeId", int)
"""A node's number, unique in its cluster; at least 1."""

NO_LEADER: Final = NodeId(-1)
NO_EPOCH: Final = -1
NO_INCARNATION: Final = -1
"""Of who keeps no replica of a partition."""

KEY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What a key to encrypted streams may be called."""

ScramName = Literal["SCRAM-SHA-512", "SCRAM-SHA-256"]
Mechanism = Literal[ScramName, "PLAIN", "OAUTHBEARER"]
"""Of SASL, by the names of IANA's registry."""

MECHANISMS: Final[tuple[Mechanism, ...]] = get_args(Mechanism)
"""All that are known; the first is taken where none is named."""


class TopicPartition(NamedTuple):
    """The name of a partition; Kafka's word for it, as a Kafka client sees a stream as a topic."""

    stream: str
    partition: int

    def __str__(self) -> str:
        return f"{self.stream}-{self.partition}"


class LogId(NamedTuple):
    """The identity of one log of a node. A name is used again, and a replica may be moved away and
    back; their logs are different ones.
    """

    tp: TopicPartition
    stream_id: UUID = UUID(int=0)
    incarnation: int = NO_INCARNATION
    """Of the replica: the metadata offset at which it was assigned."""

    def __str__(self) -> str:
        return f"{self.tp} (stream id {self.stream_id}, assigned at {self.incarnation})"


class EpochEnd(NamedTuple):
    """Where a leader epoch ends: the first offset that is *not* of ``epoch`` or an older one."""

    epoch: int
    end_offset: int
