import errno
from pathlib import Path
from uuid import UUID

import pytest
from crc32c import crc32c

from streamlog.errors import CorruptFile
from streamlog.log.checkpoint import OffsetCheckpoint, offset_of
from streamlog.log.layout import PartitionMetadata
from streamlog.model import LogId, TopicPartition
from tests.simulation.disk import SimDisk

PATH = Path("/high-watermark-checkpoint")
A = LogId(TopicPartition("a", 0), UUID(int=1), 12)
B = LogId(TopicPartition("b", 3))
ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


def test_the_text_has_a_checksum(disk: SimDisk) -> None:
    checkpoint = OffsetCheckpoint(PATH, disk)
    checkpoint.write({B: 7, A: 2**40})
    body = b"2\na 0 1099511627776 AAAAAAAAAAAAAAAAAAAAAQ 12\nb 3 7 AAAAAAAAAAAAAAAAAAAAAA -1\n"
    assert disk.content(str(PATH)) == b"1\ncrc32c %d\n%b" % (crc32c(body), body)
    assert checkpoint.read() == {B: 7, A: 2**40}


def test_nothing_yet(disk: SimDisk) -> None:
    checkpoint = OffsetCheckpoint(PATH, disk)
    assert checkpoint.read() == {}
    checkpoint.write({})
    assert checkpoint.read() == {}


def test_it_is_durable_when_write_returns(disk: SimDisk) -> None:
    for offset in range(20):
        OffsetCheckpoint(PATH, disk).write({A: offset})
        disk.crash()
        assert OffsetCheckpoint(PATH, disk).read() == {A: offset}


def test_the_old_one_stays_when_the_disk_is_full(disk: SimDisk) -> None:
    checkpoint = OffsetCheckpoint(PATH, disk)
    checkpoint.write({A: 1})
    disk.capacity_bytes = 12
    with pytest.raises(OSError, match="space") as caught:
        checkpoint.write({A: 2})
    assert caught.value.errno == errno.ENOSPC
    assert checkpoint.read() == {A: 1}


def test_a_name_has_a_line_for_each_of_its_logs(disk: SimDisk) -> None:
    later, moved_back = A._replace(stream_id=UUID(int=2)), A._replace(incarnation=13)
    OffsetCheckpoint(PATH, disk).write({A: 1, later: 2, moved_back: 3})
    assert OffsetCheckpoint(PATH, disk).read() == {A: 1, later: 2, moved_back: 3}


def test_a_reader_of_a_folder_takes_the_offset_of_its_log_alone() -> None:
    later, moved_back = A._replace(stream_id=UUID(int=2)), A._replace(incarnation=13)
    offsets = {A: 1, B: 9, moved_back: 3}
    assert offset_of(offsets, A.tp, PartitionMetadata(A.stream_id, 12)) == 1
    assert offset_of(offsets, A.tp, PartitionMetadata(A.stream_id, 13)) == 3
    assert offset_of(offsets, A.tp, PartitionMetadata(later.stream_id, 13)) == 0
    for metadata in (None, PartitionMetadata(A.stream_id, None)):
        assert offset_of(offsets, A.tp, metadata) == 3  # of the newest
    assert offset_of({}, A.tp, None) == 0


@pytest.mark.parametrize(
    "body",
    [
        "",
        "1\n0\n",
        "x\n",
        f"2\na 0 1 {ID} 1\n",
        f"1\na 0 1 {ID} 1\nb 0 1 {ID} 1\n",
        f"1\na 0 1 {ID} 1",
        "1\na 0\n",
        "1\na 0 1\n",
        f"1\na 0 1 {ID}\n",
        f"1\na 0 1 {ID} x\n",
        f"1\na 0 1 {ID[:-1]} 1\n",
        f"1\na 0 1 {ID[:-1]}! 1\n",
        f"1\na 0 -1 {ID} 1\n",
        f"1\na x 1 {ID} 1\n",
        f"1\n 0 1 {ID} 1\n",
        f"1\na 0 9223372036854775808 {ID} 1\n",
        f"2\na 0 1 {ID} 1\na 0 2 {ID} 1\n",
        f"1\na 0 \xff {ID} 1\n",
    ],
)
def test_a_damaged_file_is_named(disk: SimDisk, body: str) -> None:
    content = body.encode("latin-1")
    disk.replace(str(PATH), b"1\ncrc32c %d\n%b" % (crc32c(content), content))
    with pytest.raises(CorruptFile, match="high-watermark-checkpoint"):
        OffsetCheckpoint(PATH, disk).read()


@pytest.mark.parametrize("content", [b"", b"0\n0\n", bytes(30)])
def test_what_is_no_checkpoint_is_named(disk: SimDisk, content: bytes) -> None:
    disk.replace(str(PATH), content)
    with pytest.raises(CorruptFile, match="high-watermark-checkpoint"):
        OffsetCheckpoint(PATH, disk).read()


def test_each_bit_that_rots_is_found(disk: SimDisk) -> None:
    OffsetCheckpoint(PATH, disk).write({A: 10, B: 200})
    for bit in range(8 * len(disk.content(str(PATH)))):
        disk.flip(str(PATH), bit)
        with pytest.raises(CorruptFile, match="high-watermark-checkpoint"):
            OffsetCheckpoint(PATH, disk).read()
        disk.flip(str(PATH), bit)
    assert len(OffsetCheckpoint(PATH, disk).read()) == 2
