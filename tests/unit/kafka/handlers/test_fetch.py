import asyncio
import logging

import cramjam
import pytest

from streamlog.errors import CorruptBatch, NotLeader, StorageFailed
from streamlog.model import TopicPartition
from streamlog.record.batch import batches, check_batch
from streamlog.wire.fetch import FetchedRecords, FetchRequest, FetchTopic
from tests.fake_partition import FakePartition
from tests.kafka_node import KafkaNode, until
from tests.raw_client import RawClient, at, wanted
from tests.unit.kafka.wait_timer import WaitTimer

VERSIONS = range(4, 19)


async def fill(node: KafkaNode, count: int = 10, partitions: int = 1) -> FakePartition:
    """Batches of ten records, two segments."""
    partition = await node.add_stream("flights", partitions)
    for index in range(count):
        if index == count // 2:
            partition.roll()
        partition.append([b"value %d" % (10 * index + i) for i in range(10)])
    return partition


def offsets(found: FetchedRecords) -> list[tuple[int, int]]:
    """Base and next offset of each batch, all of them whole and right."""
    ranges = []
    for header, batch in batches(found.records):
        check_batch(batch)
        ranges.append((header.base_offset, header.next_offset))
    return ranges


@pytest.mark.parametrize("version", VERSIONS)
async def test_batches_come_as_they_are_in_the_file(node: KafkaNode, version: int) -> None:
    partition = await fill(node)
    async with RawClient(node.port) as client:
        request = wanted(at(0), topic_id=partition.topic_id)
        (found,) = (await client.fetch(request, version)).partitions
    assert offsets(found) == [(10 * i, 10 * i + 10) for i in range(5)]
    assert found.fetched.error_code == 0
    assert found.fetched.high_watermark == 100
    if version >= 5:
        assert found.fetched.log_start_offset == 0
    assert node.metric("streamlog_fetch_bytes_total", path="copy") == len(found.records)
    assert all(it.closed for it in partition.slices)


