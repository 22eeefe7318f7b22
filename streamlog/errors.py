"""The error tree. What each protocol calls an error is decided by the package that speaks it.

::

    StreamlogError
      ConfigError                 a setting is wrong; names the key and the remedy; exit code 2
      InvalidRequest              the caller's fault; asking again will not help
        InvalidStreamName
        InvalidGroupName          a consumer group's name is empty or too long
        InvalidSubject
        InvalidStreamConfig
        StreamExists              the name is taken, with another configuration
        StreamNotFound
        PartitionNotFound
        UnknownTopicId            no stream has this id, or none has it any more
        OffsetOutOfRange          below the log start or above the end
          OffsetMovedToTieredStorage  a replica asks for what its leader has in the object store alone
        DeletionDenied            a stream denies to be purged, or that a message is deleted
        MessageNotFound           there is no such message, or not any more
          MessageNotStored        no message has this sequence yet
          MessageErased           it was deleted by itself, or compacted away
        RecordTooLarge
        InvalidRecord             a producer's batch is not what it may be
            RecordsWithoutKey     ... for records of it that have no key
        InvalidTimestamp          a record claims a time far ahead of ours
        InvalidRequiredAcks       a producer wants acknowledgements that there are none of
        ProducerRefused
          OutOfOrderSequence      a producer's batch does not follow its last one
          InvalidProducerEpoch    the producer's epoch is older than one that has written
          UnknownProducer         the producer wrote to a cluster of which this one has been made
        InvalidTransactionState   a batch or a marker is of no transaction that is open
        CoordinatorFenced         a later transaction coordinator has spoken for the producer
        NoTransactions            transactions are not to be had here
        NotAuthorized             the client may not do it
          TopicForbidden
          GroupForbidden
          TransactionalIdForbidden
          ClusterForbidden
        FencedLeaderEpoch         the caller's epoch is older than ours
        StalePartition            the caller's view of a partition is not the current one
        StaleNode                 the caller is not the node's present incarnation
        StaleReplica              the caller's replica has been moved away since
        NodeNotFound
        NodeIdTaken               another process of this id is alive
        OtherCluster              the node asked belongs to another cluster
        GroupNotFound             there is no consumer group of that name
        TransactionNotFound       no producer has had that transactional id, or it was forgotten
        NoOpenTransaction         nothing is left to be aborted
        AuthenticationFailed      the client has not proved who it is
        UnsupportedMechanism      the SASL mechanism is not on offer
        StreamStandsStill         a stream is sealed, read-only or paused
        StreamFull                a limit of a stream with ``discard=new`` is reached
        GroupNotEmpty             a consumer group has members, and must not have any for this
          GroupSubscribed         its members read the stream
        InvalidChannelConfig      a ledger channel cannot be configured so
        StaleConfiguration        a configuration does not follow the one in force
        InvalidSignature          no signature of anybody who may, where one is demanded
        ChannelNotFound           no ledger channel of that name is served, or kept, here
        OtherChannel              a stream or folder is another ledger channel's
        StreamLost                a channel's stream is gone, or what was not yet ordered of it
        ObjectExists              an object store has an object of that name, and it is another one
      Unavailable                 asking again later may help (``retriable``)
        NotLeader                 this node does not lead the partition
          NotCoordinator          this node does not coordinate the consumer group
          CoordinatorLoading      the group's coordinator has yet to read what there is of it
          CoordinatorUnavailable  the group's coordinator cannot write just now
        UnknownLeaderEpoch        the caller's epoch is newer than ours
        UnknownReplica            the caller's replica was assigned later than we have heard
        ReplicaInSync             the caller's replica counts by what it must not give up yet
        InconsistentTopicId       the log here is still, or yet, another stream's of that name
        Overloaded                a named limit is reached
        StorageFull               no room on the disk; nothing of the append was kept
        StorageFailed             the disk failed; the partition is offline until a restart
          EncryptionKeyMissing    records are encrypted by a key that this process has not
        NotEnoughReplicas         fewer in-sync replicas than ``min_isr``; nothing was stored
        NotEnoughReplicasAfterAppend  the same, but what was stored may yet be committed
        OffsetNotAvailable        a new leader does not know yet what is committed
        NoController              no node is known to decide for the cluster just now
        NodeUnreachable           no connection to a node, or it broke
          NotLetIn                the node does not believe that this one is of its cluster
        ObjectStoreUnavailable    the object store does not answer, or with an error that may pass
          ObjectStoreDenied       it refuses the credentials of this node, or it lacks the bucket
        BlockNotReady             a ledger's block is yet to be cut
        ChannelNotReady           a ledger's channel does not order just now
        RequestTimedOut
      PartlyDone                  an operation failed half way; says what was done
      FeatureLevelUnknown         the metadata was written by a later streamlog
      CorruptData                 bytes on disk or wire are not what was written
        CorruptBatch
          UncompressedTooLarge    a batch decompresses to more than is allowed
        CorruptFile               an index, a checkpoint or another small file
        CorruptObject             an object of the object store
          ObjectNotFound          it is not in the store, although a manifest names it
        CorruptBlock              a ledger's block
        BrokenChain               a whole block is not the next one of its chain
      ProtocolViolation           a peer broke the protocol; its connection is closed
        MalformedFrame
        FrameTooLarge
        UnsupportedVersion
        LoginRequired             a request from whom nothing is known, or not any more
        TlsFailed                 no handshake, or no trust, or bytes that are not TLS
"""

