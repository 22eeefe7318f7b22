from pathlib import Path

import pytest

from streamlog.errors import EncryptionKeyMissing, InvalidRequest
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.log.tools.dump import DumpedBatch, DumpedDamage, dump
from streamlog.record.codec import iter_records
from tests.log_folder import a_key_ring, append


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path)


def made(tmp_path: Path, *, encrypts: bool = False) -> Path:
    disk = OsDisk()
    settings = LogSettings(segment_bytes=1_000, encrypts=encrypts)
    files = FilePool(disk, 16, a_key_ring())
    log = PartitionLog.open(tmp_path / "0", settings, disk=disk, files=files)
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


def test_headers_of_encrypted_batches_take_no_key_and_records_do(tmp_path: Path) -> None:
    folder = made(tmp_path, encrypts=True)
    lying = [item for item in dump(folder) if isinstance(item, DumpedBatch)]
    assert [(item.header.base_offset, item.encrypted_by) for item in lying] == [
        (offset, "k1") for offset in (0, 2, 4, 6, 8)
    ]
    assert not any(b"second" in item.data for item in lying)
    opened = [item for item in dump(folder, a_key_ring()) if isinstance(item, DumpedBatch)]
    assert [item.header for item in opened] == [item.header for item in lying]
    assert [next(iter_records(item.data)).value for item in opened] == [
        b"%d" % i * 300 for i in range(5)
    ]
    with pytest.raises(EncryptionKeyMissing, match=r"'k1', .*\(k2\); give it as --key NAME=SOURCE"):
        list(dump(folder, a_key_ring("k2")))


def test_encrypted_batches_that_do_not_open_are_damages(tmp_path: Path) -> None:
    folder = made(tmp_path, encrypts=True)
    first, second, _ = sorted(folder.glob("*.key"))
    first.write_bytes(second.read_bytes())
    second.unlink()
    problems = [i.damage.problem for i in dump(folder, a_key_ring()) if isinstance(i, DumpedDamage)]
    assert ["does not decrypt" in it for it in problems] == [True, True, False, False]
    assert ["is missing" in it for it in problems] == [False, False, True, True]
    names = [item.encrypted_by for item in dump(folder) if isinstance(item, DumpedBatch)]
    assert names == ["k1", "k1", "?", "?", "k1"]


def test_what_is_in_the_clear_is_said_to_be(folder: Path) -> None:
    assert {i.encrypted_by for i in dump(folder) if isinstance(i, DumpedBatch)} == {None}
