"""How a node's last run ended, and in which life of the machine it was. Blocking calls."""

from pathlib import Path
from threading import Lock
from typing import Final
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError

from streamlog.log.storage.disk import Disk

LAST_RUN: Final = "last-run"
STAMPS_MAX: Final = 64
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class NodeRun(BaseModel):
    """One run; while it lasts it has not ended."""

    model_config = ConfigDict(frozen=True)

    boot_id: str
    """Of the machine's start; empty where the system does not tell, and then every unclean end
    counts as a power cut.
    """
    ended: bool
    tail_lost: bool = False
    """A power cut before this run took what was not synced, and the controller may not know."""
    torn: bool = False
    """The same, and some log may not have been opened, and recovered, since."""
    stamps: tuple[UUID, ...] = ()
    """What tells the folder from an older copy of it, the oldest stamp first: each is random, is
    noted here first, and is told to the controller then. An older copy lacks the last one that the
    controller knows. The last ``STAMPS_MAX`` are kept, not one, because it is not known which of
    them the controller has, nor, where a quorum was forced, whether it has lost some.
    """
    metadata_log: UUID | None = None
    """The metadata log by which the partitions here were opened last; None if none was noted."""


def this_boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def read_run(disk: Disk, directory: Path) -> NodeRun | None:
    """None where there was none; one that cannot be read has not ended. Raises OSError."""
    try:
        return NodeRun.model_validate_json(disk.read_small(str(directory / LAST_RUN)))
    except FileNotFoundError:
        return None
    except ValidationError:
        return NodeRun(boot_id="", ended=False)


def write_run(disk: Disk, directory: Path, run: NodeRun) -> None:
    """Durable when it returns. Raises OSError."""
    disk.write_small(str(directory / LAST_RUN), run.model_dump_json().encode() + b"\n")


class NodeRuns:
    """One run after the other in one folder; each method notes it durably, or raises OSError."""

    def __init__(self, disk: Disk, directory: Path, boot_id: str) -> None:
        self._disk = disk
        self._directory = directory
        self._boot_id = boot_id
        self._tail_lost = False
        self._power_was_lost: bool | None = None
        self._torn = False
        self.stamps: tuple[UUID, ...] = ()
        """Of the folder; see ``NodeRun``."""
        self.metadata_log: UUID | None = None
        """See ``NodeRun``."""
        self._ended = False
        self._noting = Lock()
        """A thread may be writing a stamp when the run ends."""

    def begin(self, stamp: UUID) -> bool:
        """Whether the machine has been started again since a run that was not ended in order.

        What had been written and not synced is lost then; a process that was merely killed loses
        nothing that it had written. It holds until ``told``, over as many runs as that takes.

        ``stamp``: of this run. It is durable before the controller can know it, so a crash between
        the two does not make the folder look like an older copy.
        """
        last = read_run(self._disk, self._directory)
        self._torn = self._power_was_lost = self._may_be_torn(last)
        if last is not None:
            self._tail_lost = self._may_lack_its_tail(last)
            self.stamps = last.stamps
            self.metadata_log = last.metadata_log
        self.stamp(stamp)
        return self._tail_lost

    def power_was_lost(self) -> bool:
        """What was written and not synced before this run may be lost, and its logs torn; also
        where no run is known. Raises OSError.
        """
        if self._power_was_lost is None:
            return self._may_be_torn(read_run(self._disk, self._directory))
        return self._power_was_lost

    def _may_be_torn(self, last: NodeRun | None) -> bool:
        return last is None or last.torn or self._may_lack_its_tail(last)

    def _may_lack_its_tail(self, last: NodeRun) -> bool:
        return last.tail_lost or (not last.ended and last.boot_id != (self._boot_id or None))

    def stamp(self, stamp: UUID) -> None:
        """A copy that is made before this can be told from the folder, once the controller knows
        the stamp.
        """
        with self._noting:
            self.stamps = (*self.stamps, stamp)[-STAMPS_MAX:]
            self._note()

    def told(self) -> None:
        """The controller knows what was lost, and has acted on it."""
        with self._noting:
            if self._tail_lost:
                self._tail_lost = False
                self._note()

    def recovered(self) -> None:
        """All logs are open: whatever was torn has been cut."""
        with self._noting:
            if self._torn:
                self._torn = False
                self._note()

    def follows(self, metadata_log: UUID | None) -> None:
        """The partitions here are open, as this metadata log says."""
        with self._noting:
            if metadata_log != self.metadata_log:
                self.metadata_log = metadata_log
                self._note()

    def end(self) -> None:
        """All is synced and closed."""
        with self._noting:
            self._ended = True
            self._note()

    def _note(self) -> None:
        run = NodeRun(
            boot_id=self._boot_id,
            ended=self._ended,
            tail_lost=self._tail_lost,
            torn=self._torn,
            stamps=self.stamps,
            metadata_log=self.metadata_log,
        )
        write_run(self._disk, self._directory, run)
