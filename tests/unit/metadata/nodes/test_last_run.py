import errno
from pathlib import Path
from uuid import uuid4

import pytest

from streamlog.errors import ConfigError
from streamlog.log.storage.disk import OsDisk
from streamlog.metadata.nodes import data_dir, last_run
from streamlog.metadata.nodes.data_dir import DataDir
from streamlog.metadata.nodes.last_run import (
    LAST_RUN,
    STAMPS_MAX,
    NodeRun,
    NodeRuns,
    read_run,
    write_run,
)
from streamlog.model import NodeId
from tests.unit.failing_disk import FailingDisk

DISK = OsDisk()


def begin(path: Path) -> bool:
    with DataDir.open(path, NodeId(1)) as folder:
        return folder.begin_run(uuid4())


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
        folder.begin_run(uuid4())
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
        assert folder.begin_run(uuid4())
        folder.end_run()
    with DataDir.open(tmp_path, NodeId(1)) as folder:
        assert folder.begin_run(uuid4())
        folder.told_of_loss()
    assert not begin(tmp_path)


def test_a_loss_that_cannot_be_noted_as_told_is_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(tmp_path)
    reboot(monkeypatch, "another")
    disk = FailingDisk()
    with DataDir.open(tmp_path, NodeId(1), disk=disk) as folder:
        assert folder.begin_run(uuid4())
        disk.faults.break_("write_small", code=errno.ENOSPC)
        folder.told_of_loss()
    assert begin(tmp_path)


def test_logs_are_torn_until_all_of_them_were_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_torn(*, opens_all: bool = False) -> bool:
        """A run that is killed after it was registered."""
        with DataDir.open(tmp_path, NodeId(1)) as folder:
            found = folder.power_was_lost()
            folder.begin_run(uuid4())
            assert folder.power_was_lost() == found
            folder.told_of_loss()
            if opens_all:
                folder.logs_recovered()
            return found

    assert is_torn(opens_all=True)  # nothing is known of a new folder
    assert not is_torn()
    reboot(monkeypatch, "another")
    assert is_torn()
    assert is_torn()
    with DataDir.open(tmp_path, NodeId(1)) as folder:
        assert not folder.begin_run(uuid4()), "the controller knows that"
        folder.end_run()  # some could not be opened
    assert is_torn(opens_all=True)
    assert not is_torn()


def test_a_folder_knows_the_stamps_of_its_runs(tmp_path: Path) -> None:
    first, second = uuid4(), uuid4()
    with DataDir.open(tmp_path, NodeId(1)) as folder:
        folder.begin_run(first)
        assert folder.stamps == (first,)
        folder.end_run()
    with DataDir.open(tmp_path, NodeId(1)) as folder:
        folder.begin_run(second)
        assert folder.stamps == (first, second)
    found = read_run(DISK, tmp_path)
    assert found is not None and found.stamps == (first, second)  # as after a kill


def test_a_run_stamps_its_folder_now_and_then(tmp_path: Path) -> None:
    disk = FailingDisk()
    with DataDir.open(tmp_path, NodeId(1), disk=disk) as folder:
        folder.begin_run(uuid4())
        assert folder.stamp()
        noted = folder.stamps
        assert len(noted) == 2
        found = read_run(DISK, tmp_path)
        assert found is not None and (found.stamps, found.ended) == (noted, False)
        disk.faults.break_("write_small", code=errno.ENOSPC)
        assert not folder.stamp()
        disk.faults.mend()
        folder.end_run()
        assert folder.stamp()  # a thread was late
    found = read_run(DISK, tmp_path)
    assert found is not None and found.ended


def test_the_newest_stamps_are_kept(tmp_path: Path) -> None:
    stamps = [uuid4() for _ in range(STAMPS_MAX + 1)]
    runs = NodeRuns(DISK, tmp_path, "")
    for stamp in stamps:
        runs.begin(stamp)
    found = read_run(DISK, tmp_path)
    assert found is not None and found.stamps == tuple(stamps[1:])


def test_without_a_note_of_its_stamp_no_run_begins(tmp_path: Path) -> None:
    """The controller must not know what the folder does not."""
    disk = FailingDisk()
    with DataDir.open(tmp_path, NodeId(1), disk=disk) as folder:
        disk.faults.break_("write_small", code=errno.ENOSPC)
        with pytest.raises(ConfigError):
            folder.begin_run(uuid4())


def test_where_the_system_does_not_tell_every_unclean_end_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reboot(monkeypatch, "")
    begin(tmp_path)
    assert begin(tmp_path)


def test_a_damaged_note_counts_as_an_unclean_end(tmp_path: Path) -> None:
    write_run(DISK, tmp_path, NodeRun(boot_id="x", ended=True))
    (tmp_path / LAST_RUN).write_bytes(b"{")
    assert read_run(DISK, tmp_path) == NodeRun(boot_id="", ended=False)


def test_the_boot_id_is_the_system_s() -> None:
    assert last_run.this_boot() == last_run.this_boot()


def test_the_metadata_log_is_known_to_the_next_run(tmp_path: Path) -> None:
    log_id = uuid4()
    with DataDir.open(tmp_path, NodeId(1)) as folder:
        folder.begin_run(uuid4())
        assert folder.metadata_log is None
        folder.follows(log_id)
    with DataDir.open(tmp_path, NodeId(1)) as folder:  # after a kill
        folder.begin_run(uuid4())
        assert folder.metadata_log == log_id
        folder.end_run()
    with DataDir.open(tmp_path, NodeId(1)) as folder:
        folder.begin_run(uuid4())
        assert folder.metadata_log == log_id
