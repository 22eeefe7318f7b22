from pathlib import Path

import pytest

from streamlog.errors import InvalidRequest
from streamlog.log.disk import OsDisk
from streamlog.log.dump import DumpedBatch, DumpedDamage, dump
from streamlog.log.files import FilePool
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.record.codec import iter_records
from tests.log_folder import append


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    disk = OsDisk()
    settings = LogSettings(segment_bytes=1_000)
    log = PartitionLog.open(tmp_path / "0", settings, disk=disk, files=FilePool(disk, 16))
    for i in range(5):
        append(log, [b"%d" % i * 300, b"second"])
    log.close()
    return tmp_path / "0"


def test_every_batch_of_every_segment_in_order(folder: Path) -> None:
    found = [item for item in dump(folder) if isinstance(item, DumpedBatch)]
    assert [item.header.base_offset for item in found] == [0, 2, 4, 6, 8]
    assert [next(iter_records(item.data)).value for item in found] == [
        b"%d" % i * 300 for i in range(5)
    ]
    assert len({item.file for item in found}) == 3


def test_a_damaged_batch_is_shown_between_its_neighbours(folder: Path) -> None:
    first = min(folder.glob("*.log"))
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(data)
    found = list(dump(first))
    assert isinstance(found[0], DumpedDamage)
    assert (found[0].damage.position, found[0].damage.offset) == (0, 0)
    assert isinstance(found[1], DumpedBatch)
    assert found[1].header.base_offset == 2


def test_what_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("no segment")
    for path in (tmp_path, tmp_path / "x.log"):
        with pytest.raises(InvalidRequest, match="no segment file"):
            list(dump(path))
