"""The file: all that was written, or an error; and when one is written, and used."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from streamlog.errors import CorruptFile, StorageFailed, StorageFull, StreamlogError
from streamlog.ingest.admission.deduplicator import Deduplicator
from streamlog.ingest.dedup_recovery import snapshots
from streamlog.ingest.dedup_recovery.snapshot_format import DedupSnapshot, decode, encode
from streamlog.ingest.dedup_recovery.snapshots import DedupSnapshots, KeptSnapshot
from streamlog.model import EpochEnd, TopicPartition
from tests.led_partition import as_partition
from tests.oracles import message_id_snapshot
from tests.oracles.duplicate_window import Slot

IDS: list[Slot] = [
    (1_000, {b"a": 3, b"bb" * 200: 4}),
    (2_000, {}),
    (3_000, {b"": 2**40, b"\x00\xff": 2**40 + 1}),
]
TOPIC_ID = bytes(range(16))
HEAD = (TOPIC_ID, 2**40 + 9, 7, 500, (b"\x00\xff", 2**40 + 1))
WRITTEN = message_id_snapshot.encode(*HEAD, IDS)
SNAPSHOT = decode(WRITTEN, "x")


class Partition:
    """Of whoever leads in epoch 7, with the file in memory."""

    tp = TopicPartition("orders", 0)
    log_start_offset, log_end_offset, files_start = 0, 100, 0
    local_log_start_offset = 0
    last_epoch = leader_epoch = 7
    size_bytes = 2**30
    topic_id = TOPIC_ID

    def __init__(self) -> None:
        self.file = b""
        self.durable: bool | None = None
        self.fault: StreamlogError | None = None
        self.is_leader = True
        self.failure: StreamlogError | None = None
        self.written: Callable[[], None] = lambda: None
        """Called while the file is written."""

    def leads(self, leader_epoch: int) -> bool:
        return self.is_leader and self.leader_epoch == leader_epoch

    def epoch_end(self, epoch: int) -> EpochEnd:
        return EpochEnd(min(epoch, 7), self.log_end_offset)

    def read_beside(self, _name: str) -> bytes:
        if self.fault is not None:
            raise self.fault
        return self.file

    def write_beside(self, _name: str, data: bytes, *, durable: bool = True) -> None:
        if self.fault is not None:
            raise self.fault
        self.written()
        self.file, self.durable = data, durable


def kept_of(partition: Partition, ids: dict[bytes, int]) -> KeptSnapshot:
    return KeptSnapshot(as_partition(partition), deduplicator_of(ids), 7)


def deduplicator_of(ids: dict[bytes, int]) -> Deduplicator:
    deduplicator = Deduplicator("orders", duplicate_window_ms=1_000)
    for message_id, offset in ids.items():
        deduplicator.remember(message_id, offset, 10_000)
    return deduplicator


async def recalled(partition: Partition, since_ms: int = 9_500) -> tuple[int, Deduplicator]:
    deduplicator = deduplicator_of({})
    return await DedupSnapshots(list).recall(
        KeptSnapshot(as_partition(partition), deduplicator, 7), since_ms
    ), deduplicator


def test_a_file_has_the_ids_slot_by_slot() -> None:
    assert SNAPSHOT[:5] == HEAD
    assert [(slot.end_ms, slot.ids()) for slot in SNAPSHOT.slots] == IDS
    assert encode(SNAPSHOT) == WRITTEN


def test_a_file_whose_slots_are_cut_is_refused_though_its_checksum_fits() -> None:
    body = WRITTEN[12:]
    for cut in range(1, len(body)):
        data = WRITTEN[:8] + crc32c(body[:-cut]).to_bytes(4) + body[:-cut]
        with pytest.raises(CorruptFile, match=r"^x: "):
            decode(data, "x")


@pytest.mark.parametrize("snapshot", [SNAPSHOT, DedupSnapshot(bytes(16), 1, 0, 0, None, [])])
def test_what_is_written_is_read(snapshot: DedupSnapshot) -> None:
    assert decode(encode(snapshot), "x") == snapshot


def test_anything_else_is_refused_by_name() -> None:
    data = encode(SNAPSHOT)
    changed = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]
    cut = [data[:at] for at in range(len(data))]
    for wrong in (*changed, *cut, data + b"\x00"):
        with pytest.raises(CorruptFile, match=r"^x: "):
            decode(wrong, "x")


async def test_a_deduplicator_is_as_before() -> None:
    partition = Partition()
    before = deduplicator_of({b"a": 5, b"b": 99})
    await DedupSnapshots(list).save([KeptSnapshot(as_partition(partition), before, 7)])
    known_offset, after = await recalled(partition)
    assert known_offset == 100
    assert after.known() == before.known()
    assert len(after) == 2


async def test_a_log_that_lost_its_end_or_another_one_is_read_itself() -> None:
    partition = Partition()
    await DedupSnapshots(list).save([kept_of(partition, {b"a": 5})])
    partition.log_end_offset = 99
    assert (await recalled(partition))[0] == 0
    partition.log_end_offset, partition.last_epoch = 120, 6
    partition.epoch_end = lambda _: EpochEnd(6, 120)  # type: ignore[assignment, method-assign]
    assert (await recalled(partition))[0] == 0


async def test_a_window_that_was_shorter_is_not_enough() -> None:
    partition = Partition()
    deduplicator = deduplicator_of({b"a": 5})
    deduplicator.leave_out(9_000)
    await DedupSnapshots(list).save([KeptSnapshot(as_partition(partition), deduplicator, 7)])
    assert (await recalled(partition, since_ms=8_999))[0] == 0
    assert (await recalled(partition, since_ms=9_000))[0] == 100


async def test_a_disk_that_fails_or_a_damaged_file_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    partition = Partition()
    partition.fault = StorageFull("no room")
    await DedupSnapshots(list).save([kept_of(partition, {b"a": 5})])
    assert (await recalled(partition))[0] == 0
    partition.fault, partition.file = None, b"?"
    assert (await recalled(partition))[0] == 0
    assert [record.message for record in caplog.records] == [
        "snapshot of message ids is not written",
        "snapshot of message ids is not used",
        "snapshot of message ids is not used",
    ]


async def test_nothing_is_written_of_a_log_that_was_cut_under_its_deduplicator() -> None:
    partition = Partition()
    await DedupSnapshots(list).save([kept_of(partition, {b"a": 100})])
    assert partition.file == b""


async def test_what_is_saved_already_is_not_written_again() -> None:
    partition, writer = Partition(), DedupSnapshots(list)
    kept = kept_of(partition, {b"a": 5})
    await writer.save([kept])
    partition.file = b""
    await writer.save([kept])
    assert partition.file == b""


async def test_nothing_is_written_of_a_log_that_another_node_led_while_others_were_written() -> (
    None
):
    """Its records came by replication, and the deduplicator was not told of them."""
    first, second = Partition(), Partition()

    def moves() -> None:
        second.is_leader, second.leader_epoch = False, 8
        second.log_end_offset, second.last_epoch = 150, 8

    first.written = moves
    await DedupSnapshots(list).save([kept_of(first, {b"a": 5}), kept_of(second, {b"b": 5})])
    assert first.file and not second.file


async def test_nothing_is_written_by_the_leader_of_an_epoch_before() -> None:
    partition = Partition()
    kept = kept_of(partition, {b"a": 5})
    partition.leader_epoch = 8  # leads again, after another node did
    await DedupSnapshots(list).save([kept])
    assert not partition.file


async def test_nothing_is_written_after_an_append_failed() -> None:
    """Its ids are taken back, and its records may be in the log after a restart."""
    partition = Partition()
    partition.failure = StorageFailed("sync failed")
    await DedupSnapshots(list).save([kept_of(partition, {b"a": 5})])
    assert not partition.file


async def test_nothing_is_written_where_an_append_fails_while_ids_are_encoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    partition = Partition()

    def encode_late(snapshot: DedupSnapshot) -> bytes:
        partition.failure = StorageFailed("sync failed")
        return encode(snapshot)

    monkeypatch.setattr(snapshots, "encode", encode_late)
    await DedupSnapshots(list).save([kept_of(partition, {b"a": 5})])
    assert not partition.file


async def test_a_file_of_a_deleted_stream_of_the_same_name_is_not_used() -> None:
    partition = Partition()
    await DedupSnapshots(list).save([kept_of(partition, {b"a": 5})])
    partition.topic_id = bytes(16)
    assert (await recalled(partition))[0] == 0


async def test_one_file_is_written_at_a_time() -> None:
    partition, writing, most = Partition(), 0, 0

    def written() -> None:
        nonlocal writing, most
        writing += 1
        most = max(most, writing)
        time.sleep(0.01)
        writing -= 1

    partition.written = written
    writer, kept = DedupSnapshots(list), kept_of(partition, {b"a": 5})
    await asyncio.gather(writer._save(kept), writer._save(kept))
    assert most == 1


async def test_nothing_is_written_at_a_stop_where_there_is_nothing_worth_it() -> None:
    """Without ids it would say that there are none, and spare little reading."""
    small, large, with_id = Partition(), Partition(), Partition()
    small.size_bytes = with_id.size_bytes = snapshots.NOTHING_BYTES
    large.size_bytes = snapshots.NOTHING_BYTES + 1
    kept = [kept_of(small, {}), kept_of(large, {}), kept_of(with_id, {b"a": 5})]
    await DedupSnapshots(list).save(kept)
    assert [bool(it.file) for it in (small, large, with_id)] == [False, True, True]
    assert [it.durable for it in (large, with_id)] == [False, False]


async def test_a_stop_ends_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(snapshots, "SAVE_S", 0.0)
    partition = Partition()
    await DedupSnapshots(list).save([kept_of(partition, {b"a": 5})] * 3)
    assert not partition.file
    (record,) = caplog.records
    assert vars(record)["partitions"] == 3


async def test_many_are_written_by_few_threads_in_few_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hop to a thread costs more than a small file."""
    goes = 0
    to_thread = asyncio.to_thread

    async def counted(*call: Any) -> Any:
        nonlocal goes
        goes += 1
        return await to_thread(*call)

    monkeypatch.setattr(asyncio, "to_thread", counted)
    partitions = [Partition() for _ in range(200)]
    for number, partition in enumerate(partitions):
        partition.tp = TopicPartition("orders", number)
    await DedupSnapshots(list).save([kept_of(it, {b"a": 5}) for it in partitions])
    assert all(it.file for it in partitions)
    assert goes == 2 * -(-200 // snapshots.SAVED_AT_ONCE)