from collections.abc import Sequence


class StreamlogError(Exception):
    """Anything that streamlog raises on purpose. ``retriable``: the same call may succeed later."""

    retriable = False


class BrokenInvariant(AssertionError):
    """What the code relies on does not hold: a fault of streamlog, so no StreamlogError.

    Raised, and not asserted, because ``python -O`` drops assertions: a node that goes on with a
    broken invariant may lose records.
    """


class ConfigError(StreamlogError):
    """A setting is wrong. The text is one line: the key, what is wrong with it, the remedy."""

    def __init__(self, key: str, problem: str, remedy: str) -> None:
        super().__init__(f"{key}: {problem}; {remedy}")
        self.more: tuple[ConfigError, ...] = ()
        """Others that were found at the same time."""
        self.key = key
        self.problem = problem
        self.remedy = remedy


class InvalidRequest(StreamlogError):
    """The caller asked for something that cannot be."""


class InvalidStreamName(InvalidRequest):
    """A stream name is empty, too long, reserved, or has a character that it may not have."""


class InvalidGroupName(InvalidRequest):
    """A consumer group's name is empty or too long."""


class InvalidSubject(InvalidRequest):
    """A NATS subject breaks the rules of subjects, or overlaps one that is not ours to take."""


class InvalidStreamConfig(InvalidRequest):
    """A stream's setting is out of its range, contradicts another, or cannot be changed."""


class StreamExists(InvalidRequest):
    """The stream is there already, with another configuration."""


class StreamNotFound(InvalidRequest):
    """There is no stream of that name."""


class StreamStandsStill(InvalidRequest):
    """The stream is sealed, read-only or paused: it takes no records."""


class PartitionNotFound(InvalidRequest):
    """The stream has no partition of that number, or not on this node."""


class UnknownTopicId(InvalidRequest):
    """No stream has this id: there never was one, or it is gone and another may have its name."""


class OffsetOutOfRange(InvalidRequest):
    """The offset is below the log start offset or above the log end offset."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside [{log_start_offset}, {log_end_offset}]")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class OffsetMovedToTieredStorage(OffsetOutOfRange):
    """A replica asks for what its leader has in the object store alone: it begins at the leader's local log start."""


class DeletionDenied(InvalidRequest):
    """The stream is set to keep messages: no request purges it, or deletes one."""


class MessageNotFound(InvalidRequest):
    """The stream has no such message, or has it no longer."""


class MessageNotStored(MessageNotFound):
    """No message has this sequence yet."""


class MessageErased(MessageNotFound):
    """The message was deleted by itself, or compacted away."""


class RecordTooLarge(InvalidRequest):
    """A record or batch is larger than the stream's limit."""


class InvalidRecord(InvalidRequest):
    """A batch is whole, but not one that a producer may send."""


class RecordsWithoutKey(InvalidRecord):
    """Records of a batch for a compacted topic, of which each must have a key; nothing of it was stored."""

    def __init__(self, count: int, places: Sequence[int]) -> None:
        """``places``: in the batch, of the first of them."""
        self.places = places
        shown = ", ".join(map(str, places[:3])) + (", …" if count > 3 else "")
        text = f"record {shown} has" if count == 1 else f"{count} records ({shown}) have"
        super().__init__(f"{text} no key, and the topic is compacted: the batch is refused")


class InvalidTimestamp(InvalidRequest):
    """A record's time is so far ahead that no retention by age would ever end it."""


class InvalidRequiredAcks(InvalidRequest):
    """A producer's ``acks`` is neither 0, 1 nor -1, which stands for all."""


