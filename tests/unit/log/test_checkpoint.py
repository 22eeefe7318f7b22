import errno
from pathlib import Path

import pytest
from crc32c import crc32c

from streamlog.errors import CorruptFile
from streamlog.log.checkpoint import OffsetCheckpoint
from streamlog.model import TopicPartition
from tests.simulation.disk import SimDisk

PATH = Path("/high-watermark-checkpoint")


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


def test_the_text_has_a_checksum(disk: SimDisk) -> None:
    checkpoint = OffsetCheckpoint(PATH, disk)
    checkpoint.write({TopicPartition("b", 0): 7, TopicPartition("a", 12): 2**40})
    body = b"2\na 12 1099511627776\nb 0 7\n"
    assert disk.content(str(PATH)) == b"1\ncrc32c %d\n%b" % (crc32c(body), body)
    assert checkpoint.read() == {TopicPartition("b", 0): 7, TopicPartition("a", 12): 2**40}


def test_nothing_yet(disk: SimDisk) -> None:
    checkpoint = OffsetCheckpoint(PATH, disk)
    assert checkpoint.read() == {}
    checkpoint.write({})
    assert checkpoint.read() == {}


def test_it_is_durable_when_write_returns(disk: SimDisk) -> None:
    for offset in range(20):
        OffsetCheckpoint(PATH, disk).write({TopicPartition("a", 0): offset})
        disk.crash()
        assert OffsetCheckpoint(PATH, disk).read() == {TopicPartition("a", 0): offset}


def test_the_old_one_stays_when_the_disk_is_full(disk: SimDisk) -> None:
    checkpoint = OffsetCheckpoint(PATH, disk)
    checkpoint.write({TopicPartition("a", 0): 1})
    disk.capacity_bytes = 12
    with pytest.raises(OSError, match="space") as caught:
        checkpoint.write({TopicPartition("a", 0): 2})
    assert caught.value.errno == errno.ENOSPC
    assert checkpoint.read() == {TopicPartition("a", 0): 1}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"0",
        b"0\n",
        b"0\n1\n0\n",
        b"0\nx\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0 1\nb 0 1\n",
        b"0\n1\na 0 1",
        b"0\n1\na 0\n",
        b"0\n1\na 0 -1\n",
        b"0\n1\na x 1\n",
        b"0\n1\n 0 1\n",
        b"0\n1\na 0 9223372036854775808\n",
        b"0\n2\na 0 1\na 0 2\n",
        b"0\n1\na 0 \xff\n",
        bytes(30),
    ],
)
def test_a_damaged_file_is_named(disk: SimDisk, content: bytes) -> None:
    body = content.removeprefix(b"0\n")
    disk.replace(str(PATH), b"1\ncrc32c %d\n%b" % (crc32c(body), body))
    with pytest.raises(CorruptFile, match="high-watermark-checkpoint"):
        OffsetCheckpoint(PATH, disk).read()


def test_each_bit_that_rots_is_found(disk: SimDisk) -> None:
    OffsetCheckpoint(PATH, disk).write({TopicPartition("a", 0): 10, TopicPartition("b", 3): 200})
    for bit in range(8 * len(disk.content(str(PATH)))):
        disk.flip(str(PATH), bit)
        with pytest.raises(CorruptFile, match="high-watermark-checkpoint"):
            OffsetCheckpoint(PATH, disk).read()
        disk.flip(str(PATH), bit)
    assert len(OffsetCheckpoint(PATH, disk).read()) == 2
