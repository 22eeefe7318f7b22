"""What a node answers about the partitions that it leads, and about no others."""

import base64
from collections.abc import Iterable
from typing import Any, NamedTuple, Self
from uuid import UUID

from streamlog.control.leaders.node_requests import Fields, NodeAnswer, NodeRequests
from streamlog.control.leaders.partition_state import (
    KnownFacts,
    LeaderPartitionState,
    ManifestState,
    manifest_of,
    state_of,
)
from streamlog.control.messages.message_query import MessageQuery
from streamlog.control.messages.ordered_read import Passage, PassageQuery, read_passage
from streamlog.control.messages.publication import publish
from streamlog.control.messages.purge import ALL, cut, delete, purge
from streamlog.control.messages.stored_messages import StoredMessage, find_message
from streamlog.control.messages.subject_counts import Part, part_of
from streamlog.errors import (
    DeletionDenied,
    NotLeader,
    OffsetOutOfRange,
    PartitionNotFound,
    StreamlogError,
)
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metadata.nodes.lease import Lease
from streamlog.metadata.stream.stream_config import is_internal
from streamlog.metadata.stream.write_state import check_may_be_cut
from streamlog.model import TopicPartition
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager


class StreamPartition(NamedTuple):
    """A partition of the very stream that an act is meant for, whatever else has its name later."""

    tp: TopicPartition
    stream_id: UUID

    @classmethod
    def of(cls, stream: StreamImage, number: int) -> Self:
        return cls(TopicPartition(stream.name, number), stream.stream_id)

    @classmethod
    def of_fields(cls, fields: Fields) -> Self:
        """What ``fields`` has made. Raises KeyError, TypeError, ValueError."""
        return cls(tp_of(fields), UUID(str(fields["stream_id"])))

    def fields(self) -> dict[str, Any]:
        """As it travels to another node."""
        name, number = self.tp
        return {"stream": name, "partition": number, "stream_id": str(self.stream_id)}


