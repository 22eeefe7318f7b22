"""Encrypted streams on a cluster of real nodes: killed, started with other keys, read by others."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from nats.js.api import StreamConfig
from nats.js.errors import APIError

from streamlog.log.encryption.inventory import data_keys
from streamlog.log.encryption.key_source import key_ring
from tests.history import Lane
from tests.integration.campaign import campaign, connect
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess, Settings
from tools.nodes.server_process import program, wait_until

LANES: Final = [Lane("secret"), Lane("spread", 0), Lane("spread", 1)]
NONE_LEFT: Final = "streamlog_encryption_old_data_keys 0.0"
SMALL: Final[Settings] = {"log": {"segment_bytes": 64 << 10, "checkpoint_interval_ms": 200}}


def new_key(folder: Path, name: str) -> str:
    """As an operator makes one; its source."""
    file = folder / name
    made = [program("streamlog"), "encryption", "keygen", str(file)]
    subprocess.run(made, check=True, capture_output=True, timeout=60)
    assert file.stat().st_mode & 0o777 == 0o600
    return f"file:{file}"


def keyed(sources: dict[str, str], current: str) -> Settings:
    return {**SMALL, "encryption": {"active_key": current}, "encryption.keys": sources}


def give(cluster: Cluster, node: NodeProcess, sources: dict[str, str], current: str) -> None:
    """From its next start on."""
    cluster.settings = keyed(sources, current)
    node.configure(cluster.settings_of(node))


def needed(node: NodeProcess) -> set[str | None]:
    return {it.key_name for it in data_keys(node.data_dir)}


async def test_keys_are_changed_node_by_node_under_load(tmp_path: Path) -> None:
    """... with a kill in between; afterwards the old key is not even there any more."""
    old, new = new_key(tmp_path, "old"), new_key(tmp_path, "new")
    with Cluster(tmp_path, settings=keyed({"old": old}, "old")) as cluster:
        for node in cluster.nodes.values():
            node.keys = key_ring({"old": old, "new": new}, "new")

        def faults() -> None:
            assert all(needed(node) == {"old"} for node in cluster.nodes.values())
            cluster.restart(2)
            for sources in ({"old": old, "new": new}, {"new": new}):
                for number, node in cluster.nodes.items():
                    give(cluster, node, sources, "new")
                    assert node.stop() == 0
                    cluster.start(number)
                    wait_until(lambda it=node: needed(it) == {"new"}, "data keys are not changed")  # type: ignore[misc]
                    wait_until(lambda it=node: NONE_LEFT in it.http("/metrics")[1], "not told")  # type: ignore[misc]
            (tmp_path / "old").unlink()
            cluster.restart()

        histories = await campaign(cluster, LANES, faults, settings={"encrypted": "true"})
        payloads = [it[:24] for lane in histories.values() for it in list(lane.sent.values())[:50]]
        for node in cluster.nodes.values():
            for file in node.data_dir.rglob("*"):
                content = file.read_bytes() if file.is_file() else b""
                assert not any(payload in content for payload in payloads), file
        report = status_of(cluster[1].data_dir)
        assert set(report["keys"]) == {"new"}
        assert report["damaged"] == []


def status_of(folder: Path) -> dict[str, Any]:
    shown = [program("streamlog"), "encryption", "status", str(folder), "--json"]
    done = subprocess.run(shown, check=True, capture_output=True, text=True, timeout=60)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def test_a_cluster_without_keys_refuses_encrypted_streams(tmp_path: Path) -> None:
    with Cluster(tmp_path, nodes=1) as cluster:
        client = await connect(cluster)
        try:
            context = client.jetstream(domain="streamlog")
            with pytest.raises(APIError, match=r"encryption\.keys"):
                config = StreamConfig(name="s", metadata={"streamlog.encrypted": "true"})
                await context.add_stream(config)
            await context.add_stream(StreamConfig(name="s"))
            with pytest.raises(APIError, match=r"encryption\.keys"):
                config = StreamConfig(name="s", metadata={"streamlog.encrypted": "true"})
                await context.update_stream(config)
        finally:
            await client.close()


def test_a_node_without_its_key_does_not_start(tmp_path: Path) -> None:
    node = NodeProcess(1, tmp_path / "node")
    sources = {"k": f"file:{tmp_path}/nowhere"}
    node.configure({**keyed(sources, "k"), "nats": {"servers": ["nats://127.0.0.1:1"]}})
    node.spawn()
    wait_until(lambda: not node.is_running(), "it runs")
    assert "encryption.keys.k" in node.log_text()
    assert "nowhere cannot be read" in node.log_text()


def test_a_key_is_never_written_over(tmp_path: Path) -> None:
    new_key(tmp_path, "key")
    before = (tmp_path / "key").read_bytes()
    again = [program("streamlog"), "encryption", "keygen", str(tmp_path / "key")]
    done = subprocess.run(again, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "is there already" in done.stderr
    assert (tmp_path / "key").read_bytes() == before
