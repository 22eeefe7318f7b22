import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamlog.log.storage.folder_lock import FolderInUse, FolderLock

ROOT = Path(__file__).parents[4]


def refusal(folder: Path, *, shared: bool = False) -> str:
    with pytest.raises(FolderInUse) as raised:
        FolderLock.take(folder, shared=shared).close()
    return str(raised.value)


def test_whoever_holds_it_is_named_until_it_lets_go(tmp_path: Path) -> None:
    with FolderLock.take(tmp_path):
        assert refusal(tmp_path) == f"is in use by process {os.getpid()}"
        assert refusal(tmp_path, shared=True) == f"is in use by process {os.getpid()}"
        FolderLock.take(tmp_path, name="other").close()
    FolderLock.take(tmp_path).close()


def test_it_goes_with_the_process(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from streamlog.log.storage.folder_lock import FolderLock\n"
        "lock = FolderLock.take(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert refusal(tmp_path) == f"is in use by process {process.pid}"
        process.kill()
    FolderLock.take(tmp_path).close()


def test_readers_share_it_and_writers_do_not(tmp_path: Path) -> None:
    FolderLock.take(tmp_path).close()
    first, second = (FolderLock.take(tmp_path, shared=True) for _ in range(2))
    assert refusal(tmp_path) == "is in use by another process", "not by who wrote before"
    first.close()
    assert refusal(tmp_path)
    second.close()
    FolderLock.take(tmp_path).close()


def test_closing_twice_closes_nothing_else(tmp_path: Path) -> None:
    lock = FolderLock.take(tmp_path)
    lock.close()
    with (tmp_path / "file").open("w") as file:  # has the number that the lock had
        lock.close()
        file.write("x")


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        FolderLock.take(tmp_path / "missing")
    assert raised.value.errno == errno.ENOENT