class LocalLeader:
    """Called on the node itself, or for another node by what ``register`` names. Raises NotLeader.

    Without the lease another may lead already, so that what is here may be old: nothing is told.
    """

    def __init__(
        self, partitions: ReplicaManager, lease: Lease | None, *, message_bytes_max: int
    ) -> None:
        """``message_bytes_max``: of the node, for streams that have none of their own."""
        self._partitions = partitions
        self._message_bytes_max = message_bytes_max
        self._lease = lease
        self._known = KnownFacts()

    def register(self, nodes: NodeRequests) -> None:
        """Have other nodes' requests answered."""
        nodes.register("STATE", self._state)
        nodes.register("SIZE", self._size)
        nodes.register("MANIFEST", self._manifest)
        nodes.register("MESSAGE", self._message)
        nodes.register("PASSAGE", self._passage)
        nodes.register("PURGE", self._purge)
        nodes.register("TRIM", self._trim)
        nodes.register("DELETE", self._delete)
        nodes.register("PUBLISH", self._publish)
        nodes.register("SUBJECTS", self._subjects)

    async def states(
        self, tps: Iterable[TopicPartition], *, details: bool = False
    ) -> list[LeaderPartitionState | None]:
        """Of each; None for one that is not led here, or cannot be read. ``details``: with the
        offsets that are erased.
        """
        states: list[LeaderPartitionState | None] = []
        for tp in tps:
            try:
                states.append(await state_of(self._led(tp), self._known, details=details))
            except StreamlogError:  # one that cannot be read must not hide the others
                states.append(None)
        return states

    def size_bytes(self) -> int:
        """Of all that is led here, but for the nodes' own streams."""
        return sum(
            it.statistics().size_bytes
            for it in self._partitions.partitions()
            if it.is_leader and not is_internal(it.tp.stream)
        )

    async def manifest(self, tp: TopicPartition) -> ManifestState:
        """See ``partition_state.manifest_of``."""
        return await manifest_of(self.led(tp))

    async def message(self, tp: TopicPartition, query: MessageQuery) -> StoredMessage:
        """Raises MessageNotFound."""
        return await find_message(self.led(tp), query)

    async def passage(self, tp: TopicPartition, query: PassageQuery) -> Passage:
        """See ``ordered_read.read_passage``."""
        return await read_passage(self.led(tp), query)

    async def purge(self, place: StreamPartition, *, sequence: int, keep: int, pattern: str) -> int:
        """See ``messages.purge``."""
        partition = self._cuttable(place)
        if partition.config.deny_purge:
            raise DeletionDenied(f"{place.tp.stream!r} denies to be purged")
        if partition.config.tiered and pattern not in ALL:
            raise DeletionDenied(
                f"{place.tp.stream!r} is tiered: closed segments are in the object store as they are, so it is purged"
                " by sequence alone"
            )
        if partition.config.mirror and pattern:
            raise DeletionDenied(f"{place.tp.stream!r} is a mirror: it is purged by sequence alone")
        await partition.surplus.settle()
        return await purge(partition, sequence=sequence, keep=keep, pattern=pattern)

    async def trim(self, place: StreamPartition, offset: int | None, *, timeout_s: float) -> int:
        """The first offset that the in-sync replicas have. Raises OffsetOutOfRange, RequestTimedOut."""
        partition = self._cuttable(place)
        if partition.config.deny_purge:
            raise DeletionDenied(f"{place.tp.stream!r} denies to be purged")
        end = partition.high_watermark
        upper = end if offset is None else offset
        if not 0 <= upper <= end:
            raise OffsetOutOfRange(upper, partition.log_start_offset, end)
        await cut(partition, upper, timeout_s=timeout_s)
        return partition.log_start_offset

    async def delete(self, place: StreamPartition, sequence: int) -> None:
        """Erase one message. Raises MessageNotFound."""
        partition = self._cuttable(place)
        if partition.config.deny_delete:
            raise DeletionDenied(f"{place.tp.stream!r} denies that messages are deleted")
        if partition.config.tiered:
            raise DeletionDenied(
                f"{place.tp.stream!r} is tiered: closed segments are in the object store as they are, so no single"
                " message is erased"
            )
        if partition.config.mirror:
            raise DeletionDenied(f"{place.tp.stream!r} is a mirror: delete messages at its origin")
        await delete(partition, sequence)

    async def publish(self, place: StreamPartition, records: bytes) -> int:
        """The offset of the one record. See ``publication.publish``."""
        partition = self._leader_of(place)
        return await publish(partition, records, node_bytes_max=self._message_bytes_max)

    async def subjects(self, tp: TopicPartition, pattern: str, cursor: int) -> Part:
        """See ``subjects.part_of``."""
        partition = self.led(tp)
        await partition.surplus.settle()
        return await part_of(partition, pattern, cursor)

    async def subject_count(self, tp: TopicPartition) -> int | None:
        """See ``subjects.count_subjects``."""
        return self._known.subject_count(self.led(tp))

    def readable(self, tp: TopicPartition) -> Partition:
        """Also of a follower that is in sync, which may not know yet what was committed last."""
        try:
            partition = self._partitions.partition(tp)
        except PartitionNotFound as error:
            raise NotLeader(str(error)) from None
        if partition.is_leader:
            return self.led(tp)
        if not partition.may_serve_reads:
            raise NotLeader(f"the replica of {tp} on this node is not in sync")
        return partition

    def _led(self, tp: TopicPartition) -> Partition:
        try:
            partition = self._partitions.partition(tp)
        except PartitionNotFound as error:
            raise NotLeader(str(error)) from None
        if not partition.is_leader or (self._lease is not None and not self._lease.held):
            raise NotLeader(f"{tp} is not led by this node")
        return partition

    def led(self, tp: TopicPartition) -> Partition:
        """Raises NotLeader. A leader so new that it does not know what is committed is none yet."""
        partition = self._led(tp)
        if not partition.high_watermark_known:
            raise NotLeader(f"what is committed of {tp} is not known yet")
        return partition

    def _cuttable(self, place: StreamPartition) -> Partition:
        """Judged again where it is carried out: the caller's node may have been late, or stood still
        meanwhile. Raises NotLeader, StreamStandsStill.
        """
        partition = self._leader_of(place)
        check_may_be_cut(partition.config)
        return partition

    def _leader_of(self, place: StreamPartition) -> Partition:
        """Raises NotLeader, also where the log here is another stream's of that name."""
        partition = self.led(place.tp)
        if (
            partition.topic_id != place.stream_id.bytes
        ):  # one of the two is late: the caller looks again
            raise NotLeader(f"{place.tp} of another stream of that name is here")
        return partition

    # For other nodes

    async def _state(self, fields: Fields) -> NodeAnswer:
        tps = [TopicPartition(*tp) for tp in fields["partitions"]]
        states = await self.states(tps, details=bool(fields.get("details")))
        return NodeAnswer({"states": [state and state.json() for state in states]})

    async def _size(self, _: Fields) -> NodeAnswer:
        return NodeAnswer({"size_bytes": self.size_bytes()})

    async def _manifest(self, fields: Fields) -> NodeAnswer:
        return NodeAnswer((await self.manifest(tp_of(fields)))._asdict())

    async def _message(self, fields: Fields) -> NodeAnswer:
        return answer_of(await self.message(tp_of(fields), MessageQuery(**fields["query"])))

    async def _passage(self, fields: Fields) -> NodeAnswer:
        found = await self.passage(tp_of(fields), PassageQuery(**fields["query"]))
        rows = [{**_fields_of(it), "size": len(it.data)} for it in found.messages]
        return NodeAnswer(
            {**found._asdict(), "messages": rows}, b"".join(it.data for it in found.messages)
        )

    async def _purge(self, fields: Fields) -> NodeAnswer:
        sequence, keep, pattern = int(fields["seq"]), int(fields["keep"]), str(fields["filter"])
        purged = await self.purge(
            StreamPartition.of_fields(fields), sequence=sequence, keep=keep, pattern=pattern
        )
        return NodeAnswer({"purged": purged})

    async def _trim(self, fields: Fields) -> NodeAnswer:
        offset = None if fields["offset"] is None else int(fields["offset"])
        timeout_s = float(fields["timeout_s"])
        return NodeAnswer(
            {
                "low_watermark": await self.trim(
                    StreamPartition.of_fields(fields), offset, timeout_s=timeout_s
                )
            }
        )

    async def _delete(self, fields: Fields) -> NodeAnswer:
        await self.delete(StreamPartition.of_fields(fields), int(fields["seq"]))
        return NodeAnswer({})

    async def _publish(self, fields: Fields) -> NodeAnswer:
        records = base64.b64decode(str(fields["records"]))
        return NodeAnswer(
            {"offset": await self.publish(StreamPartition.of_fields(fields), records)}
        )

    async def _subjects(self, fields: Fields) -> NodeAnswer:
        """Without a filter they are counted alone."""
        pattern = str(fields.get("filter", ""))
        if not pattern:
            return NodeAnswer({"count": await self.subject_count(tp_of(fields))})
        part = await self.subjects(tp_of(fields), pattern, int(fields["cursor"]))
        return NodeAnswer(part._asdict())


