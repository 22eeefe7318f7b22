import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from crc32c import crc32c

from streamlog.errors import CorruptFile
from streamlog.log.storage.disk import DiskFile, OsDisk
from streamlog.metadata.image import snapshot as snapshot_module
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import (
    MetadataRecord,
    NodeRegistered,
    PartitionChanged,
    StreamCreated,
)
from streamlog.metadata.image.snapshot import (
    SNAPSHOT_RECORDS_MIN,
    decode_snapshot,
    encode_snapshot,
    find_snapshots,
    is_due,
    read_snapshot,
    snapshot_id,
    snapshot_path,
    write_snapshot,
)
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from streamlog.raft.messages import SnapshotId

ONE = NodeId(1)
DISK = OsDisk()


def image(offset: int = 10) -> MetadataImage:
    changed = PartitionChanged(
        stream="s", partition=0, replicas=(ONE,), leader=ONE, leader_epoch=3, isr=(ONE,),
        partition_epoch=3,
    )  # fmt: skip
    records = [
        NodeRegistered(node_id=ONE, incarnation=UUID(int=4), host="h", port=1),
        StreamCreated(stream_id=UUID(int=1), config=StreamConfig.of(name="s"), created_ms=2),
        changed,
    ]
    return MetadataImage("c").apply_all(records, offset=offset - 3, epoch=7)


def test_round_trip() -> None:
    assert decode_snapshot(encode_snapshot(image()), "x") == image()
    assert snapshot_path(Path("d"), snapshot_id(image())).name == (
        "00000000000000000010-0000000007.checkpoint"
    )


def test_an_empty_image() -> None:
    assert decode_snapshot(encode_snapshot(MetadataImage("c")), "x") == MetadataImage("c")


def test_the_newest_comes_first_and_others_are_passed_over(tmp_path: Path) -> None:
    ids = [SnapshotId(offset, 7) for offset in (10, 2000, 30)]
    for it in ids:
        snapshot_path(tmp_path, it).write_bytes(b"")
    (tmp_path / "00000000000000000099-0000000007.checkpoint.tmp").write_text("half")
    (tmp_path / "quorum-state").write_text("")
    assert find_snapshots(DISK, tmp_path) == sorted(ids, reverse=True)


def test_every_flipped_or_missing_byte_is_noticed() -> None:
    good = encode_snapshot(image())
    for position in range(len(good)):
        with pytest.raises(CorruptFile, match=r"^here: "):
            decode_snapshot(
                good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :], "here"
            )
        with pytest.raises(CorruptFile):
            decode_snapshot(good[:position], "here")


@pytest.mark.parametrize("content", [b"", b"\n", b"{}\n", b"7\n", b'{"version": 2}\n', b"\xff\n"])
def test_a_right_checksum_over_something_else(content: bytes) -> None:
    with pytest.raises(CorruptFile):
        decode_snapshot(b"crc32c %d\n" % crc32c(content) + content, "x")


@pytest.mark.parametrize("piece_bytes", [1, 7, 1 << 20])
def test_a_file_in_pieces(
    tmp_path: Path, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for those who read it at once, as nodes of an earlier build do."""
    monkeypatch.setattr(snapshot_module, "PIECE_BYTES", piece_bytes)
    for number in range(20):  # checksums of nine digits, too
        given = image(offset=10 + number)
        with written(tmp_path / "x", given) as file:
            assert read_snapshot(file, "x") == given
            assert file.size() > 300
        assert decode_snapshot((tmp_path / "x").read_bytes(), "x") == given
    (tmp_path / "x").write_bytes(encode_snapshot(given))
    with opened(tmp_path / "x") as file:
        assert read_snapshot(file, "x") == given


def test_every_flipped_or_missing_byte_of_a_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with written(path, image()):
        good = path.read_bytes()
    for position in range(len(good)):
        flipped = good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :]
        for damaged in (flipped, good[:position]):
            path.write_bytes(damaged)
            with opened(path) as file, pytest.raises(CorruptFile, match=r"^here: "):
                read_snapshot(file, "here")


def test_the_memory_for_a_file_does_not_grow_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_module, "PIECE_BYTES", 1 << 14)
    config = StreamConfig.of(name="s", partitions=10_000, replicas=3)
    records: list[MetadataRecord] = [
        StreamCreated(stream_id=UUID(int=1), config=config, created_ms=2)
    ]
    nodes = (ONE, NodeId(2), NodeId(3))
    records.extend(
        PartitionChanged(
            stream="s", partition=number, replicas=nodes, leader=ONE, leader_epoch=3, isr=nodes,
            partition_epoch=3,
        )
        for number in range(config.partitions)
    )  # fmt: skip
    large = MetadataImage("c").apply_all(records, offset=0, epoch=7)
    tracemalloc.start()
    try:
        with written(tmp_path / "x", large) as file:
            _, peak = tracemalloc.get_traced_memory()
            assert file.size() > 2_000_000
            assert peak < 200_000
    finally:
        tracemalloc.stop()


@contextmanager
def written(path: Path, given: MetadataImage) -> Iterator[DiskFile]:
    file = DISK.create(str(path))
    try:
        write_snapshot(file, given)
        yield file
    finally:
        file.close()


@contextmanager
def opened(path: Path) -> Iterator[DiskFile]:
    file = DISK.open(str(path))
    try:
        yield file
    finally:
        file.close()


def test_snapshots_come_due_with_the_number_of_records() -> None:
    assert not is_due(image(SNAPSHOT_RECORDS_MIN), None)
    assert is_due(image(SNAPSHOT_RECORDS_MIN + 1), None)
    assert not is_due(image(SNAPSHOT_RECORDS_MIN + 1), SnapshotId(1, 1))
