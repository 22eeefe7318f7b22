import errno
from pathlib import Path

import pytest

from streamlog.log.storage.disk import OsDisk


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview], ids=lambda it: it.__name__)
def test_a_file_has_what_was_written_at_a_position(tmp_path: Path, kind: type) -> None:
    path = tmp_path / "f"
    file = OsDisk().create(str(path))
    assert file.pwrite(kind(b"head"), 0) == 4
    assert file.pwrite(kind(b"tail"), 6) == 4
    assert file.pwrite(kind(b""), 0) == 0
    file.close()
    assert path.read_bytes() == b"head\0\0tail"


def test_a_part_of_a_view_is_written_alone(tmp_path: Path) -> None:
    path = tmp_path / "f"
    file = OsDisk().create(str(path))
    assert file.pwrite(memoryview(b"0123456789")[3:6], 0) == 3
    file.close()
    assert path.read_bytes() == b"345"


def test_a_write_that_the_kernel_refuses_raises_its_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    file = OsDisk().open(str(tmp_path / "f"), writable=False)
    with pytest.raises(OSError, match="Bad file") as caught:
        file.pwrite(b"x", 0)
    assert caught.value.errno == errno.EBADF
    file.close()
    with pytest.raises(OSError, match="Bad file"):
        file.pwrite(b"x", 0)


def test_a_full_device_raises_as_it_does_for_python() -> None:
    file = OsDisk().open("/dev/full")
    with pytest.raises(OSError, match="space") as caught:
        file.pwrite(b"x", 0)
    assert caught.value.errno == errno.ENOSPC
    file.close()
