"""The metadata store on a disk that fails and forgets: what was answered survives any crash."""

import errno
import random
from pathlib import Path
from uuid import UUID

import pytest

from streamlog.errors import StorageFull, Unavailable
from streamlog.log.files import FilePool
from streamlog.metadata import controller
from streamlog.metadata.controller import Decision
from streamlog.metadata.image import Image
from streamlog.metadata.store import MetadataStore
from streamlog.metadata.stream import StreamConfig
from streamlog.model import NodeId
from tests.simulation.disk import SimDisk

SEEDS = range(40)
LIVES = 8
OPERATIONS = (
    "pwrite",
    "sync",
    "sync_directory",
    "create",
    "rename",
    "unlink",
    "write_small",
    "open",
)


class Cluster:
    """One voter over many lives."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(seed)
        self.answered = Image("c")
        """All of this must be there."""
        self.doubtful: Image | None = None
        """This may be there instead: the last change was neither answered nor refused for good."""
        self.epochs: list[int] = []
        self.number = 0

    def live(self) -> None:
        self.disk.short_writes = self.rng.random() < 0.3
        store = self.opened()
        for _ in range(self.rng.randint(0, 12)):
            self.trouble()
            try:
                self.change(store)
            except StorageFull:
                self.doubtful = None
            except Unavailable:
                break
        if self.rng.random() < 0.2:
            store.close()
        if self.rng.random() < 0.7:
            self.disk.crash()
        else:
            self.disk.kill()
        self.disk.capacity_bytes = None

    def opened(self) -> MetadataStore:
        """The next start; it may take more than one."""
        while True:
            store = MetadataStore(Path("/m"), "c", disk=self.disk, files=FilePool(self.disk, 4))
            if self.rng.random() < 0.3:
                self.trouble()
            try:
                found = store.open()
            except Unavailable:
                self.disk.crash()
                self.disk.capacity_bytes = None
                continue
            self.check(store, found)
            return store

    def check(self, store: MetadataStore, found: Image) -> None:
        assert found in (self.answered, self.doubtful)
        assert not self.epochs or store.epoch > self.epochs[-1]
        self.epochs.append(store.epoch)
        self.answered, self.doubtful = found, None

    def change(self, store: MetadataStore) -> None:
        decision = self.decision()
        after = self.answered.apply_all(
            decision.records, offset=self.answered.offset, epoch=store.epoch
        )
        self.doubtful = after
        store.append(decision.records, 0)
        self.answered, self.doubtful = after, None
        if self.rng.random() < 0.2:
            store.snapshot(self.answered)

    def decision(self) -> Decision:
        self.number += 1
        image, rng, new_id = self.answered, self.rng, UUID(int=self.number)
        if not image.nodes or rng.random() < 0.1:
            return controller.register_node(
                image, node_id=NodeId(1), incarnation=new_id, host="h", port=1, rack=None
            )
        name = rng.choice("abcdef")
        if name in image.streams:
            return controller.delete_stream(image, name)
        config = StreamConfig.of(name=name, partitions=rng.choice((1, 1, 9, 60)))
        return controller.create_stream(image, config, new_id=new_id, now_ms=0)

    def trouble(self) -> None:
        if self.rng.random() < 0.15:
            operation = self.rng.choice(OPERATIONS)
            code = self.rng.choice((errno.EIO, errno.ENOSPC))
            self.disk.fail(operation, code, skip=self.rng.randint(0, 3))


def test_what_was_answered_is_there() -> None:
    for seed in SEEDS:
        cluster = Cluster(seed)
        try:
            for _ in range(LIVES):
                cluster.live()
            cluster.disk.faults.clear()
            cluster.opened()
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")
