"""The schema of a stream, out of the metadata of a node on its disk: snapshots, log, and what is committed of it."""

from pathlib import Path
from uuid import UUID

import pytest

from streamlog.arrow.options.read_options import ReadOptions
from streamlog.arrow.options.subscription import StreamSubscription
from streamlog.cli.lake.folder_schema import folder_schema
from streamlog.errors import ConfigError, CorruptFile
from streamlog.metadata.image.records import MetadataRecord, StreamCreated
from streamlog.metadata.stream.stream_config import StreamConfig
from tests.unit.metadata_folder import Node


def schema(number: int) -> str:
    return f'json {{"properties": {{"c{number}": {{"type": "string"}}}}}}'


def created(number: int) -> MetadataRecord:
    config = StreamConfig.of(name=f"s{number}", table_schema=schema(number))
    return StreamCreated(stream_id=UUID(int=number + 1), config=config, created_ms=0)


def told(data_dir: Path, stream: str) -> str:
    read = ReadOptions(path=str(data_dir), subscription=StreamSubscription((stream,)))
    return folder_schema(read, stream)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    (tmp_path / "streams").mkdir()
    (tmp_path / "high-watermark-checkpoint").write_bytes(b"")
    found = Node(tmp_path / "metadata", segment_bytes=512)
    found.register(1)
    return found


def test_snapshots_and_log_are_read(node: Node, tmp_path: Path) -> None:
    for number in range(12):
        if number in (3, 6, 9):
            node.snapshot()
        node.write(created(number))
        node.store.checkpoint(node.image.offset)
        assert told(tmp_path, f"s{number}") == schema(number)
    assert len(list((tmp_path / "metadata" / "log").glob("*.log"))) > 1
    assert [told(tmp_path, f"s{number}") for number in range(12)] == [*map(schema, range(12))]
    node.stop()
    assert told(tmp_path, "s11") == schema(11)


def test_what_is_not_known_to_be_committed_is_not_looked_at(node: Node, tmp_path: Path) -> None:
    node.store.checkpoint(node.image.offset)
    node.write(created(0))
    with pytest.raises(ConfigError, match="has no stream s0: its settings are unknown"):
        told(tmp_path, "s0")
    node.store.checkpoint(node.image.offset)
    assert told(tmp_path, "s0") == schema(0)
    node.stop()


def test_metadata_that_do_not_say_are_told(node: Node, tmp_path: Path) -> None:
    for number in range(4):
        node.write(created(number))
        node.snapshot()
    node.stop()
    snapshots = sorted((tmp_path / "metadata").glob("0*.checkpoint"))
    snapshots[-1].write_bytes(b"damaged")
    with pytest.raises(CorruptFile, match="checkpoint"):
        told(tmp_path, "s0")
    for it in snapshots:
        it.unlink()
    with pytest.raises(ConfigError, match="does not begin where the snapshot ends"):
        told(tmp_path, "s0")
    (tmp_path / "metadata" / "high-watermark-checkpoint").unlink()
    with pytest.raises(ConfigError, match="the stream's settings are unknown"):
        told(tmp_path, "s0")
