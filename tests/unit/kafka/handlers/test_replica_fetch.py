"""Replicas fetch up to the log end; consumers up to the high watermark, where it is near."""

from typing import Any

import pytest

from streamlog.kafka.handlers.fetch import NEWS_WAIT_MS
from streamlog.model import EpochEnd, NodeId, TopicPartition
from streamlog.record.batch import batches
from streamlog.wire.fetch import FetchedRecords, FetchRequest
from streamlog.wire.leaders import CurrentLeader
from tests.fake_partition import NODE, FakePartition
from tests.kafka_node import KafkaNode, until
from tests.raw_client import RawClient, at, wanted
from tests.unit.kafka.wait_timer import WaitTimer

FOLLOWER = NodeId(8)
NODE_EPOCH = 40
FAR = NodeId(9)


async def led(node: KafkaNode, partitions: int = 1) -> FakePartition:
    """Ten records committed, ten more not, and a follower."""
    first = await node.add_stream("flights", partitions)
    for number in range(partitions):
        partition = node.partition(TopicPartition("flights", number))
        partition.append([b"committed"] * 10)
        partition.append([b"not yet"] * 10, commit=False)
        partition.node_epochs = {FOLLOWER: NODE_EPOCH}
    return first


def replica(*partitions: Any, **fields: Any) -> FetchRequest:
    return wanted(*partitions, replica_id=FOLLOWER, replica_epoch=NODE_EPOCH, **fields)


def ends(found: FetchedRecords) -> list[int]:
    return [header.next_offset for header, _ in batches(found.records)]


async def test_a_replica_gets_what_is_not_committed_and_says_what_it_has(node: KafkaNode) -> None:
    partition = await led(node)
    async with RawClient(node.port) as client:
        (found,) = (await client.fetch(replica(at(0)))).partitions
        assert ends(found) == [10, 20]
        assert found.fetched.high_watermark == 10
        (found,) = (await client.fetch(replica(at(10)))).partitions
        assert ends(found) == [20]
    assert partition.fetches == [(FOLLOWER, 0), (FOLLOWER, 10)]


async def test_a_consumer_does_not(node: KafkaNode) -> None:
    partition = await led(node)
    async with RawClient(node.port) as client:
        (found,) = (await client.fetch(wanted(at(0)))).partitions
    assert ends(found) == [10]
    assert partition.fetches == []


@pytest.mark.parametrize(("node_id", "epoch"), [(FOLLOWER, 39), (FOLLOWER, -1), (FAR, NODE_EPOCH)])
async def test_another_incarnation_or_node_is_refused(
    node: KafkaNode, node_id: int, epoch: int
) -> None:
    partition = await led(node)
    request = wanted(at(0), replica_id=node_id, replica_epoch=epoch, max_wait_ms=60_000)
    async with RawClient(node.port) as client:
        (found,) = (await client.fetch(request)).partitions
    assert (found.fetched.error_code, len(found.records)) == (77, 0)
    assert partition.fetches == []


async def test_a_replica_is_told_where_histories_part(node: KafkaNode) -> None:
    partition = await led(node)
    partition.epoch_ends = {3: (2, 15)}
    request = replica(at(20, last_fetched_epoch=3), max_wait_ms=60_000)
    async with RawClient(node.port) as client:
        (found,) = (await client.fetch(request)).partitions
    assert found.fetched.diverging == EpochEnd(2, 15)
    assert partition.fetches == []


async def test_a_replica_does_not_fetch_from_a_follower(node: KafkaNode) -> None:
    partition = await led(node)
    partition.is_leader, partition.in_sync = False, True
    async with RawClient(node.port) as client:
        (found,) = (await client.fetch(replica(at(0)))).partitions
    assert found.fetched.error_code == 6


