"""An image takes effect when it is applied, however slow disks and cuts are."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from streamlog.config import LogSection
from streamlog.errors import NotLeader, PartitionNotFound, StreamlogError, StreamNotFound
from streamlog.log.layout import decode_mark
from streamlog.metrics import NodeMetrics
from streamlog.model import TopicPartition
from streamlog.partition import replica_manager as registry_module
from streamlog.partition.replica_manager import ReplicaManager
from streamlog.partition.replication.partition_follower import Truncation
from streamlog.partition.replication.truncation import LOG_CUT, _truncate
from tests.assigned_images import ONE, TWO, Assigned
from tests.partition_world import Told, run_of, tp
from tests.slow_disk import SlowDisk


class Node:
    """A registry, driven by images of the test's own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.disk = SlowDisk()
        self.assigned = Assigned()
        self.registry = ReplicaManager(
            path,
            node_id=ONE,
            settings=LogSection(checkpoint_interval_ms=3_600_000),
            metrics=NodeMetrics(),
            disk=self.disk,
        )
        self.heard: list[TopicPartition] = []
        self.registry.add_listener(self.heard.append)
        self._applied = self.assigned.image
        self._cutters: list[ThreadPoolExecutor] = []

    def apply(self) -> None:
        """All that was changed since the last time, as one image."""
        old, self._applied = self._applied, self.assigned.image
        self.registry.apply(old, self._applied)

    async def settled(self, stream: str | None = None) -> None:
        async with asyncio.timeout(20):
            await self.registry.settled(stream)

    def cut_slowly(self, name: str) -> Event:
        """Let a follower's log be cut to nothing; the cut ends after the event."""
        free, worker = Event(), ThreadPoolExecutor(1)
        self._cutters.append(worker)
        worker.submit(free.wait)
        partition = self.registry.partition(tp(name))
        cut = _truncate(partition, Truncation(0, whole=True), worker, LOG_CUT)
        self._cut = asyncio.get_running_loop().create_task(cut)
        return free

    def mark(self, name: str) -> int:
        return decode_mark(
            (self.path / f"streams/{name}/0/partition.metadata").read_bytes()
        ).stream_id.int

    async def close(self) -> None:
        self.disk.let_all_go()
        for worker in self._cutters:
            worker.shutdown()
        await self.registry.close()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(tmp_path)
    await node.registry.open(node.assigned.image)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(node.registry.run())
        await asyncio.sleep(0)
        yield node
        await node.close()
        running.cancel()


async def test_who_is_deleted_acknowledges_nothing_while_its_folder_cannot_be_moved(
    node: Node,
) -> None:
    node.assigned.create("s")
    node.apply()
    await node.settled()
    partition, told = node.registry.partition(tp("s")), Told()
    partition.append(run_of(b"x"), told)
    node.disk.hold("/s/0")
    node.assigned.delete("s")
    node.apply()
    assert isinstance(told.answer.exception(), StreamNotFound)
    with pytest.raises(StreamlogError):
        partition.append(run_of(b"y"), Told())
    with pytest.raises(PartitionNotFound):
        node.registry.partition(tp("s"))
    node.assigned.create("t")
    node.apply()
    await node.settled("t")
    assert node.registry.partition(tp("t")).is_leader
    node.disk.let_go("/s/0")
    await node.settled()
    assert not (node.path / "streams/s").exists()


async def test_an_opening_that_takes_long_holds_nobody_back(node: Node) -> None:
    node.disk.hold("/slow/")
    node.assigned.create("slow")
    node.assigned.create("s")
    node.apply()
    node.assigned.create("t")
    node.apply()
    await node.settled("t")
    node.assigned.lead("t", TWO)
    node.apply()
    assert not node.registry.partition(tp("t")).is_leader
    with pytest.raises(PartitionNotFound):
        node.registry.partition(tp("slow"))
    assert tp("slow") not in node.heard
    node.assigned.lead("slow", TWO)
    node.assigned.lead("slow", ONE)
    node.apply()
    node.disk.let_go("/slow/")
    await node.settled()
    partition = node.registry.partition(tp("slow"))
    assert (partition.is_leader, partition.leader_epoch) == (True, 6)
    assert node.heard.count(tp("slow")) == 1


