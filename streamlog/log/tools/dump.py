"""Shows the batches of segment files as they lie there."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from streamlog.errors import CorruptData, InvalidRequest
from streamlog.log.control_batches import note_control, note_records
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.encryption.opener import SegmentOpener
from streamlog.log.erasure.erasures import Erasures
from streamlog.log.layout import LOG_SUFFIX, segment_base_offsets, segment_stem
from streamlog.log.segment.batch_scan import BatchPlace, Damage, scan_past_damage
from streamlog.log.storage.disk import OsDisk
from streamlog.log.transactions.transactions import AbortedBatches, Transactions
from streamlog.record.batch import ENCRYPTED, OFFSET_MAX, BatchHeader, read_header
from streamlog.record.compression import Buffer


class DumpedBatch(NamedTuple):
    """A whole batch with a right checksum."""

    file: Path
    position: int
    header: BatchHeader
    """As it lies there."""
    data: Buffer
    """The same; of a dump with keys, as it was appended."""
    encrypted_by: str | None
    """The name of the key; "?" where the file that tells it is missing or damaged; None: it is in
    the clear.
    """


class DumpedDamage(NamedTuple):
    """Bytes that are no batch, or one that does not decrypt."""

    file: Path
    damage: Damage


def dump(path: Path, keys: KeyRing | None = None) -> Iterator[DumpedBatch | DumpedDamage]:
    """The batches of a segment file, or of all segments of one partition's folder, in order.

    With ``keys`` what is encrypted is opened. Raises InvalidRequest if ``path`` is neither,
    EncryptionKeyMissing, OSError.
    """
    for file in _segments(path):
        yield from _segment(file, keys)


class Undecided:
    """Which batches of a partition's folder no reader of committed records is shown: those of transactions that were
    aborted, or have no marker there.
    """

    def __init__(self, folder: Path, keys: KeyRing) -> None:
        """Reads all of it. Raises as ``dump``."""
        transactions = Transactions()
        for item in dump(folder, keys):
            if not isinstance(item, DumpedBatch):
                continue
            if item.header.is_control:
                note_control(Erasures(), transactions, item.data, item.header)
            elif item.header.is_transactional:
                note_records(transactions, item.header)
        self._open = {it: known.first_offset for it, known in transactions.open.items()}
        transactions.commit(OFFSET_MAX)
        self._aborted = AbortedBatches(transactions.aborted)

    def has(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return False
        first = self._open.get(header.producer_id, OFFSET_MAX)
        return header.base_offset >= first or self._aborted.has_batch(header)


def _segments(path: Path) -> list[Path]:
    folder, names = (path.parent, [path.name]) if path.is_file() else (path, _names(path))
    bases = segment_base_offsets(names)
    if not bases:
        raise InvalidRequest(f"{path}: no segment file, nor a partition's folder")
    return [folder / f"{segment_stem(base)}{LOG_SUFFIX}" for base in bases]


def _names(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


def _segment(path: Path, keys: KeyRing | None) -> Iterator[DumpedBatch | DumpedDamage]:
    disk = OsDisk()
    opener = SegmentOpener(str(path), keys or KeyRing(), disk.read_small)
    file = disk.open(str(path), writable=False)
    try:
        base_offset = segment_base_offsets([path.name])[0]
        for item in scan_past_damage(file, 0, file.size(), base_offset):
            if isinstance(item, BatchPlace):
                data = file.pread(item.end_position - item.position, item.position)
                yield _batch(path, item, data, opener, opens=keys is not None)
            else:
                yield DumpedDamage(path, item)
    finally:
        file.close()


def _batch(
    path: Path, place: BatchPlace, data: bytes, opener: SegmentOpener, *, opens: bool
) -> DumpedBatch | DumpedDamage:
    header = read_header(data)
    is_encrypted = bool(header.attributes & ENCRYPTED)
    try:
        opened = opener.opened(data) if opens else data
    except CorruptData as error:
        ends = place.end_position, place.base_offset, place.next_offset
        return DumpedDamage(path, Damage(place.position, *ends, str(error)))
    key_name = opener.key_name if is_encrypted else None
    return DumpedBatch(path, place.position, header, opened, key_name)
