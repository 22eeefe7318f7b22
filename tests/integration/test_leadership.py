"""Which node listens, when leaders, epochs and leases change; with a real nats-server."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError

from streamlog.config import IngestSection, NatsSection
from streamlog.errors import NotLeader, PartitionNotFound
from streamlog.ingest.service import IngestService
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage, StreamImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metrics import NodeMetrics
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.nats.router import Router
from streamlog.nats.sockets import Sockets
from streamlog.partition.replica_manager import ReplicaManager
from streamlog.partition.state import UNAWAITED
from streamlog.record.batch import PUBLISHED
from streamlog.record.codec import RecordRun
from tests.fake_lease import FakeLease
from tests.led_partition import FakePartition
from tests.local_node import until
from tools.nodes.server_process import NatsServer

ONE, TWO = NodeId(1), NodeId(2)


class Ingest:
    """The source of node 1, with partitions and metadata in the hands of a test."""

    def __init__(self, url: str) -> None:
        self.lease = FakeLease()
        self.partitions: dict[TopicPartition, FakePartition] = {}
        self.image = MetadataImage("test")
        router = Router()
        self.sockets = Sockets(router, write_timeout_ms=10_000)
        self.source = IngestService(
            node_id=ONE,
            nats=NatsSection(servers=(url,), reconnect_backoff_ms=20),
            ingest=IngestSection(),
            message_bytes_max=1 << 20,
            partitions=cast(ReplicaManager, self),
            router=router,
            sockets=self.sockets,
            metrics=NodeMetrics(),
            lease=self.lease,
        )

    def partition(self, tp: TopicPartition) -> FakePartition:
        if tp not in self.partitions:
            raise PartitionNotFound(str(tp))
        return self.partitions[tp]

    def add(self, name: str, partitions: int = 1) -> FakePartition:
        for number in range(partitions):
            tp = TopicPartition(name, number)
            self.partitions[tp] = FakePartition(tp)
        return self.partitions[TopicPartition(name, 0)]

    async def lead(self, leader: NodeId, epoch: int, *names: str, **settings: object) -> None:
        """All partitions of these streams have this leader from now on."""
        partition = PartitionImage((ONE, TWO), leader, epoch, (ONE, TWO), epoch)
        streams = self.image.streams
        for name in names or tuple(streams):
            self.partition(TopicPartition(name, 0)).leader_epoch = epoch
            known = streams.get(name)
            config = known.config if known else StreamConfig.of(name=name, **settings)
            stream_id = known.stream_id if known else uuid.uuid4()
            partitions = (partition,) * config.partitions
            streams = streams.set(name, StreamImage(config, stream_id, 0, partitions))
        await self.become(replace(self.image, streams=streams, offset=self.image.offset + 1))

    async def become(self, image: MetadataImage) -> None:
        old, self.image = self.image, image
        self.source.apply(old, image)
        await self.source.settled(None)


@pytest.fixture
async def ingest(nats_server: NatsServer) -> AsyncIterator[Ingest]:
    ingest = Ingest(nats_server.url)
    async with asyncio.TaskGroup() as group:
        ingest.sockets.begin(ingest.source.room)
        serving = group.create_task(ingest.sockets.run())
        group.create_task(ingest.source.run())
        await until(lambda: ingest.source.is_connected)
        yield ingest
        for partition in ingest.partitions.values():
            partition.may_read.set()
            partition.fail(NotLeader("the test is over"))
        await ingest.source.stop()
        serving.cancel()
        ingest.sockets.close()


def publish(
    nc: Client, subject: str = "orders", message_id: str = ""
) -> asyncio.Task[dict[str, object]]:
    """The answer as it comes."""

    async def ask() -> dict[str, object]:
        headers = {"Nats-Msg-Id": message_id} if message_id else None
        answer = await nc.request(subject, b"x", timeout=5, headers=headers)
        return dict(json.loads(answer.data))

    return asyncio.create_task(ask())


async def nobody_listens(nc: Client, subject: str = "orders") -> bool:
    try:
        await nc.request(subject, b"probe", timeout=1)  # as long as a busy server may take
    except NoRespondersError:
        return True
    except nats.errors.TimeoutError:
        return False
    return False


async def until_nobody_listens(nc: Client) -> None:
    async with asyncio.timeout(5):
        while not await nobody_listens(nc):
            pass


async def test_only_the_leader_listens(ingest: Ingest, nc: Client) -> None:
    partition = ingest.add("orders")
    await ingest.lead(TWO, 0, "orders")
    assert await nobody_listens(nc)
    await ingest.lead(ONE, 1)
    await ingest.source._listening.round_trip()
    answer = publish(nc)
    await until(lambda: bool(partition.waiting))
    partition.commit()
    assert await answer == {"stream": "orders", "seq": 11}
    await ingest.lead(NO_LEADER, 2)
    await until_nobody_listens(nc)
    assert len(ingest.source._listening) == 0


async def test_a_leader_that_is_deposed_lets_nobody_wait_and_knows_all_ids_when_it_is_back(
    ingest: Ingest, nc: Client
) -> None:
    partition = ingest.add("orders")
    await ingest.lead(ONE, 1, "orders")
    answer = publish(nc, message_id="one")
    await until(lambda: bool(partition.waiting))
    partition.fail(NotLeader("node 2 leads"))  # as the registry does, which hears first
    await ingest.lead(TWO, 2)
    assert (await answer)["error"]["err_code"] == 10008  # type: ignore[index]
    await until_nobody_listens(nc)
    # Node 2 has committed nothing, so the record is still here.
    await ingest.lead(ONE, 3)
    await until(lambda: ingest.source.has_settled(ingest.image))
    again = publish(nc, message_id="one")
    other = publish(nc, message_id="two")
    await until(lambda: len(partition.batches) == 2)
    assert not again.done()
    partition.commit()
    assert await again == {"stream": "orders", "seq": 11, "duplicate": True}
    assert await other == {"stream": "orders", "seq": 12}


@pytest.mark.parametrize("seen", [True, False], ids=["each change seen", "two changes in one"])
async def test_ids_of_records_that_were_cut_off_are_forgotten(
    ingest: Ingest, nc: Client, seen: bool
) -> None:
    partition = ingest.add("orders")
    await ingest.lead(ONE, 1, "orders")
    answer = publish(nc, message_id="one")
    await until(lambda: bool(partition.waiting))
    partition.fail(NotLeader("node 2 leads"))
    if seen:
        await ingest.lead(TWO, 2)
    assert "error" in await answer
    partition.batches.clear()  # as a follower of node 2, which never had it
    partition.log_end_offset = 10
    await ingest.lead(ONE, 3)
    await ingest.source._listening.round_trip()
    again = publish(nc, message_id="one")
    await until(lambda: bool(partition.waiting))
    partition.commit()
    assert await again == {"stream": "orders", "seq": 11}


async def test_a_follower_knows_the_ids_before_it_leads(ingest: Ingest, nc: Client) -> None:
    partition = ingest.add("orders")
    run = RecordRun(attributes=PUBLISHED)
    run.append(None, b"x", [(b"subject", b"orders"), (b"Nats-Msg-Id", b"one")])
    partition.append(run, UNAWAITED)
    await ingest.lead(TWO, 1, "orders")
    partition.commit()
    await until(lambda: ingest.source._standby._followed["orders"][partition.tp].known_offset == 11)
    partition.may_read.clear()  # nothing is to be read any more
    await ingest.lead(ONE, 2)
    await ingest.source._listening.round_trip()
    assert await publish(nc, message_id="one") == {"stream": "orders", "seq": 11, "duplicate": True}
    await ingest.lead(TWO, 3)
    assert list(ingest.source._standby._followed["orders"]) == [partition.tp]


async def test_what_comes_before_ingest_hears_of_a_new_epoch_is_not_stored(
    ingest: Ingest, nc: Client
) -> None:
    partition = ingest.add("orders")
    await ingest.lead(ONE, 1, "orders")
    await ingest.source._listening.round_trip()
    partition.leader_epoch = 3  # the registry has heard of it, and its log may be another one
    assert (await publish(nc, message_id="one"))["error"]["err_code"] == 10008  # type: ignore[index]
    assert not partition.batches
    await ingest.lead(ONE, 3)
    await ingest.source._listening.round_trip()
    answer = publish(nc, message_id="one")
    await until(lambda: bool(partition.waiting))
    partition.commit()
    assert await answer == {"stream": "orders", "seq": 11}


async def test_another_epoch_of_the_same_leader_stores_each_message_once(
    ingest: Ingest, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest.add("orders")
    written: list[bytes] = []
    client = ingest.source._listening._link
    assert client is not None
    write = client.write

    def keep(data: bytes) -> None:
        written.append(data)
        write(data)

    monkeypatch.setattr(client, "write", keep)
    await ingest.lead(ONE, 1, "orders")
    await ingest.lead(ONE, 2)
    assert written == [b"SUB orders 1\r\n", b"UNSUB 1\r\n", b"SUB orders 2\r\n"]


async def test_without_the_lease_nobody_listens_and_what_is_appended_waits(
    ingest: Ingest, nc: Client
) -> None:
    partition = ingest.add("orders")
    await ingest.lead(ONE, 1, "orders")
    answer = publish(nc, message_id="one")
    await until(lambda: bool(partition.waiting))
    ingest.lease.turn(False)
    await until_nobody_listens(nc)
    ingest.add("late")
    await ingest.lead(ONE, 1, "late")
    assert await nobody_listens(nc, "late")
    assert not answer.done()
    ingest.lease.turn(True)
    await ingest.source._listening.round_trip()
    again, late = publish(nc, message_id="one"), publish(nc, "late")
    await until(lambda: bool(ingest.partition(TopicPartition("late", 0)).waiting))
    partition.commit()
    ingest.partition(TopicPartition("late", 0)).commit()
    assert await answer == {"stream": "orders", "seq": 11}
    assert await again == {"stream": "orders", "seq": 11, "duplicate": True}
    assert await late == {"stream": "late", "seq": 11}


async def test_a_long_window_keeps_neither_metadata_nor_other_partitions_waiting(
    ingest: Ingest, nc: Client
) -> None:
    slow, quick = ingest.add("slow"), ingest.add("quick")
    for partition in (slow, quick):
        partition.log_end_offset = partition.high_watermark = 11  # of records too old to have ids
        partition.older_bytes = 1 << 20
    slow.may_read.clear()
    await ingest.lead(ONE, 1, "slow", "quick")
    await until(lambda: len(ingest.source._listening) == 1)
    await ingest.source._listening.round_trip()
    answer = publish(nc, "quick")
    await until(lambda: bool(quick.waiting))
    quick.commit()
    assert await answer == {"stream": "quick", "seq": 12}
    # Another configuration must not open it too early, nor a deposed one at all.
    stream = ingest.image.streams["slow"]
    changed = replace(stream, config=stream.config.changed(subjects=("other",)))
    streams = ingest.image.streams.set("slow", changed)
    await ingest.become(replace(ingest.image, streams=streams))
    assert await nobody_listens(nc, "slow") and await nobody_listens(nc, "other")
    slow.may_read.set()
    await until(lambda: len(ingest.source._listening) == 2)
    await ingest.source._listening.round_trip()
    answer = publish(nc, "other")
    await until(lambda: bool(slow.waiting))
    slow.may_read.clear()
    await ingest.lead(ONE, 2, "slow")
    await until(lambda: slow.readings == 2)
    await ingest.lead(TWO, 3, "slow")
    slow.may_read.set()
    slow.fail(NotLeader("node 2 leads"))
    assert "error" in await answer
    await asyncio.sleep(0.05)
    assert await nobody_listens(nc, "other")


async def test_a_stop_answers_those_whose_commit_does_not_come(
    ingest: Ingest, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamlog.ingest.service.COMMIT_TIMEOUT_S", 0.05)
    partition = ingest.add("orders")
    await ingest.lead(ONE, 1, "orders")
    answer = publish(nc)
    await until(lambda: bool(partition.waiting))
    await ingest.source.stop()
    assert (await answer)["error"]["err_code"] == 10008  # type: ignore[index]


@pytest.mark.parametrize("change", ["follows", "leads again"])
async def test_a_repetition_is_no_duplicate_where_another_leader_has_cut_the_log(
    ingest: Ingest, nc: Client, change: str
) -> None:
    """The record is a former leader's, so that nobody but its repetition waits for it.

    The partition hears first that another one leads, cuts its log, and fetches other records up to
    and beyond that offset.
    """
    partition = ingest.add("orders")
    await ingest.lead(ONE, 1, "orders")
    first = publish(nc, message_id="a")
    await until(lambda: bool(partition.waiting))
    partition.fail(NotLeader("node 2 leads"))
    assert "error" in await first
    await ingest.lead(TWO, 2)
    await ingest.lead(ONE, 3)
    await until(lambda: ingest.source.has_settled(ingest.image))
    again = publish(nc, message_id="a")
    await until(lambda: bool(partition.watchers))
    partition.is_leader, partition.leader_epoch = change == "leads again", 4
    partition.move(12)
    assert (await again)["error"]["err_code"] == 10008  # type: ignore[index]
