"""The five files of offsets, one line for each partition of the node. Blocking calls.

They only ever lag: a recovery point says what is synced at least, a log start what is gone at
least, a high watermark what is committed at least, a first dirty offset what has been compacted at
least (there is no line where nothing has), an erasure offset how far a log's file of erasures knows
them as well, so that its loss is noticed. A line about a name must never outlive the stream that
had it: ``Upkeep.forget_strangers`` comes before a new folder of that name.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from streamlog.errors import CorruptFile
from streamlog.log.checkpoint import OffsetCheckpoint
from streamlog.log.storage.disk import Disk
from streamlog.model import TopicPartition

logger = logging.getLogger(__name__)

HIGH_WATERMARK: Final = "high-watermark-checkpoint"
LOG_START: Final = "log-start-offset-checkpoint"
RECOVERY_POINT: Final = "recovery-point-offset-checkpoint"
FIRST_DIRTY: Final = "cleaner-offset-checkpoint"
ERASURES: Final = "erasure-offset-checkpoint"

_DAMAGED: Final = {
    HIGH_WATERMARK: "what is recovered counts as committed",
    LOG_START: "logs start at their first segment, so purged records may be back",
    RECOVERY_POINT: "all logs are checked from their start",
    FIRST_DIRTY: "compacted logs are compacted from their start",
    ERASURES: "files of erasures that are missing or older are not noticed",
}


_WHOLE: Final = 3
"""The first so many have a line for each partition."""


class Offsets(NamedTuple):
    """What the files say about one partition."""

    high_watermark: int
    log_start: int
    recovery_point: int
    first_dirty: int = 0
    erasures_end: int = 0

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
            for name in (HIGH_WATERMARK, LOG_START, RECOVERY_POINT, FIRST_DIRTY, ERASURES)
        )
        self._written: dict[TopicPartition, Offsets] = {}
        self._unread: set[int] = set()
        """Files that were missing or damaged, and have not been written since."""

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._written

    def get(self, tp: TopicPartition) -> Offsets:
        return self._written.get(tp, NOTHING)

    def written(self) -> dict[TopicPartition, Offsets]:
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
        names = {tp for column in columns for tp in column}
        self._written = {tp: Offsets(*(column.get(tp, 0) for column in columns)) for tp in names}
        self._unread = {i for i, column in enumerate(read) if column is None}
        if names:
            self._unread |= {i for i, column in enumerate(columns[:_WHOLE]) if not column}

    def write(self, offsets: Mapping[TopicPartition, Offsets]) -> None:
        """Replace those files whose content changes, or was missing or damaged. Raises OSError."""
        written = self._written
        is_same_set = offsets.keys() == written.keys()
        for i, file in enumerate(self._files[:_WHOLE]):
            if (
                not is_same_set
                or i in self._unread
                or any(offsets[tp][i] != was[i] for tp, was in written.items())
            ):
                file.write({tp: values[i] for tp, values in offsets.items()})
                self._unread.discard(i)
        for i, file in enumerate(self._files[_WHOLE:], _WHOLE):
            lines = _lines(offsets, i)
            if i in self._unread or lines != _lines(written, i):
                file.write(lines)
                self._unread.discard(i)
        self._written = dict(offsets)


def _lines(offsets: Mapping[TopicPartition, Offsets], column: int) -> dict[TopicPartition, int]:
    return {tp: known[column] for tp, known in offsets.items() if known[column]}


def _load(file: OffsetCheckpoint) -> dict[TopicPartition, int] | None:
    """None: it is damaged."""
    try:
        return file.read()
    except CorruptFile as error:
        effect = _DAMAGED[file.path.name]
        logger.error("checkpoint damaged", extra={"problem": str(error), "effect": effect})
        return None
