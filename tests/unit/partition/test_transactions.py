"""Transactions on a real partition: what may be written, where they end, what of them is shown."""

from pathlib import Path

import pytest

from streamlog.errors import (
    CoordinatorFenced,
    InvalidProducerEpoch,
    InvalidTransactionState,
    NotLeader,
    OutOfOrderSequence,
)
from streamlog.partition.deletes import message_deletes
from streamlog.partition.partition import Partition
from streamlog.partition.producer_state_manager import VerifiedTransaction
from streamlog.partition.state import UNAWAITED
from streamlog.record.batch import TRANSACTIONAL
from streamlog.record.codec import RecordRun
from streamlog.record.produced import ProducedBatch, check_inside, check_outside
from streamlog.record.transaction_marker import TransactionMarker
from tests.partition_world import Told, World, publish, tp
from tests.record_batches import HandRecord, hand_batch
from tests.unit.partition.replica_world import replicas, until

TIME_MS = 1_700_000_000_000


def batch_of(
    sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7, transactional: bool = True
) -> ProducedBatch:
    data = hand_batch(
        [HandRecord(b"%d" % (sequence + at)) for at in range(count)],
        base_timestamp_ms=TIME_MS,
        max_timestamp_ms=TIME_MS,
        producer=(producer, epoch, sequence),
        attributes=TRANSACTIONAL if transactional else 0,
    )
    return check_inside(check_outside(data, transactional=True), data)


async def write(partition: Partition, batch: ProducedBatch) -> int:
    """With a coordinator that knows of every transaction."""
    await partition.know_producers()
    told = Told()
    verified = partition.verify_transaction(batch.header)
    partition.produce(batch, told, verified=verified)
    return await told.answer


async def end(
    partition: Partition,
    *,
    epoch: int = 1,
    is_commit: bool = True,
    coordinator: int = 0,
    version: int = 2,
    producer: int = 7,
) -> None:
    await partition.end_transaction(
        TransactionMarker(producer, epoch, is_commit, coordinator, version)
    )


