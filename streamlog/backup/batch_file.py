"""Files of record batches in a backup: written at their ends, read from the start. Blocking."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from streamlog.backup.folder import BackupFolder
from streamlog.backup.manifest import PartitionBackup, Piece, StreamBackup
from streamlog.errors import CorruptBatch, CorruptFile
from streamlog.log.encryption import key_file
from streamlog.log.encryption.cipher import OVERHEAD_BYTES, BatchCipher
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.encryption.opener import SegmentOpener
from streamlog.log.layout import KEY_SUFFIX, LOG_SUFFIX, segment_stem
from streamlog.log.segment.batch_scan import BatchPlace, scan
from streamlog.log.storage.disk import OsDisk, OsFile, storage_errors, write_all
from streamlog.record.batch import (
    ENCRYPTED,
    HEADER_BYTES,
    BatchHeader,
    check_batch,
    read_header,
)
from streamlog.record.compression import Buffer

PIECE_BYTES: Final = 128 * 1024 * 1024
"""A batch that would make a piece larger than this begins a new one."""
READ_BYTES: Final = 1024 * 1024
WRITE_BYTES: Final = 4 * 1024 * 1024


class PieceWriter:
    """Adds batches behind those that a partition's backup has.

    The last piece is checked, then grown in place: the manifest names its old size until the new
    one is committed, and what lies behind that size is cut off.
    """

    def __init__(self, folder: Path, known: PartitionBackup, keys: KeyRing | None = None) -> None:
        """With ``keys`` what is added is encrypted, by a data key for each piece."""
        self.next_offset = known.next_offset
        self.last_epoch = known.last_epoch
        self.written_bytes = self.new_offsets = 0
        self._folder = folder
        self._disk = OsDisk()
        self._keys = keys
        self._cipher: BatchCipher | None = None
        self._pieces = list(known.pieces)
        self.is_empty = not known.pieces
        self._file: OsFile | None = None
        self._base_offset = 0
        self._size = 0
        self._hash = hashlib.sha256()
        self._waiting = bytearray()

    def add(self, header: BatchHeader, batch: Buffer) -> None:
        """The next batch, checked, as it was appended. Raises CorruptBatch if it is not the next,
        EncryptionKeyMissing, Unavailable.
        """
        if not self.is_empty and header.base_offset != self.next_offset:
            raise CorruptBatch(f"a batch of offset {header.base_offset}, not {self.next_offset}")
        with storage_errors(str(self._folder)):
            if self._file is None and not self._grow():
                self._begin(header.base_offset)
            if self._size and self._size + len(batch) + self._overhead_bytes > PIECE_BYTES:
                self._end()
                self._begin(header.base_offset)
            if self._cipher is not None:
                batch = self._cipher.encrypted(batch)
            self._waiting += batch
            self._size += len(batch)
            if len(self._waiting) >= WRITE_BYTES:
                self._write()
        self.is_empty = False
        self.new_offsets += header.next_offset - max(header.base_offset, self.next_offset)
        self.next_offset, self.last_epoch = header.next_offset, header.leader_epoch
        self.written_bytes += len(batch)

    def finish(self) -> tuple[Piece, ...]:
        """All pieces, synced with their folder's entries. Raises Unavailable."""
        with storage_errors(str(self._folder)):
            if self._file is not None:
                self._end()
                self._disk.sync_directory(str(self._folder))
        return tuple(self._pieces)

    def close(self) -> None:
        """May be called again; what was not finished is cut off by the next backup."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    @property
    def _overhead_bytes(self) -> int:
        return 0 if self._cipher is None else OVERHEAD_BYTES

    def _grow(self) -> bool:
        """Go on behind the last piece, if it has room and is under the key that is used now."""
        last = self._pieces[-1] if self._pieces else None
        if last is None or last.size_bytes >= PIECE_BYTES:
            return False
        if last.encrypted != (self._keys is not None):
            return False
        if self._keys is not None:
            opener = opener_of(self._folder / last.name, self._keys)
            if opener.wrapped().key_name != self._keys.active:
                return False
            self._cipher = opener.cipher
        path, digest = self._folder / last.name, hashlib.sha256()
        for data in checked_content(path, last):
            digest.update(data)
        self._file = self._disk.open(str(path))
        self._file.truncate(last.size_bytes)
        self._pieces.pop()
        self._hash, self._size, self._base_offset = digest, last.size_bytes, last.base_offset
        return True

    def _begin(self, base_offset: int) -> None:
        self._disk.make_directory(str(self._folder))
        if self._keys is not None:
            data_key, wrapped = self._keys.new_data_key(base_offset)
            key_path = self._folder / (segment_stem(base_offset) + KEY_SUFFIX)
            self._disk.write_small(str(key_path), key_file.encode(wrapped))
            self._cipher = BatchCipher(data_key, base_offset)
        self._file = self._disk.create(str(self._folder / _name(base_offset)))
        self._hash, self._size, self._base_offset = hashlib.sha256(), 0, base_offset

    def _write(self) -> None:
        assert self._file is not None
        position = self._size - len(self._waiting)
        self._hash.update(self._waiting)
        write_all(self._file, self._waiting, position)
        self._waiting = bytearray()

    def _end(self) -> None:
        assert self._file is not None
        self._write()
        self._file.sync()
        self.close()
        self._pieces.append(
            Piece(
                name=_name(self._base_offset),
                size_bytes=self._size,
                sha256=self._hash.hexdigest(),
                base_offset=self._base_offset,
                next_offset=self.next_offset,
                encrypted=self._cipher is not None,
            )
        )


def checked_content(path: Path, piece: Piece) -> Iterator[bytes]:
    """All of the file, piece by piece; raises CorruptFile, at the end at the latest."""
    digest, left = hashlib.sha256(), piece.size_bytes
    try:
        with path.open("rb") as file:
            while left and (data := file.read(min(READ_BYTES, left))):
                digest.update(data)
                left -= len(data)
                yield data
    except FileNotFoundError:
        raise CorruptFile(f"{path}: is missing from the backup") from None
    if left:
        raise CorruptFile(f"{path}: {left} bytes are missing at its end")
    if digest.hexdigest() != piece.sha256:
        raise CorruptFile(f"{path}: is damaged: its SHA-256 is not the manifest's")


def opener_of(path: Path, keys: KeyRing) -> SegmentOpener:
    return SegmentOpener(str(path), keys, OsDisk().read_small)


def keys_of(folder: BackupFolder, stream: StreamBackup) -> set[str]:
    """The names of those that what is here of the stream is encrypted by; "?" for a damaged file.

    Raises Unavailable.
    """
    names = set()
    for partition in stream.partitions:
        where = folder.partition(stream, partition.number)
        for piece in partition.pieces:
            if piece.encrypted:
                with storage_errors(str(where)):
                    names.add(opener_of(where / piece.name, KeyRing()).key_name)
    return names


def check_piece(path: Path, piece: Piece, keys: KeyRing | None = None) -> int:
    """File and batches are what they were; with ``keys`` what is encrypted opens as well. The
    highest producer id in it, -1 where there is none.

    Raises CorruptFile, EncryptionKeyMissing, Unavailable.
    """
    last_producer_id = -1
    with storage_errors(str(path)):
        for _ in checked_content(path, piece):
            pass
        file = OsDisk().open(str(path), writable=False)
        try:
            offset = piece.base_offset
            for item in scan(file, 0, piece.size_bytes, offset):
                if not isinstance(item, BatchPlace):
                    raise CorruptFile(f"{path}: position {item.position}: {item.problem}")
                offset = item.next_offset
                header = read_header(file.pread(HEADER_BYTES, item.position))
                last_producer_id = max(last_producer_id, header.producer_id)
        finally:
            file.close()
        if piece.encrypted:
            opener_of(path, keys or KeyRing()).wrapped()
    if offset != piece.next_offset:
        raise CorruptFile(f"{path}: ends at offset {offset}, not {piece.next_offset}")
    if piece.encrypted and keys is not None:
        for _ in batches_of(path, piece, keys):
            pass
    return last_producer_id


def kept_batches(
    folder: BackupFolder, stream: StreamBackup, partition: PartitionBackup, keys: KeyRing
) -> Iterator[tuple[BatchHeader, Buffer]]:
    """All of a partition that was still in the cluster. Raises as ``batches_of`` does."""
    where = folder.partition(stream, partition.number)
    for piece in partition.pieces:
        if piece.next_offset > partition.log_start_offset:
            yield from batches_of(where / piece.name, piece, keys)


def batches_of(path: Path, piece: Piece, keys: KeyRing) -> Iterator[tuple[BatchHeader, Buffer]]:
    """Each batch, its checksum right, as it was appended.

    Raises CorruptFile, EncryptionKeyMissing, Unavailable.
    """
    opener = opener_of(path, keys)
    with storage_errors(str(path)):
        file = OsDisk().open(str(path), writable=False)
    try:
        for place in scan(file, 0, piece.size_bytes, piece.base_offset, check_crc=False):
            if not isinstance(place, BatchPlace):
                raise CorruptFile(f"{path}: position {place.position}: {place.problem}")
            data = file.pread(place.end_position - place.position, place.position)
            try:
                header, batch = opened_batch(data, opener)
            except CorruptBatch as error:
                raise CorruptFile(f"{path}: position {place.position}: {error}") from None
            yield header, batch
    finally:
        file.close()


def opened_batch(data: bytes, opener: SegmentOpener) -> tuple[BatchHeader, Buffer]:
    """Checked, and as it was appended. Raises CorruptData, EncryptionKeyMissing, OSError."""
    header = check_batch(data)
    batch = opener.opened(data)
    return (read_header(batch), batch) if header.attributes & ENCRYPTED else (header, data)


def _name(base_offset: int) -> str:
    return segment_stem(base_offset) + LOG_SUFFIX
