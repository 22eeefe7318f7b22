"""Members of Kafka's consumer groups, as clients: of the consumer protocol (KIP-848), and of the classic one.

Both give up what they have before they say so, and abandon it when they are told that they are members no more. What
they commit names who they are, in the metadata that is kept with the offset.
"""

import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple
from uuid import UUID

from streamlog.errors import StreamlogError
from streamlog.model import TopicPartition
from streamlog.wire import registry
from streamlog.wire.consumer_protocol import read_assignment, write_assignment
from streamlog.wire.cursor import encode_array_length, encode_bytes, encode_string
from streamlog.wire.error_codes import ErrorCode
from tests.simulation.cluster.kafka_client import (
    COORDINATOR_MOVES,
    GROUP,
    KafkaClient,
    Refused,
    Unanswered,
    check,
)

JOINING: Final = 0
LEAVING: Final = -1
REBALANCE_MS: Final = 2_000
SESSION_MS: Final = 1_500
PROTOCOL: Final = "range"
FENCED: Final = frozenset(
    {
        ErrorCode.unknown_member_id,
        ErrorCode.fenced_member_epoch,
        ErrorCode.stale_member_epoch,
        ErrorCode.illegal_generation,
        ErrorCode.fenced_instance_id,
        ErrorCode.group_id_not_found,
    }
)


class NoMember(StreamlogError):
    """It is a member no more: what it had is another's."""


class Mark(NamedTuple):
    """Who commits: in the metadata of an offset."""

    member_id: str
    epoch: int
    """Or generation."""
    number: int
    """Of its commits."""

    def __str__(self) -> str:
        return f"{self.member_id} {self.epoch} {self.number}"

    @classmethod
    def read(cls, text: str) -> "Mark":
        member_id, epoch, number = text.split(" ")
        return cls(member_id, int(epoch), int(number))


class GroupMember:
    """One life of a member. ``beat`` it again and again; ``owned`` is what it may consume."""

    def __init__(
        self,
        client: KafkaClient,
        group: str,
        topic: str,
        rng: random.Random,
        *,
        instance_id: str | None,
    ) -> None:
        self.member_id = ""
        self.epoch = JOINING
        """Or generation."""
        self.owned: set[TopicPartition] = set()
        self.rejoins = False
        """It has joined before, and is to join again."""
        self._client = client
        self._group = group
        self._topic = topic
        self._rng = rng
        self._instance_id = instance_id
        self._commits = 0

    async def beat(self) -> None:
        """Raises Unanswered, Refused: try again; NoMember."""
        raise NotImplementedError

    def may_keep(self, tp: TopicPartition) -> bool:
        """It is to go on with it."""
        return True

    async def leave(self) -> None:
        """Raises Unanswered, Refused."""
        raise NotImplementedError

    async def commit(self, tp: TopicPartition, offset: int) -> tuple[Mark, bool]:
        """Who has committed, and whether it is known to be done. Raises NoMember."""
        mark = self.mark()
        try:
            code = await self._commit(tp, offset, mark)
            self._check(code, "OffsetCommit")
        except (Unanswered, Refused):
            return mark, False
        return mark, True

    async def commit_late(self, tp: TopicPartition, offset: int, mark: Mark) -> None:
        """As a request that has been on its way since it was a member with that mark."""
        with suppress(Unanswered, Refused):
            await self._commit(tp, offset, mark)

    def mark(self) -> Mark:
        """Of its next commit."""
        self._commits += 1
        return Mark(self.member_id, self.epoch, self._commits)

    async def _commit(self, tp: TopicPartition, offset: int, mark: Mark) -> int:
        asked = {
            "group_id": self._group,
            "generation_id_or_member_epoch": mark.epoch,
            "member_id": mark.member_id,
            "group_instance_id": self._instance_id,
            "topics": [
                {
                    "name": tp.stream,
                    "partitions": [
                        {
                            "partition_index": tp.partition,
                            "committed_offset": offset,
                            "committed_metadata": str(mark),
                        }
                    ],
                }
            ],
        }
        answer = await self._ask(registry.OFFSET_COMMIT, 9, asked)
        return int(answer["topics"][0]["partitions"][0]["error_code"])

    async def _ask(self, api: int, version: int, asked: Mapping[str, Any]) -> dict[str, Any]:
        return await self._client.ask_coordinator(GROUP, self._group, api, version, asked)

    def _check(self, code: int, what: str) -> None:
        """Raises Refused, NoMember."""
        if code in COORDINATOR_MOVES:
            self._client.forget_coordinator(GROUP, self._group)
        if code in FENCED:
            self._abandon()
            raise NoMember(f"{what}: {ErrorCode(code).name}")
        check(code, what)

    def _abandon(self) -> None:
        self.owned = set()
        self.epoch = JOINING