def _fields_of(found: StoredMessage) -> dict[str, Any]:
    """All but its data."""
    return {
        "subject": found.subject,
        "sequence": found.sequence,
        "timestamp_ms": found.timestamp_ms,
        "header_block": base64.b64encode(found.header_block).decode(),
        "key": None if found.key is None else base64.b64encode(found.key).decode(),
    }


def answer_of(found: StoredMessage) -> NodeAnswer:
    return NodeAnswer(_fields_of(found), found.data)


def message_of(answer: NodeAnswer) -> StoredMessage:
    """What ``answer_of`` answers. Raises KeyError, TypeError, ValueError for what is none."""
    return _message(answer.fields, answer.data)


def passage_of(answer: NodeAnswer) -> Passage:
    """What PASSAGE answers. Raises as ``message_of``."""
    messages, begin = list[StoredMessage](), 0
    for row in answer.fields["messages"]:
        end = begin + int(row["size"])
        messages.append(_message(row, answer.data[begin:end]))
        begin = end
    return Passage(**{**answer.fields, "messages": messages})


def _message(fields: Fields, data: bytes) -> StoredMessage:
    key = fields["key"]
    return StoredMessage(
        str(fields["subject"]),
        int(fields["sequence"]),
        int(fields["timestamp_ms"]),
        base64.b64decode(fields["header_block"]),
        data,
        None if key is None else base64.b64decode(key),
    )


def tp_of(fields: Fields) -> TopicPartition:
    return TopicPartition(str(fields["stream"]), int(fields["partition"]))