async def test_a_large_slice_alone_goes_out_by_sendfile(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    partition.append([bytes(10_000)])
    async with RawClient(node.port) as client:
        (found,) = (await client.fetch(wanted(at(0)))).partitions
    assert offsets(found) == [(0, 1)]
    assert node.metric("streamlog_fetch_bytes_total", path="sendfile") == len(found.records)


async def test_the_batch_that_holds_the_offset_comes_first(node: KafkaNode) -> None:
    await fill(node)
    async with RawClient(node.port) as client:
        for offset in (0, 9, 10, 17, 49, 50, 99):
            (found,) = (await client.fetch(wanted(at(offset)))).partitions
            assert offsets(found)[0][0] == offset - offset % 10


async def test_the_first_batch_is_whole_whatever_the_limits(node: KafkaNode) -> None:
    await fill(node)
    async with RawClient(node.port) as client:
        for request in (wanted(at(0, max_bytes=1)), wanted(at(0), max_bytes=1)):
            (found,) = (await client.fetch(request)).partitions
            assert offsets(found) == [(0, 10)]


async def test_the_limits_hold_after_the_first_batch(node: KafkaNode) -> None:
    partition = await fill(node, partitions=2)
    other = node.partition(TopicPartition("flights", 1))
    other.append([b"x" * 2_000])
    three = sum(batch.length for batch in partition.batches[:3])
    async with RawClient(node.port) as client:
        answer = await client.fetch(wanted(at(0), at(0, partition=1), max_bytes=three))
        first, second = answer.partitions
        assert offsets(first) == [(0, 10), (10, 20), (20, 30)]
        assert len(second.records) == 0
        assert second.fetched.high_watermark == 1, "told, though its records do not fit"
        answer = await client.fetch(wanted(at(0), at(0, partition=1), max_bytes=three + 50))
        assert [len(it.records) for it in answer.partitions] == [three, 0]
        answer = await client.fetch(wanted(at(100), at(0, partition=1), max_bytes=1))
        assert [len(it.records) > 0 for it in answer.partitions] == [False, True]
    assert all(it.closed for it in partition.slices + other.slices)


async def test_a_fault_in_one_partition_leaves_no_slice_of_another_open(node: KafkaNode) -> None:
    partition = await fill(node, partitions=2)
    other = node.partition(TopicPartition("flights", 1))
    other.append([b"x"])
    other.failure = ZeroDivisionError("a fault of ours")
    async with RawClient(node.port) as client:
        client.send_fetch(wanted(at(0), at(0, partition=1)))
        assert await client.closed()
    assert [it.closed for it in partition.slices] == [True]


async def test_the_nodes_own_limit_holds() -> None:
    async with KafkaNode(fetch_bytes_max=1) as node, RawClient(node.port) as client:
        await fill(node)
        (found,) = (await client.fetch(wanted(at(0)))).partitions
        assert offsets(found) == [(0, 10)]


async def test_many_partitions_in_one_request(node: KafkaNode) -> None:
    await node.add_stream("flights", 300)
    for number in range(300):
        node.partition(TopicPartition("flights", number)).append([b"of %d" % number])
    async with RawClient(node.port) as client:
        answer = await client.fetch(wanted(*(at(0, partition=n) for n in range(300))))
    assert [it.fetched.partition for it in answer.partitions] == list(range(300))
    for number, found in enumerate(answer.partitions):
        check_batch(found.records)
        assert b"of %d" % number in bytes(found.records)
    copied = node.metric("streamlog_fetch_bytes_total", path="copy")
    assert copied == sum(len(it.records) for it in answer.partitions)


async def test_small_and_large_slices_keep_their_order(node: KafkaNode) -> None:
    await node.add_stream("flights", 6)
    sizes = [10, 100_000, 20, 30, 200_000, 40]
    for number, size in enumerate(sizes):
        node.partition(TopicPartition("flights", number)).append([bytes([number]) * size])
    async with RawClient(node.port) as client:
        answer = await client.fetch(wanted(*(at(0, partition=n) for n in range(6))))
    for number, (found, size) in enumerate(zip(answer.partitions, sizes, strict=True)):
        check_batch(found.records)
        assert bytes([number]) * size in bytes(found.records)
    paths = [node.metric("streamlog_fetch_bytes_total", path=path) for path in ("sendfile", "copy")]
    assert paths[0] > 300_000
    assert 0 < paths[1] < 1_000


async def test_compressed_batches_go_out_as_they_are(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    partition.append(
        [b"x" * 1_000], attributes=4, compress=lambda it: bytes(cramjam.zstd.compress(it))
    )
    async with RawClient(node.port) as client:
        (found,) = (await client.fetch(wanted(at(0)))).partitions
    assert bytes(found.records) == partition.slices[0].read()


async def test_nothing_above_the_high_watermark_is_seen(node: KafkaNode) -> None:
    partition = await fill(node)
    partition.append([b"not yet"], commit=False)
    async with RawClient(node.port) as client:
        for offset in (100, 101):
            (found,) = (await client.fetch(wanted(at(offset)))).partitions
            assert (found.fetched.error_code, len(found.records)) == (0, 0)
            assert found.fetched.high_watermark == 100


@pytest.mark.parametrize("offset", [-1, 4, 101, 2**62])
async def test_offsets_out_of_range(node: KafkaNode, offset: int) -> None:
    partition = await fill(node)
    partition.log_start_offset = 5
    async with RawClient(node.port) as client:
        (found,) = (await client.fetch(wanted(at(offset), max_wait_ms=60_000))).partitions
    assert found.fetched.error_code == 1
    assert (found.fetched.log_start_offset, found.fetched.high_watermark) == (5, 100)


async def test_unknown_topics_and_partitions_are_errors_of_their_own_part(node: KafkaNode) -> None:
    await fill(node)
    request = FetchRequest(
        [FetchTopic("nowhere", [at(0)]), FetchTopic("flights", [at(0, partition=9), at(0)])],
        max_wait_ms=60_000, min_bytes=2**20, max_bytes=2**20,
    )  # fmt: skip
    async with RawClient(node.port) as client:
        answer = await client.fetch(request)
    assert [it.fetched.error_code for it in answer.partitions] == [3, 3, 0]
    assert [it.fetched.high_watermark for it in answer.partitions] == [-1, -1, 100]
    assert len(answer.partitions[2].records) > 0


async def test_a_partition_that_is_elsewhere_or_led_elsewhere(node: KafkaNode) -> None:
    partition = await fill(node, partitions=2)
    partition.is_leader = False
    del node.local[TopicPartition("flights", 1)]
    async with RawClient(node.port) as client:
        answer = await client.fetch(wanted(at(0), at(0, partition=1)))
    assert [it.fetched.error_code for it in answer.partitions] == [6, 6]


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (4, 74), (5, 0), (6, 75)])
async def test_leader_epochs_are_checked(node: KafkaNode, epoch: int, code: int) -> None:
    partition = await fill(node)
    partition.leader_epoch = 5
    async with RawClient(node.port) as client:
        (found,) = (await client.fetch(wanted(at(0, current_leader_epoch=epoch)))).partitions
    assert found.fetched.error_code == code
    assert bool(len(found.records)) == (code == 0)


