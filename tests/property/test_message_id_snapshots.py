"""What a snapshot and the log's tail tell is what the whole log tells; or the snapshot is refused.

A log grows under one epoch after the other, is cut as crashes and elections cut it, and starts
again now and then; snapshots are written at any time, and perhaps damaged. Leadership moves, and
streams are deleted and created again under the same name, while a snapshot is about to be written.
"""

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from streamlog.errors import StorageFailed, StreamlogError
from streamlog.ingest.admission.deduplicator import Deduplicator
from streamlog.ingest.admission.duplicate_window import SLOTS_PER_WINDOW, DuplicateWindow
from streamlog.ingest.dedup_recovery.snapshots import DedupSnapshots, KeptSnapshot
from streamlog.ingest.dedup_recovery.window_scan import rebuild_window
from streamlog.model import EpochEnd, TopicPartition
from streamlog.record.batch import PUBLISHED
from streamlog.record.codec import RecordRun
from tests.led_partition import FakeSlice, as_partition

SEEDS = 60
STEPS = 120


class Stored(NamedTuple):
    base_offset: int
    next_offset: int
    epoch: int
    time_ms: int
    ids: list[bytes]
    data: bytes


class Log:
    """A partition's log; all of it is committed."""

    tp = TopicPartition("orders", 0)

    def __init__(self) -> None:
        self.batches: list[Stored] = []
        self.log_start_offset = 0
        self.leader_epoch = 0
        self.is_leader = True
        self.failure: StreamlogError | None = None
        self.topic_id = bytes(16)
        self.file = b""

    def leads(self, leader_epoch: int) -> bool:
        return self.is_leader and self.leader_epoch == leader_epoch

    @property
    def local_log_start_offset(self) -> int:
        """Nothing of it is elsewhere."""
        return self.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.log_start_offset

    high_watermark = log_end_offset

    @property
    def last_epoch(self) -> int:
        return self.batches[-1].epoch if self.batches else -1

    @property
    def size_bytes(self) -> int:
        return sum(len(it.data) for it in self.batches)

    def epoch_end(self, epoch: int) -> EpochEnd:
        upto = [it for it in self.batches if it.epoch <= epoch]
        return EpochEnd(upto[-1].epoch, upto[-1].next_offset) if upto else EpochEnd(-1, -1)

    def append(self, ids: list[bytes], time_ms: int) -> None:
        run, base = RecordRun(attributes=PUBLISHED), self.log_end_offset
        for message_id in ids:
            run.append(None, b"", [(b"Nats-Msg-Id", message_id)] if message_id else [])
        data = run.seal(base_offset=base, leader_epoch=self.leader_epoch, timestamp_ms=time_ms)
        self.batches.append(
            Stored(base, base + len(ids), self.leader_epoch, time_ms, ids, bytes(data))
        )

    @property
    def files_start(self) -> int:
        return self.batches[0].base_offset if self.batches else self.log_start_offset

    async def offset_for_timestamp(
        self, timestamp_ms: int, *, from_files_start: bool
    ) -> tuple[int, int] | None:
        assert from_files_start
        found = next((it for it in self.batches if it.time_ms >= timestamp_ms), None)
        return None if found is None else (found.base_offset, found.time_ms)

    async def read_files(self, offset: int, max_bytes: int, *, is_appended: bool) -> FakeSlice:
        assert is_appended
        wanted = [it.data for it in self.batches if it.next_offset > offset]
        return FakeSlice(b"".join(wanted[:2]))

    def read_beside(self, name: str) -> bytes:
        return self.file

    def write_beside(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self.file = data


class OtherLog(Log):
    """Its snapshot is written before that of the log that the story is about."""

    def __init__(self, written: Callable[[], None]) -> None:
        super().__init__()
        self._written = written

    def write_beside(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self._written()


class Story:
    """One leader after the other, each with a deduplicator that was built in its own way."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.log = Log()
        self.window_ms = 1_000
        self.now_ms = 1_000_000
        self.deduplicator = Deduplicator("orders", duplicate_window_ms=self.window_ms)
        self.snapshots = DedupSnapshots(list)
        self.recalled = 0

    async def step(self) -> None:
        rng = self.rng
        self.now_ms += rng.choice((0, 1, 30, 200))
        match rng.randrange(12):
            case 0:
                await self.snapshots.save([self.kept()])
            case 1:
                await self.start()
            case 2:
                self.cut()
                await self.start()
            case 3:
                self.window_ms = rng.choice((500, 1_000, 2_000))
                self.deduplicator.configure(duplicate_window_ms=self.window_ms)
            case 4 if self.log.file and rng.random() < 0.3:
                at = rng.randrange(len(self.log.file))
                self.log.file = self.log.file[:at] + b"?" + self.log.file[at + rng.randrange(2) :]
            case 5 if len(self.log.batches) > 3 and rng.random() < 0.3:
                self.log.log_start_offset = max(
                    self.log.log_start_offset, rng.choice(self.log.batches[:3]).next_offset
                )
                if rng.random() < 0.5:  # files go, too: a whole segment is below
                    while self.log.batches[0].next_offset <= self.log.log_start_offset:
                        del self.log.batches[0]
            case 6 if rng.random() < 0.3:
                await self.save_late(self.another_leads)
                await self.start()
            case 7 if rng.random() < 0.3:
                await self.save_late(self.an_append_fails)
                await self.start()
            case 8 if rng.random() < 0.1:
                await self.create_again()
            case _:
                self.publish()

    def kept(self) -> KeptSnapshot:
        return KeptSnapshot(as_partition(self.log), self.deduplicator, self.log.leader_epoch)

    async def save_late(self, happens: Callable[[], None]) -> None:
        """Another snapshot is written first, and meanwhile something happens."""
        other = OtherLog(happens)
        other.append([b"x"], self.now_ms)
        deduplicator = Deduplicator("other", duplicate_window_ms=self.window_ms)
        first = KeptSnapshot(as_partition(other), deduplicator, other.leader_epoch)
        await self.snapshots.save([first, self.kept()])

    def another_leads(self) -> None:
        """What it stores comes by replication: this node's deduplicator does not see it."""
        self.log.is_leader = False
        self.log.leader_epoch += 1
        self.store_elsewhere()

    def an_append_fails(self) -> None:
        """Its ids are taken back, but a restart finds the records."""
        end = self.log.log_end_offset
        self.publish()
        self.log.failure = StorageFailed("sync failed")
        self.deduplicator.abort(end)

    async def create_again(self) -> None:
        """The stream is deleted, and its last snapshot lands in the new one's folder."""
        await self.snapshots.save([self.kept()])
        file = self.log.file
        self.log = Log()
        self.log.topic_id = self.rng.randbytes(16)
        self.deduplicator = Deduplicator("orders", duplicate_window_ms=self.window_ms)
        for _ in range(self.rng.randrange(20)):
            self.publish()
        self.log.file = file
        await self.start()

    def store_elsewhere(self) -> None:
        """By a leader that knows all ids of the log."""
        mine, self.deduplicator = self.deduplicator, self.copy_of(self.deduplicator)
        self.publish()
        self.deduplicator = mine

    def copy_of(self, deduplicator: Deduplicator) -> Deduplicator:
        made = Deduplicator("orders", duplicate_window_ms=self.window_ms)
        window = DuplicateWindow(0, ids_max=0)
        window.restore(*deduplicator.known())
        made.restore(window, complete_since_ms=deduplicator.complete_since_ms)
        return made

    def publish(self) -> None:
        """Admitted by the deduplicator, so that no id is in the log twice within the window."""
        fresh: list[bytes] = []
        for _ in range(self.rng.randrange(1, 4)):
            message_id = b"" if self.rng.random() < 0.2 else b"%d" % self.rng.randrange(40)
            block = b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % message_id
            verdict = self.deduplicator.admit(
                block, b"", b"", len(fresh), log_end_offset=self.log.log_end_offset,
                now_ms=self.now_ms,
            )  # fmt: skip
            if verdict.store:
                fresh.append(message_id)
        if fresh:
            self.log.append(fresh, self.now_ms)

    def cut(self) -> None:
        """What was not synced is gone, or what another leader does not have."""
        gone = self.rng.randrange(len(self.log.batches) + 1) // 2
        start = self.log.log_end_offset if not self.log.batches else self.log.batches[0].base_offset
        del self.log.batches[len(self.log.batches) - gone :]
        if not self.log.batches:
            self.log.log_start_offset = start

    async def start(self) -> None:
        """Another leader, with what the snapshot and the tail tell; beside it, one without."""
        self.log.leader_epoch += self.rng.randrange(1, 3)
        self.log.is_leader, self.log.failure = True, None
        since_ms = self.now_ms - self.window_ms
        naive = Deduplicator("orders", duplicate_window_ms=self.window_ms)
        await rebuild_window(as_partition(self.log), naive, since_ms=since_ms)
        self.deduplicator = Deduplicator("orders", duplicate_window_ms=self.window_ms)
        self.snapshots = DedupSnapshots(list)
        known = await self.snapshots.recall(self.kept(), since_ms)
        self.recalled += known > 0
        await rebuild_window(
            as_partition(self.log), self.deduplicator, since_ms=since_ms, from_offset=known
        )  # fmt: skip
        self.compare(naive)

    def compare(self, naive: Deduplicator) -> None:
        """As much as the whole log tells; and of no id that is not in it, or too old."""
        window = self.window_ms + max(1, self.window_ms // SLOTS_PER_WINDOW)
        there = {
            (message_id, batch.base_offset + at): batch.time_ms
            for batch in self.log.batches
            for at, message_id in enumerate(batch.ids)
        }
        mine = known_ids(self.deduplicator)
        since_ms = self.now_ms - self.window_ms
        young = {it[0] for it, time_ms in there.items() if it[0] and time_ms >= since_ms}
        assert young <= set(mine), "also of what is before the log start"
        assert known_ids(naive).items() <= mine.items()
        self.deduplicator.expire(self.now_ms)
        for message_id, offset in known_ids(self.deduplicator).items():
            if offset >= self.log.log_start_offset:
                assert there[message_id, offset] >= self.now_ms - 2 * max(window, 2_250)


def known_ids(deduplicator: Deduplicator) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for slot in deduplicator.known()[0]:
        found |= slot.ids()  # a younger one is found first
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_a_snapshot_and_the_tail_tell_what_the_log_tells(seed: int) -> None:
    story = Story(seed)
    for _ in range(STEPS):
        await story.step()


async def test_the_stories_use_their_snapshots() -> None:
    recalled = 0
    for seed in range(SEEDS // 4):
        story = Story(seed)
        for _ in range(STEPS):
            await story.step()
        recalled += story.recalled
    assert recalled > SEEDS // 4
