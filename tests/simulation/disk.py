"""A disk in memory that forgets what was not synced, tears what was half synced, fills and fails.

It follows what POSIX promises and no more: ``sync`` makes a file's content durable but not its
name, ``sync_directory`` makes the names in one folder durable, in the order in which they came and
went. After a failed ``sync`` the kernel counts the bytes as written, which they are not; so does
this disk.
"""

import errno
import os
import random
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from streamlog.log.layout import TEMPORARY_SUFFIX
from streamlog.log.storage.disk import FileState, check_small

SECTOR: Final = 512
"""What is written as a whole or not at all."""


VAIN_WRITES_MAX = 10
LOST_FOLDERS: Final = 0.5
"""Of folders that were made and not synced, in a power cut."""


class PowerCut(SystemExit):
    """In the middle of a call; nothing of the process runs after it, whatever it would catch."""


class Inode:
    """A file's bytes: as a process sees them, and as the platter has them."""

    def __init__(self) -> None:
        self.live = bytearray()
        self.durable = bytearray()
        self.dirty: set[int] = set()  # sectors written since they were last synced
        self.size_is_dirty = False

    def write(self, data: bytes, position: int) -> None:
        if position > len(self.live):
            self._touch(len(self.live), position)
            self.live.extend(bytes(position - len(self.live)))
        self._touch(position, position + len(data))
        self.size_is_dirty |= position + len(data) > len(self.live)
        self.live[position : position + len(data)] = data

    def truncate(self, length: int) -> None:
        self.size_is_dirty |= length != len(self.live)
        low, high = sorted((length, len(self.live)))
        self._touch(low, high)
        del self.live[length:]
        self.live.extend(bytes(length - len(self.live)))

    def sync(self) -> None:
        for sector in self.dirty:
            self._persist(sector)
        if self.size_is_dirty:
            self._resize(len(self.live))
        self.forget_dirt()

    def forget_dirt(self) -> None:
        self.dirty.clear()
        self.size_is_dirty = False

    def crash(self, rng: random.Random) -> None:
        """Each dirty sector, and the size, may have reached the platter by now, or not."""
        how = rng.choice(("nothing", "all", "some", "prefix"))
        written = sorted(self.dirty)
        if how == "nothing":
            written = []
        elif how == "some":
            written = [sector for sector in written if rng.random() < 0.5]
        elif how == "prefix":
            written = written[: rng.randint(0, len(written))]
        before = min(len(self.durable), len(self.live))  # a synced size is never undershot
        for sector in written:
            self._persist(sector)
        if self.size_is_dirty and how != "nothing":
            sizes = [len(self.live), len(self.durable)]
            reached = min(len(self.live), (max(written, default=-1) + 1) * SECTOR)
            reached = max(reached, before)
            self._resize(len(self.live) if how == "all" else rng.choice([*sizes, reached]))
        self.live = bytearray(self.durable)
        self.forget_dirt()

    def _touch(self, start: int, end: int) -> None:
        self.dirty.update(range(start // SECTOR, -(-end // SECTOR)))

    def _persist(self, sector: int) -> None:
        """The platter may have room for it beyond the file's durable size."""
        start = sector * SECTOR
        piece = self.live[start : start + SECTOR]
        end = start + len(piece)
        if len(self.durable) < end:
            self.durable.extend(bytes(end - len(self.durable)))
        self.durable[start:end] = piece

    def _resize(self, length: int) -> None:
        del self.durable[length:]
        self.durable.extend(bytes(length - len(self.durable)))


@dataclass
class Fault:
    """Calls of ``operation`` on paths with ``part`` in them fail ``times`` times after ``skip``."""

    operation: str
    error: int
    part: str = ""
    skip: int = 0
    times: int = 1


class SimFile:
    """An open file; of no use after a crash, like the process that had it."""

    def __init__(self, disk: "SimDisk", path: str, inode: Inode, *, writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._writable = writable
        self._boot = disk.boots
        self._is_open = True
        disk.open_files += 1

    def pread(self, length: int, position: int) -> bytes:
        self._check("pread")
        return bytes(self._inode.live[position : position + length])

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> int:
        """What fits is written when the disk gets full, as on a real one."""
        self._check("pwrite", writes=True)
        if self._disk.takes_nothing(self._path):
            return 0
        room = self._disk.room()
        grows = max(0, position + len(data) - len(self._inode.live))
        count = len(data) if room is None else max(0, len(data) - max(0, grows - room))
        if not count and len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
        if self._disk.short_writes and count > 1:
            count = self._disk.rng.randint(1, count)
        self._inode.write(bytes(data[:count]), position)
        return count

    def truncate(self, length: int) -> None:
        self._check("truncate", writes=True)
        self._inode.truncate(length)

    def sync(self) -> None:
        try:
            self._check("sync")
        except OSError:
            self._inode.forget_dirt()
            raise
        self._inode.sync()

    def size(self) -> int:
        self._check("size")
        return len(self._inode.live)

    def fileno(self) -> int:
        """No descriptor: whoever uses it as one is refused by the system."""
        return -1

    def close(self) -> None:
        assert self._is_open, f"{self._path} is closed twice"
        self._is_open = False
        if self._boot == self._disk.boots:
            self._disk.open_files -= 1

    def _check(self, operation: str, *, writes: bool = False) -> None:
        assert self._is_open, f"{self._path} is closed"
        assert self._boot == self._disk.boots, "a file of a process that is dead"
        assert self._writable or not writes, f"{self._path} is opened for reading"
        self._disk.strike(operation, self._path)


class SimDisk:
    """See above. All that happens by chance is drawn from ``seed``."""

    def __init__(self, seed: int = 0, capacity_bytes: int | None = None) -> None:
        self.rng = random.Random(seed)
        self.capacity_bytes = capacity_bytes
        self.short_writes = False
        self.sated = ""
        """Files with this in their path take nothing of what is written to them, and no write
        fails; empty: there are none."""
        self.vain_writes = 0
        self.faults: list[Fault] = []
        self.calls_left: int | None = None
        """After so many more calls the power is cut; None: not of itself."""
        self._meanwhile: tuple[int, Callable[[], object]] | None = None
        self.observed = False
        """Whoever reads now is no process: nothing befalls it."""
        self.boots = 0
        self.open_files = 0  # in this life
        self.calls: dict[str, int] = {}  # how often each operation was asked for
        self._live: dict[str, dict[str, Inode]] = {"/": {}}  # folder -> name -> file
        self._durable: dict[str, dict[str, Inode]] = {"/": {}}
        self._journal: dict[str, list[tuple[str, Inode | None]]] = {}  # name changes not yet synced
        self._unsynced_folders: dict[str, None] = {}  # made, and perhaps gone after a power cut

    # The disk

    def open(self, path: str, *, writable: bool = True) -> SimFile:
        self.strike("open", path)
        return SimFile(self, path, self._find(path), writable=writable)

    def create(self, path: str) -> SimFile:
        self.strike("create", path)
        folder, name = _split(path)
        inode = self._folder(folder).get(name)
        if inode is None:
            inode = Inode()
            self._name(folder, name, inode)
        else:
            inode.truncate(0)
        return SimFile(self, path, inode, writable=True)

    def sizes(self, directory: str) -> dict[str, int]:
        self.strike("sizes", directory)
        return {name: len(inode.live) for name, inode in self._folder(directory).items()}

    def states(self, directory: str) -> dict[str, FileState]:
        """The checksum of a file stands for the time of its last change."""
        self.strike("states", directory)
        return {
            name: FileState(len(inode.live), (id(inode), zlib.crc32(inode.live)))
            for name, inode in self._folder(directory).items()
        }

    def make_directory(self, path: str, *, durable: bool = True) -> bool:
        """What is made is durable at once, like ``OsDisk``'s, unless it is not to be. What was there is as it was."""
        self.strike("make_directory", path)
        is_new = path not in self._live
        parts = path.split("/")
        for i in range(2, len(parts) + 1):
            folder = "/".join(parts[:i])
            if folder not in self._live and not durable:
                self._unsynced_folders[folder] = None
            self._live.setdefault(folder, {})
            self._durable.setdefault(folder, {})
        return is_new

    def remove_directory(self, path: str) -> None:
        self.strike("remove_directory", path)
        if self._folder(path) or self.names(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        for folders in (self._live, self._durable):
            del folders[path]
        self._journal.pop(path, None)
        self._unsynced_folders.pop(path, None)

    def sync_directory(self, path: str) -> None:
        self.strike("sync_directory", path)
        self._replay(path, self._journal.pop(path, []))
        for folder in [it for it in self._unsynced_folders if _split(it)[0] == path]:
            del self._unsynced_folders[folder]

    def sync_file_system(self) -> None:
        """All content and all names."""
        self.strike("sync_file_system", "/")
        for inode in dict.fromkeys(self._inodes(self._live)):
            inode.sync()
        for folder in tuple(self._journal):
            self._replay(folder, self._journal.pop(folder))
        self._unsynced_folders.clear()

    def rename(self, old: str, new: str) -> None:
        self.strike("rename", old)
        if old in self._live:
            self._rename_folder(old, new)
            return
        inode = self._find(old)
        (folder, name), (new_folder, new_name) = _split(old), _split(new)
        self._name(new_folder, new_name, inode)
        self._name(folder, name, None)

    def _rename_folder(self, old: str, new: str) -> None:
        """Durable at once; whoever moves one syncs the folders around it right after."""
        self._live[new] = self._live.pop(old)
        self._durable[new] = self._durable.pop(old)
        self._journal[new] = self._journal.pop(old, [])
        self._unsynced_folders.pop(old, None)

    def unlink(self, path: str) -> None:
        self.strike("unlink", path)
        self._find(path)
        self._name(*_split(path), None)

    def read_small(self, path: str) -> bytes:
        self.strike("read_small", path)
        live = self._find(path).live
        check_small(path, len(live))
        return bytes(live)

    def write_small(self, path: str, data: bytes) -> None:
        """As on a real disk: step by step, each of which may fail or be the last before a crash."""
        self.strike("write_small", path)
        check_small(path, len(data))
        temporary = path + TEMPORARY_SUFFIX
        file = self.create(temporary)
        try:
            try:
                if file.pwrite(data, 0) < len(data) and not self.short_writes:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
                self._find(temporary).write(data, 0)
                file.sync()
            finally:
                file.close()
            self.rename(temporary, path)
        except OSError:
            self._name(*_split(temporary), None)
            raise
        self.sync_directory(_split(path)[0])

    # What befalls it

    def crash(self) -> None:
        """Power cut: what was not synced is there, torn, or gone."""
        for folder, changes in self._journal.items():
            self._replay(folder, changes[: self.rng.randint(0, len(changes))])
        self._journal.clear()
        for folder in self._unsynced_folders:
            if folder in self._durable and self.rng.random() < LOST_FOLDERS:
                for below in [it for it in self._durable if _is_below(it, folder)]:
                    del self._durable[below]
        self._unsynced_folders.clear()
        for inode in dict.fromkeys(self._inodes(self._durable)):
            inode.crash(self.rng)
        self._live = {folder: dict(names) for folder, names in self._durable.items()}
        self.kill()

    def kill(self) -> None:
        """The process dies; what it wrote is in the page cache and stays."""
        self.boots += 1
        self.open_files = 0
        self.calls_left = None
        self.faults.clear()

    def fail(
        self, operation: str, error: int, *, part: str = "", skip: int = 0, times: int = 1
    ) -> None:
        """Let calls of ``operation`` raise OSError."""
        self.faults.append(Fault(operation, error, part, skip, times))

    def do_meanwhile(self, calls: int, act: Callable[[], object]) -> None:
        """After so many more calls another thread does ``act``, before the next call."""
        self._meanwhile = calls, act

    def strike(self, operation: str, path: str) -> None:
        if self.observed:
            return
        self.calls[operation] = self.calls.get(operation, 0) + 1
        if self._meanwhile is not None:
            calls, act = self._meanwhile
            self._meanwhile = (calls - 1, act) if calls else None
            if not calls:
                act()
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                raise PowerCut(f"{operation} {path}")
        for fault in self.faults:
            if fault.operation != operation or fault.part not in path or not fault.times:
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            fault.times -= 1
            raise OSError(fault.error, os.strerror(fault.error), path)

    def takes_nothing(self, path: str) -> bool:
        """Whoever goes on writing for ever is told."""
        if not self.sated or self.sated not in path:
            return False
        self.vain_writes += 1
        assert self.vain_writes <= VAIN_WRITES_MAX, f"{path} is written to again and again"
        return True

    def room(self) -> int | None:
        """Bytes left; None where there is no limit."""
        if self.capacity_bytes is None:
            return None
        return max(0, self.capacity_bytes - self.used_bytes())

    def used_bytes(self) -> int:
        return sum(len(inode.live) for inode in dict.fromkeys(self._inodes(self._live)))

    # For those who ask the file system itself

    def has_folder(self, path: str) -> bool:
        return path in self._live

    def has_file(self, path: str) -> bool:
        folder, name = _split(path)
        return name in self._live.get(folder, {})

    def names(self, path: str) -> list[str]:
        """Of folders and files."""
        folders = [folder for folder in self._live if _split(folder)[0] == path and folder != "/"]
        return sorted([_split(folder)[1] for folder in folders] + list(self._live.get(path, {})))

    # For tests that damage what is there

    def content(self, path: str) -> bytes:
        return bytes(self._find(path).live)

    def inode(self, path: str) -> Inode:
        return self._find(path)

    def replace(self, path: str, data: bytes) -> None:
        """Put other bytes there, durably, behind everybody's back."""
        if not self.has_file(path):
            self._put(path, Inode())
        inode = self._find(path)
        inode.live, inode.durable = bytearray(data), bytearray(data)
        inode.forget_dirt()

    def remove(self, path: str) -> None:
        self._put(path, None)

    def cut(self, path: str, length: int = 0) -> None:
        """Shorten a file where it lies, durably: whoever has it open sees it, too."""
        inode = self._find(path)
        self.overwrite(path, bytes(inode.live[:length]))

    def flip(self, path: str, bit: int) -> None:
        """Turn one bit of a file over where it lies, durably; counted round its size."""
        data = bytearray(self._find(path).live)
        if data:
            data[bit // 8 % len(data)] ^= 1 << bit % 8
            self.overwrite(path, bytes(data))

    def overwrite(self, path: str, data: bytes) -> None:
        """Other bytes in the same file, durably."""
        inode = self._find(path)
        inode.live[:], inode.durable[:] = data, data
        inode.forget_dirt()

    def swap(self, path: str, other: str) -> None:
        """Exchange two files under their names, durably; open files stay what they are."""
        inodes = self._find(path), self._find(other)
        for place, inode in zip((path, other), reversed(inodes), strict=True):
            self._put(place, inode)

    def copy(self, path: str) -> "FolderCopy":
        """What a file, or a folder with all below it, holds now, as a backup would have it."""
        if path not in self._live:
            return FolderCopy(path, (), {path: self.content(path)})
        folders = tuple(folder for folder in self._live if _is_below(folder, path))
        return FolderCopy(path, folders, {it: self.content(it) for it in self.files_below(path)})

    def put_back(self, copy: "FolderCopy") -> None:
        """A file or a folder is what it was when it was copied, durably; nothing else is in it."""
        if copy.folders:
            self.remove_tree(copy.path)
            for folder in copy.folders:
                self._live[folder], self._durable[folder] = {}, {}
        for path, data in copy.files.items():
            inode = Inode()
            inode.live[:], inode.durable[:] = data, data
            self._put(path, inode)

    def remove_tree(self, path: str) -> None:
        """A folder with all below it is gone, durably; none was there is as good."""
        for folder in [folder for folder in self._live if _is_below(folder, path)]:
            self._live.pop(folder)
            self._durable.pop(folder, None)
            self._journal.pop(folder, None)
            self._unsynced_folders.pop(folder, None)

    def files_below(self, path: str) -> list[str]:
        """The paths of all files in a folder and below it."""
        return sorted(
            f"{folder}/{name}"
            for folder, names in self._live.items()
            if _is_below(folder, path)
            for name in names
        )

    def _put(self, path: str, inode: Inode | None) -> None:
        """A name that is durable at once; the process's own changes of other names are not."""
        folder, name = _split(path)
        self._apply(self._folder(folder), name, inode)
        self._apply(self._durable[folder], name, inode)
        journal = self._journal.get(folder, [])
        journal[:] = [change for change in journal if change[0] != name]

    def _folder(self, path: str) -> dict[str, Inode]:
        try:
            return self._live[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None

    def _find(self, path: str) -> Inode:
        folder, name = _split(path)
        inode = self._folder(folder).get(name)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return inode

    def _name(self, folder: str, name: str, inode: Inode | None) -> None:
        self._journal.setdefault(folder, []).append((name, inode))
        self._apply(self._folder(folder), name, inode)

    def _replay(self, folder: str, changes: Iterable[tuple[str, Inode | None]]) -> None:
        for name, inode in changes:
            self._apply(self._durable[folder], name, inode)

    @staticmethod
    def _apply(names: dict[str, Inode], name: str, inode: Inode | None) -> None:
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode

    @staticmethod
    def _inodes(folders: dict[str, dict[str, Inode]]) -> Iterable[Inode]:
        return (inode for names in folders.values() for inode in names.values())


@dataclass(frozen=True)
class FolderCopy:
    """A file, or a folder, of an earlier moment; see ``SimDisk.put_back``."""

    path: str
    folders: tuple[str, ...]  # none: it is one file
    files: dict[str, bytes]


def _is_below(folder: str, path: str) -> bool:
    return folder == path or folder.startswith(f"{path}/")


def _split(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder or "/", name