async def test_a_transaction_holds_up_what_comes_after_it(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await publish(partition, b"nats")
        assert await write(partition, batch_of(0, 2)) == 1
        await publish(partition, b"nats")
        assert await write(partition, batch_of(2)) == 4
        assert (partition.stable_offset, partition.high_watermark) == (1, 5)
        assert partition.statistics().undecided == 4
        await end(partition)
        assert (partition.stable_offset, partition.high_watermark) == (6, 6)
        assert partition.statistics().undecided == 0
        assert partition.aborted_between(0, 6) == []
        assert set(partition.erased) == {5}


async def test_an_aborted_transaction_is_told_and_is_no_message(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await write(partition, batch_of(0, 2))
        await publish(partition, b"nats")
        await end(partition, is_commit=False)
        assert await write(partition, batch_of(0, epoch=1)) == 4
        assert partition.stable_offset == 4
        assert [tuple(it) for it in partition.aborted_between(0, 4)] == [(7, 0, 3, 4)]
        assert set(partition.erased) == {0, 1, 3}
        assert [tuple(it)[:6] for it in partition.active_producers()] == [
            (7, 1, 0, partition.active_producers()[0].last_ms, 0, 4)
        ]


async def test_the_first_batch_needs_a_coordinator_that_knows_of_it(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        with pytest.raises(InvalidTransactionState):
            partition.produce(batch_of(0), UNAWAITED)
        with pytest.raises(InvalidTransactionState):
            partition.produce(batch_of(0), UNAWAITED, verified=VerifiedTransaction(7, 0, 0))
        assert partition.log_end_offset == 0


async def test_a_marker_between_the_question_and_the_batch_makes_the_answer_void(
    world: World,
) -> None:
    """Else the batch would open a transaction that no marker ends."""
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        verified = partition.verify_transaction(batch_of(0).header)
        await end(partition, epoch=0, version=1, is_commit=False)
        with pytest.raises(InvalidTransactionState):
            partition.produce(batch_of(0), UNAWAITED, verified=verified)
        verified = partition.verify_transaction(batch_of(0).header)
        await end(partition, epoch=1, is_commit=False)
        with pytest.raises(InvalidProducerEpoch):
            partition.produce(batch_of(0), UNAWAITED, verified=verified)
        assert partition.stable_offset == partition.log_end_offset == 2


async def test_a_later_batch_does_not_overtake_the_one_that_is_being_asked_for(
    world: World,
) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        first = partition.verify_transaction(batch_of(0).header)
        second = partition.verify_transaction(batch_of(1).header)
        assert first is second
        with pytest.raises(OutOfOrderSequence):
            partition.produce(batch_of(1), UNAWAITED, verified=second)
        assert partition.produce(batch_of(0), UNAWAITED, verified=first).base_offset == 0
        assert partition.verify_transaction(batch_of(1).header) is None
        assert partition.produce(batch_of(1), UNAWAITED).base_offset == 1


async def test_zombies_are_fenced(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await write(partition, batch_of(0))
        await end(partition, coordinator=5)
        with pytest.raises(InvalidProducerEpoch):
            await write(partition, batch_of(1))
        with pytest.raises(OutOfOrderSequence):
            await write(partition, batch_of(1, epoch=1))  # each epoch begins with 0
        await write(partition, batch_of(0, epoch=1))
        with pytest.raises(CoordinatorFenced):
            await end(partition, epoch=2, coordinator=4)
        with pytest.raises(InvalidProducerEpoch):
            await end(partition, epoch=0, coordinator=6)
        with pytest.raises(InvalidTransactionState):
            await write(partition, batch_of(1, epoch=1, transactional=False))
        with pytest.raises(InvalidTransactionState):
            await write(partition, batch_of(0, epoch=2))
        assert partition.log_end_offset == 3


async def test_a_marker_that_comes_twice_is_there_once(world: World) -> None:
    """The second one comes when the next transaction is open, which it must not end."""
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await write(partition, batch_of(0))
        await end(partition)
        await end(partition)
        assert partition.log_end_offset == 2
        await write(partition, batch_of(0, epoch=1))
        with pytest.raises(InvalidProducerEpoch):
            await end(partition)
        assert (partition.log_end_offset, partition.stable_offset) == (3, 2)


async def test_a_restart_forgets_no_transaction(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await write(partition, batch_of(0))
        await write(partition, batch_of(0, producer=8))
        await end(partition, producer=8, is_commit=False)
        await write(partition, batch_of(1))
    async with world.node() as registry:
        partition = registry.partition(tp("s"))
        assert (partition.stable_offset, partition.high_watermark) == (0, 4)
        assert set(partition.erased) == {1, 2}
        with pytest.raises(InvalidProducerEpoch):
            await write(partition, batch_of(1, producer=8))
        assert await write(partition, batch_of(2)) == 4
        await end(partition)
        assert partition.stable_offset == 6


async def test_large_files_are_written_seldom(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And until then the checkpoints say no more than the files know."""
    async with world.node() as registry:
        await world.create("s")
        partition, tasks = registry.partition(tp("s")), registry._tasks
        await write(partition, batch_of(0))
        await tasks.write_checkpoints()
        known = tasks._checkpoints.get(partition.log_id)
        assert (known.high_watermark, known.recovery_point, known.transactions_end) == (1, 1, 1)
        monkeypatch.setattr(message_deletes, "KEPT_BYTES_PER_S", 0.001)
        await end(partition)
        await tasks.write_checkpoints()
        await write(partition, batch_of(0, epoch=1))
        assert not partition.erasing.is_unkept
        await tasks.write_checkpoints()
        known = tasks._checkpoints.get(partition.log_id)
        assert (known.high_watermark, known.recovery_point, known.transactions_end) == (2, 2, 2)
    async with world.node() as registry:
        partition = registry.partition(tp("s"))
        assert (partition.stable_offset, partition.high_watermark) == (2, 3)


async def test_records_that_the_node_writes_itself(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))

        def run() -> RecordRun:
            made = RecordRun()
            made.append(b"group", b"offset")
            return made

        told = Told()
        await partition.know_producers()
        with pytest.raises(InvalidTransactionState):
            partition.append_to_transaction(run(), 7, 3, UNAWAITED, verified=None)
        verified = partition.verify_producer(7, 3)
        assert partition.append_to_transaction(run(), 7, 3, told, verified=verified) == 0
        assert await told.answer == 0
        assert partition.stable_offset == 0
        with pytest.raises(InvalidProducerEpoch):
            partition.append_to_transaction(run(), 7, 2, UNAWAITED, verified=verified)
        verified = partition.verify_producer(8, 0)
        await end(partition, producer=8, epoch=0, version=0)
        with pytest.raises(InvalidTransactionState):  # the marker came first
            partition.append_to_transaction(run(), 8, 0, UNAWAITED, verified=verified)
        await end(partition, epoch=4)
        assert partition.stable_offset == 3


async def test_a_follower_knows_what_its_leader_knows(tmp_path: Path) -> None:
    """And goes on as the leader: with the same transactions, and the same epochs."""
    async with replicas(tmp_path, 2) as world:
        first = world.leader.partition()
        await write(first, batch_of(0))
        await write(first, batch_of(0, producer=8))
        await end(first, producer=8, is_commit=False, coordinator=3)
        (follower,) = world.followers
        second = follower.partition()
        verified = first.verify_transaction(batch_of(0, producer=9).header)
        await until(lambda: second.high_watermark == 3)
        assert (first.stable_offset, second.stable_offset) == (0, 0)
        assert set(second.erased) == {1, 2}
        await world.elect(follower.node_id)
        with pytest.raises(NotLeader):
            await write(first, batch_of(1))
        with pytest.raises(CoordinatorFenced):
            await end(second, producer=8, epoch=2, coordinator=2)
        await end(second, is_commit=False)
        assert set(second.erased) == {0, 1, 2, 3}
        assert second.stable_offset == 4
        await world.elect(1 if follower.node_id == 2 else 2)
        await until(lambda: first.high_watermark == 4)
        with pytest.raises(InvalidTransactionState):  # another one led meanwhile
            first.produce(batch_of(0, producer=9), UNAWAITED, verified=verified)
