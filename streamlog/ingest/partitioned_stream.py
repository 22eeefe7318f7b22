"""One stream whose messages all come by the same subjects, and are spread over its partitions.

Every node that leads one of them hears all messages, and takes its own. What cannot be stored is
refused by exactly one: a partition's leader that may not store yet, or not at the moment, says so
itself; for partitions without a leader, the leader of the lowest one that is led does. A message of a client
of this node's port takes the link to that leader; while there is no link this node refuses it.
"""

from collections.abc import Callable, Mapping, Sequence, Set

from streamlog.ingest.admission.refusal import NOT_LEADER
from streamlog.ingest.frames import Partitioner, RecordCollector
from streamlog.ingest.liftbridge.translate import (
    EnvelopeTranslator,
    TranslatedEnvelope,
    envelope_key,
)
from streamlog.ingest.nats.subscription_list import SubjectFilter
from streamlog.ingest.partition_ingest import NO_REPLIES, PartitionIngest
from streamlog.ingest.pub_ack_format import Replies
from streamlog.ingest.pub_acks import NS_PER_MS, PubAcks
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId, TopicPartition

_VALUE_BYTES_MAX = 2**62
"""Nothing is too large to be refused for another reason."""


class Refuser:
    """Takes what no partition here may store, and says so."""

    def __init__(self, stream: str, answers: PubAcks) -> None:
        self.answering = True
        self.patterns: Sequence[str] = ()
        self.inflow = RecordCollector(
            message_bytes_max=_VALUE_BYTES_MAX, open_envelope=self._open, owner=self
        )
        self._stream = stream
        self._opener = EnvelopeTranslator(stream)
        self._answers = answers

    def take(self) -> None:
        """Refuse what the last read gathered."""
        inflow = self.inflow
        for reply in inflow.take_oversize():
            self._answers.refuse_one(self._stream, self._heard(reply), NOT_LEADER)
        count, reply_count, enveloped = inflow.run.count, inflow.reply_count, inflow.enveloped
        inflow.run.clear()
        packed = inflow.take_replies()
        replies = Replies(packed, reply_count, enveloped) if self.answering else NO_REPLIES
        if count:
            self._answers.refuse(self._stream, replies, count, NOT_LEADER)

    def _open(
        self, payload: bytes, block: bytes, subject: bytes, reply: bytes
    ) -> TranslatedEnvelope | None:
        return self._opener.open(
            payload, block, subject, reply, patterns=self.patterns, now_ns=NS_PER_MS
        )

    def _heard(self, reply: bytes) -> bytes:
        return reply if self.answering else b""


class PartitionedStream:
    """Of one stream, on one node. ``follow`` an image, and ``share`` whenever a partition ingest changes."""

    def __init__(self, stream: str, *, node_id: NodeId, answers: PubAcks) -> None:
        self.target = Partitioner(envelope_key=envelope_key)
        self.sources: tuple[SubjectFilter, ...] = ()
        """To be listened to."""
        self.sids: tuple[int, ...] = ()
        self._stream = stream
        self._node_id = node_id
        self._refuser = Refuser(stream, answers)
        self._leaders: list[NodeId] = []
        self._answered: set[tuple[int, int]] = set()
        """Partitions for which this node answers, with their leader epochs."""

    def follow(self, stream: StreamImage, mark: Callable[[], int]) -> None:
        """``mark``: of the router. Where this node begins to answer for a partition, its former leader may have
        stored what still comes from before: of that nothing is refused.
        """
        config = stream.config
        self.sources = tuple(SubjectFilter(subject, None) for subject in config.subjects)
        self.target.tokens = config.partition_tokens
        self._refuser.answering = not config.no_ack
        self._refuser.patterns = config.subjects
        self._leaders = [partition.leader for partition in stream.partitions]
        answered = {
            (number, partition.leader_epoch)
            for number, partition in enumerate(stream.partitions)
            if self._answering(partition.leader) == self._node_id
        }
        if not answered <= self._answered:
            self._refuser.inflow.from_mark = mark()
        self._answered = answered

    def share(
        self,
        ingests: Mapping[TopicPartition, PartitionIngest],
        *,
        may_store: bool,
        linked: Set[NodeId] | None = None,
    ) -> None:
        """Have each message go where it belongs now. ``linked``: nodes that this node's clients reach; None:
        all.
        """
        refused = self._refuser.inflow
        shared: list[RecordCollector | None] = []
        for number, leader in enumerate(self._leaders):
            if leader == self._node_id:
                ingest = ingests.get(TopicPartition(self._stream, number))
                open_here = may_store and ingest is not None and ingest.opened and not ingest.closed
                shared.append(ingest.inflow if ingest is not None and open_here else refused)
            elif self._answering(leader) == self._node_id:
                shared.append(refused)
            else:
                shared.append(None)
        answering = map(self._answering, self._leaders)
        own = [
            refused if it is None and linked is not None and node_id not in linked else it
            for it, node_id in zip(shared, answering, strict=True)
        ]
        self.target.share(shared, own)

    def _answering(self, leader: NodeId) -> NodeId:
        """The node that answers for a partition of this leader."""
        if leader != NO_LEADER:
            return leader
        return next((it for it in self._leaders if it != NO_LEADER), NO_LEADER)


def moves_keys(old: StreamImage, new: StreamImage) -> bool:
    """From now on some messages go to other partitions than before. Their ids stay where they were
    first stored, so a retry of an older message may be stored again.
    """
    before, now = old.config, new.config
    routed = before.is_spread or now.is_spread
    same = before.partition_by == now.partition_by
    return routed and not (same and len(old.partitions) == len(new.partitions))


def is_spread_here(config: StreamConfig, leaders: Sequence[NodeId], node_id: NodeId) -> bool:
    """This node hears all of the stream's messages."""
    return config.is_spread and node_id in leaders
