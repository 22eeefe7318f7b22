"""A registry through random images, with disks and cuts that take as long as they like.

What a fenced log says is nothing: at no moment is a partition led that the newest image has
elsewhere, or in another epoch, or that is of a deleted stream, and nothing is acknowledged by one.
In the end, all is as if the last image alone had been applied.
"""

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from streamlog.config import LogSection
from streamlog.errors import StreamlogError
from streamlog.log.layout import decode_mark
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId, TopicPartition
from streamlog.partition import replica_manager as registry_module
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from streamlog.partition.replication.partition_follower import Truncation
from streamlog.partition.replication.truncation import LOG_CUT, _truncate
from tests.assigned_images import ONE, TWO, Assigned
from tests.partition_world import failures_of, run_of
from tests.slow_disk import SlowDisk

NAMES = ("a", "b", "c")
STEPS = 60
SEEDS = range(30)


class Ack:
    """Of an append to one partition object, in one epoch."""

    def __init__(self, story: "Story", partition: Partition) -> None:
        self._story = story
        self._partition = partition
        self._epoch = partition.leader_epoch

    def committed(self, base_offset: int) -> None:
        self._story.check_may_act(self._partition, self._epoch)

    def failed(self, error: StreamlogError) -> None:
        pass


class Story:
    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.random = random.Random(seed)
        self.disk = SlowDisk()
        self.assigned = Assigned()
        self.applied = self.assigned.image
        self.seen: set[Partition] = set()
        """All that were ever found, closed ones among them."""
        self.cuts: list[tuple[Event, ThreadPoolExecutor, asyncio.Task[None]]] = []
        self.registry = ReplicaManager(
            path,
            node_id=ONE,
            settings=LogSection(checkpoint_interval_ms=20),
            metrics=NodeMetrics(),
            disk=self.disk,
        )

    # What may happen

    def step(self) -> None:
        name = self.random.choice(NAMES)
        choices: list[Callable[[str], None]] = [
            self.create_or_delete, self.create_or_delete, self.anew, self.lead, self.lead,
            self.configure, self.move, self.hold, self.let_go, self.cut, self.end_cut, self.append, self.append,
        ]  # fmt: skip
        self.random.choice(choices)(name)
        if self.random.random() < 0.6:
            old, self.applied = self.applied, self.assigned.image
            self.registry.apply(old, self.applied)
            self.check_now()

    def create_or_delete(self, name: str) -> None:
        if name in self.assigned.image.streams:
            self.assigned.delete(name)
        else:
            partitions = self.random.randint(1, 2)
            self.assigned.create(name, leader=self._node(), partitions=partitions)

    def anew(self, name: str) -> None:
        if name in self.assigned.image.streams:
            self.assigned.delete(name)
            self.assigned.create(name, leader=self._node())

    def lead(self, name: str) -> None:
        if name in self.assigned.image.streams:
            self.assigned.lead(name, self._node())

    def configure(self, name: str) -> None:
        if name in self.assigned.image.streams:
            self.assigned.configure(
                name,
                retention_ms=self.random.randint(3_600_000, 7_200_000),
                sync=self.random.choice(("commit", "interval")),
            )

    def move(self, name: str) -> None:
        """Away, or back."""
        stream = self.assigned.image.streams.get(name)
        if stream is not None:
            replicas = (TWO,) if ONE in stream.partitions[0].replicas else (ONE, TWO)
            self.assigned.move(name, *replicas)

    def hold(self, name: str) -> None:
        self.disk.hold(f"/{name}/")

    def let_go(self, name: str) -> None:
        if f"/{name}/" in self.disk.held:
            self.disk.let_go(f"/{name}/")

    def cut(self, name: str) -> None:
        partition = self._find(name)
        if partition is not None:
            free, worker = Event(), ThreadPoolExecutor(1)
            worker.submit(free.wait)
            cutting = asyncio.get_running_loop().create_task(_cut(partition, worker))
            self.cuts.append((free, worker, cutting))

    def end_cut(self, _name: str) -> None:
        for free, *_ in self.cuts:
            free.set()

    def append(self, name: str) -> None:
        partition = self._find(name)
        if partition is not None and partition.is_leader:
            partition.append(run_of(b"x"), Ack(self, partition))

    # What must be so

    def check_now(self) -> None:
        for name in NAMES:
            for number in range(2):
                self._find(name, number)
        for partition in self.seen:
            if partition.is_leader:
                self.check_may_act(partition, partition.leader_epoch)

    def check_may_act(self, partition: Partition, epoch: int) -> None:
        tp, stream = partition.tp, self.applied.streams.get(partition.tp.stream)
        assert stream is not None, f"{tp} is deleted, and acts"
        assert stream.stream_id.bytes == partition.topic_id, f"{tp} is another one's, and acts"
        led = stream.partitions[tp.partition]
        assert (led.leader, led.leader_epoch) == (ONE, epoch), f"{tp} is fenced, and acts"

    async def check_end(self) -> None:
        for name in NAMES:
            self.let_go(name)
        self.end_cut("")
        old, self.applied = self.applied, self.assigned.image
        self.registry.apply(old, self.applied)
        async with asyncio.timeout(30):
            await self.registry.settled()
        self.check_now()
        wanted = {
            TopicPartition(name, number): (stream.stream_id, it)
            for name, stream in self.applied.streams.items()
            for number, it in enumerate(stream.partitions)
            if ONE in it.replicas
        }
        found = {it.tp: it for it in self.registry.partitions()}
        assert not failures_of(self.registry)
        assert found.keys() == wanted.keys()
        for tp, (stream_id, image) in wanted.items():
            partition = found[tp]
            folder = self.path / "streams" / tp.stream / str(tp.partition)
            assert partition.topic_id == stream_id.bytes
            assert partition.is_leader == (image.leader == ONE)
            assert partition.leader_epoch == image.leader_epoch
            config = self.applied.streams[tp.stream].config
            assert partition.config == config
            assert partition.state.log.settings.retention_ms == config.retention_ms
            assert partition.sync_policy == (config.sync or "commit")
            mark = decode_mark((folder / "partition.metadata").read_bytes())
            assert mark == (stream_id, image.incarnation(ONE))
        folders = list((self.path / "streams").glob("*/*"))
        assert len(folders) == len(wanted)

    async def close(self) -> None:
        for free, worker, task in self.cuts:
            free.set()
            await task
            worker.shutdown()
        await self.registry.close()

    def _find(self, name: str, number: int = 0) -> Partition | None:
        try:
            partition = self.registry.partition(TopicPartition(name, number))
        except StreamlogError:
            return None
        self.seen.add(partition)
        stream = self.applied.streams[name]
        assert partition.topic_id == stream.stream_id.bytes
        assert partition.incarnation == stream.partitions[number].incarnation(ONE)
        assert ONE in stream.partitions[number].replicas
        return partition

    def _node(self) -> NodeId:
        return self.random.choice((ONE, TWO))


async def _cut(partition: Partition, worker: ThreadPoolExecutor) -> None:
    """To nothing, where that may be."""
    state = partition.state
    is_quiet = partition.is_quiet and not partition.closed
    if is_quiet and not partition.is_leader and state.failure is None:
        await _truncate(
            partition, Truncation(partition.log_start_offset, whole=True), worker, LOG_CUT
        )


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_registry_is_as_the_newest_image_says(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "_APPLIED_AT_ONCE", (200, 1)[seed % 2])
    story = Story(tmp_path, seed)
    await story.registry.open(story.applied)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(story.registry.run())
        for _ in range(STEPS):
            story.step()
            for _ in range(story.random.choice((0, 1, 3))):
                await asyncio.sleep(story.random.choice((0, 0.001)))
        await story.check_end()
        await story.close()
        running.cancel()
