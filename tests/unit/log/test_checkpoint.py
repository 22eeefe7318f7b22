import errno
from pathlib import Path

import pytest

from streamlog.errors import CorruptFile
from streamlog.log.checkpoint import OffsetCheckpoint
from streamlog.model import TopicPartition
from tests.simulation.disk import SimDisk

PATH = Path("/high-watermark-checkpoint")


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


def test_the_text_is_kafkas(disk: SimDisk) -> None:
    checkpoint = OffsetCheckpoint(PATH, disk)
    checkpoint.write({TopicPartition("b", 0): 7, TopicPartition("a", 12): 2**40})
    assert disk.content(str(PATH)) == b"0\n2\na 12 1099511627776\nb 0 7\n"
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
        b"1\n0\n",
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
    disk.replace(str(PATH), content)
    with pytest.raises(CorruptFile, match="high-watermark-checkpoint"):
        OffsetCheckpoint(PATH, disk).read()
