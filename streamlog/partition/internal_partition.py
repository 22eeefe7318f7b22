"""A partition of an internal stream, as ``groups`` and ``activity`` use it: ``partition.partition.Partition``,
led here, read and appended to by the node itself.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from streamlog.log.segment.file_slice import FileSlice
from streamlog.model import TopicPartition
from streamlog.partition.producer_state_manager import VerifiedTransaction
from streamlog.partition.state import Acknowledgement
from streamlog.record.codec import RecordRun
from streamlog.record.transaction_marker import TransactionMarker


class InternalPartition(Protocol):
    """One that is read and appended to while it is led here."""

    @property
    def tp(self) -> TopicPartition: ...
    @property
    def is_leader(self) -> bool: ...
    @property
    def leader_epoch(self) -> int: ...
    def leads(self, leader_epoch: int) -> bool: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def high_watermark_known(self) -> bool: ...
    @property
    def below_min_isr(self) -> bool: ...
    def check_min_isr(self) -> None: ...
    def append(
        self, run: RecordRun, ack: Acknowledgement, *, leader_epoch: int | None = None
    ) -> int: ...
    async def read(self, offset: int, max_bytes: int) -> FileSlice: ...
    def add_watcher(self, watcher: Callable[[], None]) -> None: ...
    def remove_watcher(self, watcher: Callable[[], None]) -> None: ...


class TransactionalPartition(InternalPartition, Protocol):
    """One in which a part of what is written belongs to transactions."""

    async def know_producers(self) -> None: ...
    def verify_producer(
        self, producer_id: int, producer_epoch: int
    ) -> VerifiedTransaction | None: ...
    def append_to_transaction(
        self,
        run: RecordRun,
        producer_id: int,
        producer_epoch: int,
        ack: Acknowledgement,
        *,
        verified: object,
    ) -> int: ...
    async def end_transaction(self, marker: TransactionMarker) -> None: ...


class InternalPartitions(Protocol):
    """``partition.replica_manager.ReplicaManager``."""

    def partition(self, tp: TopicPartition) -> InternalPartition:
        """Raises PartitionNotFound, or what has put it offline."""


class TransactionalPartitions(Protocol):
    """As ``InternalPartitions``."""

    def partition(self, tp: TopicPartition) -> TransactionalPartition: ...


async def until(partition: InternalPartition, condition: Callable[[], bool]) -> None:
    """Return once it is so; asked now, and whenever the partition's watchers are told."""
    changed = asyncio.Event()
    partition.add_watcher(changed.set)
    try:
        while not condition():
            changed.clear()
            await changed.wait()
    finally:
        partition.remove_watcher(changed.set)
