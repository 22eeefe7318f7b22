"""Transactions over the socket, on real partitions; the coordinator is a table of what it answers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from streamlog.clock import wall_ms
from streamlog.model import TopicPartition
from streamlog.partition.partition import Partition
from streamlog.record.batch import TRANSACTIONAL
from streamlog.record.transaction_marker import TransactionMarker
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.registry import DESCRIBE_PRODUCERS, LIST_OFFSETS, PRODUCE
from tests.raw_client import RawClient, at, wanted
from tests.record_batches import HandRecord, hand_batch
from tests.unit.partition.replica_world import TP, ReplicaWorld

LATEST, MAX_TIMESTAMP = -1, -3
TIME_MS = wall_ms()
"""As the node's markers have it: else each would begin a segment."""


class Coordinator:
    """A ``TransactionPartitions``."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, bool]] = []
        self.code = ErrorCode.none
        self.meanwhile: Callable[[], Any] | None = None
        """Done before the answer arrives."""

    async def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        self.asked.append((transactional_id, producer_id, producer_epoch, verify_only))
        if self.meanwhile is not None:
            await self.meanwhile()
        return dict.fromkeys(partitions, self.code)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
async def world(tmp_path: Path, coordinator: Coordinator) -> AsyncIterator[ReplicaWorld]:
    async with ReplicaWorld(tmp_path, 1) as made:
        made.transactions = coordinator
        await made.stop(1)
        await made.start(1)
        await made.create(replicas=1)
        yield made


def partition_of(world: ReplicaWorld) -> Partition:
    return world.leader.partition(TP)


def client_of(world: ReplicaWorld) -> RawClient:
    return RawClient(world.leader.listener.address[1])


def batch_of(
    sequence: int,
    count: int = 1,
    *,
    producer: int = 7,
    epoch: int = 0,
    attributes: int = TRANSACTIONAL,
) -> bytes:
    return hand_batch(
        [HandRecord(b"%d-%d" % (producer, sequence + at)) for at in range(count)],
        base_timestamp_ms=TIME_MS + sequence,
        max_timestamp_ms=TIME_MS + sequence,
        producer=(producer, epoch, sequence),
        attributes=attributes,
    )


async def produce(
    client: RawClient,
    records: bytes,
    *,
    transactional_id: str | None = "t",
    version: int = 12,
    acks: int = -1,
) -> tuple[int, int]:
    request = {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": 5_000,
        "topic_data": [
            {"name": "s", "partition_data": [{"index": 0, "records": records}]},
        ],
    }
    answer = await client.ask(PRODUCE, version, request)
    (found,) = answer["responses"][0]["partition_responses"]
    return found["error_code"], found["base_offset"]


async def end(world: ReplicaWorld, *, is_commit: bool, epoch: int = 1, producer: int = 7) -> None:
    await partition_of(world).end_transaction(TransactionMarker(producer, epoch, is_commit, 0))


@pytest.mark.parametrize(("version", "verify_only"), [(12, False), (11, True)])
async def test_the_coordinator_is_asked_before_the_first_batch(
    world: ReplicaWorld, coordinator: Coordinator, version: int, verify_only: bool
) -> None:
    async with client_of(world) as client:
        assert await produce(client, batch_of(0), version=version) == (0, 0)
        assert await produce(client, batch_of(1), version=version) == (0, 1)
        assert coordinator.asked == [("t", 7, 0, verify_only)]
        await end(world, is_commit=True)
        assert await produce(client, batch_of(0, epoch=1), version=version) == (0, 3)
        assert len(coordinator.asked) == 2


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.concurrent_transactions, ErrorCode.not_enough_replicas),
        (ErrorCode.not_coordinator, ErrorCode.not_enough_replicas),
        (ErrorCode.transaction_abortable, ErrorCode.transaction_abortable),
        (ErrorCode.invalid_producer_epoch, ErrorCode.invalid_producer_epoch),
        (ErrorCode.invalid_producer_id_mapping, ErrorCode.invalid_producer_id_mapping),
    ],
)
async def test_what_the_coordinator_refuses_is_not_stored(
    world: ReplicaWorld, coordinator: Coordinator, code: ErrorCode, told: ErrorCode
) -> None:
    coordinator.code = code
    async with client_of(world) as client:
        assert await produce(client, batch_of(0)) == (told, -1)
        assert partition_of(world).log_end_offset == 0
        coordinator.code = ErrorCode.none
        assert (await produce(client, batch_of(1)))[0] == ErrorCode.out_of_order_sequence_number
        assert await produce(client, batch_of(0)) == (0, 0)


@pytest.mark.parametrize(("version", "code"), [(10, 48), (11, 120)])
async def test_older_producers_are_told_what_they_know(
    world: ReplicaWorld, coordinator: Coordinator, version: int, code: int
) -> None:
    coordinator.code = ErrorCode.transaction_abortable
    async with client_of(world) as client:
        assert await produce(client, batch_of(0), version=version) == (code, -1)


async def test_a_marker_that_comes_before_the_batch_makes_the_answer_void(
    world: ReplicaWorld, coordinator: Coordinator
) -> None:
    async def abort() -> None:
        await partition_of(world).end_transaction(TransactionMarker(7, 0, False, 0, 1))

    coordinator.meanwhile = abort
    async with client_of(world) as client:
        assert await produce(client, batch_of(0)) == (ErrorCode.invalid_txn_state, -1)
    assert partition_of(world).stable_offset == 1


async def test_requests_that_fit_no_transaction(world: ReplicaWorld) -> None:
    async with client_of(world) as client:
        refused = await produce(client, batch_of(0), transactional_id=None)
        assert refused == (ErrorCode.transactional_id_authorization_failed, -1)
        assert await produce(client, batch_of(0), acks=1) == (ErrorCode.invalid_required_acks, -1)
        assert await produce(client, batch_of(0)) == (0, 0)
        plain = await produce(client, batch_of(1, attributes=0))
        assert plain == (ErrorCode.invalid_txn_state, -1)


async def test_without_a_coordinator_there_are_no_transactions(tmp_path: Path) -> None:
    async with ReplicaWorld(tmp_path, 1) as world:
        await world.create(replicas=1)
        async with client_of(world) as client:
            found = await produce(client, batch_of(0))
            assert found == (ErrorCode.transactional_id_authorization_failed, -1)


@pytest.mark.parametrize("version", [4, 5, 11, 12])
async def test_who_reads_committed_records_is_told_of_aborted_ones(
    world: ReplicaWorld, version: int
) -> None:
    partition = partition_of(world)
    async with client_of(world) as client:
        await produce(client, batch_of(0, 2))
        await produce(client, batch_of(0, producer=8))
        await end(world, is_commit=False, producer=8)
        for level, stable, ranges in ((0, 0, ()), (1, 0, ())):
            asked = wanted(at(0), topic="s", isolation_level=level)
            (found,) = (await client.fetch(asked, version)).partitions
            assert found.fetched.high_watermark == 4
            assert found.fetched.stable_offset == stable
            assert found.fetched.aborted == ranges
            assert bool(found.records) == (level == 0)
        await end(world, is_commit=True)
        asked = wanted(at(0), topic="s", isolation_level=1)
        (found,) = (await client.fetch(asked, version)).partitions
        assert found.fetched.aborted == ((8, 2),)
        assert found.fetched.stable_offset is None  # as the high watermark
        assert len(found.records) == partition.size_bytes
        (found,) = (
            await client.fetch(wanted(at(4), topic="s", isolation_level=1), version)
        ).partitions
        assert found.fetched.aborted == ()
        assert found.records


async def test_a_fetch_waits_for_the_end_of_the_transaction(world: ReplicaWorld) -> None:
    async with client_of(world) as client, client_of(world) as reader:
        await produce(client, batch_of(0))
        asked = wanted(at(0), topic="s", isolation_level=1, max_wait_ms=20_000)
        reading = asyncio.ensure_future(reader.fetch(asked, 12))
        await produce(client, batch_of(1))
        await asyncio.sleep(0.05)
        assert not reading.done()
        await end(world, is_commit=True)
        (found,) = (await reading).partitions
        assert found.records


async def offset_at(client: RawClient, timestamp_ms: int, level: int) -> int:
    request = {
        "replica_id": -1,
        "isolation_level": level,
        "topics": [
            {
                "name": "s",
                "partitions": [
                    {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp_ms}
                ],
            }
        ],
    }
    answer = await client.ask(LIST_OFFSETS, 7, request)
    offset: int = answer["topics"][0]["partitions"][0]["offset"]
    return offset


async def test_offsets_of_committed_records(world: ReplicaWorld) -> None:
    async with client_of(world) as client:
        plain = batch_of(0, producer=9, attributes=0)
        assert await produce(client, plain, transactional_id=None) == (0, 0)
        await produce(client, batch_of(50))
        assert [await offset_at(client, LATEST, level) for level in (0, 1)] == [2, 1]
        assert [await offset_at(client, TIME_MS + 20, level) for level in (0, 1)] == [1, -1]
        assert [await offset_at(client, MAX_TIMESTAMP, level) for level in (0, 1)] == [1, 0]
        await end(world, is_commit=True)
        assert [await offset_at(client, LATEST, level) for level in (0, 1)] == [3, 3]
        assert [await offset_at(client, TIME_MS + 20, level) for level in (0, 1)] == [1, 1]


async def test_producers_are_described(world: ReplicaWorld) -> None:
    async with client_of(world) as client:
        await produce(client, batch_of(0, 3))
        await produce(client, batch_of(0, producer=8))
        await end(world, is_commit=True, producer=8)
        request = {"topics": [{"name": "s", "partition_indexes": [0, 1]}]}
        answer = await client.ask(DESCRIBE_PRODUCERS, 0, request)
        first, second = answer["topics"][0]["partitions"]
        assert second["error_code"] == ErrorCode.unknown_topic_or_partition
        found = {
            it["producer_id"]: (
                it["producer_epoch"],
                it["last_sequence"],
                it["coordinator_epoch"],
                it["current_txn_start_offset"],
            )
            for it in first["active_producers"]
        }
        assert found == {7: (0, 2, -1, 0), 8: (1, -1, 0, -1)}
