"""What a node keeps on its disk is for its own account alone."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.app.security import AuditFile
from streamlog.authz.audit import logger
from streamlog.cli.doctor import limits
from streamlog.config import NodeSection, Settings
from streamlog.log.storage.permissions import set_umask, tighten
from streamlog.metadata.nodes.data_dir import DataDir
from streamlog.model import NodeId
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import NatsServer


@pytest.fixture
def nats_url(tmp_path: Path) -> Iterator[str]:
    server = NatsServer(tmp_path)
    server.start()
    yield server.url
    server.stop()


def open_to_others(folder: Path) -> list[str]:
    found = [folder, *(Path(path, it) for path, names, files in os.walk(folder)
                       for it in (*names, *files))]  # fmt: skip
    return [
        f"{it}: {stat.S_IMODE(it.stat().st_mode):o}" for it in found if it.stat().st_mode & 0o077
    ]


def loosen(folder: Path) -> None:
    for path, names, files in os.walk(folder):
        for name in names:
            Path(path, name).chmod(0o755)
        for name in files:
            Path(path, name).chmod(0o644)
    folder.chmod(0o755)


def test_a_node_keeps_everything_to_itself_and_tightens_what_was_open(
    tmp_path: Path, nats_url: str
) -> None:
    node = NodeProcess.alone(tmp_path / "node", nats_url)
    before = os.umask(0o022)
    try:
        node.start()
        names = {it.name for it in node.data_dir.rglob("*")}
        assert {"metadata", "node.json", "lock"} <= names
        assert open_to_others(node.data_dir) == []
        node.stop()
        loosen(node.data_dir)
        node.start()
        assert open_to_others(node.data_dir) == []
        assert "others could read the data folder" in node.log_text()
    finally:
        os.umask(before)
        node.stop()


def test_a_folder_is_tightened_and_what_it_links_to_is_not(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("somebody else's")
    outside.chmod(0o644)
    data = tmp_path / "data"
    (data / "streams" / "a").mkdir(parents=True)
    (data / "streams" / "a" / "x.log").write_text("secret")
    (data / "link").symlink_to(outside)
    loosen(data)
    assert tighten(data)
    assert not tighten(data)
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644
    (data / "link").unlink()
    assert open_to_others(data) == []
    assert stat.S_IMODE((data / "streams" / "a").stat().st_mode) == 0o700
    assert stat.S_IMODE((data / "streams" / "a" / "x.log").stat().st_mode) == 0o600


def test_a_folder_that_is_not_ours_is_told_of_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def chmod(_path: Path, _mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o755)  # whatever the process's umask is
    monkeypatch.setattr(Path, "chmod", chmod)
    DataDir.open(tmp_path / "data", NodeId(1)).close()
    assert [it.message for it in caplog.records] == ["others can read the data folder"]


def test_the_umask_is_the_processs(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        set_umask()
        (tmp_path / "made").mkdir()
        (tmp_path / "made" / "file").write_text("")
        assert open_to_others(tmp_path / "made") == []
    finally:
        os.umask(before)


def test_an_audit_file_that_is_moved_away_is_begun_anew_for_us_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    path = tmp_path / "audit.jsonl"
    audit = AuditFile(path)
    try:
        audit.open()
        logger.info("act")
        path.rename(tmp_path / "audit.jsonl.1")
        logger.info("act")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "audit.jsonl.1").stat().st_mode) == 0o600
    finally:
        os.umask(before)
        audit.close()


def test_the_doctor_looks_who_may_read_the_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "metadata").mkdir(parents=True)
    data.chmod(0o700)
    settings = Settings(node=NodeSection(id=NodeId(1), data_dir=data))
    (data / "metadata").chmod(0o700)
    assert not any("look into" in it.what for it in limits.examine(settings, None))
    for folder in (data / "metadata", data):
        folder.chmod(0o750)
        (found,) = [it for it in limits.examine(settings, None) if "look into" in it.what]
        assert (found.severity, f"{folder} (mode 750)" in found.what) == ("warning", True)
        assert "chmod -R go=" in found.remedy