class ConsumerMember(GroupMember):
    """Of the consumer protocol: one request, by which it also gives up what it is to give up."""

    def __init__(
        self,
        client: KafkaClient,
        group: str,
        topic: str,
        rng: random.Random,
        *,
        instance_id: str | None,
    ) -> None:
        super().__init__(client, group, topic, rng, instance_id=instance_id)
        self.member_id = f"{rng.getrandbits(64):x}"
        self._target: set[TopicPartition] = set()
        self._says_all = True

    async def beat(self) -> None:
        topic_id = await self._client.topic_id(self._topic)
        joins, says_all = self.epoch == JOINING, self._says_all
        self.owned &= self._target
        asked = {
            "group_id": self._group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self._instance_id,
            "rack_id": None,
            "rebalance_timeout": REBALANCE_MS if says_all or joins else -1,
            "subscribed_topic_names": [self._topic] if says_all or joins else None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": _by_topic(set() if joins else self.owned, topic_id),
        }
        self._says_all = True  # for as long as it is not known that it was heard
        answer = await self._ask(registry.CONSUMER_GROUP_HEARTBEAT, 1, asked)
        self._check(answer["error_code"], "ConsumerGroupHeartbeat")
        self._says_all = False
        self.epoch = answer["member_epoch"]
        if answer["assignment"] is not None:
            self._target = {
                TopicPartition(self._topic, number)
                for it in answer["assignment"]["topic_partitions"]
                for number in it["partitions"]
            }
        self.owned |= self._target

    def may_keep(self, tp: TopicPartition) -> bool:
        return tp in self._target

    async def leave(self) -> None:
        asked = {
            "group_id": self._group,
            "member_id": self.member_id,
            "member_epoch": LEAVING,
            "instance_id": self._instance_id,
            "subscribed_topic_names": None,
            "server_assignor": None,
            "topic_partitions": None,
        }
        self._abandon()
        answer = await self._ask(registry.CONSUMER_GROUP_HEARTBEAT, 1, asked)
        self._check(answer["error_code"], "ConsumerGroupHeartbeat")

    def _abandon(self) -> None:
        super()._abandon()
        self._target, self._says_all = set(), True


class ClassicMember(GroupMember):
    """Of the classic protocol: all give up all, join, and are told by one of them what each has."""

    async def beat(self) -> None:
        if self.epoch == JOINING:
            await self._join()
            return
        asked = {
            "group_id": self._group,
            "generation_id": self.epoch,
            "member_id": self.member_id,
            "group_instance_id": self._instance_id,
        }
        answer = await self._ask(registry.HEARTBEAT, 4, asked)
        if answer["error_code"] == ErrorCode.rebalance_in_progress:
            self.rejoins = True
        else:
            self._check(answer["error_code"], "Heartbeat")

    async def join_again(self) -> None:
        """The others wait for it. Raises as ``beat``."""
        self.rejoins = False
        self._abandon()
        await self._join()

    async def _join(self) -> None:
        asked = {
            "group_id": self._group,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": REBALANCE_MS,
            "member_id": self.member_id,
            "group_instance_id": self._instance_id,
            "protocol_type": "consumer",
            "protocols": [{"name": PROTOCOL, "metadata": _subscription(self._topic)}],
        }
        connection = await self._client.connection(
            await self._client.coordinator(GROUP, self._group)
        )
        try:
            answer = await connection.ask(
                registry.JOIN_GROUP, 9, asked, wait_s=REBALANCE_MS / 1000 + 2
            )
        except Unanswered:
            self._client.forget_coordinator(GROUP, self._group)
            raise
        if answer["error_code"] == ErrorCode.member_id_required:
            self.member_id = answer["member_id"]
            return
        if answer["error_code"] == ErrorCode.unknown_member_id:
            self.member_id = ""
        self._check(answer["error_code"], "JoinGroup")
        self.member_id, generation = answer["member_id"], answer["generation_id"]
        told = self._assigned(answer["members"]) if answer["leader"] == self.member_id else []
        asked = {
            "group_id": self._group,
            "generation_id": generation,
            "member_id": self.member_id,
            "group_instance_id": self._instance_id,
            "protocol_type": "consumer",
            "protocol_name": PROTOCOL,
            "assignments": [] if answer["skip_assignment"] else told,
        }
        answer = await self._ask(registry.SYNC_GROUP, 5, asked)
        self._check(answer["error_code"], "SyncGroup")
        self.epoch = generation
        self.owned = set(read_assignment(answer["assignment"]))

    def _assigned(self, members: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Each partition to one of them."""
        ids = sorted(it["member_id"] for it in members)
        numbers: dict[str, list[int]] = {it: [] for it in ids}
        for tp in self.partitions:
            numbers[self._rng.choice(ids)].append(tp.partition)
        return [
            {"member_id": it, "assignment": write_assignment(0, {self._topic: numbers[it]})}
            for it in ids
        ]

    partitions: tuple[TopicPartition, ...] = ()
    """That are to be assigned."""

    async def leave(self) -> None:
        asked = {
            "group_id": self._group,
            "members": [
                {
                    "member_id": self.member_id,
                    "group_instance_id": self._instance_id,
                    "reason": None,
                }
            ],
        }
        self._abandon()
        answer = await self._ask(registry.LEAVE_GROUP, 5, asked)
        self._check(answer["error_code"], "LeaveGroup")


def _by_topic(owned: set[TopicPartition], topic_id: bytes) -> list[dict[str, Any]]:
    numbers = sorted(it.partition for it in owned)
    return [{"topic_id": UUID(bytes=topic_id), "partitions": numbers}] if numbers else []


def _subscription(topic: str) -> bytes:
    version = b"\0\0"
    return (
        version
        + encode_array_length(1, False)
        + encode_string(topic, False)
        + encode_bytes(b"", False)
    )
