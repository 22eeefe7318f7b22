"""The leaders of all partitions: on this node, or asked for over the socket."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Any, Final, TypeVar
from uuid import UUID

from streamlog.control.leaders.local_leader import (
    LocalLeader,
    StreamPartition,
    message_of,
    passage_of,
)
from streamlog.control.leaders.node_requests import NodeAnswer, NodeRequests
from streamlog.control.leaders.partition_state import LeaderPartitionState, ManifestState
from streamlog.control.messages.message_query import MessageQuery
from streamlog.control.messages.ordered_read import Passage, PassageQuery
from streamlog.control.messages.stored_messages import StoredMessage
from streamlog.control.messages.subject_counts import Part
from streamlog.errors import (
    CorruptData,
    NodeUnreachable,
    NotLeader,
    RequestTimedOut,
    StreamlogError,
    StreamNotFound,
)
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.model import NO_LEADER, NodeId, TopicPartition

STATE_TIMEOUT_S: Final = 1.0
"""A leader that is not heard in this time is left out of a description."""
STATES_AT_ONCE: Final = 500
"""Partitions in one question."""
REQUEST_TIMEOUT_S: Final = 2.0
PATIENCE_S: Final = 4.0
"""How long a request waits for a leader while the next one is elected; clients wait 5 s."""
PAUSE_S: Final = 0.05

T = TypeVar("T")
States = dict[TopicPartition, LeaderPartitionState]


class LeaderRouter:
    """Committed records are told by their leader alone: any other node may be behind."""

    def __init__(
        self,
        node_id: NodeId,
        leader: LocalLeader,
        nodes: NodeRequests,
        *,
        image: Callable[[], MetadataImage],
    ) -> None:
        self._node_id = node_id
        self._here = leader
        self._nodes = nodes
        self._image = image

    async def states(self, streams: Sequence[StreamImage], *, details: bool = False) -> States:
        """Of all their partitions but those whose leader does not answer. ``details``: with the
        offsets that are erased.
        """
        by_leader: dict[NodeId, list[TopicPartition]] = {}
        for stream in streams:
            name = stream.name
            for number, partition in enumerate(stream.partitions):
                leader = partition.leader
                if leader != NO_LEADER:
                    by_leader.setdefault(leader, []).append(TopicPartition(name, number))
        mine = by_leader.pop(self._node_id, ())
        states = _known(mine, await self._here.states(mine, details=details)) if mine else {}
        asked = [
            states_at(self._nodes, leader, part, details=details)
            for leader, tps in by_leader.items()
            for part in _chunks(tps, STATES_AT_ONCE)
        ]
        for found in await asyncio.gather(*asked) if asked else ():
            states |= found
        return states

    async def size_bytes(self) -> int:
        """Of all partitions, each counted once, but those of nodes that do not answer."""
        nodes = [node.node_id for node in self._image().nodes.values() if not node.fenced]
        return sum(await asyncio.gather(*(self._size_at(node_id) for node_id in nodes)))

    async def manifest(self, tp: TopicPartition) -> ManifestState:
        """See ``partition_state.manifest_of``. Raises NotLeader, NodeUnreachable, ..., too."""
        return await self.at_leader(
            tp,
            "MANIFEST",
            _fields(tp),
            here=lambda: self._here.manifest(tp),
            decode=lambda answer: ManifestState.of_json(answer.fields),
            repeatable=True,
        )

    async def message(self, stream: str, query: MessageQuery) -> StoredMessage:
        """Of partition 0. Raises MessageNotFound, NotLeader, NodeUnreachable, ..."""
        tp = TopicPartition(stream, 0)
        if self._image().stream(stream).partition(0).leader == self._node_id:
            try:
                return await self._here.message(tp, query)
            except NotLeader:  # it is about to be another's
                pass
        fields = {"stream": stream, "partition": 0, "query": query._asdict()}
        return await self.at_leader(
            tp,
            "MESSAGE",
            fields,
            here=lambda: self._here.message(tp, query),
            decode=message_of,
            repeatable=True,
        )

    async def passage(self, tp: TopicPartition, query: PassageQuery) -> Passage:
        """See ``ordered_read.read_passage``. Raises NotLeader, NodeUnreachable, ..., too."""
        return await self.at_leader(
            tp,
            "PASSAGE",
            {**_fields(tp), "query": query._asdict()},
            here=lambda: self._here.passage(tp, query),
            decode=passage_of,
            repeatable=True,
        )

    # Acts name the stream by its id, too: another one may have its name by now.

    async def purge(
        self,
        stream: StreamImage,
        number: int,
        *,
        sequence: int = 0,
        keep: int = 0,
        pattern: str = "",
    ) -> int:
        """See ``local_leader.purge``. Raises StreamNotFound where another stream has the name by now."""
        place = StreamPartition.of(stream, number)
        return await self.at_leader(
            place.tp,
            "PURGE",
            {**place.fields(), "seq": sequence, "keep": keep, "filter": pattern},
            here=lambda: self._here.purge(place, sequence=sequence, keep=keep, pattern=pattern),
            decode=lambda answer: int(answer.fields["purged"]),
            stream_id=stream.stream_id,
        )

    async def trim(
        self, stream: StreamImage, number: int, offset: int | None, *, timeout_s: float
    ) -> int:
        """The first offset that the in-sync replicas have, once what is below ``offset`` is gone (None:
        all that is committed). Raises StreamNotFound as ``purge``.
        """
        place = StreamPartition.of(stream, number)
        return await self.at_leader(
            place.tp,
            "TRIM",
            {**place.fields(), "offset": offset, "timeout_s": timeout_s},
            here=lambda: self._here.trim(place, offset, timeout_s=timeout_s),
            decode=lambda answer: int(answer.fields["low_watermark"]),
            stream_id=stream.stream_id,
            repeatable=True,
        )

    async def delete(self, stream: StreamImage, number: int, sequence: int) -> None:
        """See ``local_leader.delete``. Raises StreamNotFound as ``purge``."""
        place = StreamPartition.of(stream, number)
        await self.at_leader(
            place.tp,
            "DELETE",
            {**place.fields(), "seq": sequence},
            here=lambda: self._here.delete(place, sequence),
            decode=lambda _: None,
            stream_id=stream.stream_id,
        )

    async def publish(self, stream: StreamImage, number: int, records: bytes) -> int:
        """The offset of the one record in ``records``, once it is committed. It is not sent twice. See
        ``publication.publish``. Raises StreamNotFound as ``purge``.
        """
        place = StreamPartition.of(stream, number)
        return await self.at_leader(
            place.tp,
            "PUBLISH",
            {**place.fields(), "records": base64.b64encode(records).decode()},
            here=lambda: self._here.publish(place, records),
            decode=lambda answer: int(answer.fields["offset"]),
            stream_id=stream.stream_id,
        )

    async def subjects(self, tp: TopicPartition, pattern: str) -> dict[str, int]:
        """Those that match, with the numbers of their messages. Raises as ``message``."""
        found: dict[str, int] = {}
        cursor: int | None = 0
        while cursor is not None:
            part = await self._subjects_from(tp, pattern, cursor)
            found |= part.totals
            cursor = part.cursor
        return found

    async def _subjects_from(self, tp: TopicPartition, pattern: str, cursor: int) -> Part:
        return await self.at_leader(
            tp,
            "SUBJECTS",
            {**_fields(tp), "filter": pattern, "cursor": cursor},
            here=lambda: self._here.subjects(tp, pattern, cursor),
            decode=lambda answer: Part(**answer.fields),
            repeatable=True,
        )

    async def subject_count(self, tp: TopicPartition) -> int | None:
        """None: it is not known, or no node is there to tell."""
        leader = self._image().stream(tp.stream).partition(tp.partition).leader
        try:
            if leader == self._node_id:
                return await self._here.subject_count(tp)
            if leader == NO_LEADER:
                return None
            answer = await self._nodes.ask(
                leader, "SUBJECTS", _fields(tp), timeout_s=STATE_TIMEOUT_S
            )
            return _decoded(answer, _count_of)
        except StreamlogError:
            return None

    async def at_leader(
        self,
        tp: TopicPartition,
        verb: str,
        fields: dict[str, Any],
        *,
        here: Callable[[], Awaitable[T]],
        decode: Callable[[NodeAnswer], T],
        stream_id: UUID | None = None,
        repeatable: bool = False,
    ) -> T:
        """Wherever the leader is; again while no node leads, or another one by now.

        ``stream_id``: only while the stream of that name has this id. ``repeatable``: also when it is
        not known whether it was done.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while True:
            stream = self._image().stream(tp.stream)
            if stream_id not in (None, stream.stream_id):
                raise StreamNotFound(
                    f"stream {tp.stream!r} is deleted; another one has its name now"
                )
            leader = stream.partition(tp.partition).leader
            try:
                if leader == NO_LEADER:
                    raise NotLeader(f"{tp} has no leader")
                if leader == self._node_id:
                    return await here()
                timeout_s = min(REQUEST_TIMEOUT_S, max(PAUSE_S, deadline - loop.time()))
                answer = await self._nodes.ask(leader, verb, fields, timeout_s=timeout_s)
                return _decoded(answer, decode)
            except (NotLeader, NodeUnreachable, RequestTimedOut) as error:
                gone = not isinstance(error, RequestTimedOut) or repeatable
                if not gone or loop.time() >= deadline:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def _size_at(self, node_id: NodeId) -> int:
        if node_id == self._node_id:
            return self._here.size_bytes()
        try:
            answer = await self._nodes.ask(node_id, "SIZE", {}, timeout_s=STATE_TIMEOUT_S)
            return _decoded(answer, lambda it: int(it.fields["size_bytes"]))
        except StreamlogError:
            return 0


