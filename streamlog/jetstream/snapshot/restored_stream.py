"""What a client has sent of a snapshot, on the disk; and the batches that it becomes. Blocking.

The whole is received before a stream is made of it: it is checked on its way, message by message, and what nats-server
has removed is known only at its end. Then it is read again. A message has the offset of its sequence; what is missing
becomes a gap with an erasure, as in a mirror.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from streamlog.errors import CorruptData, StorageFull
from streamlog.jetstream.mirroring.origin_batches import gap_at_end, mirrored_batches
from streamlog.jetstream.mirroring.origin_reader import OriginMessage
from streamlog.jetstream.snapshot.nats_snapshot import (
    ArchivedEnd,
    Removed,
    SmallFile,
    SnapshotFiles,
    SnapshotMessage,
)
from streamlog.record.offset_set import OffsetSet

SMALL_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of all files of a snapshot that are no messages."""
READ_BYTES: Final = 256 * 1024
RUN_BYTES: Final = 512 * 1024
RUN_MESSAGES: Final = 2_000
FREE_BYTES_MIN: Final = 512 * 1024 * 1024
"""Is left on the disk: the partitions need it."""


class ReceivedSnapshot:
    """``add`` what comes, ``finish`` at its end, then read ``batches``; ``remove`` in any case."""

    def __init__(self, path: Path, stream: str, begins_at: int = 0) -> None:
        """``begins_at``: messages of lower sequences had been removed."""
        self._begins_at = begins_at
        self._path = path
        self._stream = stream
        self._files = SnapshotFiles(stream)
        self._file = path.open("xb")
        self._small_bytes = 0
        self._removed = OffsetSet()
        self.size_bytes = 0
        self.files: list[SmallFile] = []
        self.first_sequence = self.last_sequence = 0
        """Of messages that are there, and of any; 0: there is none."""
        self._last_ms = 0

    def add(self, data: bytes) -> None:
        """Raises CorruptData, StorageFull."""
        if shutil.disk_usage(self._path.parent).free < FREE_BYTES_MIN + len(data):
            raise StorageFull("the disk has no room for the snapshot")
        self._file.write(data)
        self.size_bytes += len(data)
        for it in self._files.feed(data):
            if isinstance(it, SmallFile):
                self._small_bytes += len(it.data)
                if self._small_bytes > SMALL_BYTES_MAX:
                    raise CorruptData("the snapshot has too many consumers")
                self.files.append(it)
            elif isinstance(it, ArchivedEnd):
                self._note_end(it.last_sequence, it.timestamp_ms)
            elif isinstance(it, Removed):
                if it.sequence:
                    self._removed.add(it.sequence - 1)
                    self._note_end(it.sequence, it.timestamp_ms)
            else:
                self._note_end(it.sequence, it.timestamp_ms)

    def _note_end(self, sequence: int, timestamp_ms: int) -> None:
        if sequence >= 1 << 62:
            raise CorruptData("a sequence of the snapshot is too large")
        self.last_sequence = max(self.last_sequence, sequence)
        self._last_ms = max(self._last_ms, timestamp_ms)

    @property
    def is_archive(self) -> bool:
        """In the form that nats-server has since 2.15."""
        return self._files.is_archive

    def finish(self) -> None:
        """Raises CorruptData."""
        self._files.end()
        self._file.close()

    def batches(self, *, compression: int, is_keyed: bool) -> Iterator[bytes]:
        """What follows an empty log, some batches at a time. Raises CorruptData."""
        run, size, end = list[OriginMessage](), 0, 0
        self.first_sequence = 0

        def sealed() -> bytes:
            return b"".join(
                mirrored_batches(
                    run, end, leader_epoch=0, compression=compression, is_keyed=is_keyed
                )
            )

        for it in self._messages():
            if not self.first_sequence:
                self.first_sequence = it.sequence
                if it.sequence > 1:
                    end = it.sequence - 1
                    yield gap_at_end(0, end, leader_epoch=0, timestamp_ms=it.timestamp_ms)
            found = OriginMessage(
                it.subject, it.sequence, it.timestamp_ms, it.header_block, it.data, it.subject
            )
            run.append(found)
            size += found.size_bytes
            if size >= RUN_BYTES or len(run) >= RUN_MESSAGES:
                yield sealed()
                end, size = found.sequence, 0
                run.clear()
        if run:
            yield sealed()
            end = run[-1].sequence
        if end < self.last_sequence:
            yield gap_at_end(end, self.last_sequence, leader_epoch=0, timestamp_ms=self._last_ms)

    def _messages(self) -> Iterator[SnapshotMessage]:
        """Those that are there, by rising sequence."""
        files, last = SnapshotFiles(self._stream), 0
        with self._path.open("rb") as file:
            while data := file.read(READ_BYTES):
                for it in files.feed(data):
                    if isinstance(it, SnapshotMessage) and it.sequence > last:
                        last = it.sequence
                        is_gone = it.sequence < self._begins_at
                        if not is_gone and it.sequence - 1 not in self._removed:
                            yield it

    def remove(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


class RestoredConsumer(NamedTuple):
    """Files of one consumer, by their names."""

    name: str
    files: dict[str, bytes]


def consumers_of(files: list[SmallFile]) -> list[RestoredConsumer]:
    found = dict[str, RestoredConsumer]()
    for it in files:
        if it.consumer:
            known = found.setdefault(it.consumer, RestoredConsumer(it.consumer, {}))
            known.files[it.name] = it.data
    return list(found.values())
