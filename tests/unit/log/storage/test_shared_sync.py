import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.log.storage import shared_sync as module
from streamlog.log.storage.disk import OsDisk, OsFile
from streamlog.log.storage.shared_sync import PAUSE_S, WORTH_FOR_FILE_S, WORTH_S, SharedSync


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[SharedSync]:
    shared = SharedSync(os.open(tmp_path, os.O_RDONLY))
    shared._syncfs = lambda _: 0  # type: ignore[assignment]
    yield shared
    shared.close()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[OsFile]]:
    files = [OsDisk().create(str(tmp_path / name)) for name in "ab"]
    yield files
    for file in files:
        file.close()


def test_where_all_is_known_files_are_synced(
    tmp_path: Path, files: list[OsFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_file_system", lambda _: "ext4")
    if module._kernel() < module.KERNEL:
        pytest.skip("an older kernel")
    shared = SharedSync.open(tmp_path)
    assert shared is not None
    files[0].pwrite(b"x", 0)
    assert shared.sync(files)
    shared.close()


@pytest.mark.parametrize(("kernel", "file_system"), [((5, 7), "ext4"), ((6, 1), "nfs4")])
def test_where_less_is_promised_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: tuple[int, int], file_system: str
) -> None:
    monkeypatch.setattr(module, "_kernel", lambda: kernel)
    monkeypatch.setattr(module, "_file_system", lambda _: file_system)
    assert SharedSync.open(tmp_path) is None


def test_the_type_of_a_file_system(tmp_path: Path) -> None:
    assert module._file_system(Path("/proc").stat().st_dev) == "proc"
    assert module._file_system(os.makedev(4095, 4095)) == ""


def test_after_one_failure_nobody_is_believed(shared: SharedSync, files: list[OsFile]) -> None:
    answers = [-1, 0]
    shared._syncfs = lambda _: answers.pop(0)  # type: ignore[assignment]
    assert shared.is_advisable
    assert not shared.sync(files)
    assert not shared.is_advisable
    assert not shared.sync(files), "the failure may have been of a file that is not among these"
    assert answers == [0]


def test_a_file_elsewhere_is_not_covered(shared: SharedSync, files: list[OsFile]) -> None:
    shared._device += 1
    assert not shared.sync(files)
    assert shared.is_advisable


def test_where_others_write_much_files_are_synced_alone_for_a_while(
    shared: SharedSync, files: list[OsFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    took = WORTH_S + 2 * WORTH_FOR_FILE_S

    def syncfs(_: int) -> int:
        nonlocal now
        now += took
        return 0

    monkeypatch.setattr(module.time, "monotonic", lambda: now)  # type: ignore[attr-defined]
    shared._syncfs = syncfs  # type: ignore[assignment]
    took *= 0.9
    assert shared.sync(files) and shared.is_advisable
    took *= 1.2
    assert shared.sync(files) and not shared.is_advisable
    now += PAUSE_S
    assert shared.is_advisable


def test_a_folder_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: int) -> str:
        raise OSError(errno.EACCES, "no")

    monkeypatch.setattr(module, "_file_system", broken)
    assert SharedSync.open(tmp_path) is None