async def states_at(
    nodes: NodeRequests, leader: NodeId, tps: Sequence[TopicPartition], *, details: bool = False
) -> States:
    """Of those partitions that ``leader`` leads; of none if it does not answer."""
    try:
        fields = {"partitions": tps, "details": details}
        answer = await nodes.ask(leader, "STATE", fields, timeout_s=STATE_TIMEOUT_S)
        return _known(tps, _decoded(answer, _states_of))
    except StreamlogError:
        return {}


def _known(tps: Sequence[TopicPartition], states: Sequence[LeaderPartitionState | None]) -> States:
    return {tp: state for tp, state in zip(tps, states, strict=False) if state is not None}


def _states_of(answer: NodeAnswer) -> list[LeaderPartitionState | None]:
    return [fields and LeaderPartitionState.of_json(fields) for fields in answer.fields["states"]]


def _decoded(answer: NodeAnswer, decode: Callable[[NodeAnswer], T]) -> T:
    try:
        return decode(answer)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptData(f"another node's answer does not decode: {error!r}") from None


def _count_of(answer: NodeAnswer) -> int | None:
    count = answer.fields["count"]
    return None if count is None else int(count)


def _fields(tp: TopicPartition) -> dict[str, Any]:
    return {"stream": tp.stream, "partition": tp.partition}


def _chunks(items: Sequence[T], size: int) -> list[list[T]]:
    rest = iter(items)
    return list(iter(lambda: list(islice(rest, size)), []))
