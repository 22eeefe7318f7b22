"""What a node answers about the partitions that it leads, and about no others."""

import base64
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Protocol

from streamlog.admin.errors import BAD_REQUEST, Refused
from streamlog.admin.fields import Fields, number, text
from streamlog.admin.messages import MessageQuery, ReadablePartition, StoredMessage, find_message
from streamlog.admin.nodes import Answer
from streamlog.admin.partition_state import PartitionState, ShownPartition, state_of
from streamlog.errors import NotLeader, PartitionNotFound, StreamlogError
from streamlog.model import TopicPartition


class LedPartition(ReadablePartition, ShownPartition, Protocol):
    """What is needed of ``partition.owner.Partition``."""

    @property
    def is_leader(self) -> bool: ...
    @property
    def high_watermark_known(self) -> bool: ...
    async def purge(self, up_to_offset: int) -> int: ...


class Partitions(Protocol):
    """What is needed of ``partition.registry.Registry``."""

    def partition(self, tp: TopicPartition) -> LedPartition: ...
    def partitions(self) -> Iterator[LedPartition]: ...


class Lease(Protocol):
    """What is needed of ``metadata.lease.Lease``."""

    @property
    def held(self) -> bool: ...

    def add_listener(self, listener: Callable[[bool], None]) -> None: ...


class Leader:
    """Called on the node itself, or by ``answer`` for another node. Raises NotLeader.

    Without the lease another may lead already, so that what is here may be old: nothing is told.
    """

    def __init__(self, partitions: Partitions, lease: Lease | None) -> None:
        self._partitions = partitions
        self._lease = lease
        self._verbs: dict[str, Callable[[Fields], Awaitable[Answer]]] = {
            "STATE": self._state,
            "SIZE": self._size,
            "MSG": self._message,
            "PURGE": self._purge,
        }

    async def answer(self, verb: str, fields: Fields) -> Answer:
        """What another node asks. Raises Refused and errors of streamlog."""
        answer = self._verbs.get(verb)
        if answer is None:
            raise Refused(BAD_REQUEST)
        return await answer(fields)

    async def states(self, tps: Iterable[TopicPartition]) -> list[PartitionState | None]:
        """Of each; None for one that is not led here, or cannot be read."""
        return [await self._state_of(tp) for tp in tps]

    def size_bytes(self) -> int:
        """Of all that is led here."""
        led = (partition for partition in self._partitions.partitions() if partition.is_leader)
        return sum(partition.statistics().size_bytes for partition in led)

    async def message(self, tp: TopicPartition, query: MessageQuery) -> StoredMessage:
        """Raises Refused if there is none."""
        return await find_message(self._informed(tp), query)

    async def purge(self, tp: TopicPartition, *, sequence: int, keep: int) -> int:
        """Drop what is before ``sequence``, or all but the last ``keep``; how many they were."""
        partition = self._informed(tp)
        return await partition.purge(sequence - 1 if sequence else partition.high_watermark - keep)

    def _led(self, tp: TopicPartition) -> LedPartition:
        try:
            partition = self._partitions.partition(tp)
        except PartitionNotFound as error:
            raise NotLeader(str(error)) from None
        if not partition.is_leader or (self._lease is not None and not self._lease.held):
            raise NotLeader(f"{tp} is not led by this node")
        return partition

    def _informed(self, tp: TopicPartition) -> LedPartition:
        """A leader so new that it does not know what is committed is none yet."""
        partition = self._led(tp)
        if not partition.high_watermark_known:
            raise NotLeader(f"what is committed of {tp} is not known yet")
        return partition

    async def _state_of(self, tp: TopicPartition) -> PartitionState | None:
        """One that cannot be read must not hide the others."""
        try:
            return await state_of(self._led(tp))
        except StreamlogError:
            return None

    # For other nodes

    async def _state(self, fields: Fields) -> Answer:
        states = await self.states(TopicPartition(*tp) for tp in fields["partitions"])
        return Answer({"states": [state and state.json() for state in states]})

    async def _size(self, _: Fields) -> Answer:
        return Answer({"size_bytes": self.size_bytes()})

    async def _message(self, fields: Fields) -> Answer:
        found = await self.message(_tp(fields), MessageQuery.of(fields))
        block = base64.b64encode(found.header_block).decode()
        return Answer(
            {
                "subject": found.subject,
                "sequence": found.sequence,
                "timestamp_ms": found.timestamp_ms,
                "header_block": block,
            },
            found.data,
        )

    async def _purge(self, fields: Fields) -> Answer:
        sequence, keep = number(fields, "seq"), number(fields, "keep")
        return Answer({"purged": await self.purge(_tp(fields), sequence=sequence, keep=keep)})


def message_of(answer: Answer) -> StoredMessage:
    """What MSG answers. Raises KeyError, TypeError, ValueError for what is none."""
    fields: dict[str, Any] = dict(answer.fields)
    block = base64.b64decode(fields.pop("header_block"))
    return StoredMessage(**fields, header_block=block, data=answer.data)


def _tp(fields: Fields) -> TopicPartition:
    return TopicPartition(text(fields, "stream"), number(fields, "partition"))
