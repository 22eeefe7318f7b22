import errno
from pathlib import Path

import pytest

from streamlog.log.disk import OsDisk
from streamlog.metadata import data_dir, last_run
from streamlog.metadata.data_dir import DataDir
from streamlog.metadata.last_run import LAST_RUN, Run, read_run, write_run
from streamlog.model import NodeId
from tests.failing_disk import FailingDisk

DISK = OsDisk()


def begin(path: Path) -> bool:
    with DataDir.open(path, NodeId(1)) as folder:
        return folder.begin_run()


def reboot(monkeypatch: pytest.MonkeyPatch, boot_id: str) -> None:
    monkeypatch.setattr(data_dir, "this_boot", lambda: boot_id)


def test_the_first_run_has_lost_nothing(tmp_path: Path) -> None:
    assert not begin(tmp_path)


def test_a_killed_process_has_lost_nothing(tmp_path: Path) -> None:
    begin(tmp_path)
    assert not begin(tmp_path)


def test_a_power_cut_may_have_lost_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(tmp_path)
    reboot(monkeypatch, "another")
    assert begin(tmp_path)


def test_a_run_that_was_ended_has_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DataDir.open(tmp_path, NodeId(1)) as folder:
        folder.begin_run()
        folder.end_run()
    reboot(monkeypatch, "another")
    assert not begin(tmp_path)


def test_a_loss_is_told_until_the_controller_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(tmp_path)
    reboot(monkeypatch, "another")
    assert begin(tmp_path)
    with DataDir.open(tmp_path, NodeId(1)) as folder:  # the process died before it registered
        assert folder.begin_run()
        folder.end_run()
    with DataDir.open(tmp_path, NodeId(1)) as folder:
        assert folder.begin_run()
        folder.told_of_loss()
    assert not begin(tmp_path)


def test_a_loss_that_cannot_be_noted_as_told_is_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(tmp_path)
    reboot(monkeypatch, "another")
    disk = FailingDisk()
    with DataDir.open(tmp_path, NodeId(1), disk=disk) as folder:
        assert folder.begin_run()
        disk.faults.break_("write_small", code=errno.ENOSPC)
        folder.told_of_loss()
    assert begin(tmp_path)


def test_where_the_system_does_not_tell_every_unclean_end_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reboot(monkeypatch, "")
    begin(tmp_path)
    assert begin(tmp_path)


def test_a_damaged_note_counts_as_an_unclean_end(tmp_path: Path) -> None:
    write_run(DISK, tmp_path, Run(boot_id="x", ended=True))
    (tmp_path / LAST_RUN).write_bytes(b"{")
    assert read_run(DISK, tmp_path) == Run(boot_id="", ended=False)


def test_the_boot_id_is_the_system_s() -> None:
    assert last_run.this_boot() == last_run.this_boot()
