"""Backups of encrypted streams: under a key of their own, and back under that of the nodes."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cluster_cli import Cli
from tools.nodes.cluster import Cluster
from tools.nodes.server_process import wait_until

PAYLOAD = "a-most-private-payload"
COUNT = 100


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the files of two keys: ``node``, which the node has, and ``vault``."""
    directory = tmp_path_factory.mktemp("encrypted")
    for number, name in enumerate(("node", "vault")):
        (directory / f"{name}.key").write_text(bytes([number] * 32).hex())
    return directory


@pytest.fixture(scope="module")
def cluster(directory: Path) -> Iterator[Cluster]:
    settings = {
        "cluster": {"id": "test"},
        "encryption": {"active_key": "node"},
        "encryption.keys": {"node": f"file:{directory}/node.key"},
    }
    with Cluster(directory / "cluster", nodes=1, settings=settings) as cluster:
        yield cluster


@pytest.fixture
def cli(cluster: Cluster) -> Cli:
    address = {"kafka": cluster.servers}
    return Cli(SimpleNamespace(nats=cluster.nats.url, addresses={"nodes": [address]}))


@pytest.fixture
def vault(directory: Path) -> tuple[str, str]:
    return "--key", f"vault=file:{directory}/vault.key"


def made(cli: Cli, name: str) -> list[dict[str, Any]]:
    cli.ok(f"stream add {name} --encrypted")
    cli.ok(f"publish {name} {PAYLOAD} --count {COUNT} --ack")
    return rows(cli, name)


def rows(cli: Cli, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli.ok(f"consume {name} --json").splitlines()]


def holders(path: Path) -> list[Path]:
    """The files that have the payload in the clear."""
    return [it for it in path.rglob("*") if it.is_file() and PAYLOAD.encode() in it.read_bytes()]


def test_a_stream_is_encrypted_in_its_backup_and_where_it_comes_back(
    cli: Cli, cluster: Cluster, vault: tuple[str, str], tmp_path: Path
) -> None:
    before, backup = made(cli, "sealed"), tmp_path / "backup"
    refused = cli.refused(f"backup create {backup} --stream sealed")
    assert "sealed is encrypted: name a key for the backup (--key NAME=SOURCE)" in refused
    cli.ok(f"backup create {backup} --stream sealed", *vault)
    assert holders(backup) == []
    cli.ok(f"publish sealed {PAYLOAD} --count 10 --ack")
    assert cli.json(f"backup create {backup} --stream sealed", *vault)["new_offsets"] == 10
    assert holders(backup) == []
    assert cli.json(f"backup info {backup}")["streams"][0]["keys"] == ["vault"]
    assert "1 encrypted files were not decrypted" in cli.ok(f"backup verify {backup}")
    assert "not decrypted" not in cli.ok(f"backup verify {backup}", *vault)
    assert "needs the key 'vault'" in cli.refused(
        f"backup restore stream {backup} sealed --as again"
    )
    cli.ok(f"backup restore stream {backup} sealed --as again", *vault)
    assert rows(cli, "again")[:COUNT] == before
    assert len(rows(cli, "again")) == COUNT + 10
    assert holders(cluster[1].data_dir / "streams") == []
    cli.ok(f"backup create {tmp_path}/clear --stream sealed --plaintext")
    assert holders(tmp_path / "clear") != []


def test_from_the_folder_of_a_running_node_with_its_configuration(
    cli: Cli, cluster: Cluster, vault: tuple[str, str], tmp_path: Path
) -> None:
    before, folder, backup = made(cli, "lies"), cluster[1].data_dir, tmp_path / "backup"
    lying = f"--path {folder} --stream lies"

    def all_noted() -> bool:
        done = cli.run(f"backup create {backup} {lying} --config {cluster[1].config}", *vault)
        return not done.code and cli.json(f"backup info {backup}")["streams"][0]["records"] == COUNT

    wait_until(all_noted, "the checkpoint")
    refused = cli.refused(f"backup create {tmp_path}/other {lying}", *vault)
    assert "needs the key 'node'" in refused
    assert "give it as --key NAME=SOURCE, or --config of a node that has it" in refused
    assert cli.json(f"backup info {backup}")["streams"][0]["keys"] == ["vault"]
    assert holders(backup) == []
    cli.ok(f"backup restore stream {backup} lies --as lay", *vault)
    assert rows(cli, "lay") == before


def test_a_cluster_out_of_folders_is_under_the_key_of_its_nodes(
    cli: Cli, cluster: Cluster, vault: tuple[str, str], tmp_path: Path
) -> None:
    before, node = made(cli, "whole"), cluster[1]
    cli.ok(f"backup create {tmp_path}/backup", *vault)
    assert holders(tmp_path) == []
    cluster.kill()
    shutil.rmtree(node.data_dir)
    restore = f"backup restore cluster {tmp_path}/backup --node 1={node.data_dir}"
    assert "is encrypted: name the key that the nodes will have" in cli.refused(restore)
    assert not node.data_dir.exists()
    node_key = f"--config {node.config}"
    assert "needs the key 'vault'" in cli.refused(f"{restore} {node_key}")
    cli.ok(f"{restore} {node_key}", *vault)
    assert holders(node.data_dir) == []
    assert "0 findings" in cli.ok(f"log verify {node.data_dir} {node_key}")
    assert list(cli.json(f"encryption status {node.data_dir}")["keys"]) == ["node"]
    cluster.start()
    assert rows(cli, "whole") == before
