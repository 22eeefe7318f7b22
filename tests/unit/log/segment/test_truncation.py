import errno

import pytest

from streamlog.errors import StorageFailed
from streamlog.log.log import PartitionLog
from tests.log_folder import FOLDER, append, open_log, read_batches, sync
from tests.simulation.disk import SimDisk

SEGMENT = f"{FOLDER}/{0:020d}"


@pytest.mark.parametrize("offset", range(13))
def test_truncation_drops_the_batch_with_the_offset(
    disk: SimDisk, three_by_two: tuple[PartitionLog, int], offset: int
) -> None:
    log, size = three_by_two
    sync(log)
    log.read(0, size, 2).close()
    log.truncate_to(offset)
    end = offset - offset % 2
    assert log.log_end_offset == log.recovery_point == end
    assert log.size_bytes == end // 2 * size
    disk.crash()
    log = open_log(disk, recovery_point=end)
    assert log.log_end_offset == end
    append(log, 3)
    assert log.log_end_offset == end + 3
    assert [header.base_offset for header, _ in read_batches(log)] == [*range(0, end, 2), end]


def test_reads_after_a_truncation_find_the_new_batches(log: PartitionLog) -> None:
    append(log, 1)
    append(log, [b"long" * 50])
    append(log, 1)
    for offset in range(3):
        log.read(offset, 1, 3).close()
    log.truncate_to(1)
    wanted = [append(log, 1), append(log, [b"x"])]
    assert [data for _, data in read_batches(log, 1)] == wanted
    assert [data for _, data in read_batches(log, 2)] == wanted[1:]


def test_truncation_forgets_epochs_at_once(disk: SimDisk, log: PartitionLog) -> None:
    append(log, epoch=1)
    append(log, epoch=2)
    sync(log)
    log.truncate_to(0)
    append(log, 2, epoch=2)
    disk.kill()
    log = open_log(disk, recovery_point=0)
    assert [tuple(entry) for entry in log.epochs.entries] == [(2, 0)]


def test_truncation_takes_back_what_a_running_sync_would_cover(log: PartitionLog) -> None:
    append(log, 4)
    append(log, 4)
    ticket = log.begin_sync()
    assert ticket is not None
    log.truncate_to(4)
    append(log, 10)
    ticket.run()
    assert log.finish_sync(ticket) == 4


def test_truncation_to_another_place_entirely(disk: SimDisk, log: PartitionLog) -> None:
    append(log, 4, epoch=3)
    log.roll()
    append(log, 4, epoch=4)
    log.truncate_fully_to(100)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (100, 100, 0)
    assert log.epochs.latest == -1
    append(log, 2, epoch=5)
    disk.crash()
    assert open_log(disk).log_start_offset == 100


def test_a_failing_truncation_takes_the_log_offline(disk: SimDisk, log: PartitionLog) -> None:
    append(log)
    append(log)
    disk.fail("truncate", errno.EIO)
    with pytest.raises(StorageFailed):
        log.truncate_to(1)
    with pytest.raises(StorageFailed):
        append(log)
