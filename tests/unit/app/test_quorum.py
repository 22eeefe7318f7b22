from pathlib import Path
from uuid import uuid4

import pytest

from streamlog.app.node import build_metadata
from streamlog.config import Settings
from streamlog.errors import CorruptData
from streamlog.log.storage.reserve import Reserve
from streamlog.metadata.nodes import data_dir
from streamlog.metadata.nodes.data_dir import DataDir
from streamlog.model import NodeId
from tests.unit.metadata_folder import Node


async def opened(path: Path, settings: Settings) -> int:
    """How many streams a run finds that begins now, opens all of its logs, and is killed."""
    with DataDir.open(path, NodeId(1), cluster_id="c") as folder:
        folder.begin_run(uuid4())
        metadata = build_metadata(settings, folder, uuid4(), Reserve(path / "reserve", 0))
        try:
            await metadata.open()
            folder.logs_recovered()
            return len(metadata._quorum.replica.newest.streams)
        finally:
            await metadata.close()


async def test_a_damaged_last_change_is_forgotten_only_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was committed, but the checkpoint that would say so is written now and then only."""
    settings = Settings(node={"id": 1, "data_dir": tmp_path}, cluster={"id": "c"})
    assert await opened(tmp_path, settings) == 0
    node = Node(tmp_path / "metadata")
    node.register(1)
    node.create("s")
    node.create("t")
    node.store.close()
    assert await opened(tmp_path, settings) == 2
    (tmp_path / "metadata" / "recovery-point-offset-checkpoint").unlink()
    (path,) = (tmp_path / "metadata" / "log").glob("*.log")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptData, match="no power was lost"):
        await opened(tmp_path, settings)
    monkeypatch.setattr(data_dir, "this_boot", lambda: "another")
    assert await opened(tmp_path, settings) == 1
