"""A member of Kafka's share groups (KIP-932), as a client: it hears which partitions it is to fetch from, acquires
records from their leaders, and says what has become of them.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from streamlog.errors import StreamlogError
from streamlog.model import NodeId, TopicPartition
from streamlog.record.batch import batches
from streamlog.record.codec import iter_records
from streamlog.wire import registry
from tests.simulation.cluster.group_members import FENCED
from tests.simulation.cluster.kafka_client import (
    COORDINATOR_MOVES,
    GROUP,
    KafkaClient,
    check,
)
from tests.simulation.cluster.share_checkers import Delivered, ShareLog

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
FETCH_WAIT_MS: Final = 200
NO_SESSION: Final = 0
LEAVING: Final = -1


class Acknowledgement(NamedTuple):
    """Of one record that the member has."""

    offset: int
    type: int
    delivered: Delivered


class _Session:
    """With one node."""

    def __init__(self) -> None:
        self.epoch = NO_SESSION
        self.partitions: set[TopicPartition] = set()


class ShareMember:
    """One life of a member."""

    def __init__(
        self,
        client: KafkaClient,
        group: str,
        topic: str,
        rng: random.Random,
        log_of: Callable[[TopicPartition], ShareLog],
        offsets_of: Callable[[TopicPartition], list[int]],
    ) -> None:
        """``offsets_of``: of all records that are committed."""
        self.member_id = str(UUID(int=rng.getrandbits(128)))
        self.assigned: set[TopicPartition] = set()
        self._epoch = 0
        self._client = client
        self._group = group
        self._topic = topic
        self._rng = rng
        self._log_of = log_of
        self._offsets_of = offsets_of
        self._sessions: dict[NodeId, _Session] = {}
        self._held: dict[TopicPartition, list[Acknowledgement]] = {}
        """Decided, and to be sent."""
        self._again: list[tuple[TopicPartition, Acknowledgement]] = []
        """Confirmed, and to be sent once more."""
        self._latest: dict[tuple[TopicPartition, int], bool] = {}
        """Whether a record was the member's, as far as anybody had heard, when its acknowledgement was sent."""

    async def beat(self) -> None:
        """Raises Unanswered, Refused."""
        joins = self._epoch == 0
        asked = {
            "group_id": self._group,
            "member_id": self.member_id,
            "member_epoch": self._epoch,
            "rack_id": None,
            "subscribed_topic_names": [self._topic] if joins else None,
        }
        answer = await self._client.ask_coordinator(
            GROUP, self._group, registry.SHARE_GROUP_HEARTBEAT, 1, asked
        )
        code = answer["error_code"]
        if code in COORDINATOR_MOVES:
            self._client.forget_coordinator(GROUP, self._group)
        if code in FENCED:
            self._epoch, self.assigned = 0, set()
        check(code, "ShareGroupHeartbeat")
        self._epoch = answer["member_epoch"]
        if answer["assignment"] is not None:
            self.assigned = {
                TopicPartition(self._topic, number)
                for it in answer["assignment"]["topic_partitions"]
                for number in it["partitions"]
            }

    async def leave(self) -> None:
        """Raises Unanswered, Refused."""
        self._epoch = LEAVING
        await self.beat()

    async def turn(self) -> None:
        """Ask each leader once. Raises Unanswered, Refused."""
        by_node: dict[NodeId, set[TopicPartition]] = {}
        for tp in sorted(self.assigned):
            by_node.setdefault(await self._client.leader(tp), set()).add(tp)
        for tp in tuple(self._held):
            if tp not in self.assigned:
                del self._held[tp]  # their locks end by themselves
        for node_id, tps in by_node.items():
            session = self._sessions.setdefault(node_id, _Session())
            acks = {tp: self._held.pop(tp) for tp in sorted(tps) if tp in self._held}
            if acks and (session.epoch == NO_SESSION or not tps <= session.partitions):
                acks = {}  # whoever opens a session has nothing to say of records
            await self._repeat(node_id, session)
            if acks and self._rng.random() < 0.4:
                await self._acknowledge(node_id, session, acks)
                acks = {}
            await self._fetch(node_id, session, tps, acks)

    async def _fetch(
        self,
        node_id: NodeId,
        session: _Session,
        tps: set[TopicPartition],
        acks: Mapping[TopicPartition, list[Acknowledgement]],
    ) -> None:
        topic_id = UUID(bytes=await self._client.topic_id(self._topic))
        fresh = tps - session.partitions if session.epoch else tps
        forgotten = session.partitions - tps if session.epoch else set()
        asked = {
            "group_id": self._group,
            "member_id": self.member_id,
            "share_session_epoch": session.epoch,
            "max_wait": FETCH_WAIT_MS,
            "min_bytes": 1,
            "max_bytes": self._rng.choice((200, 1 << 20)),
            "max_records": self._rng.choice((1, 5, 500)),
            "batch_size": self._rng.choice((1, 100)),
            "topics": _topics(topic_id, fresh | acks.keys(), acks),
            "forgotten_topics_data": [
                {"topic_id": topic_id, "partitions": sorted(it.partition for it in forgotten)}
            ]
            if forgotten
            else [],
        }
        answer = await self._asked(node_id, session, registry.SHARE_FETCH, asked, acks)
        session.partitions = set(tps)
        for tp, found in _partitions(self._topic, answer):
            if tp in acks:
                self._acknowledged(tp, acks[tp], found["acknowledge_error_code"])
            if found["error_code"]:
                self._client.forget_leader(tp)
            self._take(tp, found)

    async def _acknowledge(
        self,
        node_id: NodeId,
        session: _Session,
        acks: Mapping[TopicPartition, list[Acknowledgement]],
    ) -> None:
        topic_id = UUID(bytes=await self._client.topic_id(self._topic))
        asked = {
            "group_id": self._group,
            "member_id": self.member_id,
            "share_session_epoch": session.epoch,
            "topics": _topics(topic_id, acks, acks),
        }
        answer = await self._asked(node_id, session, registry.SHARE_ACKNOWLEDGE, asked, acks)
        for tp, found in _partitions(self._topic, answer):
            if tp in acks:
                self._acknowledged(tp, acks[tp], found["error_code"])

    async def _repeat(self, node_id: NodeId, session: _Session) -> None:
        """One acknowledgement that counts already: it does not count again."""
        if not self._again or session.epoch == NO_SESSION:
            return
        tp, ack = self._again.pop()
        log, offsets = self._log_of(tp), self._offsets_of(tp)
        if tp not in session.partitions or log.may_pass_over(ack.offset, offsets):
            return
        topic_id = UUID(bytes=await self._client.topic_id(self._topic))
        asked = {
            "group_id": self._group,
            "member_id": self.member_id,
            "share_session_epoch": session.epoch,
            "topics": _topics(topic_id, [tp], {tp: [ack]}),
        }
        answer = await self._asked(node_id, session, registry.SHARE_ACKNOWLEDGE, asked, {})
        for place, found in _partitions(self._topic, answer):
            if (
                place == tp
                and not found["error_code"]
                and not log.may_pass_over(ack.offset, offsets)
            ):
                log.confirmed_again(ack.offset)

    async def _asked(
        self,
        node_id: NodeId,
        session: _Session,
        api: int,
        asked: Mapping[str, Any],
        acks: Mapping[TopicPartition, list[Acknowledgement]],
    ) -> dict[str, Any]:
        """Raises Unanswered, Refused; then the session is over."""
        self._latest = {}
        for tp, them in acks.items():
            log = self._log_of(tp)
            for it in them:
                self._latest[tp, it.offset] = log.is_latest(it.offset, it.delivered)
                if it.type in (ACCEPT, REJECT):
                    log.asked(it.offset, it.delivered)
        try:
            answer = await self._client.ask(node_id, api, 1, asked)
            check(answer["error_code"], "a share session")
        except StreamlogError:
            self._sessions[node_id] = _Session()
            for tp in self.assigned:
                self._client.forget_leader(tp)
            raise
        session.epoch += 1
        return answer

    def _acknowledged(self, tp: TopicPartition, acks: Iterable[Acknowledgement], code: int) -> None:
        log = self._log_of(tp)
        for it in acks:
            if it.type in (ACCEPT, REJECT) and not code:
                was_latest = self._latest[tp, it.offset]
                log.confirmed(it.offset, it.delivered, self._offsets_of(tp), was_latest=was_latest)
                if self._rng.random() < 0.1:
                    self._again.append((tp, it))

    def _take(self, tp: TopicPartition, found: Mapping[str, Any]) -> None:
        """What is delivered; it is decided at once what becomes of it."""
        log, rng = self._log_of(tp), self._rng
        data = found["records"] or b""
        there = {it.offset for _, batch in batches(memoryview(data)) for it in iter_records(batch)}
        held = self._held.setdefault(tp, [])
        for part in found["acquired_records"]:
            delivered = Delivered(self.member_id, part["delivery_count"])
            for offset in range(part["first_offset"], part["last_offset"] + 1):
                log.delivered(offset, delivered)
                kind = rng.choices((ACCEPT, RELEASE, REJECT, None), (8, 1, 1, 1))[0]
                if offset not in there:
                    kind = GAP
                if kind is not None:
                    held.append(Acknowledgement(offset, kind, delivered))
        if not held:
            del self._held[tp]


def _topics(
    topic_id: UUID,
    tps: Iterable[TopicPartition],
    acks: Mapping[TopicPartition, list[Acknowledgement]],
) -> list[dict[str, Any]]:
    partitions = [
        {
            "partition_index": tp.partition,
            "acknowledgement_batches": [
                {
                    "first_offset": it.offset,
                    "last_offset": it.offset,
                    "acknowledge_types": [it.type],
                }
                for it in sorted(acks.get(tp, ()))
            ],
        }
        for tp in sorted(tps)
    ]
    return [{"topic_id": topic_id, "partitions": partitions}] if partitions else []


def _partitions(
    topic: str, answer: Mapping[str, Any]
) -> Iterable[tuple[TopicPartition, Mapping[str, Any]]]:
    for it in answer["responses"]:
        for found in it["partitions"]:
            yield TopicPartition(topic, found["partition_index"]), found
