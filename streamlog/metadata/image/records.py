"""What the metadata log holds: one JSON object per record, with a type tag and a version. Pure.

A change is one batch: all of its records or, after a crash, none. A type or version that is not
known here was written by a later streamlog; it is refused, never skipped.
"""

import json
from collections.abc import Iterable
from typing import Annotated, ClassVar, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streamlog.acl.rules import Rule
from streamlog.errors import CorruptData, InvalidRequest
from streamlog.metadata.image.credential import Bytes, Credentials, UserName
from streamlog.metadata.image.quota import Quota
from streamlog.metadata.stream.stream_config import CheckedConfig
from streamlog.model import NodeId
from streamlog.raft.voters import Voter, VoterSet


class MetadataRecord(BaseModel):
    """A fact. ``VERSION`` grows when a reader of the old form would misread the new one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    VERSION: ClassVar[int] = 1
    LEVEL: ClassVar[int] = 1
    """The feature level from which on such a record may be written, see ``feature_level``."""


class FeatureLevelChanged(MetadataRecord):
    """Whatever follows may be of this level. It only grows."""

    level: int


# Nodes


class NodeRegistered(MetadataRecord):
    """A node has started; an incarnation is one run of its process."""

    VERSION: ClassVar[int] = 2

    node_id: NodeId
    incarnation: UUID
    host: str
    port: int
    rack: str | None = None
    directory_id: UUID | None = None
    """Of the data folder; None in records of version 1."""
    epoch: int = -1
    """The node epoch: this record's own offset (-1 stands for that), told in snapshots."""
    fenced: bool = False
    """Registered by a controller: fenced, until the first heartbeat says that it is ready."""


class NodeFenced(MetadataRecord):
    """A fenced node leads nothing, is in sync with nothing new, and is not told to clients."""

    node_id: NodeId
    fenced: bool
    stopping: bool = False
    """The node said goodbye: no heartbeat unfences this registration of it."""


class NodePlaced(MetadataRecord):
    """A registered node shares its machine with others, by the id of the machine's first node."""

    LEVEL: ClassVar[int] = 2

    node_id: NodeId
    machine: NodeId


class NodeDraining(MetadataRecord):
    """A draining node gets no replica, and the ones it has are moved away. Outlives restarts."""

    node_id: NodeId
    draining: bool


class NodeFull(MetadataRecord):
    """A full node has no room on its disk: others that have some lead, and it is not in sync.

    A new registration ends it.
    """

    node_id: NodeId
    full: bool


class NodeUnfit(MetadataRecord):
    """What is wrong with the node (``metadata.nodes.node_condition``); with most of it others lead.

    It stays in sync. A new registration ends it.
    """

    node_id: NodeId
    unfit: tuple[str, ...]


class NodeStamped(MetadataRecord):
    """The data folder of a running node holds this stamp from now on; see ``last_run.Run``.

    A registration stamps the folder with the incarnation.
    """

    node_id: NodeId
    stamp: UUID


class NodeRemoved(MetadataRecord):
    """A node that kept nothing is forgotten."""

    node_id: NodeId


# The quorum


class QuorumLeader(MetadataRecord):
    """The first record of a controller: once committed, so is all before it. Changes nothing."""

    node_id: NodeId


class VoterEntry(BaseModel):
    """One voter; see ``raft.voters.Voter``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    node_id: NodeId
    host: str
    port: int
    directory_id: UUID | None = None


class VotersChanged(MetadataRecord):
    """Who votes from this offset on; in force for Raft when appended, not when committed."""

    voters: tuple[VoterEntry, ...]
    returning: tuple[NodeId, ...] = ()
    """Nodes that were removed because their folder was lost, and vote again, with the one that they
    have now, when the removal is committed and they have caught up.
    """

    @classmethod
    def of(cls, voters: VoterSet, returning: Iterable[NodeId] = ()) -> Self:
        entries = (
            VoterEntry(node_id=it.node_id, host=it.host, port=it.port, directory_id=it.directory_id)
            for _, it in sorted(voters.by_id.items())
        )
        return cls(voters=tuple(entries), returning=tuple(sorted(returning)))

    @property
    def voter_set(self) -> VoterSet:
        return VoterSet.of(
            Voter(it.node_id, it.host, it.port, it.directory_id) for it in self.voters
        )


class MetadataLogBegun(MetadataRecord):
    """Here begins a metadata log whose offsets mean nothing in any other one.

    It is among the first records of a new cluster, of one that is restored from a backup, and of
    one whose quorum was forced. What was decided in another log is not known here, so what must not
    be given twice begins again above all that can have been given there.
    """

    log_id: UUID
    begun_ms: int
    """Wall clock."""
    first_producer_id: int
    """No lower one is given; those below that are in use were given in another log."""
    first_leader_epoch: int = 0
    """No partition has a lower one from here on."""


# Streams


class StreamCreated(MetadataRecord):
    """A stream is there; its partitions follow as PartitionChanged."""

    stream_id: UUID
    config: CheckedConfig
    created_ms: int
    once_clear: bool = False
    """Some of it may have been stored before the stream was encrypted; said by snapshots alone."""
    restored_end: Annotated[int, Field(ge=0, exclude_if=(0).__eq__)] = 0
    """Messages below that offset are those of a snapshot, which another stream had before. Not of feature levels
    before 3."""


class StreamUpdated(MetadataRecord):
    """A stream has another configuration."""

    config: CheckedConfig


class StreamDeleted(MetadataRecord):
    """A stream is gone, and so are its partitions. The id is never used again."""

    name: str
    stream_id: UUID


class LeaderEpochsReserved(MetadataRecord):
    """New partitions begin at leader epoch ``end`` or later: all below may have been used.

    The deletion of a stream reserves those of its partitions by itself. This record keeps the
    number in snapshots, and raises it in a cluster that is restored from a backup.
    """

    end: int


class PartitionChanged(MetadataRecord):
    """The whole state of one partition; ``partition_epoch`` grows with each change."""

    VERSION: ClassVar[int] = 3

    stream: str
    partition: int
    replicas: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: int
    isr: tuple[NodeId, ...]
    partition_epoch: int
    adding: tuple[NodeId, ...] = ()
    """Of ``replicas``: new ones, which a move waits for."""
    removing: tuple[NodeId, ...] = ()
    """Of ``replicas``: those that the move lets go in the end."""
    incarnations: tuple[int, ...] = ()
    """Of each of ``replicas``, told in snapshots. Empty: replicas that were there before keep
    theirs, and this record's own offset is that of the others."""


