"""A channel over the socket API: how it begins, goes on, is cut short, and what it refuses."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from streamlog.errors import (
    ChannelNotReady,
    InvalidChannelConfig,
    InvalidRecord,
    InvalidSignature,
    RecordTooLarge,
    StaleConfiguration,
)
from streamlog.ledger.channel import broadcast as broadcasting
from streamlog.ledger.channel import channel as channels
from streamlog.ledger.channel import consumer as consuming
from streamlog.ledger.channel.broadcast import Broadcaster
from streamlog.ledger.core.chain import find_genesis
from streamlog.ledger.core.channel_config import ChannelConfig, OrderingNode
from streamlog.ledger.core.channel_policy import ChannelPolicy
from streamlog.ledger.core.entry import (
    CONFIGURATION,
    KIND_HEADER,
    Message,
    configuration,
    time_to_cut,
)
from streamlog.ledger.core.signing import Signer
from streamlog.ledger.core.verifier import verify_chain
from streamlog.ledger.storage.folder import blocks_of
from streamlog.metadata.commands import Granted
from streamlog.model import TopicPartition
from streamlog.record.codec import Record, RecordRun, iter_records
from streamlog.record.compacted import gap
from tests.fake_partition import FakePartition
from tests.kafka_node import KafkaNode
from tests.ledger_channel import ServedChannel, config_of, files_of, limits
from tests.oracles.offline_cut import cut_stream
from tests.unit.failing_disk import FailingDisk
from tools.nodes.ports import free_port

ALICE, BOB = Signer("alice", b"a" * 32), Signer("bob", b"b" * 32)
STREAM = TopicPartition("c", 0)
OCEANS = 2**40


def put(partition: FakePartition, *messages: Message) -> None:
    """One batch, past the endpoint."""
    run = RecordRun()
    for message in messages:
        run.append(message.key, message.value, message.raw_headers)
    partition.append_bytes(
        run.seal(base_offset=partition.log_end_offset, leader_epoch=0, timestamp_ms=5)
    )


def records_of(partition: FakePartition) -> list[Record]:
    found: list[Record] = []
    for batch in partition.batches:
        batch.file.seek(batch.position)
        found += iter_records(batch.file.read(batch.length))
    return found


def offline(partition: FakePartition) -> list[bytes]:
    """The hashes that every node must come to."""
    records = records_of(partition)
    genesis = find_genesis(records)
    assert genesis is not None
    return [block.hash for block in cut_stream(genesis, records)]


async def test_a_new_channel_makes_its_stream_and_its_genesis(
    tmp_path: Path, node: KafkaNode
) -> None:
    async with ServedChannel(tmp_path, node.address) as served:
        await served.ready()
        config = node.metadata.image.stream("c").config
        assert (config.partitions, config.retention_ms, config.retention_bytes) == (1, -1, -1)
        for number in range(5):
            ack = await served.broadcast(b"%d" % number)
            assert ack.offset >= number + 1
        await served.height(3)
        assert await served.values() == [[b"0", b"1", b"2"], [b"3", b"4"]]
        hashes = [block.block.hash for block in await served.blocks()]
        assert hashes == offline(node.local[STREAM])
        info = served.channel.info()
        assert (info["height"], info["role"], info["problem"]) == (3, "consenter", "")
        assert info["config"]["limits"]["batch_size"] == 3
    report = verify_chain(blocks_of(served.blocks_folder), channel="c")
    assert (report.height, report.records, report.configurations) == (3, 5, 1)


async def test_a_stream_that_has_records_already_is_ordered_from_its_start(
    tmp_path: Path, node: KafkaNode
) -> None:
    partition = await node.add_stream("flights")
    partition.append([b"a", b"b", b"c", b"d"])
    async with ServedChannel(tmp_path, node.address, stream="flights") as served:
        await served.height(3)
        assert (await served.values())[0] == [b"a", b"b", b"c"]
        assert (await served.values())[1] == [b"d"]


async def test_two_nodes_cut_the_same_and_a_third_that_comes_later(
    tmp_path: Path, node: KafkaNode
) -> None:
    """Both find the stream missing, and publish a genesis: the first one in the log counts."""
    first = ServedChannel(tmp_path / "1", node.address, node="node-1")
    second = ServedChannel(
        tmp_path / "2",
        node.address,
        node="node-2",
        genesis=config_of("c", limits=limits(batch_size=2)),
    )
    async with first, second:
        await first.ready()
        await second.ready()
        both = (first, second)
        await asyncio.gather(*(both[n % 2].broadcast(b"%d" % n) for n in range(40)))
        last = offline(node.local[STREAM])
        await first.until(lambda: first.channel.ledger.height >= len(last) - 1)
        third = ServedChannel(tmp_path / "3", node.address, node="node-3")
        async with third:
            await asyncio.sleep(0)
            for each in (first, second, third):
                await each.until(
                    lambda each=each: (
                        each.channel.tip is not None
                        and any(True for _ in records_of(node.local[STREAM]))
                        and each.channel.ledger.height == len(offline(node.local[STREAM]))
                        and each.channel.info()["pending"] == 0
                        and each.channel.tip.next_offset > 40
                    )
                )
    files = [files_of(each.blocks_folder) for each in (first, second, third)]
    assert files[0] == files[1] == files[2]


async def test_a_restart_goes_on_at_the_tip_and_cuts_nothing_twice(
    tmp_path: Path, node: KafkaNode
) -> None:
    served = ServedChannel(tmp_path, node.address)
    for turn in range(3):
        async with served:
            await served.ready()
            for number in range(4):
                await served.broadcast(b"%d.%d" % (turn, number))
            await served.height(2 * (turn + 1))
    partition = node.local[STREAM]
    hashes = offline(partition)
    async with served:
        await served.height(len(hashes))
        assert [block.block.hash for block in await served.blocks()] == hashes


async def test_a_record_past_the_door_that_is_no_ordinary_one_stops_nothing(
    tmp_path: Path, node: KafkaNode
) -> None:
    async with ServedChannel(tmp_path, node.address) as served:
        await served.ready()
        put(
            node.local[STREAM],
            time_to_cut(OCEANS, "somebody"),
            time_to_cut(0, "somebody"),
            Message(None, b"{", (("Streamlog-Ledger", b"configuration"),)),
            Message(None, b"", (("Streamlog-Ledger", b"time-to-cut"),)),
            Message(None, b"", (("Streamlog-Ledger", b"nonsense"),)),
            configuration(config_of("other")),
            configuration(config_of("c", sequence=7)),
            Message(None, b"ordinary"),
        )
        await served.height(2)
        assert await served.values() == [[b"ordinary"]]


async def test_a_configuration_changes_the_limits_for_all(tmp_path: Path, node: KafkaNode) -> None:
    async with ServedChannel(tmp_path, node.address) as served:
        await served.ready()
        wanted = config_of("c", sequence=1, limits=limits(batch_size=1))
        ack = await served.configure(wanted)
        assert ack.block == 1
        assert served.channel.config == wanted
        await served.broadcast(b"alone")
        await served.height(3)
        assert await served.values() == [[b"alone"]]
        with pytest.raises(StaleConfiguration, match="sequence 1 where 2 follows"):
            await served.configure(wanted)
        with pytest.raises(InvalidChannelConfig, match="'d' in the stream of 'c'"):
            await served.configure(config_of("d", sequence=2))


async def test_of_two_updates_at_once_one_is_told_that_it_came_too_late(
    tmp_path: Path, node: KafkaNode
) -> None:
    async with ServedChannel(tmp_path, node.address) as served:
        await served.ready()
        updates = [config_of("c", sequence=1, limits=limits(batch_size=n)) for n in (5, 6)]
        done = await asyncio.gather(*map(served.configure, updates), return_exceptions=True)
        assert sorted(type(each).__name__ for each in done) == [
            "BroadcastAck",
            "StaleConfiguration",
        ]


async def test_what_is_too_large_is_refused_at_the_door(tmp_path: Path, node: KafkaNode) -> None:
    genesis = config_of("c", limits=limits(preferred_max_bytes=500, absolute_max_bytes=1_000))
    async with ServedChannel(tmp_path, node.address, genesis=genesis) as served:
        await served.ready()
        with pytest.raises(RecordTooLarge, match="absolute_max_bytes of channel 'c' is 1000"):
            await served.broadcast(b"x" * 1_000)
        await served.broadcast(b"y" * 900)
        await served.height(2)
        assert await served.values() == [[b"y" * 900]]


async def test_writers_sign_where_the_channel_names_them(tmp_path: Path, node: KafkaNode) -> None:
    genesis = config_of("c", writers=(ALICE.identity,))
    async with ServedChannel(tmp_path, node.address, genesis=genesis) as served:
        await served.ready()
        await served.broadcast(b"from Alice", ALICE)
        with pytest.raises(InvalidSignature, match="sign the record"):
            await served.broadcast(b"from nobody")
        with pytest.raises(InvalidSignature, match="'bob' is no writer of channel 'c'"):
            await served.broadcast(b"from Bob", BOB)
        with pytest.raises(InvalidSignature, match="not that of 'alice'"):
            await served.broadcast(b"from Bob", Signer("alice", b"b" * 32))
        put(node.local[STREAM], Message(None, b"past the endpoint"))
        await served.configure(config_of("c", sequence=1, writers=(BOB.identity,)), ALICE)
        await served.broadcast(b"from Bob", BOB)
        await served.height(4)
        assert await served.values() == [[b"from Alice"], [b"from Bob"]]


async def test_more_filters_may_stand_at_the_door(tmp_path: Path, node: KafkaNode) -> None:
    def no_spam(admission: ChannelPolicy, message: Message) -> None:
        if b"spam" in (message.value or b""):
            raise InvalidRecord(f"channel {admission.config.channel!r} takes no spam")

    broadcaster = Broadcaster([no_spam])
    async with ServedChannel(tmp_path, node.address, broadcaster=broadcaster) as served:
        await served.ready()
        await served.broadcast(b"ham")
        with pytest.raises(InvalidRecord, match="'c' takes no spam"):
            await served.broadcast(b"spam")


async def test_a_stream_that_is_deleted_halts_the_channel_which_is_still_read(
    tmp_path: Path, node: KafkaNode
) -> None:
    served = ServedChannel(tmp_path, node.address)
    async with served:
        await served.ready()
        await served.broadcast(b"kept")
        await served.height(2)
        await node.metadata.delete_stream("c")
        assert "was deleted" in await served.halted()
        assert await served.values() == [[b"kept"]]
        with pytest.raises(ChannelNotReady, match="has halted: stream 'c' was deleted"):
            await served.broadcast(b"too late")
    async with served:
        assert "no stream 'c' any more" in await served.halted()
        assert await served.values() == [[b"kept"]]


async def test_another_stream_of_the_name_is_not_taken_for_it(
    tmp_path: Path, node: KafkaNode
) -> None:
    served = ServedChannel(tmp_path, node.address)
    async with served:
        await served.ready()
        await served.broadcast(b"kept")
        await served.height(2)
        await node.metadata.delete_stream("c")
        (await node.add_stream("c")).append([b"strange"] * 50)
        assert "another has its name" in await served.halted()
    async with served:
        assert "is not the one that channel 'c' has ordered" in await served.halted()
        assert await served.values() == [[b"kept"]]


async def test_a_stream_of_another_channel_is_refused(tmp_path: Path, node: KafkaNode) -> None:
    async with ServedChannel(tmp_path / "1", node.address) as served:
        await served.ready()
    async with ServedChannel(tmp_path / "2", node.address, "d", stream="c") as other:
        assert "stream 'c' is that of channel 'c'" in await other.halted()
        assert other.channel.ledger.height == 0


async def test_a_stream_of_several_partitions_is_refused(tmp_path: Path, node: KafkaNode) -> None:
    await node.add_stream("c", partitions=2)
    async with ServedChannel(tmp_path, node.address) as served:
        assert "has 2 partitions" in await served.halted()


@pytest.mark.parametrize("cleanup_policy", ["compact", "compact,delete"])
async def test_a_compacted_stream_is_refused(
    tmp_path: Path, node: KafkaNode, cleanup_policy: str
) -> None:
    await node.add_stream("c", cleanup_policy=cleanup_policy)
    async with ServedChannel(tmp_path, node.address) as served:
        assert "'c' is compacted" in await served.halted()
        assert served.channel.ledger.height == 0


async def test_a_stream_that_has_lost_what_was_not_ordered_is_told_of(
    tmp_path: Path, node: KafkaNode
) -> None:
    served = ServedChannel(tmp_path, node.address)
    async with served:
        await served.ready()
        await served.broadcast(b"kept")
        await served.height(2)
    partition = node.local[STREAM]
    partition.append([b"lost"] * 5)
    partition.log_start_offset = partition.log_end_offset
    async with served:
        assert "stream 'c' has no record" in await served.halted()


async def test_a_hole_in_the_stream_is_not_passed_over(tmp_path: Path, node: KafkaNode) -> None:
    """A leader has lost a segment in the midst of its log; another node may have it yet."""
    async with ServedChannel(tmp_path, node.address) as served:
        await served.ready()
        partition = node.local[STREAM]
        put(partition, Message(None, b"a"))
        hole = partition.log_end_offset
        run = RecordRun()
        run.append(None, b"behind the hole")
        partition.append_bytes(run.seal(base_offset=hole + 7, leader_epoch=0, timestamp_ms=5))
        said = await served.halted()
        assert f"stream 'c' has a hole: no records from {hole} to {hole + 6}" in said
        assert b"behind the hole" not in [it for run in await served.values() for it in run]


async def test_erased_messages_are_no_hole(tmp_path: Path, node: KafkaNode) -> None:
    async with ServedChannel(tmp_path, node.address) as served:
        await served.ready()
        partition = node.local[STREAM]
        end = partition.log_end_offset
        partition.append_bytes(gap(end, end + 4, leader_epoch=0, max_timestamp_ms=5))
        put(partition, Message(None, b"a"), Message(None, b"b"), Message(None, b"c"))
        await served.height(2)
        assert await served.values() == [[b"a", b"b", b"c"]]


@pytest.mark.parametrize("how", ["shorter", "otherwise", "grown"])
async def test_a_stream_that_is_not_what_was_ordered_any_more_is_told_of(
    tmp_path: Path, node: KafkaNode, how: str
) -> None:
    """It was restored from a backup, or an unclean leader was elected: its end is gone, and
    other records have the offsets of those that were ordered.
    """
    served = ServedChannel(tmp_path, node.address)
    async with served:
        await served.ready()
        for value in (b"1", b"2", b"3"):
            await served.broadcast(value)
        await served.height(2)
        block = (await served.blocks())[-1].block
    partition, end = node.local[STREAM], block.metadata.end_offset
    kept = [it for it in partition.batches if it.next_offset < end]
    partition.batches[:] = kept
    partition.log_end_offset = partition.high_watermark = kept[-1].next_offset
    if how != "shorter":
        put(partition, *(Message(None, b"another") for _ in range(end - kept[-1].next_offset)))
    if how == "grown":
        put(partition, *(Message(None, b"more") for _ in range(10)))
    async with served:
        assert "has not the record" in await served.halted()
        assert await served.values() == [[b"1", b"2", b"3"]]


async def test_a_damaged_ledger_is_mended_out_of_the_stream(
    tmp_path: Path, node: KafkaNode
) -> None:
    served = ServedChannel(tmp_path, node.address)
    async with served:
        await served.ready()
        for number in range(12):
            await served.broadcast(b"number %d" % number)
        await served.until(lambda: served.channel.tip.next_offset > 12)  # type: ignore[union-attr]
    whole = files_of(served.blocks_folder)
    height = served.channel.ledger.height
    (name,) = whole
    damaged = bytearray(whole[name])
    damaged[damaged.index(b"number 5")] ^= 1
    (served.blocks_folder / name).write_bytes(damaged)
    async with served:
        await served.until(lambda: list(served.blocks_folder.glob("*.damaged")))
        await served.height(height)
    assert files_of(served.blocks_folder) == whole


@pytest.mark.parametrize(
    ("operation", "code"),
    [("pwrite", errno.ENOSPC), ("pwrite", errno.EIO), ("sync", errno.EIO)],
)
async def test_a_disk_that_is_full_or_fails_is_waited_for(
    tmp_path: Path, node: KafkaNode, monkeypatch: pytest.MonkeyPatch, operation: str, code: int
) -> None:
    """Messages are still taken, for they are in the stream; no block is lost, or cut twice."""
    monkeypatch.setattr(channels, "PAUSE_S", 0.05)
    disk = FailingDisk()
    served = ServedChannel(tmp_path, node.address, disk=disk)
    async with served:
        await served.ready()
        await served.broadcast(b"before")
        await served.height(2)
        disk.faults.break_(operation, code=code)
        put(node.local[STREAM], *(Message(None, b"%d" % number) for number in range(6)))
        await served.until(lambda: served.channel.problem)
        assert not served.channel.is_halted
        assert served.channel.ledger.height == 2
        disk.faults.mend()
        await served.height(4)
        await served.broadcast(b"after")
        await served.height(5)
        assert served.channel.info()["problem"] == ""
        hashes = [block.block.hash for block in await served.blocks()]
        assert hashes == offline(node.local[STREAM])[: len(hashes)]
    verify_chain(blocks_of(served.blocks_folder))


async def test_a_folder_that_cannot_be_opened_is_waited_for(
    tmp_path: Path, node: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "PAUSE_S", 0.05)
    disk = FailingDisk()
    served = ServedChannel(tmp_path, node.address, disk=disk)
    async with served:
        disk.faults.break_("make_directory", path="blocks")
        await served.until(lambda: served.channel.problem)
        with pytest.raises(ChannelNotReady, match="starts"):
            await served.blocks()
        disk.faults.mend()
        await served.height(1)


async def test_a_configuration_of_a_later_streamlog_halts_the_channel(
    tmp_path: Path, node: KafkaNode
) -> None:
    async with ServedChannel(tmp_path, node.address) as served:
        await served.ready()
        text = b'{"format": 2, "channel": "c", "sequence": 1, "colour": "red"}'
        later = Message(None, text, ((KIND_HEADER, CONFIGURATION),))
        put(node.local[STREAM], Message(None, b"before"), later, Message(None, b"after"))
        assert "a later streamlog is needed" in await served.halted()
        assert served.channel.ledger.height == 1


async def test_a_cluster_that_is_away_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "PAUSE_S", 0.05)
    monkeypatch.setattr(consuming, "PATIENCE_MS", 100)
    monkeypatch.setattr(broadcasting, "READY_TIMEOUT_S", 0.1)
    port = free_port()
    async with ServedChannel(tmp_path, f"127.0.0.1:{port}") as served:
        await served.until(lambda: served.channel.problem)
        with pytest.raises(ChannelNotReady, match=r"is not ready: .*Connection refused.*try again"):
            await served.broadcast(b"too early")
        async with KafkaNode(port=port) as node:
            node.metadata.result = Granted(1, {"first": 7, "end": 1_007})
            await served.ready()
            await served.broadcast(b"one")


async def test_a_folder_of_another_channel_is_refused(tmp_path: Path, node: KafkaNode) -> None:
    async with ServedChannel(tmp_path, node.address) as served:
        await served.ready()
    (tmp_path / "c").rename(tmp_path / "d")
    file = tmp_path / "d" / "channel.json"
    file.write_text(file.read_text().replace('"channel":"c"', '"channel":"d"'))
    async with ServedChannel(tmp_path, node.address, "d") as other:
        assert "are those of 'c'" in await other.halted()


async def test_who_is_no_consenter_does_not_cut(tmp_path: Path, node: KafkaNode) -> None:
    """It follows until a configuration names it, and stops cutting when one no longer does."""
    followed: list[int] = []

    async def follow(channel: Any) -> None:
        followed.append(channel.ledger.height)
        if len(followed) > 1:
            await asyncio.Event().wait()
        config: ChannelConfig = channel.config
        with_us = config.model_copy(
            update={"sequence": 1, "consenters": (OrderingNode(name="node-1"),)}
        )
        offset = await channel.publisher.publish(configuration(with_us))
        records = [record for record in records_of(node.local[STREAM]) if record.offset == offset]
        from streamlog.ledger.core.consenter import AppendBlock, Consenter, RecordsConsumed

        effects = Consenter(channel.tip, config).step(RecordsConsumed(records))
        blocks = [effect.block for effect in effects if isinstance(effect, AppendBlock)]
        await channel.append_pulled(blocks)

    genesis = config_of("c", consenters=(OrderingNode(name="node-2"),))
    async with ServedChannel(tmp_path, node.address, genesis=genesis, follow=follow) as served:
        await served.until(lambda: served.channel.is_consenter)
        await served.broadcast(b"cut here")
        await served.height(3)
        assert followed == [1]
        config = served.channel.config
        assert config is not None
        without_us = config.model_copy(update={"sequence": 2, "consenters": genesis.consenters})
        await served.configure(without_us)
        await served.until(lambda: followed == [1, 4])
