"""Known mistakes of transactions, each planted into streamlog's own code, one at a time."""

from typing import Any

import pytest

from streamlog.coordination.effects import NONE, Now, Write
from streamlog.coordination.shard import Shard
from streamlog.groups import offsets
from streamlog.log.transactions.transactions import Transactions
from streamlog.replication.producer_table import ProducerTable
from streamlog.transactions.coordinator import TransactionCoordinator
from streamlog.transactions.requests import Effect
from streamlog.transactions.transaction import PartitionId, ProducerEpoch
from streamlog.wire.error_codes import ErrorCode


def send_no_markers_of_the_coordinator_before(patch: pytest.MonkeyPatch) -> None:
    """What it has prepared is never ended in the partitions that it had not told."""

    def begin(self: TransactionCoordinator, now: Now) -> list[Effect]:
        for entry in self._entries.values():
            if entry.kept is not None and not entry.kept.state.is_prepared:
                self._follow(entry, entry.kept, now)
        return self._take()

    patch.setattr(TransactionCoordinator, "begin", begin)


def coordinate_producers_of_any_epoch(patch: pytest.MonkeyPatch) -> None:
    """A zombie ends what its successor has begun."""
    inner = TransactionCoordinator._standing

    def standing(self: TransactionCoordinator, entry, producer: ProducerEpoch) -> ErrorCode:  # type: ignore[no-untyped-def]
        kept = None if entry is None else entry.kept
        if kept is not None and producer.producer_id == kept.producer.producer_id:
            return NONE
        return inner(self, entry, producer)

    patch.setattr(TransactionCoordinator, "_standing", standing)


def complete_when_one_partition_knows(patch: pytest.MonkeyPatch) -> None:
    """The others are told by a coordinator that may end before it has."""
    inner = TransactionCoordinator.marked

    def marked(
        self: TransactionCoordinator,
        transactional_id: str,
        producer: ProducerEpoch,
        partition: PartitionId,
        now: Now,
    ) -> list[Effect]:
        entry = self._entries.get(transactional_id)
        if entry is not None and entry.kept is not None and entry.kept.is_ended_for(producer):
            entry.unmarked &= {partition}
        return inner(self, transactional_id, producer, partition, now)

    patch.setattr(TransactionCoordinator, "marked", marked)


def answer_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    """What a coordinator appends, it takes for written: another one never hears of it."""

    def early(of: Shard[Any]) -> list[Write]:
        """Told already."""
        found: list[Write] = vars(of).setdefault("told_early", [])
        return found

    def append(self: Shard[Any], write: Write) -> list[Any]:
        failed = inner_append(self, write)
        if failed:
            return failed
        early(self).append(write)
        return write.then(NONE, self._now())

    def tell_settled(self: Shard[Any]) -> None:
        for told in [it for it in self._settled if it[0] in early(self)]:
            self._settled.remove(told)
            self._writing -= len(told[0].records)
        inner_tell(self)

    inner_append, inner_tell = Shard._append, Shard._tell_settled
    patch.setattr(Shard, "_append", append)
    patch.setattr(Shard, "_tell_settled", tell_settled)


def be_stable_up_to_markers_that_are_not_committed(patch: pytest.MonkeyPatch) -> None:
    """The leader before may have had another one, or none."""

    def stable_offset(self: Transactions, high_watermark: int, log_start: int) -> int:
        first = next((it.first_offset for it in self.open.values()), None)
        return high_watermark if first is None else min(high_watermark, max(first, log_start))

    patch.setattr(Transactions, "stable_offset", stable_offset)


def forget_what_a_cut_marker_had_ended(patch: pytest.MonkeyPatch) -> None:
    """The log is cut before a marker: its transaction is open again."""

    def cut(self: Transactions, end_offset: int) -> bool:
        while self._pending and self._pending[-1].marker_offset >= end_offset:
            ended = self._pending.pop()
            self._unstable.pop(ended.transaction.first_offset, None)
        self._look_for_first()
        return inner(self, end_offset)

    inner = Transactions.cut
    patch.setattr(Transactions, "cut", cut)


def count_offsets_of_open_transactions(patch: pytest.MonkeyPatch) -> None:
    """A consumer begins behind what an aborted transaction was to have made of its records."""

    def keep_pending(self, group, place, value, producer_id: int) -> None:  # type: ignore[no-untyped-def]
        self._count(group, place, value, self._table.order)

    patch.setattr(offsets.Commits, "_keep_pending", keep_pending)


def take_batches_that_are_there(patch: pytest.MonkeyPatch) -> None:
    """A batch that is sent again, for its answer was lost, is appended again."""
    patch.setattr(ProducerTable, "check_sequence", lambda *_, **__: None)