class ProducerRefused(InvalidRequest):
    """A numbered batch that is not the next one of its producer; nothing was stored (KIP-98)."""

    def __init__(self, text: str, first_offset: int = -1) -> None:
        super().__init__(text)
        self.first_offset = first_offset
        """Of the producer's first batch that is known of; -1: not told."""


class OutOfOrderSequence(ProducerRefused):
    """A producer's batch does not follow the last one of it."""


class InvalidProducerEpoch(ProducerRefused):
    """A newer epoch of the same producer has written already."""


class UnknownProducer(ProducerRefused):
    """A producer of a cluster that is lost goes on, and what it wrote before is not here."""


class InvalidTransactionState(InvalidRequest):
    """A batch does not belong to its producer's transaction, or to one that its coordinator knows."""


class CoordinatorFenced(InvalidRequest):
    """A transaction's end comes from a coordinator that another one has followed since."""


class NoTransactions(InvalidRequest):
    """A producer wants a transaction, which there are none of."""


class NotAuthorized(InvalidRequest):
    """The client may not do this, and is not told more."""


class TopicForbidden(NotAuthorized):
    """Of a stream that he may know of."""


class GroupForbidden(NotAuthorized):
    """Of a consumer group, whether there is one of that name or not."""


class TransactionalIdForbidden(NotAuthorized):
    """The client may not have transactions under that id."""


class ClusterForbidden(NotAuthorized):
    """Of the cluster as a whole, or of what only its nodes ask of each other."""


class FencedLeaderEpoch(InvalidRequest):
    """The caller's leader epoch is older than the partition's."""


class StalePartition(InvalidRequest):
    """A change was proposed for a state of the partition that is not the current one."""


class StaleNode(InvalidRequest):
    """Another incarnation of the node has registered; this process must not go on."""


class StaleReplica(InvalidRequest):
    """The replica was moved away since, perhaps back as well: what it has does not count."""


class NodeNotFound(InvalidRequest):
    """The cluster has no node of that id."""


class NodeIdTaken(InvalidRequest):
    """A node of this id, with another folder, is alive; two must never run."""


class OtherCluster(InvalidRequest):
    """Two nodes talk that belong to different clusters; nothing was taken in."""


class GroupNotFound(InvalidRequest):
    """There is no consumer group of that name, and nothing was ever committed for it."""


class TransactionNotFound(InvalidRequest):
    """There is no such transactional id, or none any more."""


class NoOpenTransaction(InvalidRequest):
    """The transactional id has no open transaction, or its end is decided."""


class AuthenticationFailed(InvalidRequest):
    """The client is not told which: an unknown user, a wrong password, an invalid token."""


class UnsupportedMechanism(InvalidRequest):
    """The other side does not offer this SASL mechanism."""


class InvalidRecordState(InvalidRequest):
    """A member of a share group acknowledges a record that it does not have, or not any more."""


class FencedShareState(InvalidRequest):
    """The state of a share partition belongs to another leader by now, or was altered or deleted."""


class GroupNotEmpty(InvalidRequest):
    """A consumer group has members; what was asked for is theirs, or needs them gone."""


class GroupSubscribed(GroupNotEmpty):
    """Members of a consumer group read the stream."""


class InvalidChannelConfig(InvalidRequest):
    """A ledger channel's configuration cannot be read, or may not be what it says."""


class StaleConfiguration(InvalidRequest):
    """A channel's configuration does not follow the one in force: another one came before it."""


class InvalidSignature(InvalidRequest):
    """A record is not signed by anybody whose signature the channel demands."""


class ChannelNotFound(InvalidRequest):
    """There is no ledger channel of that name here."""


class OtherChannel(InvalidRequest):
    """A stream or a folder is another ledger channel's."""


class StreamLost(InvalidRequest):
    """A ledger channel's stream is gone, or has lost records that were not ordered yet."""


class StreamFull(InvalidRequest):
    """The stream has as much as it may, and nothing goes for what comes. Nothing was stored, and
    nothing will be for asking again: retention by age or a purge has to make room first.
    """


class ObjectExists(InvalidRequest):
    """The object store has an object of that name already, with another content."""


class Unavailable(StreamlogError):
    """Not now; the same call may succeed later."""

    retriable = True


class NotLeader(Unavailable):
    """This node does not lead the partition."""


class NotCoordinator(NotLeader):
    """This node does not coordinate the consumer group."""


class CoordinatorLoading(NotLeader):
    """The coordinator of a consumer group has yet to read what the one before has left."""