async def test_who_is_deposed_while_it_gathers_its_answer_tells_nothing(
    node: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has found and what is committed now are of two epochs."""
    first = await led(node, 2)
    second = node.partition(TopicPartition("flights", 1))
    read = second.read_for_follower

    async def slowly(*args: Any, **more: Any) -> Any:
        first.is_leader, first.leader_epoch = False, first.leader_epoch + 1
        first.commit()
        return await read(*args, **more)

    monkeypatch.setattr(second, "read_for_follower", slowly)
    async with RawClient(node.port) as client:
        answer = await client.fetch(replica(at(0, partition=0), at(0, partition=1)))
    found, other = answer.partitions
    assert (found.fetched.error_code, len(found.records)) == (6, 0)
    assert found.fetched.high_watermark == -1
    assert ends(other) == [10, 20]
    assert all(it.closed for it in first.slices)


async def test_all_fetches_count_whatever_the_limit(node: KafkaNode) -> None:
    await led(node, 3)
    async with RawClient(node.port) as client:
        request = replica(*(at(0, partition=n) for n in range(3)), max_bytes=1)
        answer = await client.fetch(request)
    assert [len(it.records) > 0 for it in answer.partitions] == [True, False, False]
    for number in range(3):
        partition = node.partition(TopicPartition("flights", number))
        assert partition.fetches == [(FOLLOWER, 0)]
        assert all(it.closed for it in partition.slices)


async def test_a_replicas_poll_is_answered_the_moment_the_log_grows(node: KafkaNode) -> None:
    partition = await led(node)
    async with RawClient(node.port) as client:
        sent = client.send_fetch(replica(at(20), max_wait_ms=60_000))
        await until(lambda: bool(partition.end_watchers))
        assert not partition.watchers, "it does not care for the high watermark"
        partition.append([b"new"], commit=False)
        (found,) = (await client.fetched(sent)).partitions
    assert ends(found) == [21]
    assert not partition.end_watchers


async def test_a_wake_up_costs_what_has_changed(node: KafkaNode) -> None:
    """Of a hundred partitions one grows: one is looked at again."""
    await led(node, 100)
    everything = [node.partition(TopicPartition("flights", n)) for n in range(100)]
    async with RawClient(node.port) as client:
        request = replica(*(at(20, partition=n) for n in range(100)), max_wait_ms=60_000)
        sent = client.send_fetch(request)
        await until(lambda: bool(everything[-1].end_watchers))
        everything[37].append([b"new"], commit=False)
        answer = await client.fetched(sent)
    assert [it.fetched.partition for it in answer.partitions if len(it.records)] == [37]
    looks = [len(partition.fetches) for partition in everything]
    assert looks[37] == 2
    assert sum(looks) == 101


async def test_a_replica_hears_soon_of_what_was_committed(
    node: KafkaNode, timers: list[WaitTimer]
) -> None:
    partition = await led(node)
    async with RawClient(node.port) as client:
        request = replica(at(20, high_watermark=10), max_wait_ms=60_000)
        sent = client.send_fetch(request)
        await until(lambda: bool(partition.end_watchers))
        partition.commit()
        await until(lambda: len(timers) == 2)
        longest, news = timers
        assert (longest.seconds, news.seconds) == (60, NEWS_WAIT_MS / 1000)
        news.fire()
        (found,) = (await client.fetched(sent)).partitions
    assert (found.fetched.high_watermark, len(found.records)) == (20, 0)
    assert not partition.end_watchers
    assert not partition.watchers


async def test_what_was_committed_before_the_poll_is_told_soon_too(node: KafkaNode) -> None:
    partition = await led(node)
    partition.commit()
    async with RawClient(node.port) as client:
        request = replica(at(20, high_watermark=10), max_wait_ms=60_000)
        (found,) = (await client.fetch(request)).partitions
    assert found.fetched.high_watermark == 20


async def test_records_do_not_wait_for_news(node: KafkaNode) -> None:
    partition = await led(node)
    partition.commit()
    async with RawClient(node.port) as client:
        sent = client.send_fetch(replica(at(20, high_watermark=10), max_wait_ms=60_000))
        await until(lambda: bool(partition.end_watchers))
        partition.append([b"new"], commit=False)
        (found,) = (await client.fetched(sent)).partitions
    assert (ends(found), found.fetched.high_watermark) == ([21], 20)


# Consumers and followers (KIP-392)


async def racks(node: KafkaNode, *, isr: tuple[int, ...] = (NODE, FOLLOWER)) -> FakePartition:
    """This node leads in r1; a follower is in r2, another in r3."""
    partition = await led(node)
    node.metadata.register(1, FOLLOWER, "r2")
    node.metadata.register(1, FAR, "r3")
    node.metadata.change("flights", 0, replicas=(NODE, FOLLOWER, FAR), isr=isr)
    return partition


async def preferred(node: KafkaNode, rack: str, **fields: Any) -> tuple[int, int]:
    async with RawClient(node.port) as client:
        request = wanted(at(0, **fields), rack_id=rack, max_wait_ms=60_000)
        (found,) = (await client.fetch(request)).partitions
    assert found.fetched.error_code == 0
    return found.fetched.preferred_read_replica, len(found.records)


async def test_a_consumer_is_sent_to_a_follower_in_its_rack(node: KafkaNode) -> None:
    await racks(node)
    assert await preferred(node, "r2") == (FOLLOWER, 0)


@pytest.mark.parametrize("rack", ["", "r1", "r3", "r4"])
async def test_otherwise_the_leader_serves_it(node: KafkaNode, rack: str) -> None:
    """No rack, the leader's, one whose follower is not in sync, one where nobody is."""
    await racks(node)
    replica_id, size = await preferred(node, rack)
    assert replica_id == -1
    assert size > 0


async def test_a_fenced_follower_is_not_preferred(node: KafkaNode) -> None:
    await racks(node)
    node.metadata.fence(FOLLOWER)
    assert (await preferred(node, "r2"))[0] == -1


async def test_who_has_read_all_is_not_sent_away(node: KafkaNode) -> None:
    partition = await racks(node)
    async with RawClient(node.port) as client:
        sent = client.send_fetch(wanted(at(10), rack_id="r2", max_wait_ms=60_000))
        await until(lambda: bool(partition.watchers))
        partition.commit()
        (found,) = (await client.fetched(sent)).partitions
    assert found.fetched.preferred_read_replica == FOLLOWER, "but when there is more"


async def test_a_follower_in_sync_serves_consumers_up_to_its_high_watermark(
    node: KafkaNode,
) -> None:
    partition = await racks(node)
    partition.is_leader, partition.in_sync = False, True
    async with RawClient(node.port) as client:
        answer = await client.fetch(wanted(at(0), rack_id="r3"))
        (found,) = answer.partitions
        assert (ends(found), found.fetched.preferred_read_replica) == ([10], -1)
        (found,) = (await client.fetch(wanted(at(15)))).partitions
        assert (found.fetched.error_code, len(found.records)) == (0, 0)


async def test_a_follower_that_is_behind_the_consumer_says_later(node: KafkaNode) -> None:
    """Out of range would have it begin anew somewhere."""
    partition = await racks(node)
    partition.is_leader, partition.in_sync = False, True
    async with RawClient(node.port) as client:
        request = wanted(at(21, last_fetched_epoch=0), max_wait_ms=60_000)
        (found,) = (await client.fetch(request)).partitions
    assert found.fetched.error_code == 78


async def test_a_follower_that_is_not_in_sync_names_the_leader(node: KafkaNode) -> None:
    partition = await racks(node)
    node.metadata.change("flights", 0, leader=FOLLOWER, leader_epoch=5)
    partition.is_leader = False
    async with RawClient(node.port) as client:
        (found,) = (await client.fetch(wanted(at(0)))).partitions
    assert found.fetched.error_code == 6
    assert found.fetched.current_leader == CurrentLeader(FOLLOWER, 5)


async def test_an_older_epoch_hears_of_the_present_one(node: KafkaNode) -> None:
    partition = await racks(node)
    node.metadata.change("flights", 0, leader_epoch=5)
    partition.leader_epoch = 5
    async with RawClient(node.port) as client:
        (found,) = (await client.fetch(wanted(at(0, current_leader_epoch=4)))).partitions
    assert found.fetched.error_code == 74
    assert found.fetched.current_leader == CurrentLeader(NODE, 5)