async def test_a_history_that_parts_from_ours_is_told_where(node: KafkaNode) -> None:
    partition = await fill(node)
    partition.leader_epoch = 5
    partition.epoch_ends = {3: (3, 40), 4: (3, 40), 5: (5, 100), 1: (-1, -1)}
    async with RawClient(node.port) as client:
        for last_epoch, offset, diverging in [
            (3, 40, None), (3, 41, (3, 40)), (4, 40, (3, 40)), (5, 100, None), (-1, 50, None),
        ]:  # fmt: skip
            request = wanted(at(offset, last_fetched_epoch=last_epoch))
            (found,) = (await client.fetch(request)).partitions
            assert found.fetched.diverging == diverging
            assert found.fetched.error_code == 0
        (found,) = (await client.fetch(wanted(at(50, last_fetched_epoch=1)))).partitions
        assert found.fetched.error_code == 1


async def test_a_session_that_we_never_gave_is_unknown(node: KafkaNode) -> None:
    await fill(node)
    async with RawClient(node.port) as client:
        answer = await client.fetch(wanted(at(0), session_id=17, session_epoch=3))
        assert (answer.error_code, answer.partitions) == (70, [])
        answer = await client.fetch(wanted(at(0), session_epoch=0))
        assert answer.error_code == 0
        assert len(answer.partitions) == 1


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (CorruptBatch("00000000000000000000.log: batch at 0, position 0"), 2),
        (StorageFailed("disk"), 56),
        (NotLeader("closed"), 6),
    ],
)
async def test_what_a_read_raises_becomes_a_code(
    node: KafkaNode, failure: CorruptBatch | StorageFailed, code: int
) -> None:
    partition = await fill(node)
    partition.failure = failure
    async with RawClient(node.port) as client:
        (found,) = (await client.fetch(wanted(at(0), max_wait_ms=60_000))).partitions
    assert (found.fetched.error_code, len(found.records)) == (code, 0)


async def test_damage_is_named_in_the_log(
    node: KafkaNode, caplog: pytest.LogCaptureFixture
) -> None:
    partition = await fill(node)
    partition.failure = CorruptBatch("00000000000000000000.log: batch at 0")
    with caplog.at_level(logging.ERROR):
        async with RawClient(node.port) as client:
            await client.fetch(wanted(at(0)))
    (line,) = caplog.records
    assert line.message == "damaged batch not served"
    assert line.__dict__["problem"] == "00000000000000000000.log: batch at 0"


async def test_a_poll_is_answered_the_moment_the_high_watermark_moves(node: KafkaNode) -> None:
    partition = await fill(node)
    async with RawClient(node.port) as client:
        sent = client.send_fetch(wanted(at(100), max_wait_ms=60_000))
        await watched(partition)
        partition.append([b"new"], commit=False)
        partition.wake()
        partition.commit()
        (found,) = (await client.fetched(sent)).partitions
        assert offsets(found) == [(100, 101)]
    assert not partition.watchers


async def test_a_poll_is_answered_empty_at_max_wait(
    node: KafkaNode, timers: list[WaitTimer]
) -> None:
    partition = await fill(node)
    async with RawClient(node.port) as client:
        sent = client.send_fetch(wanted(at(100), max_wait_ms=50_000))
        await watched(partition)
        (timer,) = timers
        assert timer.seconds == 50
        timer.fire()
        (found,) = (await client.fetched(sent)).partitions
    assert len(found.records) == 0
    assert not partition.watchers


