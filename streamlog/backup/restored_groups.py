"""The partitions of ``__consumer_offsets`` in a backup: read, and carried on by a restore.

Blocking.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from streamlog.backup.batch_file import kept_batches
from streamlog.backup.folder import BackupFolder
from streamlog.backup.group_offsets import Ends, restored
from streamlog.backup.manifest import PartitionBackup, StreamBackup
from streamlog.groups.group import Group
from streamlog.groups.replay import GroupReplay
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.record.codec import RecordRun

BATCH_BYTES: Final = 256 * 1024


def groups_of(
    folder: BackupFolder, stream: StreamBackup, partition: PartitionBackup, keys: KeyRing
) -> list[Group]:
    """As its coordinator would read them. Raises CorruptFile, CorruptBatch, EncryptionKeyMissing,
    Unavailable.
    """
    replay = GroupReplay()
    replay.next_offset = partition.log_start_offset
    for _, batch in kept_batches(folder, stream, partition, keys):
        replay.feed(memoryview(batch))
    return replay.built()


def carried_on(
    groups: Iterable[Group], ends: Ends, *, offset: int, leader_epoch: int, time_ms: int
) -> Iterator[bytes]:
    """Batches to follow at ``offset``. Each machine that restores makes the same."""
    run = RecordRun()
    for record in restored(groups, ends):
        if run.size_bytes >= BATCH_BYTES:
            count = run.count
            yield run.seal(base_offset=offset, leader_epoch=leader_epoch, timestamp_ms=time_ms)
            offset += count
        run.append(*record)
    if run.count:
        yield run.seal(base_offset=offset, leader_epoch=leader_epoch, timestamp_ms=time_ms)
