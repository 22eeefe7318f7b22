"""The leaders of all partitions: on this node, or asked for over NATS."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from streamlog.admin.leader import Leader, message_of
from streamlog.admin.messages import MessageQuery, StoredMessage
from streamlog.admin.nodes import Answer, Nodes
from streamlog.admin.partition_state import PartitionState
from streamlog.errors import (
    CorruptData,
    NodeUnreachable,
    NotLeader,
    RequestTimedOut,
    StreamlogError,
)
from streamlog.metadata.image import Image, StreamImage
from streamlog.model import NO_LEADER, NodeId, TopicPartition

STATE_TIMEOUT_S: Final = 1.0
"""A leader that is not heard in this time is left out of a description."""
STATES_AT_ONCE: Final = 500
"""Partitions in one question: the answer stays far below what NATS lets through."""
REQUEST_TIMEOUT_S: Final = 2.0
PATIENCE_S: Final = 4.0
"""How long a request waits for a leader while the next one is elected; clients wait 5 s."""
PAUSE_S: Final = 0.05

T = TypeVar("T")
States = dict[TopicPartition, PartitionState]


class Leaders:
    """Committed records are told by their leader alone: any other node may be behind."""

    def __init__(
        self, node_id: NodeId, leader: Leader, nodes: Nodes, *, image: Callable[[], Image]
    ) -> None:
        self._node_id = node_id
        self._here = leader
        self._nodes = nodes
        self._image = image

    async def states(self, streams: Sequence[StreamImage]) -> States:
        """Of all their partitions but those whose leader does not answer."""
        by_leader: dict[NodeId, list[TopicPartition]] = {}
        for stream in streams:
            for number, partition in enumerate(stream.partitions):
                if partition.leader != NO_LEADER:
                    tp = TopicPartition(stream.name, number)
                    by_leader.setdefault(partition.leader, []).append(tp)
        asked = [
            self._states_at(leader, part)
            for leader, tps in by_leader.items()
            for part in _chunks(tps, STATES_AT_ONCE)
        ]
        states: States = {}
        for found in await asyncio.gather(*asked):
            states |= found
        return states

    async def size_bytes(self) -> int:
        """Of all partitions, each counted once, but those of nodes that do not answer."""
        nodes = [node.node_id for node in self._image().nodes.values() if not node.fenced]
        return sum(await asyncio.gather(*(self._size_at(node_id) for node_id in nodes)))

    async def message(self, stream: str, query: MessageQuery) -> StoredMessage:
        """Of partition 0. Raises Refused if there is none, and NotLeader, NodeUnreachable, ..."""
        tp = TopicPartition(stream, 0)
        fields = {
            "stream": stream,
            "partition": 0,
            "seq": query.sequence,
            "last_by_subj": query.last,
            "next_by_subj": query.following,
        }
        return await self._at_leader(
            tp,
            "MSG",
            fields,
            here=lambda: self._here.message(tp, query),
            decode=message_of,
            repeatable=True,
        )

    async def purge(self, tp: TopicPartition, *, sequence: int, keep: int) -> int:
        """See ``Leader.purge``."""
        fields = {"stream": tp.stream, "partition": tp.partition, "seq": sequence, "keep": keep}
        return await self._at_leader(
            tp,
            "PURGE",
            fields,
            here=lambda: self._here.purge(tp, sequence=sequence, keep=keep),
            decode=lambda answer: int(answer.fields["purged"]),
        )

    async def _at_leader(
        self,
        tp: TopicPartition,
        verb: str,
        fields: dict[str, Any],
        *,
        here: Callable[[], Awaitable[T]],
        decode: Callable[[Answer], T],
        repeatable: bool = False,
    ) -> T:
        """Wherever the leader is; again while nobody leads, or somebody else by now.

        ``repeatable``: also when it is not known whether it was done.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while True:
            leader = self._image().stream(tp.stream).partition(tp.partition).leader
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

    async def _states_at(self, leader: NodeId, tps: Sequence[TopicPartition]) -> States:
        if leader != self._node_id:
            return await states_at(self._nodes, leader, tps)
        try:
            states = await self._here.states(tps)
        except StreamlogError:
            return {}
        return _known(tps, states)

    async def _size_at(self, node_id: NodeId) -> int:
        if node_id == self._node_id:
            return self._here.size_bytes()
        try:
            answer = await self._nodes.ask(node_id, "SIZE", {}, timeout_s=STATE_TIMEOUT_S)
            return _decoded(answer, lambda it: int(it.fields["size_bytes"]))
        except StreamlogError:
            return 0


async def states_at(nodes: Nodes, leader: NodeId, tps: Sequence[TopicPartition]) -> States:
    """Of those partitions that ``leader`` leads; of none if it does not answer."""
    try:
        fields = {"partitions": tps}
        answer = await nodes.ask(leader, "STATE", fields, timeout_s=STATE_TIMEOUT_S)
        return _known(tps, _decoded(answer, _states_of))
    except StreamlogError:
        return {}


def _known(tps: Sequence[TopicPartition], states: Sequence[PartitionState | None]) -> States:
    return {tp: state for tp, state in zip(tps, states, strict=False) if state is not None}


def _states_of(answer: Answer) -> list[PartitionState | None]:
    return [fields and PartitionState.of_json(fields) for fields in answer.fields["states"]]


def _decoded(answer: Answer, decode: Callable[[Answer], T]) -> T:
    try:
        return decode(answer)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptData(f"another node's answer does not decode: {error!r}") from None


def _chunks(items: Sequence[T], size: int) -> list[list[T]]:
    rest = iter(items)
    return list(iter(lambda: list(islice(rest, size)), []))