class CoordinatorUnavailable(NotLeader):
    """A consumer group has no coordinator, or one that can write nothing just now."""


class UnknownLeaderEpoch(Unavailable):
    """The caller's leader epoch is newer than any this node has heard of."""


class UnknownReplica(Unavailable):
    """The replica was assigned later than this node has heard of."""


class ReplicaInSync(Unavailable):
    """The replica is in sync, or may be soon, by records that it cannot read any more."""


class InconsistentTopicId(Unavailable):
    """A stream was created again, and this node still has the data of the old one (KIP-516)."""


class Overloaded(Unavailable):
    """A named limit is reached; what was asked for has not been done."""


class StorageFull(Unavailable):
    """The disk has no room. Nothing of the append was kept."""


class StorageFailed(Unavailable):
    """The disk failed; what was not yet synced is in doubt, so the partition stays offline."""


class EncryptionKeyMissing(StorageFailed):
    """Records are encrypted, or are to be, by a key that this process was not given."""

    remedy = "give this node the key, and start it again; docs/encryption.md"


class NotEnoughReplicas(Unavailable):
    """Fewer in-sync replicas than the stream's ``min_isr``. Nothing was stored."""


class NotEnoughReplicasAfterAppend(Unavailable):
    """Fewer in-sync replicas than ``min_isr`` by now. What was stored may yet be committed."""


class OffsetNotAvailable(Unavailable):
    """The leader is new: what is committed shows when its followers have fetched."""


class NoController(Unavailable):
    """The metadata quorum has no leader that this node can reach."""


class NodeUnreachable(Unavailable):
    """A node cannot be reached, or its connection broke."""

    refused = False
    """Its address refuses connections: no process listens there."""
    is_timeout = False
    """Nothing came back in time: on the same machine, from a process that hangs."""


class NotLetIn(NodeUnreachable):
    """A node does not take this one's login. It may later on: passwords change node by node."""


class ObjectStoreUnavailable(Unavailable):
    """The object store of tiered storage does not answer, or with an error that may pass."""

    remedy = "see whether the store (tier.url) is reachable from here; docs/tiered-storage.md"


class CatalogUnavailable(Unavailable):
    """The catalog of Iceberg tables, or the store of a table, does not answer."""

    remedy = "see whether the catalog and the table's store are reachable from here; docs/lake.md"


class ObjectStoreDenied(ObjectStoreUnavailable):
    """The object store refuses this node's credentials, or it has no such bucket."""

    remedy = "check the bucket (tier.url) and the credentials here; docs/tiered-storage.md"


class BlockNotReady(Unavailable):
    """A ledger's block is yet to be cut."""


class ChannelNotReady(Unavailable):
    """A ledger's channel starts, has halted, or stops."""


class RequestTimedOut(Unavailable):
    """No answer in the time allowed. Whether it was done is unknown."""


class PartlyDone(StreamlogError):
    """An operation on several things failed half way. The text says what was done."""


class FeatureLevelUnknown(StreamlogError):
    """The metadata is of a feature level that this streamlog does not know."""


class CorruptData(StreamlogError):
    """Bytes are not what was written."""


class CorruptBatch(CorruptData):
    """A record batch has a wrong magic, length, checksum or content."""


class UncompressedTooLarge(CorruptBatch):
    """A batch decompresses to more bytes than is allowed."""


class CorruptFile(CorruptData):
    """An index, a checkpoint or another small file cannot be read."""


class CorruptObject(CorruptData):
    """An object of the object store is not what was put there."""

    remedy = "restore the object from a version or a copy of the bucket; docs/tiered-storage.md"


class ObjectNotFound(CorruptObject):
    """The object store does not have an object that it should have."""


class CorruptBlock(CorruptData):
    """A ledger's block has a wrong header, length, hash or record."""


class BrokenChain(CorruptData):
    """A ledger's block is whole, but not the next one of its chain."""


class ProtocolViolation(StreamlogError):
    """A peer broke the protocol; its connection is closed."""


class MalformedFrame(ProtocolViolation):
    """A frame does not decode."""


class FrameTooLarge(ProtocolViolation):
    """A frame announces more bytes than the limit allows."""


class UnsupportedVersion(ProtocolViolation):
    """An API key, or a version of it, that this node does not speak."""


class LoginRequired(ProtocolViolation):
    """A request before a login, or after the end of the session that a login began."""


class TlsFailed(ProtocolViolation):
    """There is no safe connection to be had; the text says whose certificate, or what else."""
