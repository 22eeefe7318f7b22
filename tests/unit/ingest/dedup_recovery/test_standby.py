import asyncio
from collections.abc import AsyncIterator

import pytest

from streamlog.errors import CorruptBatch
from streamlog.ingest.admission.deduplicator import Deduplicator
from streamlog.ingest.dedup_recovery import standby as module
from streamlog.ingest.dedup_recovery.standby import Prepared, Standby
from streamlog.model import TopicPartition
from streamlog.partition.partition import Partition
from streamlog.partition.state import UNAWAITED
from streamlog.record.batch import PUBLISHED
from streamlog.record.codec import RecordRun
from tests.led_partition import FakePartition, as_partition
from tests.local_node import until

TP = TopicPartition("orders", 0)


@pytest.fixture
async def standby(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Standby]:
    monkeypatch.setattr(module, "PAUSE_S", 0.001)
    standby = Standby(now_ms=lambda: 0)  # every record is young
    running = asyncio.create_task(standby.run())
    yield standby
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def store(partition: FakePartition, *ids: str) -> None:
    """One batch, not committed."""
    run = RecordRun(attributes=PUBLISHED)
    for each in ids:
        run.append(None, b"", [(b"subject", b"orders"), (b"Nats-Msg-Id", each.encode())])
    partition.append(run, UNAWAITED)


def follow(standby: Standby, *partitions: FakePartition) -> None:
    standby.follow("orders", map(as_partition, partitions), duplicate_window_ms=120_000)


def known(deduplicator: Deduplicator, *ids: str) -> list[int | None]:
    def first(message_id: str) -> int | None:
        block = f"NATS/1.0\r\nNats-Msg-Id: {message_id}\r\n\r\n".encode()
        return deduplicator.admit(block, b"", b"", 0, log_end_offset=10_000, now_ms=0).duplicate_of

    return [first(each) for each in ids]


def followed(standby: Standby) -> Partition:
    return standby._followed["orders"][TP].partition


def taken(standby: Standby) -> Prepared:
    prepared = standby.take(followed(standby))
    assert prepared is not None
    return prepared


def known_offset(standby: Standby) -> int:
    return standby._followed["orders"][TP].known_offset


async def test_what_is_committed_is_known_and_nothing_else(standby: Standby) -> None:
    partition = FakePartition()
    store(partition, "a", "b")
    follow(standby, partition)
    await until(lambda: known_offset(standby) == 10)
    partition.move(12)
    await until(lambda: known_offset(standby) == 12)
    store(partition, "c")
    store(partition, "d")
    partition.move(13)
    await until(lambda: known_offset(standby) == 13)
    prepared = taken(standby)
    assert prepared.known_offset == 13
    assert known(prepared.deduplicator, "a", "b", "c", "d") == [10, 11, 12, None]
    assert partition.watchers == [] and standby.take(as_partition(partition)) is None


async def test_an_idle_partition_is_ready_without_being_read(standby: Standby) -> None:
    partition = FakePartition()
    partition.log_start_offset = 0  # ten records that are too old to be looked at
    follow(standby, partition)
    await until(lambda: standby._followed["orders"][TP].known_offset == 10)
    assert taken(standby).known_offset == 10


async def test_who_takes_does_not_wait_for_a_reading_under_way(standby: Standby) -> None:
    partition = FakePartition()
    store(partition, "a")
    partition.move(11)
    follow(standby, partition)
    await until(lambda: known_offset(standby) == 11)
    partition.may_read.clear()
    store(partition, "b")
    partition.move(12)
    before = partition.readings
    await until(lambda: partition.readings > before)
    prepared = taken(standby)
    partition.may_read.set()
    await asyncio.sleep(0.05)
    assert prepared.known_offset == 11
    assert known(prepared.deduplicator, "a", "b") == [10, None]


async def test_what_an_unclean_election_took_away_is_not_known(standby: Standby) -> None:
    partition = FakePartition()
    partition.leader_epoch = 3
    store(partition, "a")
    store(partition, "b")
    partition.move(12)
    follow(standby, partition)
    await until(lambda: known_offset(standby) == 12)
    partition.batches.pop()
    partition.log_end_offset, partition.leader_epoch = 11, 4
    store(partition, "other")  # as long as before, but another log
    assert standby.take(as_partition(partition)) is None
    follow(standby, partition)
    await until(lambda: known_offset(standby) == 12)
    assert known(taken(standby).deduplicator, "a", "b", "other") == [10, None, 11]


async def test_a_log_that_was_cut_while_it_is_followed_is_read_again(standby: Standby) -> None:
    partition = FakePartition()
    store(partition, "a")
    store(partition, "b")
    partition.move(12)
    follow(standby, partition)
    await until(lambda: known_offset(standby) == 12)
    partition.batches.pop()
    partition.log_end_offset = 11
    partition.leader_epoch = 4
    store(partition, "other")
    partition.move(12)
    deduplicator = standby._followed["orders"][TP].deduplicator
    await until(lambda: standby._followed["orders"][TP].deduplicator is not deduplicator)
    await until(lambda: known_offset(standby) == 12)
    assert known(taken(standby).deduplicator, "a", "b", "other") == [10, None, 11]


async def test_damage_costs_only_the_preparation(standby: Standby) -> None:
    partition = FakePartition()
    store(partition, "a")
    partition.read_fault = CorruptBatch("as asked for")
    partition.move(11)
    follow(standby, partition)
    await until(lambda: partition.readings >= 2)
    await asyncio.sleep(0.01)
    assert standby.take(as_partition(partition)) is None
    partition.read_fault = None
    follow(standby, partition)
    await until(lambda: known_offset(standby) == 11)


async def test_who_is_kept_no_longer_is_let_go(standby: Standby) -> None:
    one, two = FakePartition(), FakePartition(TopicPartition("orders", 1))
    follow(standby, one, two)
    first = standby._followed["orders"][TP]
    follow(standby, one)
    assert (len(one.watchers), two.watchers) == (1, [])
    assert standby._followed["orders"][TP] is first
    again = FakePartition()  # the stream was deleted and made anew
    follow(standby, again)
    assert (one.watchers, len(again.watchers)) == ([], 1)
    standby.leave_stream("orders")
    assert again.watchers == [] and standby._followed == {}


async def test_what_was_read_of_a_deleted_stream_is_not_given_to_one_of_its_name(
    standby: Standby,
) -> None:
    partition, again = FakePartition(), FakePartition()
    store(partition, "a")
    store(again, "b")
    follow(standby, partition)
    partition.move(11)
    await until(lambda: known_offset(standby) == 11)
    assert standby.take(as_partition(again)) is None


async def test_ids_that_were_not_looked_for_are_not_claimed() -> None:
    standby = Standby(now_ms=lambda: 1_000_000)
    partition = FakePartition()
    follow(standby, partition)
    await standby._catch_up(standby._followed["orders"][TP])
    assert taken(standby).deduplicator.complete_since_ms == 880_000


async def test_what_is_led_by_the_time_it_would_be_read_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As nearly all of a node that starts."""
    standby = Standby(now_ms=lambda: 0)
    partitions = [FakePartition(TopicPartition("orders", number)) for number in range(100)]
    for partition in partitions:
        store(partition, "a")
        partition.move(11)
    follow(standby, *partitions)
    running = asyncio.create_task(standby.run())
    await asyncio.sleep(0)
    for partition in partitions[1:]:
        standby.take(as_partition(partition))
    await until(lambda: known_offset(standby) == 11)
    running.cancel()
    assert sum(partition.readings for partition in partitions[1:]) <= 1
