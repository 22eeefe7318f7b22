"""Removes files in a thread of its own, for those who must not wait for it.

To unlink a file, or to close one that was unlinked while it was open, the kernel frees its pages
and blocks: 10 to 50 ms for 256 MiB that are in the page cache. To rename it takes 10 microseconds.
So the event loop renames a segment to a name that ends with ``.deleted``, as Kafka does, and the
thread here unlinks it. The same thread closes what was removed while it was being read, and
removes the folders of deleted partitions.

Crash argument: a rename within a folder is as atomic as the unlink it stands for, becomes durable
with the same sync of the folder, and comes in the same order. From then on the file is part of no
log: recovery, which counts files by their suffix, does not see it, and has it removed. What a
crash leaves between rename and unlink costs room until the log is opened again, and nothing else.

The queue holds folders, each at most once, so it is no longer than the node has partitions, however
many files they lose; the thread lists a folder to find what is to go.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import count
from typing import Final

from streamlog.condition import CORRECT_THEN_RESTART, Condition
from streamlog.log.layout import DELETED_SUFFIX
from streamlog.log.storage.disk import Disk, DiskFile

logger = logging.getLogger(__name__)

REMOVED_FILES_REMAIN: Final = Condition(
    "SL-0216",
    "removed files remain",
    CORRECT_THEN_RESTART,
    meaning="Files of deleted segments or streams could not be removed. They take room.",
)


class Removal:
    """Of one node. From any thread."""

    def __init__(self, disk: Disk, worker: Executor | None = None) -> None:
        """``worker``: one thread; None: a new one."""
        self._disk = disk
        self._worker = worker or ThreadPoolExecutor(1, thread_name_prefix="removal")
        self._lock = threading.Lock()
        self._queued: set[str] = set()
        """Folders whose ``.deleted`` files are to go."""
        self._numbers = count(1)
        """A name that was given before may still have its file: a rename over it would free it."""
        self._until: float | None = None
        """When the thread is to stop, by the monotonic clock; None: the node runs."""

    def put_away(self, path: str) -> None:
        """The file, if there is one, is not found from now on. It is removed soon. Raises OSError.

        Where a folder has no room for the new name, which a full disk may lack, it is unlinked at
        once: that makes room.
        """
        try:
            self._disk.rename(path, f"{path}.{next(self._numbers)}{DELETED_SUFFIX}")
        except FileNotFoundError:
            return
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(path)
            return
        self.clear(path.rpartition("/")[0])

    def clear(self, directory: str) -> None:
        """Have the ``.deleted`` files in a folder removed."""
        with self._lock:
            if directory in self._queued:
                return
            self._queued.add(directory)
        self._submit(lambda: self._clear(directory))

    def remove_folder(self, directory: str) -> None:
        """Have a folder removed with its files. The next start tries again what cannot be now."""
        self._submit(lambda: self._remove_folder(directory))

    def close_file(self, file: DiskFile) -> None:
        """Close it there, since it may be the last to hold what was unlinked."""
        if not self._submit(file.close):
            file.close()

    def flushed(self) -> "Future[None]":
        """Done when all is removed that was to be by now, or the thread has stopped."""
        with contextlib.suppress(RuntimeError):
            return self._worker.submit(lambda: None)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def stop(self, wait_s: float) -> None:
        """Remove for so long what is queued. Then the file in hand is waited for, and the rest is
        left to the next start. Blocking.
        """
        self.stop_soon(wait_s)
        self._worker.shutdown()

    def stop_soon(self, wait_s: float = 0.0) -> None:
        """The same, without waiting."""
        self._until = time.monotonic() + wait_s
        self._worker.shutdown(wait=False)

    @property
    def is_over(self) -> bool:
        """Nothing more is unlinked."""
        return self._until is not None and time.monotonic() >= self._until

    def _submit(self, call: Callable[[], None]) -> bool:
        """False: the thread has stopped."""
        try:
            self._worker.submit(call)
        except RuntimeError:
            return False
        return True

    def _clear(self, directory: str) -> None:
        with self._lock:
            self._queued.discard(directory)  # what is put away from now on may not be listed
        with _told(directory):
            names = self._disk.sizes(directory)
            self._unlink(directory, (it for it in names if it.endswith(DELETED_SUFFIX)))

    def _remove_folder(self, directory: str) -> None:
        with _told(directory):
            if self._unlink(directory, self._disk.sizes(directory)):
                self._disk.remove_directory(directory)

    def _unlink(self, directory: str, names: Iterable[str]) -> bool:
        """False: not all, since the node stops. Raises OSError."""
        for name in names:
            if self.is_over:
                return False
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(f"{directory}/{name}")
        return True


@contextlib.contextmanager
def _told(directory: str) -> Iterator[None]:
    """A folder that has moved or gone takes its files along."""
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as error:
        logger.warning(REMOVED_FILES_REMAIN, extra={"file": directory, "error": str(error)})
