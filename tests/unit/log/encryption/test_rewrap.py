"""A change of keys, at each moment of which somebody may pull the plug."""

import contextlib
import errno
from dataclasses import replace

import pytest

from streamlog.errors import EncryptionKeyMissing
from streamlog.log.encryption.inventory import data_keys
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.encryption.rewrap import Rewrap, is_outdated
from streamlog.log.log import PartitionLog
from streamlog.log.segment.segment import Segment
from streamlog.log.storage.file_pool import FilePool
from tests.log_folder import FOLDER, SMALL, append, open_log, read_batches, sync
from tests.simulation.disk import PowerCut, SimDisk

HIDDEN = replace(SMALL, encrypts=True)
K1, K2 = b"k1".ljust(32, b"."), bytes(32)
BOTH = KeyRing({"k1": K1, "k2": K2}, "k2")


def opened(disk: SimDisk, keys: KeyRing) -> tuple[PartitionLog, FilePool]:
    files = FilePool(disk, 16, keys)
    log = PartitionLog.open(FOLDER, HIDDEN, disk=disk, files=files, recovery_point=40)
    return log, files


def filled(seed: int = 0, count: int = 40) -> tuple[SimDisk, list[bytes]]:
    disk = SimDisk(seed)
    log = open_log(disk, HIDDEN)
    batches = [append(log, [b"%d" % at * 40]) for at in range(count)]
    sync(log)
    log.close()
    return disk, batches


def outdated(log: PartitionLog, files: FilePool) -> list[Segment]:
    return [segment for segment in log.segments if is_outdated(segment, files)]


def changed(log: PartitionLog, files: FilePool) -> None:
    for segment in outdated(log, files):
        change = Rewrap(segment, files)
        change.prepare()
        assert change.commit(log.segments)
        change.finish()


def test_the_old_key_is_not_needed_afterwards() -> None:
    disk, batches = filled()
    log, files = opened(disk, BOTH)
    before = {it.path: disk.content(it.path) for it in log.segments}
    assert len(outdated(log, files)) == log.segment_count > 2
    changed(log, files)
    assert outdated(log, files) == []
    assert {it.path: disk.content(it.path) for it in log.segments} == before
    assert [data for _, data in read_batches(log)] == batches
    disk.crash()
    log, files = opened(disk, KeyRing({"k2": K2}, "k2"))
    assert [data for _, data in read_batches(log)] == batches
    append(log, [b"more"])


@pytest.mark.parametrize("calls", range(12))
def test_a_power_cut_leaves_one_key_or_the_other(calls: int) -> None:
    disk, batches = filled(calls)
    log, files = opened(disk, BOTH)
    disk.calls_left = calls
    with contextlib.suppress(PowerCut):
        changed(log, files)
    disk.calls_left = None
    disk.crash()
    log, files = opened(disk, BOTH)
    assert [data for _, data in read_batches(log)] == batches
    assert not any(name.endswith(".tmp") for name in disk.names(str(FOLDER)))


def done_is_told(log: PartitionLog, files: FilePool) -> None:
    """As ``KeyChange``: again and again, until nothing is outdated."""
    for _ in range(20):
        left = outdated(log, files)
        if not left:
            return
        for segment in left:
            change = Rewrap(segment, files)
            with contextlib.suppress(OSError):
                change.prepare()
                if change.commit(log.segments):
                    change.finish()
    raise AssertionError("it has no end")


def check_without_the_old_key(disk: SimDisk, batches: list[bytes]) -> None:
    disk.crash()
    log, _ = opened(disk, KeyRing({"k2": K2}, "k2"))
    assert [data for _, data in read_batches(log)] == batches


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("count", [1, 40])
def test_done_is_not_told_by_who_finds_what_a_killed_process_has_renamed(
    count: int, seed: int
) -> None:
    """The old key is removed when a process says that nothing is left; then the power fails."""
    for calls in range(100):
        disk, batches = filled(seed, count)
        log, files = opened(disk, BOTH)
        disk.calls_left = calls
        try:
            changed(log, files)
        except PowerCut:
            disk.kill()
        else:
            break
        log, files = opened(disk, BOTH)
        done_is_told(log, files)
        check_without_the_old_key(disk, batches)
    assert calls > 4


@pytest.mark.parametrize("operation", ["sync_directory", "rename", "sync", "pwrite", "create"])
@pytest.mark.parametrize("skip", range(4))
def test_done_is_not_told_after_an_error_of_the_disk(operation: str, skip: int) -> None:
    for seed in range(4):
        disk, batches = filled(seed)
        log, files = opened(disk, BOTH)
        disk.fail(operation, errno.EIO, skip=skip)
        with contextlib.suppress(OSError):
            changed(log, files)
        disk.fail(operation, errno.EIO, skip=skip)
        done_is_told(log, files)
        check_without_the_old_key(disk, batches)


def test_a_segment_that_goes_meanwhile_does_not_come_back() -> None:
    """Nor does its key take the place of that of another segment with its name."""
    disk, _ = filled()
    log, files = opened(disk, BOTH)
    change = Rewrap(log.segments.first, files)
    change.prepare()
    log.truncate_fully_to(0)
    batch = append(log, [b"anew"])
    assert not change.commit(log.segments)
    assert [data for _, data in read_batches(log)] == [batch]
    names = disk.names(str(FOLDER))
    assert [name for name in names if ".key" in name] == [f"{0:020d}.key"]


def test_without_the_old_key_nothing_is_changed() -> None:
    disk, batches = filled()
    files = FilePool(disk, 16, KeyRing({"k2": K2}, "k2"))
    log, own = opened(disk, KeyRing({"k1": K1}, "k1"))
    before = disk.content(log.segments.first.key_path)
    change = Rewrap(log.segments.first, files)
    with pytest.raises(EncryptionKeyMissing, match="'k1'"):
        change.prepare()
    assert disk.content(log.segments.first.key_path) == before
    assert own.keys.active == "k1"
    assert [data for _, data in read_batches(log)] == batches


def test_what_a_folder_needs(tmp_path_factory: pytest.TempPathFactory) -> None:
    disk, _ = filled()
    folder = tmp_path_factory.mktemp("streams") / "s" / "0"
    folder.mkdir(parents=True)
    for name in disk.names(str(FOLDER)):
        (folder / name).write_bytes(disk.content(f"{FOLDER}/{name}"))
    first, *rest = sorted(folder.glob("*.key"))
    first.rename(f"{first}.damaged")
    rest[0].write_bytes(b"torn")
    (folder / "server.key").write_bytes(b"of something else")
    found = {it.file.name: it.key_name for it in data_keys(folder.parent.parent)}
    assert found.pop(rest[0].name) is None
    assert found.pop(first.name + ".damaged") == "k1"
    assert found == dict.fromkeys((file.name for file in rest[1:]), "k1")