class TierChanged(MetadataRecord):
    """Which manifest of the object store counts for a partition, and what it comes to; see ``TierImage``."""

    LEVEL: ClassVar[int] = 3

    stream: str
    partition: int
    leader_epoch: int
    manifest_version: int
    log_start_offset: int
    end_offset: int


# Producers


class ProducerIdsAllocated(MetadataRecord):
    """All producer ids below ``end`` belong to some node's block; they are given only once.

    As Kafka's ProducerIdsRecord.
    """

    node_id: NodeId
    """Whose block ends there."""
    end: int


# Clients


class QuotaChanged(MetadataRecord):
    """The whole of what a client may use; one without any limit ends what there was."""

    client_id: str | None
    """None: of each that has none of its own."""
    quota: Quota


class UserChanged(MetadataRecord):
    """All that a user may log in with; one without any credential is gone."""

    name: UserName
    credentials: Credentials


class DecoySecretChosen(MetadataRecord):
    """What credentials are derived from that are shown for users that there are not.

    The same on every node, for ever: else those who are there could be told from those who are not.
    """

    secret: Bytes


# Access


class AccessRuleAdded(MetadataRecord):
    """From now on this rule holds."""

    rule: Rule


class AccessRuleRemoved(MetadataRecord):
    """The rule that says just this holds no longer."""

    rule: Rule


_TYPES: dict[str, type[MetadataRecord]] = {
    kind.__name__: kind
    for kind in (
        FeatureLevelChanged,
        NodeRegistered,
        NodeFenced,
        NodePlaced,
        NodeDraining,
        NodeFull,
        NodeUnfit,
        NodeStamped,
        NodeRemoved,
        QuorumLeader,
        VotersChanged,
        MetadataLogBegun,
        StreamCreated,
        StreamUpdated,
        StreamDeleted,
        LeaderEpochsReserved,
        PartitionChanged,
        TierChanged,
        ProducerIdsAllocated,
        QuotaChanged,
        UserChanged,
        DecoySecretChosen,
        AccessRuleAdded,
        AccessRuleRemoved,
    )
}


def _head(kind: type[MetadataRecord]) -> tuple[bytes, bytes]:
    return b'{"type":"%b"' % kind.__name__.encode(), b'"version":%d' % kind.VERSION


_BY_HEAD = {_head(kind): kind for kind in _TYPES.values()}


def encode_record(record: MetadataRecord) -> bytes:
    """One line of JSON, the tag first so that a person finds it."""
    return b",".join((*_head(type(record)), record.model_dump_json().encode()[1:]))


def decode_record(data: bytes) -> MetadataRecord:
    """The record; CorruptData if it is none, or of a type or version that is not known here."""
    try:
        match data.split(b",", 2):
            case [tag, version, body] if (kind := _BY_HEAD.get((tag, version))) is not None:
                return kind.model_validate_json(b"{" + body)  # as it is written now: one pass
        return _decode_any(data)
    except (ValidationError, InvalidRequest) as error:
        raise CorruptData(f"metadata record {data[:80]!r} does not decode: {error}") from None


def _decode_any(data: bytes) -> MetadataRecord:
    try:
        body = json.loads(data)
        tag, version = body.pop("type"), body.pop("version")
    except (ValueError, AttributeError, KeyError, TypeError):
        raise CorruptData(f"not a metadata record: {data[:80]!r}") from None
    kind = _TYPES.get(tag) if isinstance(tag, str) else None
    if kind is None or not isinstance(version, int) or not 1 <= version <= kind.VERSION:
        raise CorruptData(f"metadata record {tag!r} version {version!r} is not known here")
    return kind.model_validate(body)
