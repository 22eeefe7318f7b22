"""A node's data folder made by hand: what a reader of files finds on the disk."""

import struct
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from streamlog.log.checkpoint import OffsetCheckpoint
from streamlog.log.encryption import key_file
from streamlog.log.encryption.cipher import BatchCipher
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.encryption.segment_key import NEVER
from streamlog.log.layout import METADATA_NAME, decode_mark, encode_mark
from streamlog.log.storage.disk import OsDisk
from streamlog.model import LogId, TopicPartition
from tests.record_batches import HandRecord, hand_batch

LOG_APPEND_TIME = 0x08


class DataFolder:
    """Segments are given as lists of batches, batches as lists of values or records."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.high_watermarks: dict[tuple[str, int], int] = {}
        self.log_starts: dict[tuple[str, int], int] = {}
        self.keys: KeyRing | None = None
        """By these segments are encrypted, if there are any."""
        self.encrypts_each = 1
        """Of so many batches of a segment the last one; the others stay in the clear."""

    def partition(self, stream: str = "orders", partition: int = 0) -> Path:
        return self.path / "streams" / stream / str(partition)

    def segment(
        self,
        batches: Sequence[Sequence[HandRecord | bytes]],
        base_offset: int = 0,
        *,
        stream: str = "orders",
        partition: int = 0,
        index: bool = True,
        timestamp_ms: int | None = None,
        torn: bytes = b"",
    ) -> Path:
        """Writes a segment, and counts its records as committed. ``torn`` follows the last batch.

        With ``timestamp_ms`` the first batch was appended then, each other a second after the last.
        """
        folder = self.partition(stream, partition)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{base_offset:020d}.log"
        data, entries, times = bytearray(), bytearray(), bytearray()
        cipher = self._cipher(path) if self.keys is not None else None
        offset = base_offset
        for number, batch in enumerate(batches):
            records = [r if isinstance(r, HandRecord) else HandRecord(r) for r in batch]
            last = len(records) - 1
            entries += struct.pack(">II", offset + last - base_offset, len(data))
            appended = 2_000 if timestamp_ms is None else timestamp_ms + 1_000 * number
            times += struct.pack(">qI", appended, offset + last - base_offset)
            whole = hand_batch(
                records,
                offset,
                attributes=0 if timestamp_ms is None else LOG_APPEND_TIME,
                max_timestamp_ms=appended,
            )
            is_due = (number + 1) % self.encrypts_each == 0
            data += cipher.encrypted(whole) if cipher is not None and is_due else whole
            offset += len(records)
        path.write_bytes(bytes(data) + torn)
        if index:
            path.with_suffix(".index").write_bytes(entries)
            path.with_suffix(".timeindex").write_bytes(times)
        self.commit(offset, stream=stream, partition=partition)
        return path

    @property
    def _since(self) -> int:
        return 0 if self.encrypts_each == 1 else NEVER

    def _cipher(self, path: Path) -> BatchCipher:
        assert self.keys is not None
        data_key, wrapped = self.keys.new_data_key(self._since)
        path.with_suffix(".key").write_bytes(key_file.encode(wrapped))
        return BatchCipher(data_key, self._since)

    def commit(self, offset: int, *, stream: str = "orders", partition: int = 0) -> None:
        self.high_watermarks[stream, partition] = offset
        self._write("high-watermark-checkpoint", self.high_watermarks)

    def start_at(self, offset: int, *, stream: str = "orders", partition: int = 0) -> None:
        self.log_starts[stream, partition] = offset
        self._write("log-start-offset-checkpoint", self.log_starts)

    def _write(self, name: str, offsets: dict[tuple[str, int], int]) -> None:
        logs = {self._log_id(TopicPartition(*tp)): offset for tp, offset in offsets.items()}
        OffsetCheckpoint(self.path / name, OsDisk()).write(logs)

    def mark(self, stream_id: UUID, *, stream: str = "orders", partition: int = 0) -> None:
        """The folder is a log of that stream, and so is what the checkpoints say of it."""
        path = self.partition(stream, partition) / METADATA_NAME
        path.write_bytes(encode_mark(stream_id, 0))
        self._write("high-watermark-checkpoint", self.high_watermarks)
        if self.log_starts:
            self._write("log-start-offset-checkpoint", self.log_starts)

    def _log_id(self, tp: TopicPartition) -> LogId:
        path = self.partition(*tp) / METADATA_NAME
        if not path.exists():
            return LogId(tp)
        return LogId(tp, decode_mark(path.read_bytes()).stream_id, 0)
