"""Whoever reads a partition with transactions is shown what is committed: over the socket, and out of its files."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from typer.testing import CliRunner

from pyspark_streamlog.options.read_options import SourceOptions
from streamlog.arrow.files.file_reader import FileReader
from streamlog.arrow.offset_ranges import plan_offset_ranges
from streamlog.arrow.range_reader import open_location
from streamlog.arrow.servers.fetch_reader import FetchReader
from streamlog.backup.folder_source import KeptFolders
from streamlog.backup.placement import node_file
from streamlog.cli.messages.log import app
from streamlog.client.cluster import Cluster
from streamlog.client.reader import PartitionReader
from streamlog.clock import wall_ms
from streamlog.metadata.nodes.data_dir import FORMAT_VERSION
from streamlog.model import NodeId
from streamlog.partition.partition import Partition
from streamlog.record.batch import TRANSACTIONAL
from streamlog.record.codec import iter_records
from streamlog.record.columns import arrow_schema
from streamlog.record.produced import check_inside, check_outside
from streamlog.record.transaction_marker import TransactionMarker
from tests.partition_world import Told
from tests.record_batches import HandRecord, hand_batch
from tests.unit.partition.replica_world import TP, ReplicaWorld

DECIDED = [b"a", b"b", b"committed", b"c"]
ALL = [*DECIDED, b"late", b"d"]
Read = Callable[[ReplicaWorld], Any]


async def produce(partition: Partition, *values: bytes, producer: int = -1) -> None:
    data = hand_batch(
        [HandRecord(value, headers=[(b"subject", b"s." + value)]) for value in values],
        base_timestamp_ms=wall_ms(),
        max_timestamp_ms=wall_ms(),
        producer=(producer, 0 if producer >= 0 else -1, 0 if producer >= 0 else -1),
        attributes=TRANSACTIONAL if producer >= 0 else 0,
    )
    batch = check_inside(check_outside(data, transactional=True), data)
    await partition.know_producers()
    verified = partition.verify_transaction(batch.header) if producer >= 0 else None
    told = Told()
    partition.produce(batch, told, verified=verified)
    await told.answer


async def end(partition: Partition, producer: int, *, is_commit: bool) -> None:
    await partition.end_transaction(TransactionMarker(producer, 1, is_commit, 0))


async def fill(partition: Partition) -> None:
    await produce(partition, b"a")
    await produce(partition, b"aborted", b"too", producer=7)
    await produce(partition, b"b")
    await end(partition, 7, is_commit=False)
    await produce(partition, b"committed", producer=8)
    await end(partition, 8, is_commit=True)
    await produce(partition, b"c")
    await produce(partition, b"late", producer=9)
    await produce(partition, b"d")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ReplicaWorld]:
    async with ReplicaWorld(tmp_path, 1) as made:
        await made.create(replicas=1)
        await fill(made.leader.partition())
        yield made


def address(world: ReplicaWorld) -> str:
    return "{}:{}".format(*world.leader.listener.address)


async def by_reader(world: ReplicaWorld) -> list[bytes | None]:
    cluster = Cluster([world.leader.listener.address])
    async with PartitionReader(cluster, TP) as reader:
        found = [it.value async for it in reader.records()]
    cluster.close()
    return found


async def by_librdkafka(world: ReplicaWorld) -> list[bytes | None]:
    settings = {
        "bootstrap.servers": address(world),
        "group.id": "g",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }

    def read() -> list[bytes | None]:
        consumer, found = Consumer(settings), list[bytes | None]()
        consumer.assign([TopicPartition(TP.stream, TP.partition, OFFSET_BEGINNING)])
        while (message := consumer.poll(10)) is not None:
            if (error := message.error()) is not None:
                assert error.name() == "_PARTITION_EOF", error
                break
            found.append(message.value())
        consumer.close()
        return found

    return await asyncio.to_thread(read)


def by_spark(where: dict[str, str], reader: type[FetchReader | FileReader]) -> list[bytes | None]:
    options = SourceOptions.parse({**where, "subscribe": TP.stream})
    with open_location(options) as place:
        ranges = plan_offset_ranges(place, options)
        tasks = place.cut(ranges, options.task_bytes_max, options.tasks_min)
    schema = arrow_schema(("topic", "partition", "offset", "value"))
    return [
        row["value"]
        for task in tasks
        for batch in reader(task, options, schema).read()
        for row in batch.to_pylist()
    ]


async def by_spark_over_sockets(world: ReplicaWorld) -> list[bytes | None]:
    return await asyncio.to_thread(by_spark, {"servers": address(world)}, FetchReader)


async def folder_of(world: ReplicaWorld) -> Path:
    """As the node leaves it at its next checkpoint."""
    node = world.leader
    await node.registry._tasks.write_checkpoints()
    return world.path / str(node.node_id)


async def by_spark_out_of_files(world: ReplicaWorld) -> list[bytes | None]:
    return await asyncio.to_thread(by_spark, {"path": str(await folder_of(world))}, FileReader)


async def by_backup(world: ReplicaWorld) -> list[bytes | None]:
    folder = await folder_of(world)
    content = node_file("c", NodeId(1), UUID(int=1), FORMAT_VERSION)
    (folder / "node.json").write_bytes(content)
    source, stream = KeptFolders([folder]), world.leader.image.stream(TP.stream)
    start, stop = await source.extent(stream, TP)
    found, at = list[bytes | None](), start
    async for header, batch in source.batches(stream, 0, start, stop):
        assert header.base_offset == at
        at = header.next_offset
        found += [it.value for it in iter_records(batch)]
    return found


async def by_dump(world: ReplicaWorld) -> list[bytes | None]:
    folder = await folder_of(world) / "streams" / TP.stream / "0"
    result = await asyncio.to_thread(CliRunner().invoke, app, ["dump", str(folder), "--records"])
    assert result.exit_code == 0, result.output
    return [json.loads(line)["value"].encode() for line in result.output.splitlines()]


READERS: list[Read] = [
    by_reader,
    by_librdkafka,
    by_spark_over_sockets,
    by_spark_out_of_files,
    by_backup,
]


@pytest.mark.parametrize("read", READERS, ids=lambda it: it.__name__)
async def test_nothing_aborted_or_open_is_shown(world: ReplicaWorld, read: Read) -> None:
    assert await read(world) == DECIDED
    await end(world.leader.partition(), 9, is_commit=True)
    assert await read(world) == ALL


async def test_the_log_dumper_shows_what_is_decided(world: ReplicaWorld) -> None:
    """It reads all that lies there, whatever is committed: what comes after an open transaction, too."""
    assert await by_dump(world) == [*DECIDED, b"d"]
    await end(world.leader.partition(), 9, is_commit=False)
    assert await by_dump(world) == [*DECIDED, b"d"]
