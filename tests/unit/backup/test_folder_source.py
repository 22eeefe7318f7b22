"""A node's folder, read as it lies there, of which segments are encrypted."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from streamlog.backup.folder_source import KeptFolders
from streamlog.backup.placement import node_file
from streamlog.errors import CorruptBatch, EncryptionKeyMissing, StreamNotFound
from streamlog.log.checkpoint import OffsetCheckpoint
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.layout import METADATA_NAME, encode_mark
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.metadata.image.image_types import PartitionImage, StreamImage
from streamlog.metadata.nodes.data_dir import FORMAT_VERSION
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import LogId, NodeId, TopicPartition
from tests.log_folder import a_key_ring, make_batch

TP = TopicPartition("s", 0)
NODE = NodeId(1)


@pytest.fixture
def stream() -> StreamImage:
    partition = PartitionImage((NODE,), NODE, 0, (NODE,), 0)
    return StreamImage(StreamConfig.of(name="s"), UUID(int=5), 0, (partition,))


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Six batches in segments of two, of which the first segment is in the clear."""
    (tmp_path / "node.json").write_bytes(node_file("c", NODE, UUID(int=9), FORMAT_VERSION))
    folder = tmp_path / "streams" / "s" / "0"
    disk = OsDisk()
    files = FilePool(disk, 16, a_key_ring())
    for encrypts, count in ((False, 2), (True, 4)):
        settings = LogSettings(segment_bytes=1_100, encrypts=encrypts)
        log = PartitionLog.open(folder, settings, disk=disk, files=files)
        for _ in range(count):
            log.append(a_batch(log.log_end_offset), 1_000)
        log.close()
    (folder / METADATA_NAME).write_bytes(encode_mark(UUID(int=5), 0))
    OffsetCheckpoint(tmp_path / "high-watermark-checkpoint", disk).write(
        {LogId(TP, UUID(int=5), 0): 6}
    )
    return tmp_path


def a_batch(offset: int) -> bytes:
    return make_batch(offset, [b"%d" % offset * 400])


def keys_in(node: Path) -> list[Path]:
    return sorted(node.rglob("*.key"))


async def taken(kept: KeptFolders, stream: StreamImage) -> list[bytes]:
    extent = await kept.extent(stream, TP)
    found = kept.batches(stream, 0, extent.log_start_offset, extent.high_watermark)
    return [bytes(batch) async for _, batch in found]


async def test_batches_come_as_they_were_appended(node: Path, stream: StreamImage) -> None:
    kept = KeptFolders([node], a_key_ring())
    assert await taken(kept, stream) == [a_batch(offset) for offset in range(6)]


async def test_without_the_key_there_is_a_remedy(node: Path, stream: StreamImage) -> None:
    for keys in (None, a_key_ring("k2")):
        with pytest.raises(EncryptionKeyMissing, match=r"'k1'.*give it as --key .*--config"):
            await taken(KeptFolders([node], keys), stream)


async def test_damage_is_named_by_file_and_position(node: Path, stream: StreamImage) -> None:
    first, second = keys_in(node)
    second.write_bytes(first.read_bytes())
    with pytest.raises(CorruptBatch, match=rf"{second.stem}\.log: position 0: .*not decrypt"):
        await taken(KeptFolders([node], a_key_ring()), stream)


async def test_what_lies_there_encrypted_is_so_whatever_its_settings_say(
    node: Path, stream: StreamImage
) -> None:
    kept = KeptFolders([node], KeyRing())
    assert await kept.is_sealed(stream)
    for key in keys_in(node):
        key.unlink()
    assert not await kept.is_sealed(stream)
    assert await kept.is_sealed(replace(stream, config=StreamConfig.of(name="s", encrypted=True)))


async def test_a_folder_that_came_to_be_another_streams_meanwhile_is_noticed(
    node: Path, stream: StreamImage
) -> None:
    kept = KeptFolders([node], a_key_ring())
    await kept.extent(stream, TP)
    await kept.confirm(stream)
    (node / "streams" / "s" / "0" / METADATA_NAME).write_bytes(encode_mark(UUID(int=99), 0))
    with pytest.raises(StreamNotFound, match="no longer of stream s"):
        await kept.confirm(stream)
