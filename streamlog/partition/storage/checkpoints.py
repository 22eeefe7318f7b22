"""The six files of offsets, one line for each log of the node. Blocking calls.

They only ever lag: a recovery point says what is synced at least, a log start what is gone at
least, a high watermark what is committed at least, a first dirty offset what has been compacted at
least (there is no line where nothing has), an erasure offset how far a log's file of erasures knows
them as well, so that its loss is noticed, a transaction offset the same of its file of transactions.
A line names the log that it is about, see ``LogId``: one
that outlives its log, as it does where the node is killed at that moment, says nothing of a later log
of the same name.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from streamlog.condition import Condition
from streamlog.errors import CorruptFile
from streamlog.log.checkpoint import OffsetCheckpoint
from streamlog.log.storage.disk import Disk
from streamlog.model import LogId

logger = logging.getLogger(__name__)

CHECKPOINT_DAMAGED: Final = Condition(
    "SL-0219",
    "checkpoint damaged",
    "nothing: logs are read in its place; look at the disk",
    meaning="A checkpoint file in the data folder is damaged.",
)

HIGH_WATERMARK: Final = "high-watermark-checkpoint"
LOG_START: Final = "log-start-offset-checkpoint"
RECOVERY_POINT: Final = "recovery-point-offset-checkpoint"
FIRST_DIRTY: Final = "cleaner-offset-checkpoint"
ERASURES: Final = "erasure-offset-checkpoint"
TRANSACTIONS: Final = "transaction-offset-checkpoint"

_DAMAGED: Final = {
    HIGH_WATERMARK: "what is recovered counts as committed",
    LOG_START: "logs start at their first segment, so purged records may be back",
    RECOVERY_POINT: "all logs are checked from their start",
    FIRST_DIRTY: "compacted logs are compacted from their start",
    ERASURES: "files of erasures that are missing or older are not noticed",
    TRANSACTIONS: "files of transactions that are missing or older are not noticed",
}


_WHOLE: Final = 3
"""The first so many have a line for each log."""


class Offsets(NamedTuple):
    """What the files say about one log."""

    high_watermark: int
    log_start: int
    recovery_point: int
    first_dirty: int = 0
    erasures_end: int = 0
    transactions_end: int = 0

    @property
    def kept_end(self) -> int:
        """So much has been there."""
        return max(self.high_watermark, self.recovery_point)


NOTHING: Final = Offsets(0, 0, 0)


class Checkpoints:
    """The files, and what they said last."""

    def __init__(self, data_dir: Path, disk: Disk) -> None:
        self._data_dir = data_dir
        self._disk = disk
        self._files = tuple(
            OffsetCheckpoint(data_dir / name, disk)
            for name in (
                HIGH_WATERMARK,
                LOG_START,
                RECOVERY_POINT,
                FIRST_DIRTY,
                ERASURES,
                TRANSACTIONS,
            )
        )
        self._written: dict[LogId, Offsets] = {}
        self._unread: set[int] = set()
        """Files that were missing or damaged, and have not been written since."""

    def get(self, log_id: LogId) -> Offsets:
        return self._written.get(log_id, NOTHING)

    def written(self) -> dict[LogId, Offsets]:
        """A copy of what the files say."""
        return dict(self._written)

    @property
    def are_stored(self) -> bool:
        """The files can be read, and say what they said last."""
        return not self._unread

    def load(self) -> None:
        """Read the files; a damaged one counts as empty, and that is said. Raises OSError.

        What they say counts as durable: a process that was killed may have renamed one, no more.
        """
        self._disk.sync_directory(str(self._data_dir))
        read = [_load(file) for file in self._files]
        columns = [column or {} for column in read]
        log_ids = dict.fromkeys(it for column in columns for it in column)
        self._written = {it: Offsets(*(column.get(it, 0) for column in columns)) for it in log_ids}
        self._unread = {i for i, column in enumerate(read) if column is None}
        if log_ids:
            self._unread |= {i for i, column in enumerate(columns[:_WHOLE]) if not column}

    def write(self, offsets: Mapping[LogId, Offsets]) -> None:
        """Replace those files whose content changes, or was missing or damaged. Raises OSError."""
        written = self._written
        is_same_set = offsets.keys() == written.keys()
        for i, file in enumerate(self._files[:_WHOLE]):
            if (
                not is_same_set
                or i in self._unread
                or any(offsets[it][i] != was[i] for it, was in written.items())
            ):
                file.write({it: values[i] for it, values in offsets.items()})
                self._unread.discard(i)
        for i, file in enumerate(self._files[_WHOLE:], _WHOLE):
            lines = _lines(offsets, i)
            if i in self._unread or lines != _lines(written, i):
                file.write(lines)
                self._unread.discard(i)
        self._written = dict(offsets)


def _lines(offsets: Mapping[LogId, Offsets], column: int) -> dict[LogId, int]:
    return {it: known[column] for it, known in offsets.items() if known[column]}


def _load(file: OffsetCheckpoint) -> dict[LogId, int] | None:
    """None: it is damaged."""
    try:
        return file.read()
    except CorruptFile as error:
        effect = _DAMAGED[file.path.name]
        logger.error(CHECKPOINT_DAMAGED, extra={"problem": str(error), "effect": effect})
        return None
