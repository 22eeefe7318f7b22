"""One Produce request between its appends and its answer."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from streamlog.errors import (
    NotEnoughReplicasAfterAppend,
    ProducerRefused,
    RequestTimedOut,
    StreamlogError,
)
from streamlog.kafka.interfaces import LocalPartition
from streamlog.wire.errors import code_of
from streamlog.wire.leaders import CurrentLeader, NodeEndpoint
from streamlog.wire.produce import NO_OFFSET, ProduceResult, encode_response


def _nobody() -> None:
    pass


class PartitionProduce:
    """What becomes of one partition's batch. An ``Acknowledgement``.

    Invariant: ``result`` is there if and only if nothing is waited for; it never changes.
    """

    __slots__ = ("_base_offset", "_number", "_partition", "_told", "append_time_ms", "result")

    def __init__(self, number: int, told: Callable[[], None]) -> None:
        """``told`` is called when there is a result."""
        self.result: ProduceResult | None = None
        self.append_time_ms: int | None = None
        """Of the records, where it is not their own."""
        self._number = number
        self._told = told
        self._partition: LocalPartition | None = None

    def appended(self, partition: LocalPartition) -> None:
        """The commit is still to come, and ``partition`` will tell of it."""
        self._partition = partition

    def committed(self, base_offset: int, log_start_offset: int | None = None) -> None:
        if log_start_offset is None:
            log_start_offset = -1 if self._partition is None else self._partition.log_start_offset
        self._end(ProduceResult(self._number, 0, base_offset, log_start_offset))

    def failed(self, error: StreamlogError, leader: CurrentLeader | None = None) -> None:
        """``leader``: whom to ask instead."""
        first = error.first_offset if isinstance(error, ProducerRefused) else NO_OFFSET
        result = ProduceResult(self._number, code_of(error), first, error_message=str(error))
        self._end(result._replace(leader=leader))

    def give_up(self) -> None:
        """The time is over; the records may yet be committed."""
        if self.result is None:
            short = self._partition is not None and self._partition.below_min_isr
            self.failed(
                NotEnoughReplicasAfterAppend("fewer replicas in sync than min_isr")
                if short
                else RequestTimedOut("not committed in the time allowed")
            )

    def told(self) -> ProduceResult:
        """What the producer is told, once there is a result."""
        assert self.result is not None
        if self.append_time_ms is None or self.result.error_code:
            return self.result
        return self.result._replace(append_time_ms=self.append_time_ms)

    def _end(self, result: ProduceResult) -> None:
        if self.result is None:
            self.result = result
            self._told()


class Unawaited:
    """Nobody waits for the commit. An ``Acknowledgement``."""

    def committed(self, base_offset: int) -> None:
        pass

    def failed(self, error: StreamlogError) -> None:
        pass


UNAWAITED: Final = Unawaited()


class DelayedProduce:
    """A ``LateAnswer``: due when each partition has its result, or the time is over."""

    def __init__(self, header: bytes, version: int) -> None:
        self.wake: Callable[[], None] = _nobody
        self.throttle_ms = 0
        self._header = header
        self._version = version
        self.nodes: Sequence[NodeEndpoint] = ()
        """Where the leaders are that it tells of."""
        self._topics: list[tuple[str | bytes, list[PartitionProduce]]] = []
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_due(self) -> bool:
        return self._waiting == 0

    def topic(self, topic: str | bytes) -> None:
        """What is added from now on belongs to it: the topic's name, or its id."""
        self._topics.append((topic, []))

    def add(self, number: int) -> PartitionProduce:
        self._waiting += 1
        part = PartitionProduce(number, self._told)
        self._topics[-1][1].append(part)
        return part

    def wait_at_most(self, timeout_ms: int) -> None:
        """From now on."""
        if not self.is_due:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0, timeout_ms) / 1000, self.end)

    def end(self) -> None:
        for _, parts in self._topics:
            for part in parts:
                part.give_up()

    def failures(self) -> list[ProduceResult]:
        results = (part.result for _, parts in self._topics for part in parts)
        return [it for it in results if it is not None and it.error_code]

    def frame(self) -> bytes:
        topics = [(topic, [part.told() for part in parts]) for topic, parts in self._topics]
        return encode_response(
            self._header, topics, self._version, throttle_ms=self.throttle_ms, nodes=self.nodes
        )

    def _told(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            if self._timer is not None:
                self._timer.cancel()
            self.wake()
