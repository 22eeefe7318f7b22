from pathlib import Path

from benchmarks.starting import RECORDS, SEGMENT_BYTES, fill
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.log.tools.verify import FolderFinding, verify


def test_a_filled_log_is_one_that_a_node_could_have_written(tmp_path: Path) -> None:
    records = fill(tmp_path, 2)
    assert records % RECORDS == 0
    disk = OsDisk()
    settings = LogSettings(segment_bytes=SEGMENT_BYTES)
    log = PartitionLog.open(tmp_path, settings, disk=disk, files=FilePool(disk, 16))
    assert log.log_end_offset == records
    assert log.size_bytes >= 2 * SEGMENT_BYTES
    log.close()
    assert [found for found in verify(tmp_path) if isinstance(found, FolderFinding)] == []
    on_disk = sum(path.stat().st_blocks * 512 for path in tmp_path.glob("*.log"))
    assert on_disk >= 2 * SEGMENT_BYTES  # every byte is there
