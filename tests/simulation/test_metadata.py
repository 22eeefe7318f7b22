"""The metadata store on a disk that fails and forgets: what was synced survives any crash."""

import errno
import random
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from streamlog.errors import StorageFailed, StorageFull, Unavailable
from streamlog.log.storage.file_pool import FilePool
from streamlog.metadata import controller
from streamlog.metadata.controller import Decision
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.snapshot import encode_snapshot, snapshot_id
from streamlog.metadata.quorum.quorum_state_file import StoredVote
from streamlog.metadata.quorum.store import MetadataStore
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from streamlog.raft.voters import ReplicaKey
from tests.node_registration import started
from tests.simulation.disk import SimDisk
from tests.simulation.seeds import Budget, Player, chosen

SEEDS = range(200)
BUDGET = Budget(seeds_min=60, cpu_s=5)
LIVES = 8
CLUSTER_ID = "c"
OPERATIONS = (
    "pwrite",
    "sync",
    "sync_directory",
    "create",
    "rename",
    "unlink",
    "write_small",
    "open",
    "truncate",
)


class StoreWorld:
    """One replica's folder over many lives, each of which may end in the midst of a call."""

    def __init__(self, seed: int) -> None:
        self.story: list[str] = []
        self.rng = random.Random(seed)
        self.disk = SimDisk(seed)
        self.store: MetadataStore
        self.images = [MetadataImage(CLUSTER_ID)]
        """One after each batch of the log; the first is where the last life began."""
        self.synced = 0
        """All of ``images`` up to this index must be there; those behind it may be."""
        self.installed: MetadataImage | None = None
        """Or this one alone: a snapshot was being installed."""
        self.votes = [StoredVote(UUID(int=1))]
        """The last one that was saved, and one that may have been."""
        self.number = 0

    @property
    def events_run(self) -> int:
        """Calls of the store; this world has no clock."""
        return len(self.story)

    def run(self) -> None:
        for _ in range(LIVES):
            self.live()
        self.disk.faults.clear()
        self.open()

    def live(self) -> None:
        self.disk.short_writes = self.rng.random() < 0.3
        self.open()
        actions: list[Callable[[], None]] = [
            *4 * [self.append],
            *2 * [self.sync],
            self.vote,
            self.truncate,
            self.checkpoint,
            self.keep_snapshot,
        ]
        for _ in range(self.rng.randint(0, 25)):
            self.trouble()
            action = self.install if self.rng.random() < 0.03 else self.rng.choice(actions)
            self.story.append(action.__name__)
            try:
                action()
            except StorageFailed:
                break
        if self.rng.random() < 0.2:
            self.store.close()
        if self.rng.random() < 0.7:
            self.story.append("power cut")
            self.disk.crash()
        else:
            self.disk.kill()
        self.disk.capacity_bytes = None

    def open(self) -> None:
        """The next start; it may take more than one."""
        while True:
            self.store = MetadataStore(
                Path("/m"), CLUSTER_ID, disk=self.disk, files=FilePool(self.disk, 4)
            )
            if self.rng.random() < 0.3:
                self.trouble()
            try:
                image = self.store.open()
                for batch in self.store.batches_from(image.offset):
                    image = image.apply_all(
                        batch.records, offset=batch.base_offset, epoch=batch.epoch
                    )
            except Unavailable:
                self.disk.crash()
                self.disk.capacity_bytes = None
                continue
            self.check(image)
            return

    def check(self, found: MetadataImage) -> None:
        assert found in self.images[self.synced :] or found == self.installed, (
            f"offset {found.offset}, not {[it.offset for it in self.images[self.synced :]]}"
        )
        assert self.store.end_offset == found.offset
        assert self.store.last_epoch == max(found.epoch, 0) or not found.offset
        assert self.store.high_watermark <= found.offset
        vote = self.store.vote
        assert (vote or StoredVote(UUID(int=1))) in self.votes, f"{vote} is none of {self.votes}"
        self.votes = [vote or StoredVote(UUID(int=1))]
        self.images, self.synced, self.installed = [found], 0, None

    # What a replica does

    def append(self) -> None:
        """One batch at a time: a crash tears the last one at most."""
        if self.synced < len(self.images) - 1:
            self.sync()
        before = self.images[-1]
        epoch = before.epoch + (self.rng.random() < 0.2) + (not before.epoch)
        records = self.decision(before).records
        after = before.apply_all(records, offset=before.offset, epoch=epoch)
        self.images.append(after)
        try:
            self.store.append(records, epoch, 0)
        except StorageFull:
            self.images.pop()

    def sync(self) -> None:
        self.store.sync()
        self.synced = len(self.images) - 1

    def vote(self) -> None:
        epoch = self.votes[0].epoch + self.rng.randint(0, 2)
        candidate = ReplicaKey(NodeId(self.rng.randint(1, 3)), UUID(int=2))
        self.votes.append(StoredVote(UUID(int=1), epoch, candidate))
        self.store.save_vote(self.votes[1])
        self.votes = self.votes[1:]

    def truncate(self) -> None:
        """A follower cuts what is not committed, synced or not."""
        at = self.rng.randint(self.rng.randint(0, self.synced), len(self.images) - 1)
        if self.images[at].offset < max(self.store.high_watermark, self.store.start_offset):
            return
        self.synced = min(self.synced, at)
        self.store.truncate(self.images[at].offset)
        del self.images[at + 1 :]

    def checkpoint(self) -> None:
        self.store.checkpoint(self.images[self.rng.randint(0, self.synced)].offset)

    def keep_snapshot(self) -> None:
        self.sync()
        image = self.images[-1]
        self.store.checkpoint(image.offset)
        self.store.add_snapshot(image)
        self.images, self.synced = [image], 0

    def install(self) -> None:
        """The leader's log begins behind our end."""
        last = self.images[-1]
        epoch = last.epoch + 1
        offset = last.offset + self.rng.randint(0, 1_000)
        self.installed = last.apply_all(self.decision(last).records, offset=offset, epoch=epoch)
        snapshot = snapshot_id(self.installed)
        self.store.install_snapshot(snapshot, encode_snapshot(self.installed))
        self.images, self.synced, self.installed = [self.installed], 0, None

    def decision(self, image: MetadataImage) -> Decision:
        self.number += 1
        rng, new_id = self.rng, UUID(int=self.number)
        if not image.nodes or rng.random() < 0.1:
            return started(image, NodeId(1), new_id)
        name = rng.choice("abcdef")
        if name in image.streams:
            return controller.delete_stream(image, name)
        config = StreamConfig.of(name=name, partitions=rng.choice((1, 1, 9, 60)))
        return controller.create_stream(image, config, new_id=new_id, now_ms=0)

    def trouble(self) -> None:
        if self.rng.random() < 0.1:
            operation = self.rng.choice(OPERATIONS)
            code = self.rng.choice((errno.EIO, errno.ENOSPC))
            self.disk.fail(operation, code, skip=self.rng.randint(0, 3))


def test_what_was_synced_is_there(player: Player) -> None:
    player.play(StoreWorld, chosen(SEEDS), BUDGET)
