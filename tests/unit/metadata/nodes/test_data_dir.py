import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamlog.errors import ConfigError
from streamlog.metadata.nodes.data_dir import FORMAT_VERSION, DataDir
from streamlog.model import NodeId

ONE = NodeId(1)


def refusal(path: Path, node_id: int = 1, cluster_id: str | None = None) -> str:
    with pytest.raises(ConfigError) as raised:
        DataDir.open(path, NodeId(node_id), cluster_id=cluster_id).close()
    text = str(raised.value)
    assert "\n" not in text
    assert ";" in text, "the remedy is told"
    return text


def test_a_new_folder_gets_a_cluster_and_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "data"
    with DataDir.open(path, ONE) as first:
        cluster_id = first.cluster_id
        assert json.loads((path / "node.json").read_text()) == {
            "cluster_id": cluster_id,
            "node_id": 1,
            "format_version": FORMAT_VERSION,
            "directory_id": str(first.directory_id),
        }
    with DataDir.open(path, ONE) as again:
        assert again.cluster_id == cluster_id
        assert again.directory_id == first.directory_id
        assert again.metadata == path / "metadata"
        assert again.streams == path / "streams"


def test_another_process_has_it(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from streamlog.metadata.nodes.data_dir import DataDir\n"
        "folder = DataDir.open(Path(sys.argv[1]), 1); print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[4]
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        text = refusal(tmp_path)
        assert text.startswith("node.data_dir: ")
        assert str(process.pid) in text
        process.kill()
    DataDir.open(tmp_path, ONE).close()


def test_closing_lets_others_in(tmp_path: Path) -> None:
    folder = DataDir.open(tmp_path, ONE)
    assert str(os.getpid()) in refusal(tmp_path)
    folder.close()
    folder.close()
    DataDir.open(tmp_path, ONE).close()


def test_another_node(tmp_path: Path) -> None:
    DataDir.open(tmp_path, ONE).close()
    assert refusal(tmp_path, node_id=2).startswith("node.id: is 2, and")


def test_another_cluster(tmp_path: Path) -> None:
    DataDir.open(tmp_path, ONE, cluster_id="blue").close()
    assert "cluster blue" in refusal(tmp_path, cluster_id="red")


def test_a_newer_format(tmp_path: Path) -> None:
    file = tmp_path / "node.json"
    file.write_text('{"cluster_id": "c", "node_id": 1, "format_version": 99, "new": 1}')
    assert "format 99" in refusal(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"cluster_id": "c"}', "\x00" * 80])
def test_a_damaged_node_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "node.json").write_text(content)
    assert "node.json is damaged" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["metadata", "streams"])
def test_a_lost_node_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert "no node.json" in refusal(tmp_path)


def test_a_place_that_cannot_be_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert refusal(file / "data").startswith("node.data_dir: ")
    assert refusal(file).startswith("node.data_dir: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        assert refusal(tmp_path).startswith("node.data_dir: ")
    finally:
        tmp_path.chmod(0o700)


def test_a_refusal_lets_go_of_the_lock(tmp_path: Path) -> None:
    DataDir.open(tmp_path, ONE).close()
    refusal(tmp_path, node_id=2)
    DataDir.open(tmp_path, ONE).close()