async def test_what_is_opened_too_late_is_not_kept(node: Node) -> None:
    node.disk.hold("/s/0")
    node.assigned.create("s")
    node.apply()
    await asyncio.sleep(0.01)  # the opening has begun, most likely; if not, so much the better
    node.assigned.delete("s")
    node.apply()
    node.assigned.create("s")
    node.assigned.delete("s")
    newest = node.assigned.create("s")
    node.apply()
    node.disk.let_go("/s/0")
    await node.settled()
    assert node.registry.partition(tp("s")).topic_id == newest.bytes
    assert node.mark("s") == newest.int


async def test_a_log_keeps_to_settings_that_change_while_it_is_opened(node: Node) -> None:
    node.disk.hold("/s/0")
    node.assigned.create("s")
    node.assigned.configure("s", retention_ms=1_000)
    node.apply()
    await asyncio.sleep(0.01)  # the opening has begun, most likely
    node.assigned.configure("s", retention_ms=-1, encrypted=False, sync="interval")
    node.apply()
    node.disk.let_go("/s/0")
    await node.settled()
    partition = node.registry.partition(tp("s"))
    assert partition.state.log.settings.retention_ms == -1
    assert partition.sync_policy == "interval"
    assert partition.config is node.assigned.image.streams["s"].config


async def test_deleted_and_created_in_one_change_of_the_image(node: Node) -> None:
    node.assigned.create("s")
    node.apply()
    await node.settled()
    old, told = node.registry.partition(tp("s")), Told()
    old.append(run_of(b"old"), told)
    node.assigned.delete("s")
    newest = node.assigned.create("s")
    node.apply()
    assert isinstance(told.answer.exception(), StreamNotFound)
    assert old.closed
    await node.settled("s")
    partition = node.registry.partition(tp("s"))
    assert partition.topic_id == newest.bytes
    assert partition.log_end_offset == 0
    assert node.mark("s") == newest.int


async def test_a_running_cut_holds_back_its_own_partition_alone(node: Node) -> None:
    node.assigned.create("s")
    node.assigned.create("cut", leader=TWO)
    node.apply()
    await node.settled()
    told = Told()
    node.registry.partition(tp("s")).append(run_of(b"x"), told)
    free = node.cut_slowly("cut")
    await asyncio.sleep(0)
    node.assigned.lead("cut", ONE)
    node.assigned.lead("s", TWO)
    node.apply()
    assert isinstance(told.answer.exception(), NotLeader)
    await node.settled("s")
    cut = node.registry.partition(tp("cut"))
    assert not cut.is_leader
    node.heard.clear()
    free.set()
    await node.settled()
    assert (cut.is_leader, cut.leader_epoch) == (True, 3)
    assert node.heard == [tp("cut")]


async def test_a_stream_whose_log_is_being_cut_can_be_deleted(node: Node) -> None:
    node.assigned.create("s", leader=TWO)
    node.apply()
    await node.settled()
    free = node.cut_slowly("s")
    await asyncio.sleep(0)
    node.assigned.delete("s")
    newest = node.assigned.create("s")
    node.apply()
    with pytest.raises(PartitionNotFound):
        node.registry.partition(tp("s"))
    free.set()
    await node.settled()
    assert node.registry.partition(tp("s")).topic_id == newest.bytes
    assert node.mark("s") == newest.int


async def test_of_very_many_those_that_are_deposed_are_fenced_at_once(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "_APPLIED_AT_ONCE", 2)
    names = [f"s{number}" for number in range(7)]
    for name in names:
        node.assigned.create(name)
    node.apply()
    await node.settled()
    partitions = [node.registry.partition(tp(name)) for name in names]
    assert all(it.is_leader for it in partitions)
    for name in names:
        node.assigned.lead(name, TWO)
    node.apply()
    assert not any(it.is_leader for it in partitions)
    for name in names:
        node.assigned.lead(name, ONE)
    node.apply()
    assert sum(it.is_leader for it in partitions) == 2
    node.heard.clear()
    await node.settled(names[4])
    assert partitions[4].is_leader
    await node.settled()
    assert all(it.is_leader for it in partitions)
    assert sorted(node.heard) == [tp(name) for name in names[2:]]


async def test_a_close_waits_for_what_is_being_opened(node: Node) -> None:
    node.disk.hold("/s/0")
    node.assigned.create("s")
    node.apply()
    await asyncio.sleep(0.01)
    closing = asyncio.create_task(node.registry.close())
    await asyncio.sleep(0.01)
    assert not closing.done()
    node.disk.let_go("/s/0")
    await closing
    with pytest.raises(PartitionNotFound):
        node.registry.partition(tp("s"))
