"""Who may use a backup's folder at the same time."""

import subprocess
from pathlib import Path

import pytest

from streamlog.backup.folder import BackupFolder
from streamlog.errors import InvalidRequest, Unavailable
from tests.small_disk import mounted


def test_readers_come_together_and_a_writer_alone(tmp_path: Path) -> None:
    with (
        BackupFolder.make(tmp_path),
        pytest.raises(InvalidRequest, match="is in use by another backup or restore"),
    ):
        BackupFolder.open(tmp_path)
    with (
        BackupFolder.open(tmp_path),
        BackupFolder.open(tmp_path),
        pytest.raises(InvalidRequest, match="is in use by another backup or restore"),
    ):
        BackupFolder.make(tmp_path)
    BackupFolder.make(tmp_path).close()


def test_a_copy_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", 1 << 20) as disk:
        with BackupFolder.make(disk / "backup") as made:
            backup_id = made.manifest.backup_id
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with BackupFolder.open(disk / "backup") as first, BackupFolder.open(disk / "backup"):
            assert first.manifest.backup_id == backup_id
        with pytest.raises(Unavailable, match="Read-only file system"):
            BackupFolder.make(disk / "backup")
