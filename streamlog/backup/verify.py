"""Is a backup still what it was? Blocking."""

import hashlib
from dataclasses import dataclass, field

from streamlog.backup.batch_file import check_piece, opener_of
from streamlog.backup.folder import BackupFolder
from streamlog.backup.group_offsets import Ends, too_far
from streamlog.backup.manifest import PartitionBackup, StreamBackup
from streamlog.backup.metadata_image import image_in
from streamlog.backup.restored_groups import groups_of
from streamlog.errors import EncryptionKeyMissing, StreamlogError
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.storage.disk import storage_errors
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM


@dataclass
class CheckedBackup:
    """What was read, and what is wrong with it."""

    files: int = 0
    size_bytes: int = 0
    unopened: int = 0
    """Encrypted files whose keys were not given: what is in them was not decrypted."""
    problems: list[str] = field(default_factory=list)
    too_far: list[str] = field(default_factory=list)
    """Offsets that groups have committed above the end of the records: the backup is whole, and a
    restore lowers them.
    """


def verify_backup(folder: BackupFolder, keys: KeyRing | None = None) -> CheckedBackup:
    """Every file that the manifest names; what is encrypted by one of ``keys`` is decrypted."""
    checked = CheckedBackup()
    _metadata(folder, checked)
    for stream in folder.manifest.streams:
        for partition in stream.partitions:
            _partition(folder, stream, partition, checked, keys or KeyRing())
    if not checked.problems:
        _groups(folder, checked, keys or KeyRing())
    return checked


def _groups(folder: BackupFolder, checked: CheckedBackup, keys: KeyRing) -> None:
    """Those of a cluster that would be made of this backup: what else is here is of no stream in
    it any more.
    """
    image = image_in(folder)
    names = {} if image is None else image.streams
    found = [folder.manifest.by_id(it.stream_id) for it in names.values()]
    streams = {it.name: it for it in found if it is not None}
    offsets = streams.get(OFFSETS_STREAM)
    if offsets is None:
        return
    for partition in offsets.partitions:
        try:
            groups = groups_of(folder, offsets, partition, keys)
        except EncryptionKeyMissing:  # it was counted
            return
        checked.too_far += map(str, too_far(groups, Ends(streams.values())))


def _metadata(folder: BackupFolder, checked: CheckedBackup) -> None:
    metadata = folder.manifest.metadata
    if metadata is None:
        return
    path = folder.metadata / metadata.name
    checked.files += 1
    checked.size_bytes += metadata.size_bytes
    try:
        with storage_errors(str(path)):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except StreamlogError as error:
        checked.problems.append(str(error))
        return
    if digest != metadata.sha256:
        checked.problems.append(f"{path}: is damaged: its SHA-256 is not the manifest's")


def _partition(
    folder: BackupFolder,
    stream: StreamBackup,
    partition: PartitionBackup,
    checked: CheckedBackup,
    keys: KeyRing,
) -> None:
    next_offset = partition.start_offset
    for piece in partition.pieces:
        path = folder.partition(stream, partition.number) / piece.name
        checked.files += 1
        checked.size_bytes += piece.size_bytes
        if piece.base_offset != next_offset:
            checked.problems.append(f"{path}: begins at {piece.base_offset}, not {next_offset}")
        next_offset = piece.next_offset
        try:
            opens = piece.encrypted and opener_of(path, keys).wrapped().key_name in keys.names
            check_piece(path, piece, keys if opens else None)
            checked.unopened += piece.encrypted and not opens
        except StreamlogError as error:
            checked.problems.append(str(error))
