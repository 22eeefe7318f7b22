"""Answers of their own to single messages, which wait for a commit."""

import heapq
from collections.abc import Callable
from typing import Protocol

from streamlog.ingest.acks.in_flight_limit import InFlightBytes
from streamlog.ingest.acks.publisher_answers import PublisherAnswers
from streamlog.ingest.admission.refusal import NOT_LEADER, PublishRefusal

OVERHEAD_BYTES = 64
"""What one that waits costs beside its reply subject and answer."""


class WatchedPartition(Protocol):
    """What is needed of ``partition.partition.Partition``."""

    @property
    def is_leader(self) -> bool: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    def add_watcher(self, watcher: Callable[[], None]) -> None: ...

    def remove_watcher(self, watcher: Callable[[], None]) -> None: ...


class DelayedAcks:
    """Each is given when what it tells of is committed by this leader; else its publisher is
    refused.

    A high watermark alone tells nothing: under another leader the log may be cut, and other records
    have the same offsets. So each waits in one leader epoch, and what is not committed when that
    ends is refused; the next leader knows whether it has the record.

    Of a repeated message that is the first one of its id, which may be of a read just before, or
    what a former leader appended: nobody but its retry then waits for it. Of a batch it is the last
    one. Invariant: the partition is watched while anybody waits.
    """

    def __init__(
        self,
        partition: WatchedPartition,
        *,
        leader_epoch: int,
        stream: str,
        answers: PublisherAnswers,
        room: InFlightBytes,
    ) -> None:
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._stream = stream
        self._answers = answers
        self._room = room
        self._waiting: list[tuple[int, bytes, bytes]] = []
        """(offset of the message, reply, answer): a heap."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, reply: bytes, offset: int, answer: bytes) -> None:
        """Given at once if the message at ``offset`` is committed, else in time."""
        if not self._is_led:
            self._answers.refuse_one(self._stream, reply, NOT_LEADER)
            return
        if offset < self._partition.high_watermark:
            self._answers.acknowledge_one(reply, answer, offset)
            return
        if not self._waiting:
            self._partition.add_watcher(self._moved)
        heapq.heappush(self._waiting, (offset, reply, answer))
        self._room.take(_size(reply, answer))

    def refuse(self, from_offset: int, refusal: PublishRefusal) -> None:
        """The messages at and above ``from_offset`` will not be committed by this leader."""
        refused = [each for each in self._waiting if each[0] >= from_offset]
        if not refused:
            return
        self._waiting = [each for each in self._waiting if each[0] < from_offset]
        heapq.heapify(self._waiting)
        for _, reply, answer in sorted(refused):
            self._room.give_back(_size(reply, answer))
            self._answers.refuse_one(self._stream, reply, refusal)
        self._watch_no_longer_than_needed()

    def _moved(self) -> None:
        """The partition has changed: perhaps its high watermark, perhaps its leader."""
        if not self._is_led:
            self.refuse(0, NOT_LEADER)
            return
        high_watermark = self._partition.high_watermark
        while self._waiting and self._waiting[0][0] < high_watermark:
            offset, reply, answer = heapq.heappop(self._waiting)
            self._room.give_back(_size(reply, answer))
            self._answers.acknowledge_one(reply, answer, offset)
        self._watch_no_longer_than_needed()

    @property
    def _is_led(self) -> bool:
        """Here, and in the epoch in which the answers were asked for."""
        partition = self._partition
        return partition.is_leader and partition.leader_epoch == self._leader_epoch

    def _watch_no_longer_than_needed(self) -> None:
        if not self._waiting:
            self._partition.remove_watcher(self._moved)


def _size(reply: bytes, answer: bytes) -> int:
    return len(reply) + len(answer) + OVERHEAD_BYTES