async def test_a_poll_waits_for_min_bytes_and_reads_only_what_has_moved(node: KafkaNode) -> None:
    partition = await fill(node, partitions=2)
    quiet = node.partition(TopicPartition("flights", 1))
    quiet.append([b"q"])
    async with RawClient(node.port) as client:
        request = wanted(at(0, partition=1), at(100), max_wait_ms=60_000, min_bytes=400)
        sent = client.send_fetch(request)
        await watched(partition)
        partition.append([b"a" * 10])
        reads = quiet.reads
        await turn()
        partition.append([b"b" * 1_000])
        answer = await client.fetched(sent)
        assert [offsets(it) for it in answer.partitions] == [[(0, 1)], [(100, 101), (101, 102)]]
        assert quiet.reads == reads == 1
    assert all(it.closed for it in partition.slices + quiet.slices)


async def test_what_moves_between_the_first_look_and_the_watch_is_seen(node: KafkaNode) -> None:
    partition = await fill(node, partitions=2)
    slow = node.partition(TopicPartition("flights", 1))
    slow.append([b"q"])
    slow.on_read = lambda: partition.append([b"meanwhile"])
    async with RawClient(node.port) as client:
        request = wanted(at(100), at(0, partition=1), max_wait_ms=60_000, min_bytes=150)
        answer = await client.fetch(request)
        assert [offsets(it) for it in answer.partitions] == [[(100, 101)], [(0, 1)]]


async def test_min_bytes_above_max_bytes_waits_for_no_more_than_fits(node: KafkaNode) -> None:
    await fill(node)
    async with RawClient(node.port) as client:
        request = wanted(at(0), max_wait_ms=60_000, min_bytes=2**20, max_bytes=100)
        (found,) = (await client.fetch(request)).partitions
    assert offsets(found) == [(0, 10)]


async def test_a_poll_ends_when_its_partition_does(node: KafkaNode) -> None:
    partition = await fill(node)
    async with RawClient(node.port) as client:
        sent = client.send_fetch(wanted(at(100), max_wait_ms=60_000))
        await watched(partition)
        await node.metadata.delete_stream("flights")
        (found,) = (await client.fetched(sent)).partitions
        assert found.fetched.error_code == 3


async def test_a_poll_ends_when_leadership_moves(node: KafkaNode) -> None:
    partition = await fill(node)
    async with RawClient(node.port) as client:
        sent = client.send_fetch(wanted(at(100, current_leader_epoch=0), max_wait_ms=60_000))
        await watched(partition)
        partition.leader_epoch = 1
        partition.wake()
        (found,) = (await client.fetched(sent)).partitions
        assert found.fetched.error_code == 74


async def test_a_poll_of_a_peer_that_left_is_given_up(node: KafkaNode) -> None:
    partition = await fill(node)
    async with RawClient(node.port) as client:
        client.send_fetch(wanted(at(100), max_wait_ms=2**31 - 1))
        await watched(partition)
        client.close()
        await until(lambda: not partition.watchers)


async def test_a_poll_behind_which_more_has_come_still_waits(node: KafkaNode) -> None:
    """Bytes that arrive meanwhile end only the watch for the peer's end."""
    partition = await fill(node)
    async with RawClient(node.port) as client:
        first = client.send_fetch(wanted(at(100), max_wait_ms=60_000))
        await watched(partition)
        second = client.send_fetch(wanted(at(0), max_wait_ms=0))
        for _ in range(10):
            await turn()
        partition.append([b"new"])
        assert offsets((await client.fetched(first)).partitions[0]) == [(100, 101)]
        assert offsets((await client.fetched(second)).partitions[0])[0] == (0, 10)


async def test_a_poll_is_answered_when_the_node_stops_and_not_later(
    node: KafkaNode, timers: list[WaitTimer]
) -> None:
    """No timer fires here, and a connection that the stop had to cut would get no answer."""
    partition = await fill(node)
    async with RawClient(node.port) as client:
        sent = client.send_fetch(wanted(at(100), max_wait_ms=60_000))
        await watched(partition)
        await node.listener.stop(timeout_s=30)
        assert len(timers) == 1
        (found,) = (await client.fetched(sent)).partitions
        assert (found.fetched.error_code, len(found.records)) == (0, 0)
        assert await client.closed()


async def watched(partition: FakePartition) -> None:
    await until(lambda: bool(partition.watchers))


async def turn() -> None:
    """Lets the server work for a moment."""
    await asyncio.sleep(0.001)
