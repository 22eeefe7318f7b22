"""What a test may do to a simulated disk behind everybody's back."""

import pytest

from tests.simulation.disk import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_directory("/d/s/0")
    disk.make_directory("/d/s/1")
    for name in ("s/0/a", "s/0/b", "s/1/c"):
        disk.replace(f"/d/{name}", name.encode())
    return disk


def test_a_cut_file_is_cut_for_whoever_has_it_open(disk: SimDisk) -> None:
    file = disk.open("/d/s/0/a")
    disk.cut("/d/s/0/a", 2)
    assert (file.size(), file.pread(9, 0)) == (2, b"s/")
    disk.cut("/d/s/0/a")
    assert file.size() == 0
    file.close()


def test_a_removed_file_is_there_for_whoever_has_it_open(disk: SimDisk) -> None:
    file = disk.open("/d/s/0/a")
    disk.remove("/d/s/0/a")
    assert file.pread(9, 0) == b"s/0/a"
    assert disk.sizes("/d/s/0") == {"b": 5}
    file.close()


def test_one_bit_is_flipped(disk: SimDisk) -> None:
    disk.flip("/d/s/0/a", 9)
    assert disk.content("/d/s/0/a") == b"s-0/a"


def test_files_change_places(disk: SimDisk) -> None:
    disk.swap("/d/s/0/a", "/d/s/1/c")
    disk.crash()
    assert disk.content("/d/s/0/a") == b"s/1/c"
    assert disk.content("/d/s/1/c") == b"s/0/a"


def test_an_older_copy_of_a_file_or_a_folder_is_put_back(disk: SimDisk) -> None:
    file, folder = disk.copy("/d/s/0/a"), disk.copy("/d/s")
    disk.replace("/d/s/0/a", b"newer")
    disk.put_back(file)
    assert disk.content("/d/s/0/a") == b"s/0/a"
    disk.replace("/d/s/0/a", b"newer")
    disk.replace("/d/s/1/z", b"new")
    disk.remove("/d/s/0/b")
    disk.put_back(folder)
    disk.crash()
    assert disk.files_below("/d/s") == ["/d/s/0/a", "/d/s/0/b", "/d/s/1/c"]
    assert disk.content("/d/s/0/a") == b"s/0/a"


def test_a_folder_is_gone_with_all_below_it(disk: SimDisk) -> None:
    disk.remove_tree("/d/s")
    disk.crash()
    assert not disk.has_folder("/d/s/0")
    assert disk.has_folder("/d")


def test_what_befalls_it_makes_nothing_of_the_process_durable(disk: SimDisk) -> None:
    lasting = set()
    for seed in range(20):
        disk = SimDisk(seed)
        disk.make_directory("/d")
        disk.replace("/d/a", b"a")
        disk.create("/d/new").close()
        disk.remove("/d/a")
        disk.crash()
        lasting.add(tuple(disk.sizes("/d")))
    assert lasting == {(), ("new",)}
