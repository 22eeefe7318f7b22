from pathlib import Path
from uuid import UUID

import pytest
from crc32c import crc32c

from streamlog.errors import CorruptFile
from streamlog.log.disk import OsDisk
from streamlog.metadata.image import Image
from streamlog.metadata.records import NodeRegistered, PartitionChanged, StreamCreated
from streamlog.metadata.snapshot import (
    find_snapshots,
    read_epoch,
    read_snapshot,
    write_epoch,
    write_snapshot,
)
from streamlog.metadata.stream import StreamConfig
from streamlog.model import NodeId

ONE = NodeId(1)
DISK = OsDisk()


def image(offset: int = 10) -> Image:
    changed = PartitionChanged(
        stream="s", partition=0, replicas=(ONE,), leader=ONE, leader_epoch=3, isr=(ONE,),
        partition_epoch=3,
    )  # fmt: skip
    records = [
        NodeRegistered(node_id=ONE, incarnation=UUID(int=4), host="h", port=1),
        StreamCreated(stream_id=UUID(int=1), config=StreamConfig.of(name="s"), created_ms=2),
        changed,
    ]
    return Image("c").apply_all(records, offset=offset - 3, epoch=7)


def test_round_trip(tmp_path: Path) -> None:
    path = write_snapshot(DISK, tmp_path, image())
    assert path.name == "00000000000000000010-0000000007.checkpoint"
    assert read_snapshot(DISK, path) == image()


def test_an_empty_image(tmp_path: Path) -> None:
    path = write_snapshot(DISK, tmp_path, Image("c"))
    assert read_snapshot(DISK, path) == Image("c")


def test_the_newest_comes_first_and_others_are_passed_over(tmp_path: Path) -> None:
    for offset in (10, 2000, 30):
        write_snapshot(DISK, tmp_path, image(offset))
    (tmp_path / "00000000000000000099-0000000007.checkpoint.tmp").write_text("half")
    (tmp_path / "quorum-state").write_text("")
    assert [offset for offset, _ in find_snapshots(DISK, tmp_path)] == [2000, 30, 10]


def test_every_flipped_or_missing_byte_is_noticed(tmp_path: Path) -> None:
    path = write_snapshot(DISK, tmp_path, image())
    good = path.read_bytes()
    for position in range(len(good)):
        path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        with pytest.raises(CorruptFile):
            read_snapshot(DISK, path)
        path.write_bytes(good[:position])
        with pytest.raises(CorruptFile):
            read_snapshot(DISK, path)


@pytest.mark.parametrize("content", [b"", b"\n", b"{}\n", b"7\n", b'{"version": 2}\n', b"\xff\n"])
def test_a_right_checksum_over_something_else(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.checkpoint"
    path.write_bytes(b"crc32c %d\n" % crc32c(content) + content)
    with pytest.raises(CorruptFile):
        read_snapshot(DISK, path)


def test_epoch_file(tmp_path: Path) -> None:
    path = tmp_path / "quorum-state"
    assert read_epoch(DISK, path) == 0
    write_epoch(DISK, path, 41)
    assert read_epoch(DISK, path) == 41
    path.write_bytes(path.read_bytes().replace(b"41", b"14"))
    with pytest.raises(CorruptFile):
        read_epoch(DISK, path)
    path.write_bytes(b"")
    with pytest.raises(CorruptFile):
        read_epoch(DISK, path)
